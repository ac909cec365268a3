"""Keywords are read from every field and format that can be read, and one that is odd takes no other with it."""

from __future__ import annotations

import json
import shutil
import struct
from io import BytesIO

import pytest
from PIL import Image

from shared_exiftool import lent_exiftool, run_exiftool, set_fields  # noqa: F401  # a fixture
from visterm.core.types import Skipped
from visterm.data.program_tags import NAMES, people_tags, program_path
from visterm.data.sidecars import MAX_IPTC_BYTES, Sidecars, embedded_keywords, place_of, read_iptc
from visterm.data.tag_files import find_tags, read_keyword_tags
from visterm.data.tag_formats.tables import read_table
from visterm.data.xmp.keywords import GIVEN, Mark, read_keywords
from visterm.data.xmp.writing import add_tags, remove_tags
from visterm.library.export.items import ExportItem, Predicted
from visterm.library.export.writing import export_tags, make_target, undo_tags
from visterm.library.records import read_records

needs_exiftool = pytest.mark.skipif(shutil.which("exiftool") is None, reason="wants exiftool")
UTF8 = (1, 90, b"\x1b%G")


def jpeg(colour=0):
    made = BytesIO()
    Image.new("RGB", (8, 8), (colour, 90, 120)).save(made, "JPEG")
    return made.getvalue()


def inside(content, segment):
    return content[:2] + segment + content[2:]


def iptc(*datasets):
    records = b"".join(bytes([0x1C, r, d]) + struct.pack(">H", len(text)) + text for r, d, text in datasets)
    body = b"Photoshop 3.0\0" + b"8BIM\x04\x04\0\0" + struct.pack(">I", len(records)) + records
    body += b"\0" * (len(records) % 2)
    return b"\xff\xed" + struct.pack(">H", len(body) + 2) + body


def xmp(subject=(), paths=(), tags_list=()):
    def listed(name, entries):
        items = "".join(f"<rdf:li>{entry}</rdf:li>" for entry in entries)
        return f"<{name}><rdf:Bag>{items}</rdf:Bag></{name}>" if entries else ""

    return (
        '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
        '<rdf:Description rdf:about="" xmlns:dc="http://purl.org/dc/elements/1.1/" '
        'xmlns:lr="http://ns.adobe.com/lightroom/1.0/" xmlns:digiKam="http://www.digikam.org/ns/1.0/">'
        f"{listed('dc:subject', subject)}{listed('lr:hierarchicalSubject', paths)}"
        f"{listed('digiKam:TagsList', tags_list)}</rdf:Description></rdf:RDF></x:xmpmeta>"
    ).encode()


def packet(content):
    body = b"http://ns.adobe.com/xap/1.0/\0" + content
    return b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body


def with_iptc(path, *datasets, content=None):
    path.write_bytes(inside(jpeg() if content is None else content, iptc(*datasets)))
    return path


def keywords(*words):
    return [(2, 25, word) for word in words]


# Empty fields, odd encodings, and texts that were cut


@pytest.mark.parametrize("dataset", [120, 5, 90, 25, 55])
@pytest.mark.parametrize("charset", [(), (UTF8,)], ids=["unsaid", "utf8"])
def test_empty_iptc_fields_hide_nothing_and_stop_no_export(dataset, charset, tmp_path):
    photo = with_iptc(tmp_path / "1.jpg", *charset, (2, 0, b"\0\2"), (2, dataset, b""), *keywords(b"sea", b""))
    assert embedded_keywords(photo).tags == ["sea"]
    assert (read_iptc(photo).keywords, read_iptc(photo).is_writable) == (["sea"], True)


@needs_exiftool
@pytest.mark.parametrize("how", ["embed", "lightroom", "photoprism"])
@pytest.mark.parametrize("dataset", [120, 5, 90, 25])
def test_an_empty_iptc_field_is_no_reason_to_skip_a_photo(dataset, how, tmp_path):
    photo = with_iptc(tmp_path / "1.jpg", (2, dataset, b""), *keywords(b"sea"))
    before = photo.read_bytes()
    item = ExportItem(photo, (), (Predicted("harbour", 0.9),))
    (planned,) = export_tags([item], make_target(how), run="run1", dry_run=True)
    (change,) = export_tags([item], make_target(how), run="run1")
    assert planned == change
    assert "harbour" in [mark.tag for mark in change.added]
    assert set(read_iptc(photo).keywords) == {"sea", "harbour"}
    assert len(list(undo_tags([item], make_target(how)))) == 1
    assert photo.read_bytes() == before


