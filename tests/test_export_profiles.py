"""Every export profile writes what exiftool and exiv2 show alike, and undo leaves the bytes as they were."""

from __future__ import annotations

import json
import shutil
import subprocess

import numpy as np
import pytest
from PIL import Image

from drawn_videos import draw_video, needs_ffmpeg
from refusals import refused
from shared_exiftool import lent_exiftool, run_exiftool, set_fields  # noqa: F401  # a fixture
from visterm.core.types import Skipped
from visterm.data.sidecars import Sidecars, embedded_keywords, read_iptc
from visterm.library.export.items import ExportItem, Parents, Predicted
from visterm.library.export.writing import PROFILES, export_tags, make_target, undo_tags

FIELDS = {
    "XMP-dc:Subject": "Xmp.dc.subject",
    "XMP-lr:HierarchicalSubject": "Xmp.lr.hierarchicalSubject",
    "XMP-digiKam:TagsList": "Xmp.digiKam.TagsList",
    "IPTC:Keywords": "Iptc.Application2.Keywords",
}
GIVEN = ("Zoë & Söhne", "salt, pepper", "AC/DC", "海 <1>")
PREDICTED = (Predicted("poodle", 0.9), Predicted("sea", 0.7))
PARENTS = Parents([("poodle", "dog"), ("dog", "animal")], ["dog", "animal"])
LEAVES, FLAT = [*GIVEN, "poodle", "sea"], [*GIVEN, "animal", "dog", "poodle", "sea"]
PATHS = [*GIVEN, "animal|dog|poodle", "sea"]
TAGS_LIST = ["Zoë & Söhne", "salt, pepper", "AC|DC", "海 <1>", "animal/dog/poodle", "sea"]
LIGHTROOM_FIELDS = (
    b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
    b'<rdf:Description rdf:about="" xmlns:dc="http://purl.org/dc/elements/1.1/" '
    b'xmlns:lr="http://ns.adobe.com/lightroom/1.0/"><dc:subject><rdf:Bag><rdf:li>Italy</rdf:li><rdf:li>Rome</rdf:li>'
    b"</rdf:Bag></dc:subject><lr:hierarchicalSubject><rdf:Bag><rdf:li>Italy|Rome</rdf:li></rdf:Bag>"
    b"</lr:hierarchicalSubject></rdf:Description></rdf:RDF></x:xmpmeta>"
)


@pytest.fixture(scope="module", autouse=True)
def programs():
    for program, package in (("exiftool", "libimage-exiftool-perl"), ("exiv2", "exiv2")):
        if shutil.which(program) is None:
            pytest.skip(f"wants {program} (Debian: {package})")


def photo(path, **how):
    Image.fromarray(np.random.default_rng(len(path.name)).integers(0, 255, (32, 40, 3), np.uint8)).save(path, **how)
    return path


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def shown(path):
    """The keywords of a file by exiftool's names of the fields, after a comparison with what exiv2 shows."""
    found = json.loads(run_exiftool("-j", *(f"-{name}" for name in FIELDS), "-G1", path))[0]
    lists = {}
    for name, key in FIELDS.items():
        if name.startswith("IPTC") and path.suffix == ".xmp":  # exiv2 makes it up from dc:subject
            continue
        value = found.get(name, [])
        lists[name] = [str(one) for one in (value if isinstance(value, list) else [value])]
        command = ["exiv2", "-q", "-K", key, "-Pv", path]
        told = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        told = told.splitlines() if name.startswith("IPTC") else told.rstrip("\n").split("\n")[0]
        assert told == (lists[name] if name.startswith("IPTC") else ", ".join(lists[name]))
    return lists


def export(program, *items, **how):
    return list(export_tags(items, make_target(program), run="run1", parents=PARENTS, **how))


def undo(program, *images, **how):
    return list(undo_tags(map(ExportItem, images), make_target(program), **how))


WRITTEN = {
    "lightroom": "1.jpg",
    "digikam": "1.jpg.xmp",
    "darktable": "1.jpg.xmp",
    "immich": "1.jpg.xmp",
    "photoprism": "1.jpg",
}


