"""Keywords of other programs that people rejected are counted, taken off if that is asked for, and put back."""

from __future__ import annotations

import shutil

import pytest

from shared_exiftool import lent_exiftool, run_exiftool, set_fields  # noqa: F401  # a fixture
from test_export import SEA, export, files, keywords, packet, photo, undo
from visterm.data.sidecars import Sidecars
from visterm.data.xmp.keywords import read_keywords
from visterm.data.xmp.writing import add_tags, put_back, take_off
from visterm.library.export.items import ExportItem, Parents, branch_path

MANY = (
    b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">\r\n'
    b' <rdf:Description rdf:about="" xmlns:dc="http://purl.org/dc/elements/1.1/" '
    b'xmlns:lr="http://ns.adobe.com/lightroom/1.0/" xmlns:mp="http://ns.microsoft.com/photo/1.0/">\r\n'
    b"  <dc:subject><rdf:Bag>\r\n   <rdf:li>bird</rdf:li>\r\n   <rdf:li>crane &amp; co</rdf:li>\r\n"
    b"   <rdf:li>sky</rdf:li>\r\n  </rdf:Bag></dc:subject>\r\n"
    b"  <lr:hierarchicalSubject><rdf:Bag><rdf:li>animal|crane &amp; co</rdf:li></rdf:Bag></lr:hierarchicalSubject>\r\n"
    b"  <mp:LastKeywordXMP><rdf:Bag><rdf:li>animal/crane &amp; co</rdf:li><rdf:li>sky</rdf:li></rdf:Bag>"
    b"</mp:LastKeywordXMP>\r\n </rdf:Description>\r\n</rdf:RDF></x:xmpmeta>"
)
"""Keywords in three fields, in one of which a keyword is alone."""


def tags(content):
    return read_keywords(content, "it").tags


def test_a_rejected_keyword_of_another_program_is_counted_and_stays(tmp_path):
    image = photo(tmp_path / "1.jpg")
    (tmp_path / "1.xmp").write_bytes(packet("beach", "sky"))
    before = files(tmp_path)
    (change,) = export(ExportItem(image, (), (), ("Beach", "sea")))
    assert change.staying == ("beach",)
    assert not change.is_write
    assert files(tmp_path) == before


def test_it_is_taken_off_and_put_back_to_the_byte(tmp_path):
    image = photo(tmp_path / "1.jpg")
    sidecar = tmp_path / "1.xmp"
    sidecar.write_bytes(MANY)
    item = ExportItem(image, (), (SEA,), ("crane & co",))
    (planned,) = export(item, take_off=True, dry_run=True)
    assert sidecar.read_bytes() == MANY
    (change,) = export(item, take_off=True)
    assert change == planned
    assert (change.taken_off, change.staying) == (("crane & co",), ())
    assert keywords(sidecar).tags == ["bird", "sky", "sea"]
    assert keywords(sidecar).paths == ()
    assert export(item, take_off=True) == []
    (undone,) = undo(image)
    assert (undone.removed, undone.put_back) == (("sea",), ("crane & co",))
    assert sidecar.read_bytes() == MANY


def test_keywords_that_were_taken_off_one_after_the_other_come_back_in_their_order():
    content = MANY
    for tag in ("sky", "bird", "crane & co"):
        content = add_tags(take_off(content, [tag], "it"), (), "it")
    assert tags(content) == []
    restored, notes = put_back(content, "it")
    assert restored == MANY
    assert len(notes) == 6


def test_a_keyword_whose_list_is_gone_comes_back_into_a_new_one():
    content = take_off(packet("beach"), ["beach"], "it")
    content = content.replace(b"<dc:subject><rdf:Bag></rdf:Bag></dc:subject>", b"")
    assert tags(content) == []
    assert tags(put_back(content, "it")[0]) == ["beach"]


def test_a_copy_of_visterm_goes_with_the_keyword_and_does_not_come_back(tmp_path):
    image = photo(tmp_path / "1.jpg")
    sidecar = tmp_path / "1.xmp"
    sidecar.write_bytes(packet("beach", "sky"))
    export(ExportItem(image, ("beach", "sky"), (SEA,)))  # all fields have all tags now
    export(ExportItem(image, ("sky",), (SEA,), ("beach",)), take_off=True)
    assert keywords(sidecar).tags == ["sky", "sea"]
    assert b">beach<" not in sidecar.read_bytes().replace(b"visterm:tag>beach<", b"")
    undo(image)
    assert sidecar.read_bytes() == packet("beach", "sky")


def test_a_keyword_inside_a_photo_stays_when_files_beside_it_are_written(tmp_path):
    image = photo(tmp_path / "1.jpg", xmp=packet("beach"))
    (change,) = export(ExportItem(image, (), (SEA,), ("beach",)), take_off=True)
    assert (change.taken_off, change.staying) == ((), ("beach",))
    assert keywords(tmp_path / "1.jpg.xmp").tags == ["sea"]


def test_a_keyword_in_a_text_file_is_counted(tmp_path):
    image = photo(tmp_path / "1.jpg")
    (tmp_path / "1.txt").write_text("beach\nsky\n", encoding="utf-8")
    (change,) = export(ExportItem(image, (), (), ("beach",)), to="txt")
    assert change.staying == ("beach",)


@pytest.mark.skipif(shutil.which("exiftool") is None, reason="wants exiftool (Debian: libimage-exiftool-perl)")
def test_a_keyword_is_taken_off_from_xmp_and_iptc_of_a_photo_and_the_photo_is_given_back(tmp_path):
    image = photo(tmp_path / "1.jpg", xmp=packet("beach", "sky"))
    set_fields(image, "-IPTC:Keywords+=beach", "-IPTC:Keywords+=wall")
    before = files(tmp_path)
    (change,) = export(ExportItem(image, (), (SEA,), ("beach",)), to="embed", take_off=True)
    assert (change.taken_off, change.staying) == (("beach",), ())
    assert Sidecars().keywords(image).tags == ["sky", "wall", "sea"]
    assert b"beach" not in run_exiftool("-IPTC:Keywords", "-XMP-dc:Subject", image)
    undo(image, to="embed")
    assert files(tmp_path) == before


def test_damaged_notes_are_left_out(tmp_path):
    content = take_off(packet("beach"), ["beach"], "it").replace(b"position>0<", b"position>x<")
    restored, notes = put_back(content, "it")
    assert notes == []
    assert restored == content


def test_predictions_lie_under_a_branch_and_people_s_tags_do_not(tmp_path):
    image = photo(tmp_path / "1.jpg")
    parents = Parents([("sea", "water"), ("Ann", "family")], ["sea", "water", "Ann", "family"], branch=("visterm", "a"))
    export(ExportItem(image, ("Ann",), (SEA,)), parents=parents)
    content = (tmp_path / "1.jpg.xmp").read_bytes()
    assert b"<rdf:li>visterm|a|sea</rdf:li>" in content
    assert b"<rdf:li>visterm/a/sea</rdf:li>" in content
    assert b"<rdf:li>family|Ann</rdf:li>" in content
    assert read_keywords(content, "it").people_tags == ["Ann"]
    undo(image)
    assert not (tmp_path / "1.jpg.xmp").exists()


def test_a_branch_is_a_path_of_tags():
    assert branch_path("visterm/ new ") == ("visterm", "new")
    assert branch_path(None) == branch_path(" ") == ()