@pytest.mark.parametrize("to", ["xmp", "txt", "embed"])
@pytest.mark.parametrize("error", [TypeError("a number"), AttributeError("None"), RecursionError(), KeyError("x")])
@pytest.mark.parametrize("dry_run", [True, False])
def test_whatever_one_photos_metadata_lead_to_it_alone_is_skipped_and_named(to, error, dry_run, tmp_path, monkeypatch):
    if to == "embed" and shutil.which("exiftool") is None:
        pytest.skip("wants exiftool")
    target = make_target(to)
    odd, good = tmp_path / "1.jpg", tmp_path / "2.jpg"
    odd.write_bytes(jpeg(1)), good.write_bytes(jpeg(2))
    export = target.export

    def failing(item, wanted, *, dry_run):
        if item.path == odd:
            raise error
        return export(item, wanted, dry_run=dry_run)

    monkeypatch.setattr(target, "export", failing)
    items = [ExportItem(path, ("sea",)) for path in (odd, good)]
    skipped, change = export_tags(items, target, run="run1", dry_run=dry_run)
    assert isinstance(skipped, Skipped)
    assert (skipped.image, type(error).__name__ in skipped.reason) == (str(odd), True)
    assert [mark.tag for mark in change.added] == ["sea"]


ODD_TEXTS = {
    "cp1252": (b"caf\xe9 \x80 \x93q\x94", "café € “q”"),
    "its holes": (b"a\x81b\x8dc\x8fd\x90e\x9df", "a\x81b\x8dc\x8fd\x90e\x9df"),
    "a letter at the end": (b"caf\xe9", "café"),
    "long, a letter at the end": (b"x" * 59 + b"\xe9", "x" * 59 + "é"),
}


@needs_exiftool
@pytest.mark.parametrize(("content", "text"), ODD_TEXTS.values(), ids=ODD_TEXTS)
def test_iptc_that_is_not_utf8_is_read_as_exiftool_reads_it(content, text, tmp_path):
    photo = with_iptc(tmp_path / "1.jpg", *keywords(content, b"sea"))
    assert json.loads(run_exiftool("-j", "-IPTC:Keywords", photo))[0]["Keywords"] == [text, "sea"]
    assert read_iptc(photo).keywords == [text, "sea"]
    claims = with_iptc(tmp_path / "2.jpg", UTF8, *keywords(content, b"sea"))
    assert read_iptc(claims).keywords == [text, "sea"]
    assert not read_iptc(claims).is_writable  # a second encoding would be added to it


@pytest.mark.parametrize("charset", [(), (UTF8,)], ids=["unsaid", "utf8"])
@pytest.mark.parametrize("letter", ["é", "海", "🙂"])
@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_a_keyword_that_was_cut_has_no_half_letter_and_is_one_tag_with_the_whole_one(charset, letter, n, tmp_path):
    whole = "x" * n + letter * 40
    cut = whole.encode()[:MAX_IPTC_BYTES]
    photo = with_iptc(tmp_path / "1.jpg", *charset, *keywords(cut, b"sea"))
    kept = whole.encode()[:MAX_IPTC_BYTES].decode("utf-8", "ignore")
    assert embedded_keywords(photo).tags == [kept, "sea"]
    both = with_iptc(tmp_path / "2.jpg", *charset, *keywords(cut), content=inside(jpeg(), packet(xmp([whole]))))
    assert embedded_keywords(both).tags == [whole]
    (tmp_path / "1.jpg.xmp").write_bytes(xmp([whole]))
    assert Sidecars().keywords(photo).tags == [whole, "sea"]


def test_only_what_iptc_may_have_cut_is_taken_for_the_beginning_of_another_tag(tmp_path):
    whole = "a pier at the sea " + "x" * 60
    photo = with_iptc(
        tmp_path / "1.jpg", *keywords(b"a pier", ("y" * 62).encode()), content=inside(jpeg(), packet(xmp([whole])))
    )
    assert embedded_keywords(photo).tags == [whole, "a pier", "y" * 62]
    in_xmp = inside(jpeg(), packet(xmp([whole, whole[:64]])))
    assert embedded_keywords(with_iptc(tmp_path / "2.jpg", *keywords(whole[:64].encode()), content=in_xmp)).tags == [
        whole,
        whole[:64],
    ]