@pytest.mark.parametrize("program", PROFILES)
def test_both_programs_show_all_fields_alike_and_undo_is_exact_to_the_byte(program, tmp_path):
    image = photo(tmp_path / "1.jpg")
    before = contents(tmp_path)
    item = ExportItem(image, GIVEN, PREDICTED)
    planned = export(program, item, dry_run=True)
    assert contents(tmp_path) == before
    assert export(program, item) == planned
    assert [one.target for one in planned] == [str(tmp_path / WRITTEN[program])]
    fields = shown(tmp_path / WRITTEN[program])
    written_flat = FLAT if PROFILES[program].flat else LEAVES
    assert fields["XMP-dc:Subject"] == written_flat
    assert fields["XMP-lr:HierarchicalSubject"] == PATHS
    assert fields["XMP-digiKam:TagsList"] == TAGS_LIST
    assert fields.get("IPTC:Keywords", []) == (FLAT if program == "photoprism" else [])
    assert set(Sidecars().keywords(image).people_tags) == set(GIVEN)
    written = contents(tmp_path)
    assert export(program, item) == []
    assert contents(tmp_path) == written
    assert len(undo(program, image, dry_run=True)) == 1
    assert contents(tmp_path) == written
    assert [sorted(one.removed) for one in undo(program, image)] == [sorted(written_flat)]
    assert contents(tmp_path) == before


@pytest.mark.parametrize("program", PROFILES)
def test_what_lightroom_wrote_is_in_every_field_and_stays_when_ours_goes(program, tmp_path):
    image = photo(tmp_path / "1.jpg", **({} if WRITTEN[program].endswith("xmp") else {"xmp": LIGHTROOM_FIELDS}))
    target = tmp_path / WRITTEN[program]
    if target != image:
        target.write_bytes(LIGHTROOM_FIELDS)
    before = contents(tmp_path)
    (change,) = export(program, ExportItem(image, ("Italy", "Rome"), (Predicted("sea", 0.9),)))
    in_iptc = {"Italy"} if program == "photoprism" else set()
    assert ([mark.tag for mark in change.added], set(change.copied)) == (["sea"], {"Rome"} | in_iptc)
    fields = shown(target)
    assert fields["XMP-dc:Subject"] == ["Italy", "Rome", "sea"]
    assert fields["XMP-lr:HierarchicalSubject"] == ["Italy|Rome", "sea"]
    assert fields["XMP-digiKam:TagsList"] == ["Italy/Rome", "sea"]
    assert set(Sidecars().keywords(image).people_tags) == {"Italy", "Rome"}
    undo(program, image)
    assert contents(tmp_path) == before


def test_an_export_without_new_tags_still_puts_a_persons_into_all_fields(tmp_path):
    image = photo(tmp_path / "1.jpg")
    (tmp_path / "1.jpg.xmp").write_bytes(LIGHTROOM_FIELDS)
    (change,) = export("immich", ExportItem(image, ("Rome",)))
    assert (change.added, change.copied) == ((), ("Rome",))
    assert shown(tmp_path / "1.jpg.xmp")["XMP-digiKam:TagsList"] == ["Italy/Rome"]
    assert [one.copied for one in undo("immich", image)] == [("Rome",)]
    assert (tmp_path / "1.jpg.xmp").read_bytes() == LIGHTROOM_FIELDS


@pytest.mark.parametrize("field", ["XMP-dc:Subject", "XMP-digiKam:TagsList"])
def test_a_tag_that_a_program_took_out_of_the_one_field_that_it_knows_is_gone_and_not_written_again(field, tmp_path):
    image, target = photo(tmp_path / "1.jpg"), tmp_path / "1.jpg.xmp"
    target.write_bytes(LIGHTROOM_FIELDS)
    item = ExportItem(image, ("Rome",), (Predicted("sea", 0.9),))
    export("immich", item)
    for tag in ("sea", "Rome", "Italy|Rome", "Italy/Rome"):
        set_fields(target, f"-{field}-={tag}")
    of_others = "TagsList" not in field  # visterm copied Rome to that field only, and Lightroom wrote it into two
    assert Sidecars().keywords(image).tags == ["Italy", "Rome"] if of_others else ["Italy"]
    after = shown(target)
    assert [one.left_out for one in export("immich", item)] == [("sea",) if of_others else ("Rome", "sea")]
    assert shown(target) == after
    undo("immich", image)
    assert shown(target)["XMP-dc:Subject"] == (["Italy"] if "dc:" in field else ["Italy", "Rome"])


