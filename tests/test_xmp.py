"""Keywords are read from any program's XMP, and written into it with nothing else changed."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from visterm.core.errors import DataError
from visterm.core.vocabulary import clean_tag, tag_key
from visterm.data.xmp.keywords import GIVEN, PREDICTED, Mark, read_keywords, texts_of
from visterm.data.xmp.tree import MAX_DEPTH, Document
from visterm.data.xmp.writing import PACKET, SIDECAR, add_tags, remove_tags

RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
EVERYWHERE = "dc lr digiKam"
SEA = Mark("sea", PREDICTED, 0.93, "run1")
DOG = Mark("dog", PREDICTED, 0.6, "run1", ("animal", "dog"))

# As darktable and Lightroom write: comments, attributes, structures, other namespaces, odd white space.
PERSONS = """<?xml version="1.0" encoding="UTF-8"?>
<!-- kept -->
<x:xmpmeta xmlns:x="adobe:ns:meta/" x:xmptk="XMP Core 4.4.0">
 <rdf:RDF   xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
  <rdf:Description rdf:about='uuid:1'
    xmlns:exif="http://ns.adobe.com/exif/1.0/" xmlns:darktable="http://darktable.sf.net/"
   darktable:raw_params='0' exif:Note="a &gt; b"  >
   <darktable:history><rdf:Seq><rdf:li darktable:num="0" darktable:params="gz03" /></rdf:Seq></darktable:history>
   <dc:subject xmlns:dc="http://purl.org/dc/elements/1.1/">
\t<r:Bag xmlns:r="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
\t  <r:li>beach &amp; café</r:li>
\t</r:Bag>
   </dc:subject>
  </rdf:Description>
 </rdf:RDF>