def test_an_iptc_field_with_a_long_length_or_a_broken_one_loses_no_keyword_before_it(tmp_path):
    long = b"\x1c\x02\xca\x80\x04" + struct.pack(">I", 40_000) + b"p" * 40_000  # a preview
    records = b"\x1c\x02\x19\0\x03sea" + long + b"\x1c\x02\x19\0\x03sky" + b"\x1c\x02\x19\x7f\xffcut"
    body = b"Photoshop 3.0\0" + b"8BIM\x04\x04\0\0" + struct.pack(">I", len(records)) + records
    (tmp_path / "1.jpg").write_bytes(inside(jpeg(), b"\xff\xed" + struct.pack(">H", len(body) + 2) + body))
    assert embedded_keywords(tmp_path / "1.jpg").tags == ["sea", "sky", "cut"]


# Keywords that cannot be tags

REFUSED = {"long": "y" * 1000, "direction": "left\u200eright", "unseen": "\u200b"}


@pytest.mark.parametrize("bad", REFUSED.values(), ids=REFUSED)
def test_a_keyword_that_cannot_be_a_tag_is_left_out_alone_and_counted(bad, tmp_path):
    (tmp_path / "1.jpg").write_bytes(inside(jpeg(), packet(xmp([bad, "sea"], [f"water|{bad}", "water|sea"]))))
    (tmp_path / "2.jpg").write_bytes(jpeg())
    (tmp_path / "2.jpg.xmp").write_bytes(xmp(["wood", bad]))
    with_iptc(tmp_path / "3.jpg", UTF8, *keywords(b"town", bad.encode()))
    found = find_tags("xmp", tmp_path)
    assert [row.tags for row in found.records] == [["sea"], ["wood"], ["town"]]
    (remark,) = [line for line in found.remarks if "cannot be tags" in line]
    assert remark.startswith(f"Left out: 3 keywords that cannot be tags, such as in {tmp_path / '1.jpg'}: the tag")


@pytest.mark.parametrize("control", ["\x07", "&#7;", "&#x1B;", "\x00"])
def test_a_control_character_in_xmp_takes_one_keyword_with_it_and_the_file_is_not_written(control, tmp_path):
    (tmp_path / "1.jpg").write_bytes(jpeg())
    content = xmp(["sea", f"a{control}b", "sky"])
    (tmp_path / "1.jpg.xmp").write_bytes(content)
    with_iptc(tmp_path / "2.jpg", *keywords(b"town", b"a\x07b"))
    found = find_tags("xmp", tmp_path)
    assert [row.tags for row in found.records] == [["sea", "sky"], ["town"]]
    assert "Left out: 2 keywords that cannot be tags" in found.remarks[1]
    (skipped,) = export_tags([ExportItem(tmp_path / "1.jpg", ("pier",))], make_target("xmp"), run="run1")
    assert "not well-formed XML" in skipped.reason
    assert (tmp_path / "1.jpg.xmp").read_bytes() == content


def test_a_photo_of_which_every_keyword_is_refused_has_no_tags(tmp_path):
    (tmp_path / "1.jpg").write_bytes(inside(jpeg(), packet(xmp(["sea"]))))
    (tmp_path / "2.jpg").write_bytes(inside(jpeg(), packet(xmp(["y" * 201]))))
    assert [row.image for row in find_tags("xmp", tmp_path).records] == ["1.jpg"]


# What programs write for themselves

DARKTABLE = xmp(
    ["sea", "darktable", "format", "jpg", "exported"], ["sea", "darktable|format|jpg", "darktable|exported"]
)