def test_a_program_that_leaves_flat_tags_out_of_paths_takes_none_away(tmp_path):
    image, target = photo(tmp_path / "1.jpg"), tmp_path / "1.jpg.xmp"
    item = ExportItem(image, ("Ann",), (Predicted("sea", 0.9),))
    export("immich", item)
    set_fields(target, "-XMP-lr:HierarchicalSubject=")
    assert Sidecars().keywords(image).tags == ["Ann", "sea"]
    assert export("immich", item) == []
    assert [set(one.removed) for one in undo("immich", image)] == [{"Ann", "sea"}]


def test_a_file_of_an_earlier_visterm_gets_the_fields_that_it_lacks(tmp_path):
    image, target = photo(tmp_path / "1.jpg"), tmp_path / "1.jpg.xmp"
    old = LIGHTROOM_FIELDS.replace(
        b"</rdf:Description>",
        b'<visterm:written xmlns:visterm="urn:visterm:xmp:1.0/"><rdf:Bag><rdf:li rdf:parseType="Resource">'
        b"<visterm:tag>sea</visterm:tag><visterm:source>predicted</visterm:source></rdf:li></rdf:Bag></visterm:written>"
        b"</rdf:Description>",
    ).replace(b"<rdf:li>Rome</rdf:li>", b"<rdf:li>Rome</rdf:li><rdf:li>sea</rdf:li>")
    target.write_bytes(old)
    export("immich", ExportItem(image, ("Rome",), (Predicted("sea", 0.9),)))
    assert shown(target)["XMP-digiKam:TagsList"] == ["Italy/Rome", "sea"]
    undo("immich", image)
    assert target.read_bytes() == LIGHTROOM_FIELDS


def test_lightroom_gets_an_xmp_file_for_raw_photos_and_photoprism_none(tmp_path):
    raw = tmp_path / "1.CR2"
    raw.write_bytes(b"a camera's own")
    before = contents(tmp_path)
    (change,) = export("lightroom", ExportItem(raw, (), PREDICTED))
    assert change.target == str(tmp_path / "1.xmp")
    assert shown(tmp_path / "1.xmp")["XMP-dc:Subject"] == ["animal", "dog", "poodle", "sea"]
    undo("lightroom", raw)
    assert contents(tmp_path) == before
    (skipped,) = export("photoprism", ExportItem(raw, (), PREDICTED))
    assert isinstance(skipped, Skipped)
    assert "is a RAW file, which visterm never changes" in skipped.reason
    (tmp_path / "1.nef").write_bytes(b"another camera's")
    (skipped,) = export("lightroom", ExportItem(raw, (), PREDICTED))
    assert isinstance(skipped, Skipped)
    assert "several RAW files" in skipped.reason


@needs_ffmpeg
@pytest.mark.parametrize("program", PROFILES)
@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
def test_tags_of_videos_go_where_those_of_photos_go_or_the_video_is_named_as_skipped(program, suffix, tmp_path):
    video = draw_video(tmp_path / f"film.{suffix}", "red", seconds=1)
    before = contents(tmp_path)
    (found,) = export(program, ExportItem(video, GIVEN, PREDICTED))
    if PROFILES[program].to == "xmp":
        assert found.target == f"{video}.xmp"
        assert video.read_bytes() == before[video.name]
    elif suffix == "mp4":
        assert found.target == str(video)
        assert shown(video)["XMP-dc:Subject"] == (FLAT if PROFILES[program].flat else LEAVES)
    else:
        assert isinstance(found, Skipped)
        assert (found.image, "not written" in found.reason, "MKV" in found.reason) == (str(video), True, True)
    undo(program, video)
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    ("program", "there", "expected"),
    [
        ("darktable", ["1.xmp"], "1.jpg.xmp"),
        ("digikam", ["1.xmp"], "1.xmp"),
        ("immich", ["1.xmp"], "1.xmp"),
        ("digikam", ["1.jpg.xmp", "1.xmp"], "1.xmp"),
        ("immich", ["1.jpg.xmp", "1.xmp"], "1.jpg.xmp"),
    ],
)
def test_of_two_names_that_one_is_written_which_the_program_reads(program, there, expected, tmp_path):
    image = photo(tmp_path / "1.jpg")
    for name in there:
        (tmp_path / name).write_bytes(LIGHTROOM_FIELDS)
    before = contents(tmp_path)
    (change,) = export(program, ExportItem(image, ("Rome",), (Predicted("sea", 0.9),)))
    assert change.target == str(tmp_path / expected)
    assert shown(tmp_path / expected)["XMP-dc:Subject"] == ["Italy", "Rome", "sea"]
    undo(program, image)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("suffix", ["jpg", "tif"])