</x:xmpmeta>
""".encode()


def described(inside, more=""):
    """A packet with the properties given."""
    return (
        f'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="{RDF}"><rdf:Description rdf:about="" '
        'xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:lr="http://ns.adobe.com/lightroom/1.0/" '
        'xmlns:digiKam="http://www.digikam.org/ns/1.0/" xmlns:MicrosoftPhoto="http://ns.microsoft.com/photo/1.0" '
        f'xmlns:mediapro="http://ns.iview-multimedia.com/mediapro/1.0/" {more}>{inside}</rdf:Description></rdf:RDF>'
        "</x:xmpmeta>"
    ).encode()


def listed(name, *entries, kind="Bag"):
    inside = "".join(f"<rdf:li>{entry}</rdf:li>" for entry in entries)
    return f"<{name}><rdf:{kind}>{inside}</rdf:{kind}></{name}>"


def noted(*marks):
    """Tags as they are noted once they are written into all fields."""
    return [mark._replace(fields=EVERYWHERE) for mark in marks]


def tags(content):
    return read_keywords(content, "x.xmp").tags


def test_keywords_are_those_of_all_fields_each_once_and_of_paths_the_last_part():
    content = described(
        listed("dc:subject", "sea", "AC/DC")
        + listed("lr:hierarchicalSubject", "water|Sea", "animal|dog", "darktable|exported")
        + listed("digiKam:TagsList", "People/Ann", "_Digikam_Internal_Tags_/Pick", kind="Seq")
        + listed("MicrosoftPhoto:LastKeywordXMP", "AC/DC", "places/Rome")
        + listed("mediapro:CatalogSets", "events|party")
        + listed("acdsee:keywords", "old town", "sea"),
        'xmlns:acdsee="http://ns.acdsee.com/iptc/1.0/"',
    )
    assert tags(content) == ["sea", "AC/DC", "dog", "Ann", "Rome", "party", "old town"]


def test_paths_say_where_tags_lie_by_the_first_field_that_has_one():
    content = described(
        listed("dc:subject", "Husky", "animal", "AC/DC", "sea", "music")  # with what lies above, as Lightroom writes
        + listed("lr:hierarchicalSubject", "animal|dog|husky", "pets|cat", "music|AC/DC", "a|b", "sea", "darktable|x")
        + listed("digiKam:TagsList", "home/cat", "animal/dog/husky", "music/AC|DC", "AC/DC", "sea", kind="Seq")
        + listed("mediapro:CatalogSets", "b|a", "farm|cat")
    )
    found = read_keywords(content, "x")
    assert sorted(found.paths) == [
        ("a", "b"), ("animal", "dog", "Husky"), ("b", "a"), ("home", "cat"), ("music", "AC/DC")
    ]  # fmt: skip
    assert found.tags == ["Husky", "animal", "AC/DC", "sea", "music", "cat", "b", "a"]
    both = read_keywords(described(listed("lr:hierarchicalSubject", "birds|crane", "machines|crane")), "x")
    assert (both.tags, both.paths) == (["crane"], (("birds", "crane"), ("machines", "crane")))


def test_paths_of_predictions_are_no_persons_and_any_name_survives_in_one():
    odd = Mark("a|b", GIVEN, path=("c/d", "e\\", "|", "a|b"))
    made = add_tags(SIDECAR, [odd, DOG], "x")
    found = read_keywords(made, "x")
    assert (found.marks, found.paths) == (noted(odd, DOG), (odd.path,))
    assert found.marks[0].path_text == "c/d|e\\\\|\\||a\\|b"


def test_a_tag_above_another_is_in_no_field_of_paths_by_itself():
    husky = Mark("husky", GIVEN, path=("animal", "dog", "husky"))
    made = add_tags(SIDECAR, [husky, Mark("dog", GIVEN, path=("animal", "dog"), fields="dc")], "x")
    texts = {name.split()[-1]: some for name, some in texts_of(Document(made, "x")).items() if some}
    assert texts == {
        "subject": ["husky", "dog"], "hierarchicalSubject": ["animal|dog|husky"], "TagsList": ["animal/dog/husky"]
    }  # fmt: skip
    assert tags(made) == ["husky", "dog"]
    later = add_tags(made, [Mark("dog", GIVEN, path=("animal", "dog"))], "x")  # when it is not above one any more
    assert b"<rdf:li>animal/dog</rdf:li>" in later
    assert tags(later) == ["husky", "dog"]
    assert remove_tags(later, ["husky", "dog"], "x") is None


def test_every_place_of_a_persons_tag_is_copied_and_taken_out_again():
    before = described(listed("lr:hierarchicalSubject", "birds|crane", "machines|crane"))
    made = add_tags(before, [SEA], "x")
    texts = {name.split()[-1]: some for name, some in texts_of(Document(made, "x")).items() if some}
    assert texts["TagsList"] == ["birds/crane", "machines/crane", "sea"]
    assert texts["subject"] == ["crane", "sea"]
    assert add_tags(made, [SEA], "x") == made
    assert remove_tags(made, ["sea"], "x") == before


@pytest.mark.parametrize(
    "entry",
    [
        '<rdf:li rdf:parseType="Resource"><rdf:value>sea</rdf:value><lr:note>x</lr:note></rdf:li>',
        "<rdf:li><rdf:Description><rdf:value>sea</rdf:value></rdf:Description></rdf:li>",
        '<rdf:li rdf:value="sea" lr:note="x"/>',
        "<rdf:li><![CDATA[sea]]></rdf:li>",
        "<rdf:li>\n  sea\n</rdf:li>",
    ],
)
def test_an_entry_is_read_in_every_way_that_rdf_writes_it(entry):
    assert tags(described(f"<dc:subject><rdf:Bag>{entry}</rdf:Bag></dc:subject>")) == ["sea"]


def test_a_keyword_that_is_no_list_is_read_but_not_added_to():
    content = described("", more='dc:subject="sea"')
    assert tags(content) == ["sea"]
    with pytest.raises(DataError, match=r"dc:subject|subject is a text; expected a list"):
        add_tags(content, [DOG], "x.xmp")


def test_a_new_file_says_of_each_tag_whose_it_is():
    made = add_tags(SIDECAR, [SEA, DOG, Mark("Ann", GIVEN)], "x.xmp")
    found = read_keywords(made, "x.xmp")
    assert found.tags == ["sea", "dog", "Ann"]
    assert found.marks == noted(SEA, DOG, Mark("Ann", GIVEN))
    assert found.people_tags == ["Ann"]
    assert b"<rdf:li>animal|dog</rdf:li>" in made


def test_what_a_person_wrote_stays_byte_for_byte_around_what_is_added():
    made = add_tags(PERSONS, [SEA, DOG], "x.xmp")
    assert tags(made) == ["beach & café", "sea", "dog"]
    lines = PERSONS.splitlines(keepends=True)
    rest = iter(made.splitlines(keepends=True))
    assert all(line in rest for line in lines)  # each line is there as it was, in the same order
    assert remove_tags(made, ["sea", "dog"], "x.xmp") == PERSONS


def test_a_tag_that_a_person_gave_stays_theirs():
    made = add_tags(PERSONS, [Mark("Beach  & Café", PREDICTED, 0.9, "run1")], "x.xmp")
    found = read_keywords(made, "x.xmp")
    assert (found.people_tags, found.marks) == (["beach & café"], [])
    assert [(mark.tag, mark.fields) for mark in found.copies] == [("beach & café", "lr digiKam")]
    assert add_tags(made, [Mark("Beach  & Café", PREDICTED, 0.9, "run1")], "x.xmp") == made
    assert remove_tags(made, [], "x.xmp") == PERSONS
    assert add_tags(PERSONS, [], "x.xmp") == PERSONS


def test_taking_back_undoes_one_export_after_another():
    first = add_tags(SIDECAR, [SEA], "x.xmp")
    second = add_tags(first, [SEA, DOG], "x.xmp")
    assert remove_tags(second, ["dog"], "x.xmp") == first
    assert remove_tags(first, ["sea"], "x.xmp") is None
    assert remove_tags(add_tags(PACKET, [DOG], "x"), ["dog"], "x") is None


def test_a_tag_is_taken_back_from_the_fields_to_which_another_program_copied_it():
    before = described(listed("MicrosoftPhoto:LastKeywordXMP", "places/Rome", "sea"))
    made = add_tags(before, [DOG], "x.xmp")
    copied = made.replace(b"<rdf:li>sea</rdf:li>", b"<rdf:li>sea</rdf:li><rdf:li>animal/dog</rdf:li>", 1)
    assert remove_tags(copied, ["dog"], "x.xmp") == before


def test_a_prediction_that_a_person_gives_later_is_noted_as_given():
    made = add_tags(add_tags(SIDECAR, [SEA], "x"), [Mark("sea", GIVEN)], "x")
    assert read_keywords(made, "x").people_tags == ["sea"]
    assert made.count(b"<rdf:li>sea</rdf:li>") == 3  # once in each field


def test_a_comment_beside_a_tag_of_ours_is_kept_when_it_is_taken_back():
    made = add_tags(SIDECAR, [SEA], "x").replace(b"<rdf:Bag>", b"<rdf:Bag><!-- mine -->", 1)
    left = remove_tags(made, ["sea"], "x")
    assert left is not None
    assert b"<!-- mine -->" in left
    assert tags(left) == []


@pytest.mark.parametrize(
    "empty",
    [
        described("<dc:subject/>"),
        described("<dc:subject></dc:subject>"),
        described("<dc:subject><rdf:Bag/></dc:subject>"),
        described("<dc:subject><rdf:Bag> </rdf:Bag></dc:subject>"),
        f'<rdf:RDF xmlns:rdf="{RDF}"/>'.encode(),
        f'<RDF xmlns="{RDF}"><Description xmlns:r="{RDF}" r:about=""/></RDF>'.encode(),
        b'<x:xmpmeta xmlns:x="adobe:ns:meta/"/>',
    ],
)
def test_tags_are_added_where_there_is_nothing_yet_however_it_is_written(empty):
    made = add_tags(empty, [SEA, DOG], "x.xmp")
    assert (tags(made), read_keywords(made, "x").marks) == (["sea", "dog"], noted(SEA, DOG))
    left = remove_tags(made, ["sea", "dog"], "x.xmp")
    assert left is not None
    assert tags(left) == []


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_text_stays_in_its_encoding(encoding):
    content = PERSONS.decode().replace(' encoding="UTF-8"', "").encode(encoding)
    made = add_tags(content, [Mark("Öl", GIVEN)], "x.xmp")
    assert "Öl" in made.decode(encoding)
    assert remove_tags(made, ["Öl"], "x.xmp") == content


def test_a_new_file_has_each_tag_in_all_three_fields_flat_ones_too():
    made = add_tags(SIDECAR, [SEA, DOG, Mark("AC/DC", GIVEN), Mark("either|or", GIVEN)], "x.xmp")
    texts = {name.split()[-1]: some for name, some in texts_of(Document(made, "x")).items() if some}
    assert texts == {
        "subject": ["sea", "dog", "AC/DC", "either|or"],
        "hierarchicalSubject": ["sea", "animal|dog", "AC/DC", "either/or"],
        "TagsList": ["sea", "animal/dog", "AC|DC", "either|or"],
    }
    assert tags(made) == ["sea", "dog", "AC/DC", "either|or"]
    assert b"<digiKam:TagsList>\n    <rdf:Seq>" in made


def test_a_tag_with_a_slash_in_it_is_removed_from_all_fields_and_no_others():
    made = add_tags(described(listed("lr:hierarchicalSubject", "DC", "bands|DC")), [Mark("AC/DC", GIVEN)], "x.xmp")
    assert tags(made) == ["AC/DC", "DC"]
    assert remove_tags(made, ["AC/DC"], "x.xmp") == described(listed("lr:hierarchicalSubject", "DC", "bands|DC"))


def test_a_tag_that_is_called_like_another_programs_notes_can_be_written():
    made = add_tags(SIDECAR, [Mark("darktable", GIVEN)], "x.xmp")
    assert tags(made) == ["darktable"]
    assert remove_tags(made, ["darktable"], "x.xmp") is None


@given(st.lists(st.text(min_size=1), min_size=1, max_size=4))
def test_any_text_comes_back_as_it_was_or_is_refused(texts):
    marks = list({tag_key(text): Mark(clean_tag(text), PREDICTED, 0.5) for text in texts if clean_tag(text)}.values())
    odd = [c for mark in marks for c in mark.tag if c < " " or c in "\ufffe\uffff" or "\ud800" <= c <= "\udfff"]
    if odd:
        with pytest.raises(DataError, match="which XMP cannot hold"):
            add_tags(PERSONS, marks, "x.xmp")
        return
    made = add_tags(PERSONS, marks, "x.xmp")
    there = {tag_key(mark.tag) for mark in marks} - {tag_key("beach & café")}
    assert set(map(tag_key, tags(made))) == there | {tag_key("beach & café")}
    assert remove_tags(made, [mark.tag for mark in marks if tag_key(mark.tag) in there], "x.xmp") == PERSONS


@pytest.mark.parametrize("tag", ["<script>alert(1)</script>", "a & b", "]]>", "\"'", "&lt;", "<!--", "😀 \u0301"])
def test_markup_in_a_tag_is_text(tag):
    assert tags(add_tags(SIDECAR, [Mark(clean_tag(tag), GIVEN)], "x")) == [clean_tag(tag)]


@pytest.mark.parametrize("tag", ["\x00", "a\x1b[31mb", "\x7f\x08"])
def test_a_tag_with_a_control_character_is_refused(tag):
    with pytest.raises(DataError, match=r"U\+00.., which XMP cannot hold"):
        add_tags(SIDECAR, [Mark(tag, GIVEN)], "x")


LAUGHS = '<!DOCTYPE l [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;">]><l>&b;</l>'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (LAUGHS, "document type"),
        ('<!DOCTYPE l SYSTEM "file:///etc/passwd"><l/>', "document type"),
        ("<a>&nbsp;</a>", "undefined entity"),
        ("<a><b></a>", r"not well-formed XML \(mismatched tag, line 1"),
        ("", "no element found"),
        ("<a/>trailing", "junk after document element"),
        ("<a>" * (MAX_DEPTH + 1) + "</a>" * (MAX_DEPTH + 1), "inside each other"),
        ('<?xml version="1.0" encoding="rot13"?><a/>', "cannot be decoded"),
        (b"\xff\x00<a/>", "cannot be decoded"),
    ],
)
def test_what_is_no_xmp_is_refused_with_its_name_and_why(content, message):
    with pytest.raises(DataError, match=message) as refused:
        read_keywords(content.encode() if isinstance(content, str) else content, "photo.xmp")
    assert str(refused.value).startswith("photo.xmp")


def test_xml_of_something_else_is_not_added_to():
    with pytest.raises(DataError, match="is not XMP"):
        add_tags(b"<svg/>", [SEA], "photo.xmp")


def test_places_of_elements_are_those_of_their_bytes():
    text = '<a q=\'>"\'><b /><é x="1>2"  >t</é ></a>'
    document = Document(text.encode(), "x")
    pieces = [document.text[e.start : e.end].decode() for e in document.root.walk()]
    assert pieces == [text, "<b />", '<é x="1>2"  >t</é >']
    assert [e.content_start == e.end for e in document.root.walk()] == [False, True, False]


@pytest.fixture(scope="module")
def exiftool():
    try:
        subprocess.run(["exiftool", "-ver"], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("wants exiftool (Debian: libimage-exiftool-perl)")


def test_exiftool_reads_what_is_written_as_keywords_paths_and_notes(exiftool, tmp_path):
    path = tmp_path / "photo.jpg.xmp"
    path.write_bytes(add_tags(PERSONS, [SEA, DOG, Mark("<script>", GIVEN)], "x"))
    done = subprocess.run(
        ["exiftool", "-s3", "-sep", "; ", "-validate", "-XMP-dc:Subject", "-XMP-lr:HierarchicalSubject", path],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == [
        "OK",
        "beach & café; sea; dog; <script>",
        "beach & café; sea; animal|dog; <script>",
    ]


def test_what_exiftool_writes_anew_keeps_our_notes(exiftool, tmp_path):
    path = tmp_path / "photo.xmp"
    path.write_bytes(add_tags(SIDECAR, [SEA, DOG], "x"))
    subprocess.run(
        ["exiftool", "-q", "-overwrite_original", "-XMP-dc:Subject+=Ann", path], check=True, capture_output=True
    )
    found = read_keywords(path.read_bytes(), "x")
    assert (found.tags, found.people_tags, found.marks) == (["sea", "dog", "Ann"], ["Ann"], noted(SEA, DOG))
    left = remove_tags(path.read_bytes(), ["sea", "dog"], "x")
    assert left is not None
    assert tags(left) == ["Ann"]