def test_programs_own_tags_are_no_ones_and_neither_are_the_flat_names_that_they_explain(tmp_path):
    assert read_keywords(DARKTABLE, "x").tags == ["sea"]
    labels = xmp(["sea", "Pick Label None"], tags_list=["sea", "_Digikam_Internal_Tags_/Scanned", "People/Unknown"])
    assert read_keywords(labels, "x").tags == ["sea"]
    (tmp_path / "1.jpg").write_bytes(jpeg())
    (tmp_path / "1.jpg.xmp").write_bytes(DARKTABLE)
    with_iptc(tmp_path / "1.jpg", *keywords(b"exported", b"sky"))  # the photo's XMP explains it
    with_iptc(tmp_path / "2.jpg", *keywords(b"darktable|changed", b"changed", b"wood", b"geo:lat=48.1"))
    assert [row.tags for row in find_tags("xmp", tmp_path).records] == [["sea", "sky"], ["wood"]]


def test_a_persons_tag_that_is_called_as_a_programs_stays(tmp_path):
    alone = xmp(["format", "exported", "darktable", "style"], ["format", "exported"])
    assert read_keywords(alone, "x").tags == ["format", "exported", "darktable", "style"]
    both = xmp(["sea", "format", "jpg"], ["sea", "format", "darktable|format|jpg"])
    assert read_keywords(both, "x").tags == ["sea", "format"]
    above = xmp(["format", "square"], ["format|square", "darktable|format|jpg"])
    assert read_keywords(above, "x").tags == ["format", "square"]
    (tmp_path / "1.jpg").write_bytes(inside(jpeg(), packet(xmp(["exported"], ["exported"]))))
    (tmp_path / "1.jpg.xmp").write_bytes(DARKTABLE)
    assert Sidecars().keywords(tmp_path / "1.jpg").tags == ["sea", "exported"]


@pytest.mark.parametrize("tag", ["exported", "format", "sky"])
def test_writing_a_tag_and_taking_it_back_leaves_programs_own_tags_as_they_are(tag):
    made = add_tags(DARKTABLE, [Mark(tag, GIVEN)], "x")
    assert read_keywords(made, "x").tags == (["sea", tag])
    assert add_tags(made, [Mark(tag, GIVEN)], "x") == made
    assert remove_tags(made, [tag], "x") == DARKTABLE


def test_tables_and_texts_leave_programs_own_tags_out_too(tmp_path):
    (tmp_path / "t.csv").write_text(
        "file_name,tags\n1.jpg,sea;darktable|format|jpg;jpg;Color Label Red\n2.jpg,jpg;Darktable workshop\n"
    )
    assert [row.tags for row in read_table(tmp_path / "t.csv")] == [["sea"], ["jpg", "Darktable workshop"]]
    (tmp_path / "1.jpg").write_bytes(jpeg())
    (tmp_path / "1.txt").write_text("sea\n_Digikam_Internal_Tags_/Pick Label None\n")
    assert [row.tags for row in find_tags("auto", tmp_path).records] == [["sea"]]


def test_paths_of_programs_are_known_in_every_spelling_of_paths_and_of_people_none():
    assert program_path("darktable|style|film|warm") == ("darktable", "style", "film", "warm")
    assert program_path("darktable/exported") == ("darktable", "exported")
    assert all(program_path(name) for name in NAMES)
    assert not any(map(program_path, ("darktable", "Darktable|course", "People/Ann", "Unknown", "pier|exported")))
    assert people_tags(["sea", "exported"]) == ["sea", "exported"]


# Formats


@needs_exiftool
@pytest.mark.parametrize("name", ["1.gif", "1.jp2", "1.png", "1.webp", "1.tif", "1.jpg"])
def test_xmp_is_read_in_every_format_that_it_can_be_in(name, tmp_path):
    photo = tmp_path / name
    Image.new("RGB", (8, 8), (20, 90, 120)).save(photo)
    assert embedded_keywords(photo).tags == []
    set_fields(photo, "-XMP:Subject=harbour", "-XMP:Subject=海")
    assert embedded_keywords(photo).tags == ["harbour", "海"]


@needs_exiftool
def test_xmp_of_a_gif_with_pictures_and_extensions_before_it_is_found(tmp_path):
    photo = tmp_path / "1.gif"
    frames = [Image.new("P", (8, 8), colour) for colour in (1, 2, 3)]
    frames[0].save(photo, save_all=True, append_images=frames[1:], comment=b"a comment", duration=50)
    bare = photo.read_bytes()
    set_fields(photo, "-XMP:Subject=harbour")
    written = photo.read_bytes()
    start = written.index(b"\x21\xff\x0bXMP DataXMP")
    block = written[start : start + len(written) - len(bare)]
    photo.write_bytes(bare[:-1] + block + bare[-1:])
    assert embedded_keywords(photo).tags == ["harbour"]
    for length in range(13, len(bare), 7):  # a broken file has none, and ends
        photo.write_bytes(written[:length])
        embedded_keywords(photo)