@pytest.mark.parametrize("charset", [(), ("-IPTC:CodedCharacterSet=UTF8",)], ids=["ascii", "utf8"])
def test_embedding_joins_iptc_and_xmp_both_ways_and_undo_restores_both(suffix, charset, tmp_path):
    image = photo(tmp_path / f"1.{suffix}")
    set_fields(image, "-XMP:Subject=Italy", "-XMP:Subject=Rome", "-XMP:HierarchicalSubject=Italy|Rome")
    set_fields(image, *charset, "-IPTC:Keywords=beach", "-IPTC:City=Rome")
    before = contents(tmp_path)
    item = ExportItem(image, ("beach",), (Predicted("Zoë, sea", 0.9), Predicted("x" * 65, 0.8)))
    list(export_tags([item], make_target("embed"), run="run1"))
    fields = shown(image)
    assert set(fields["XMP-dc:Subject"]) == {"Italy", "Rome", "beach", "Zoë, sea", "x" * 65}
    assert set(fields["IPTC:Keywords"]) == {"Italy", "Rome", "beach", "Zoë, sea"}
    assert len(fields["IPTC:Keywords"]) == 4
    list(undo_tags([ExportItem(image)], make_target("embed")))
    assert contents(tmp_path) == before


def test_without_a_backup_undo_leaves_the_keywords_of_people_in_iptc_and_xmp(tmp_path):
    image = photo(tmp_path / "1.jpg", xmp=LIGHTROOM_FIELDS)
    set_fields(image, "-IPTC:Keywords=beach", "-IPTC:City=Rome")
    before = shown(image)
    target = {"keep_originals": False}
    list(export_tags([ExportItem(image, (), (Predicted("sea", 0.9),))], make_target("embed", **target), run="run1"))
    assert "sea" in shown(image)["IPTC:Keywords"]
    list(undo_tags([ExportItem(image)], make_target("embed", **target)))
    assert shown(image) == before
    bare = photo(tmp_path / "2.jpg")
    same = bare.read_bytes()
    list(export_tags([ExportItem(bare, (), PREDICTED)], make_target("photoprism", **target), run="run1"))
    assert read_iptc(bare).keywords == ["poodle", "sea"]
    list(undo_tags([ExportItem(bare)], make_target("embed", **target)))
    assert bare.read_bytes() == same


def test_iptc_in_another_encoding_stays_as_it_is_and_xmp_has_its_words(tmp_path):
    image = set_fields(photo(tmp_path / "1.jpg"), "-IPTC:Keywords=Söhne")  # Latin 1, where nothing is said
    before = run_exiftool("-b", "-IPTC:Keywords", image)
    list(export_tags([ExportItem(image, (), (Predicted("sea", 0.9),))], make_target("embed"), run="run1"))
    after = run_exiftool("-b", "-IPTC:Keywords", image)
    assert after == before
    assert set(embedded_keywords(image).tags) == {"Söhne", "sea"}


@pytest.mark.parametrize(
    ("program", "options", "setting"), [("picasa", {}, "to"), ("digikam", {"keep_originals": False}, "overwrite")]
)
def test_options_that_contradict_a_profile_are_refused(program, options, setting):
    with refused(setting):
        make_target(program, **options)