def test_files_whose_own_keywords_are_not_read_are_counted(tmp_path):
    for name in ("1.jpg", "2.CR3", "3.orf", "4.raf", "5.nef"):
        (tmp_path / name).write_bytes(jpeg())
    (tmp_path / "2.xmp").write_bytes(xmp(["sea"]))
    found = read_keyword_tags(tmp_path, sorted(tmp_path.glob("?.*")))
    assert found.records[0].tags == ["sea"]
    assert found.remarks[-1] == (
        "Keywords inside of 3 files (.cr3, .orf, .raf) are not read; XMP files beside them are."
    )


def test_xmp_of_a_jpeg_2000_with_long_and_other_boxes_before_it_is_found(tmp_path):
    photo = tmp_path / "1.jp2"
    Image.new("RGB", (8, 8), (20, 90, 120)).save(photo)
    bare = photo.read_bytes()
    other = struct.pack(">I4s", 28, b"uuid") + b"another program " + b"1234"
    content = bytes.fromhex("be7acfcb97a942e89c71999491e3afac") + xmp(["harbour"])
    long = struct.pack(">I4sQ", 1, b"uuid", len(content) + 16) + content
    photo.write_bytes(bare + other + long)
    assert embedded_keywords(photo).tags == ["harbour"]
    photo.write_bytes(bare + other + struct.pack(">I4s", 0, b"uuid") + content)
    assert embedded_keywords(photo).tags == ["harbour"]
    photo.write_bytes(bare + struct.pack(">I4s", 7, b"free"))
    assert embedded_keywords(photo).tags == []


@pytest.mark.parametrize(("n_with_keywords", "tags"), [(1, [["harbour"]] * 20), (2, [["sea"]] * 2)])
def test_keywords_in_a_tenth_of_the_photos_are_read_and_not_the_names_of_their_folders(tmp_path, n_with_keywords, tags):
    (tmp_path / "harbour").mkdir()
    for number in range(20):
        path = tmp_path / "harbour" / f"{number:02d}.jpg"
        if number < n_with_keywords:
            with_iptc(path, *keywords(b"sea"))
        else:
            path.write_bytes(jpeg(number))
    assert [row.tags for row in find_tags("auto", tmp_path).records] == tags


def test_places_are_read_from_sidecars_xmp_and_iptc(tmp_path):
    photo = tmp_path / "a.jpg"
    with_iptc(photo, (2, 90, "Köln".encode()), (2, 101, b"Deutschland"), (2, 25, b"dom"))
    assert place_of(str(photo), Sidecars()) == "Köln, Deutschland"
    names = 'photoshop:City="köln" Iptc4xmpCore:Location="Altstadt &amp; Dom"><photoshop:State>NRW</photoshop:State>'
    photo.with_suffix(".xmp").write_text(
        '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
        '<rdf:Description xmlns:photoshop="http://ns.adobe.com/photoshop/1.0/" '
        f'xmlns:Iptc4xmpCore="http://iptc.org/std/Iptc4xmpCore/1.0/xmlns/" {names}'
        "</rdf:Description></rdf:RDF></x:xmpmeta>",
        encoding="utf-8",
    )
    assert place_of(str(photo), Sidecars()) == "Altstadt & Dom, köln, NRW, Deutschland"
    photo.with_suffix(".xmp").write_text("<broken", encoding="utf-8")
    assert place_of(str(photo), Sidecars()) == "Köln, Deutschland"
    padded = with_iptc(tmp_path / "b.jpg", (2, 90, b"Bonn\0\0"), (2, 95, b"long" * 1_000), (2, 101, b"a\nb\x1b[0m"))
    assert place_of(str(padded), Sidecars()).split(", ") == [
        "Bonn",
        "long" * 25,
        "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}[0m",
    ]
    [record] = read_records([str(photo)], ["a.jpg"], [[]])
    assert record.place == "Köln, Deutschland"
