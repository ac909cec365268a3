"""Tags are written to photos without touching them, told apart from those of people, and taken back."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import shlex
import shutil

import numpy as np
import pytest
from PIL import Image

from refusals import refused
from shared_exiftool import lent_exiftool, run_exiftool, set_fields  # noqa: F401  # a fixture
from visterm.cli import main
from visterm.core.errors import MissingExtraError, StorageError
from visterm.core.types import Skipped
from visterm.data.sidecars import Sidecars, replace_file
from visterm.data.tag_files import find_tags
from visterm.data.tag_formats.texts import NOTES
from visterm.data.xmp.keywords import Keywords, read_keywords
from visterm.data.xmp.writing import SIDECAR
from visterm.learning.relations import WordRelations
from visterm.library.catalogue import Catalogue
from visterm.library.export.items import ExportItem, FileChange, Parents, Predicted
from visterm.library.export.tables import table_of
from visterm.library.export.writing import export_tags, make_target, undo_tags
from visterm.tagging.tagger import Tagger

SEA, DOG = Predicted("sea", 0.9), Predicted("dog", 0.6)


def photo(path, **how):
    path.parent.mkdir(parents=True, exist_ok=True)
    seed = sum(path.name.encode())
    Image.fromarray(np.random.default_rng(seed).integers(0, 255, (32, 40, 3), np.uint8)).save(path, **how)
    return path


def packet(*tags):
    """Keywords as another program writes them."""
    entries = "".join(f"<rdf:li>{tag}</rdf:li>" for tag in tags)
    return (
        '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
        '<rdf:Description rdf:about="" xmlns:dc="http://purl.org/dc/elements/1.1/">'
        f"<dc:subject><rdf:Bag>{entries}</rdf:Bag></dc:subject></rdf:Description></rdf:RDF></x:xmpmeta>"
    ).encode()


def export(*items, to="xmp", parents=None, **how):
    return list(export_tags(items, make_target(to), run="run1", parents=parents, **how))


def undo(*images, to="xmp", **how):
    return list(undo_tags(map(ExportItem, images), make_target(to), **how))


def files(folder):
    """Hashes of all files, by name."""
    return {p.relative_to(folder).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.rglob("*.*")}


def keywords(path):
    return read_keywords(path.read_bytes(), str(path))


def test_a_sidecar_is_made_beside_a_photo_and_removed_again(tmp_path):
    image = photo(tmp_path / "1.jpg")
    before = files(tmp_path)
    changes = export(ExportItem(image, ("Ann",), (SEA,)))
    assert [(c.target, [m.tag for m in c.added]) for c in changes] == [(f"{image}.xmp", ["Ann", "sea"])]
    assert keywords(tmp_path / "1.jpg.xmp").people_tags == ["Ann"]
    assert files(tmp_path)["1.jpg"] == before["1.jpg"]
    assert export(ExportItem(image, ("Ann",), (SEA,))) == []
    assert [c.removed for c in undo(image)] == [("Ann", "sea")]
    assert files(tmp_path) == before
    assert undo(image) == []


@pytest.mark.parametrize("to", ["xmp", "txt"])
def test_a_dry_run_says_the_same_and_changes_nothing(to, tmp_path):
    item = ExportItem(photo(tmp_path / "1.jpg"), ("Ann",), (SEA,))
    before = files(tmp_path)
    planned = export(item, to=to, dry_run=True)
    assert files(tmp_path) == before
    assert export(item, to=to) == planned
    written = files(tmp_path)
    assert undo(item.path, to=to, dry_run=True) == [
        FileChange(str(item.path), planned[0].target, removed=("Ann", "sea"))
    ]
    assert files(tmp_path) == written


def test_a_sidecar_of_another_program_is_added_to_and_given_back_to_the_byte(tmp_path):
    image = photo(tmp_path / "1.jpg")
    (tmp_path / "1.xmp").write_bytes(packet("beach"))
    before = files(tmp_path)
    changes = export(ExportItem(image, ("Beach",), (SEA,)))
    assert [(c.target, [m.tag for m in c.added]) for c in changes] == [(str(tmp_path / "1.xmp"), ["sea"])]
    undo(image)
    assert files(tmp_path) == before


def test_the_sidecar_of_two_images_is_read_for_both_and_written_for_neither(tmp_path):
    image, _ = photo(tmp_path / "1.jpg"), photo(tmp_path / "1.png")
    shared = tmp_path / "1.xmp"
    shared.write_bytes(packet("beach"))
    assert Sidecars().of(image) == [shared]
    assert [c.target for c in export(ExportItem(image, (), (SEA,)))] == [f"{image}.xmp"]
    assert Sidecars().keywords(image).tags == ["sea", "beach"]


def test_the_sidecar_of_a_raw_file_is_not_written_for_the_jpeg(tmp_path):
    image = photo(tmp_path / "1.jpg")
    (tmp_path / "1.NEF").write_bytes(b"raw")
    (tmp_path / "1.xmp").write_bytes(SIDECAR)
    assert [c.target for c in export(ExportItem(image, (), (SEA,)))] == [f"{image}.xmp"]


def test_a_photo_that_has_all_its_tags_in_itself_gets_no_sidecar_and_else_all(tmp_path):
    image = photo(tmp_path / "1.jpg", xmp=packet("beach"))
    assert export(ExportItem(image, ("beach",))) == []
    export(ExportItem(image, ("beach",), (SEA,)))
    assert keywords(tmp_path / "1.jpg.xmp").tags == ["beach", "sea"]


@pytest.mark.parametrize("to", ["xmp", "txt"])
def test_a_tag_that_a_person_took_out_is_not_written_again(to, tmp_path):
    image = photo(tmp_path / "1.jpg")
    (change,) = export(ExportItem(image, (), (SEA, DOG)), to=to)
    path = image.parent / os.path.basename(change.target)
    path.write_bytes(path.read_bytes().replace(b"<rdf:li>sea</rdf:li>", b"").replace(b"sea\n", b""))
    (change,) = export(ExportItem(image, (), (SEA, DOG)), to=to)
    assert (change.added, change.left_out) == ((), ("sea",))


@pytest.mark.parametrize("to", ["xmp", "txt"])
def test_a_tag_that_is_rejected_later_is_taken_back(to, tmp_path):
    image = photo(tmp_path / "1.jpg")
    export(ExportItem(image, ("Ann",), (SEA, DOG)), to=to)
    (change,) = export(ExportItem(image, ("Ann",), (SEA, DOG), rejected=("Sea",)), to=to)
    assert (change.added, change.removed) == ((), ("sea",))
    assert [c.removed for c in undo(image, to=to)] == [("Ann", "dog")]
    assert list(files(tmp_path)) == ["1.jpg"]


def test_a_broken_sidecar_is_reported_and_left_as_it_is(tmp_path):
    good, bad = photo(tmp_path / "1.jpg"), photo(tmp_path / "2.jpg")
    (tmp_path / "2.jpg.xmp").write_bytes(b"<x:xmpmeta>")
    first, second = export(ExportItem(bad, (), (SEA,)), ExportItem(good, (), (SEA,)))
    assert isinstance(first, Skipped)
    assert "its XMP file is not well-formed XML" in first.reason
    assert isinstance(second, FileChange)
    assert (tmp_path / "2.jpg.xmp").read_bytes() == b"<x:xmpmeta>"


@pytest.mark.parametrize("name", [os.fsdecode(b"\xff.jpg"), "line\nend.jpg", "-x #%d.jpg"])
def test_names_of_any_characters_get_their_sidecars(name, tmp_path):
    shutil.copy(photo(tmp_path / "1.jpg"), tmp_path / name)
    assert len(export(ExportItem(tmp_path / name, (), (SEA,)))) == 1
    assert keywords(tmp_path / f"{name}.xmp").tags == ["sea"]
    undo(tmp_path / name)
    assert sorted(os.listdir(tmp_path)) == sorted(["1.jpg", name])


def test_a_file_that_changed_meanwhile_is_left_alone(tmp_path):
    path = tmp_path / "1.xmp"
    path.write_bytes(b"theirs")
    with pytest.raises(StorageError, match="changed by another program"):
        replace_file(path, b"what was read", b"ours")
    assert files(tmp_path) == {"1.xmp": hashlib.sha256(b"theirs").hexdigest()}


def test_mode_and_link_of_a_sidecar_stay(tmp_path):
    real, link = tmp_path / "real.xmp", tmp_path / "1.xmp"
    real.write_bytes(b"old")
    real.chmod(0o640)
    link.symlink_to(real)
    replace_file(link, b"old", b"new")
    assert link.is_symlink()
    assert (real.read_bytes(), real.stat().st_mode & 0o777) == (b"new", 0o640)


def test_paths_lead_over_words_that_are_no_tags_and_end_in_circles():
    parents = Parents(
        [("poodle", "dog"), ("dog", "canine"), ("canine", "animal"), ("animal", "dog")], ["Dog", "animal"]
    )
    assert parents.path("Poodle") == ("animal", "Dog", "Poodle")
    assert parents.path("dog") == ("animal", "dog")
    assert parents.path("sea") == ()
    assert Parents([("a|b", "c/d")], ["c/d"]).path("a|b") == ("c/d", "a|b")


def test_texts_are_added_to_line_by_line_and_given_back_to_the_byte(tmp_path):
    image, other = photo(tmp_path / "1.jpg"), photo(tmp_path / "2.jpg")
    (tmp_path / "1.txt").write_bytes(b"sky, Beach")
    before = files(tmp_path)
    export(ExportItem(image, ("sky",), (SEA, DOG)), ExportItem(other, ("Ann",), (SEA,)), to="txt")
    assert (tmp_path / "1.txt").read_text() == "sky, Beach\nsea\ndog\n"
    assert (tmp_path / "2.txt").read_text() == "Ann\nsea\n"
    assert undo(image, other, to="txt")
    assert files(tmp_path) == before
    assert not (tmp_path / NOTES).exists()


def test_what_a_person_added_to_a_text_of_ours_is_kept(tmp_path):
    image = photo(tmp_path / "1.jpg")
    export(ExportItem(image, (), (SEA,)), to="txt")
    (tmp_path / "1.txt").write_text("mine\nsea\nlast\n")
    undo(image, to="txt")
    assert (tmp_path / "1.txt").read_text() == "mine\nlast\n"


def test_tags_that_a_text_cannot_hold_are_left_out(tmp_path):
    (change,) = export(ExportItem(photo(tmp_path / "1.jpg"), ("salt, pepper",), (SEA,)), to="txt")
    assert ([m.tag for m in change.added], change.left_out) == (["sea"], ("salt, pepper",))


@pytest.mark.parametrize("to", ["xmp", "txt"])
def test_predictions_that_were_written_are_not_learned_from(to, tmp_path):
    image, other = photo(tmp_path / "1.jpg"), photo(tmp_path / "2.jpg")
    export(ExportItem(image, ("Ann",), (SEA,)), ExportItem(other, (), (SEA,)), to=to)
    found = find_tags("auto", tmp_path)
    assert [(r.image, r.tags) for r in found.records if r.tags] == [("1.jpg", ["Ann"])]


def test_keywords_in_images_and_sidecars_are_tags(tmp_path):
    photo(tmp_path / "a" / "1.jpg", xmp=packet("sea"))
    photo(tmp_path / "a" / "2.webp", xmp=packet("sky"))
    photo(tmp_path / "b" / "3.png")
    (tmp_path / "b" / "3.xmp").write_bytes(packet("dog"))
    (tmp_path / "a" / "1.jpg.xmp").write_bytes(packet("Sea", "Ann"))
    photo(tmp_path / "b" / "4.jpg")
    (tmp_path / "b" / "4.xmp").write_bytes(b"<broken>")
    found = find_tags("xmp", tmp_path)
    assert [(r.image, r.tags) for r in found.records] == [
        ("a/1.jpg", ["Sea", "Ann"]), ("a/2.webp", ["sky"]), ("b/3.png", ["dog"]),
    ]  # fmt: skip
    assert "1 image whose keywords cannot be read" in found.remarks[1]
    assert find_tags("auto", tmp_path).records == found.records


def test_a_folder_a_tag_is_found_beside_predictions_in_sidecars(tmp_path):
    image = photo(tmp_path / "beach" / "1.jpg")
    export(ExportItem(image, (), (SEA,)))
    assert [(r.image, r.tags) for r in find_tags("auto", tmp_path).records] == [("beach/1.jpg", ["beach"])]


def test_what_one_file_has_of_a_person_is_theirs_whatever_was_predicted_in_another(tmp_path):
    image = photo(tmp_path / "1.jpg", xmp=packet("sea"))
    export(ExportItem(image, ("sea", "Ann"), (DOG,)))
    (tmp_path / "1.xmp").write_bytes(packet("dog"))
    assert Sidecars().keywords(image).people_tags == ["sea", "Ann", "dog"]


def test_undo_looks_into_both_sidecars_of_an_image(tmp_path):
    image = photo(tmp_path / "1.jpg")
    (tmp_path / "1.xmp").write_bytes(packet("beach"))
    export(ExportItem(image, (), (SEA,)))
    (tmp_path / "1.jpg.xmp").write_bytes(packet("sky"))  # by another program, since
    assert [c.removed for c in undo(image)] == [("sea",)]
    assert (tmp_path / "1.xmp").read_bytes() == packet("beach")


def test_undo_empties_a_file_again_that_had_0_bytes(tmp_path):
    image, file = photo(tmp_path / "1.jpg"), tmp_path / "1.xmp"
    file.write_bytes(b"")
    export(ExportItem(image, (), ()))
    assert file.read_bytes() == b""
    export(ExportItem(image, (), (SEA,)))
    assert Sidecars().keywords(image).tags == ["sea"]
    undo(image)
    assert file.read_bytes() == b""


def test_tables_keep_tags_of_people_and_predictions_apart(tmp_path):
    items = [
        ExportItem(tmp_path / "1.jpg", ("sky", "Ann"), (SEA, DOG), rejected=("dog",), name="1.jpg"),
        ExportItem(tmp_path / "2.jpg", ("salt, pepper",), (Predicted("x;y"),), name="2.jpg"),
    ]
    text = table_of(items, "csv", run="run1")
    assert list(csv.reader(io.StringIO(text))) == [
        ["file_name", "tags", "predicted", "confidence"],
        ["1.jpg", "sky;Ann", "sea", "0.9000"],
        ["2.jpg", '["salt, pepper"]', '["x;y"]', ""],
    ]
    assert [json.loads(line) for line in table_of(items, "jsonl", run="run1").splitlines()] == [
        {"file_name": "1.jpg", "tags": ["sky", "Ann"], "predicted": [{"tag": "sea", "confidence": 0.9}], "run": "run1"},
        {"file_name": "2.jpg", "tags": ["salt, pepper"], "predicted": [{"tag": "x;y"}], "run": "run1"},
    ]
    photo(tmp_path / "1.jpg"), photo(tmp_path / "2.jpg")
    (tmp_path / "tags.csv").write_text(text)
    assert [r.tags for r in find_tags(tmp_path / "tags.csv", tmp_path).records] == [["sky", "Ann"], ["salt, pepper"]]


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_a_table_names_files_with_line_ends_so_that_it_is_read_again(end, tmp_path):
    image = photo(tmp_path / f"a{end}b.jpg")
    text = table_of([ExportItem(image, ("sky",), (), name=image.name)], "csv")
    (tmp_path / "tags.csv").write_bytes(text.encode())
    assert [(r.image, r.tags) for r in find_tags(tmp_path / "tags.csv", tmp_path).records] == [(image.name, ["sky"])]


def test_a_format_that_is_no_table_is_refused():
    with refused("to", value="xlsx"):
        table_of([], "xlsx")


@pytest.fixture(scope="module")
def exiftool():
    if shutil.which("exiftool") is None:
        pytest.skip("wants exiftool (Debian: libimage-exiftool-perl)")
    return lambda path, *fields: json.loads(run_exiftool("-j", *fields, path))[0]


def pixels(path):
    with Image.open(path) as image:
        return hashlib.sha256(np.asarray(image.convert("RGB")).tobytes()).hexdigest()


@pytest.mark.parametrize("name", ["-o 'é <1>.jpg", "#%d.png"])
def test_tags_are_embedded_beside_what_is_there_and_pixels_stay(exiftool, name, tmp_path):
    exif = Image.Exif()
    exif[0x13B] = "Ann"
    given = [] if name.endswith("png") else ["beach"]
    image = photo(tmp_path / name, exif=exif, **({"xmp": packet(*given)} if given else {}))
    before, same = pixels(image), image.read_bytes()
    item = ExportItem(image, tuple(given), (Predicted("<script>", 0.9), DOG))
    (planned,) = export(item, to="embed", dry_run=True)
    assert image.read_bytes() == same
    (change,) = export(item, to="embed", parents=Parents([("dog", "animal")], ["animal"]))
    assert [m.tag for m in change.added] == [m.tag for m in planned.added] == ["<script>", "dog"]
    found = exiftool(image, "-XMP-dc:Subject", "-XMP-lr:HierarchicalSubject", "-EXIF:Artist")
    assert found["Subject"] == [*given, "<script>", "dog"]
    assert (found["HierarchicalSubject"], found["Artist"]) == ([*given, "<script>", "animal|dog"], "Ann")
    assert pixels(image) == before
    assert (tmp_path / f"{name}_original").read_bytes() == same
    assert Sidecars().keywords(image).people_tags == given
    assert len(undo(image, to="embed")) == 1
    assert Sidecars().keywords(image) == Keywords(given, [])
    assert pixels(image) == before


def set_iptc(image, *words):
    return set_fields(image, *(f"-IPTC:Keywords+={word}" for word in words))


def test_a_new_list_of_keywords_in_xmp_has_those_of_iptc_too(exiftool, tmp_path):
    image = set_iptc(photo(tmp_path / "1.jpg"), "cars", "wall", "dog", "fog")
    before = Sidecars().keywords(image).people_tags
    for _ in range(2):  # the second time nothing changes
        export(ExportItem(image, (), (SEA, DOG), rejected=("fog",)), to="embed")
        assert exiftool(image, "-XMP-dc:Subject")["Subject"] == ["cars", "wall", "dog", "sea"]
        assert exiftool(image, "-IPTC:Keywords")["Keywords"] == ["cars", "wall", "dog", "fog", "sea"]
        assert sorted(Sidecars().keywords(image).people_tags) == sorted(before)
    undo(image, to="embed")
    assert "Subject" not in exiftool(image, "-XMP-dc:Subject")
    assert exiftool(image, "-IPTC:Keywords")["Keywords"] == ["cars", "wall", "dog", "fog"]
    export(ExportItem(image, (), (SEA,)), to="xmp")
    assert keywords(tmp_path / "1.jpg.xmp").tags == ["cars", "wall", "dog", "fog", "sea"]


def test_a_list_of_a_person_in_xmp_gets_the_words_of_iptc(exiftool, tmp_path):
    image = set_iptc(photo(tmp_path / "1.jpg", xmp=packet("beach")), "old word")
    export(ExportItem(image, (), (SEA,)), to="embed")
    assert exiftool(image, "-XMP-dc:Subject")["Subject"] == ["beach", "old word", "sea"]


@pytest.mark.parametrize("name", ["1.jpg", "1.png", "1.tif", "1.webp"])
@pytest.mark.parametrize("given", [(), ("beach",)])
def test_undo_puts_the_original_back_in_place_of_what_was_embedded(exiftool, name, given, tmp_path):
    image = photo(tmp_path / name, **({"xmp": packet(*given)} if given else {}))
    same, date = image.read_bytes(), image.stat().st_mtime_ns
    for tag in (SEA, DOG):
        export(ExportItem(image, given, (tag,)), to="embed")
    assert len(undo(image, to="embed")) == 1
    assert sorted(files(tmp_path)) == [name]
    assert (image.read_bytes(), image.stat().st_mtime_ns) == (same, date)


@pytest.mark.parametrize(
    "odd",
    [
        packet("beach") + b"\0\0\0",
        b"\xef\xbb\xbf" + packet("beach"),
        ("\ufeff" + packet("beach").decode()).encode("utf-16-le"),
        b'<?xml version="1.0" encoding="ISO-8859-1"?>' + packet("beach"),
        b"<!-- of a program -->" + packet("beach") + b"<!-- end -->",
        packet("beach").partition(b">")[2].removesuffix(b"</x:xmpmeta>"),
    ],
    ids=["padded", "mark", "utf-16", "declared", "comments", "bare"],
)
def test_xmp_that_is_no_packet_in_utf_8_is_written_once_and_taken_back_to_the_byte(exiftool, odd, tmp_path):
    image = set_iptc(photo(tmp_path / "1.jpg", xmp=odd), "fog")
    same = image.read_bytes()
    item = ExportItem(image, ("beach",), (SEA,))
    assert [mark.tag for mark in export(item, to="embed")[0].added] == ["fog", "sea"]
    assert exiftool(image, "-XMP-dc:Subject")["Subject"] == ["beach", "fog", "sea"]
    assert sorted(Sidecars().keywords(image).people_tags) == ["beach", "fog"]
    assert export(item, to="embed") == []
    assert len(undo(image, to="embed")) == 1
    assert image.read_bytes() == same


def test_undo_keeps_the_original_of_a_photo_that_another_program_has_changed_since(exiftool, tmp_path):
    image = photo(tmp_path / "1.jpg")
    same = image.read_bytes()
    export(ExportItem(image, (), (SEA,)), to="embed")
    set_fields(image, "-EXIF:Artist=Ann")
    undo(image, to="embed")
    assert (tmp_path / "1.jpg_original").read_bytes() == same
    assert exiftool(image, "-EXIF:Artist", "-XMP-dc:Subject")["Artist"] == "Ann"
    export(ExportItem(image, (), (SEA,)), to="embed")
    (tmp_path / "1.jpg_original").unlink()
    undo(image, to="embed")
    assert sorted(files(tmp_path)) == ["1.jpg"]  # taking back makes no backup


def test_originals_are_kept_unless_told_and_what_exiftool_cannot_write_is_reported(exiftool, tmp_path):
    image, broken = photo(tmp_path / "1.jpg"), tmp_path / "2.jpg"
    broken.write_bytes(b"no image")
    target = make_target("embed", keep_originals=False)
    made = list(export_tags([ExportItem(broken, (), (SEA,)), ExportItem(image, (), (SEA,))], target))
    assert isinstance(made[0], Skipped)
    assert "exiftool did not write" in made[0].reason
    assert "Not a valid JPG" in made[0].reason
    assert sorted(files(tmp_path)) == ["1.jpg", "2.jpg"]
    assert broken.read_bytes() == b"no image"


def test_without_exiftool_it_says_what_to_install(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(MissingExtraError, match=r"exiftool, which is not installed.*write XMP files"):
        make_target("embed")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run that knows red from blue, and 40 photos of which some have keywords."""
    folder = tmp_path_factory.mktemp("export")
    rows, rng = ["file_name,tags"], np.random.default_rng(0)
    for number in range(120):
        array = rng.integers(0, 40, (32, 32, 3), np.uint8)
        array[..., 0 if number % 2 else 2] += 200
        path = folder / "photos" / f"{number:03}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(array).save(path)
        rows.append(f"{path.name},{'red' if number % 2 else 'blue'}")
    (folder / "tags.csv").write_text("\n".join(rows))
    tagger = Tagger(model="ridge", encoder_params={"codebook": 50}, n_jobs=1)
    relations = WordRelations(is_a=[("red", "blue")])
    tagger.fit(folder / "photos", folder / "tags.csv", relations=relations).save(folder / "run")
    for path in sorted((folder / "photos").iterdir())[40:]:
        path.unlink()
    return folder


@pytest.fixture
def command(monkeypatch, capsys, run, tmp_path):
    """Run the command line beside the run and a copy of the photos: exit code, standard output and standard error."""
    shutil.copytree(run / "photos", tmp_path / "photos")

    def call(line):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("sys.argv", ["visterm", *shlex.split(line)])
        with pytest.raises(SystemExit) as ended:
            main()
        shown = capsys.readouterr()
        return ended.value.code, shown.out, shown.err

    return call


def test_the_command_plans_writes_and_takes_back(command, run, tmp_path):
    before = files(tmp_path / "photos")
    code, planned, _ = command(f"export {run}/run photos --dry-run --json")
    assert (code, files(tmp_path / "photos")) == (0, before)
    *changes, totals = [json.loads(line) for line in planned.splitlines()]
    assert len(changes) == 40
    assert totals["totals"]["added"] == 40
    for change in changes:
        odd = int(change["image"][-5]) % 2
        (added,) = change["added"]
        assert (added["tag"], added["source"], added.get("path")) == (
            ("red", "predicted", "blue|red") if odd else ("blue", "predicted", None)
        )
        assert 0.5 <= added["confidence"] <= 1
    code, out, err = command(f"export {run}/run photos")
    assert (code, out) == (0, "")
    assert "Added 40 tags to 40 files for 40 photos, about 39 right." in err
    after = files(tmp_path / "photos")
    assert {name: after[name] for name in before} == before
    code, out, err = command(f"export {run}/run photos --undo")
    assert "Removed 40 tags from 40 files for 40 photos." in err
    assert files(tmp_path / "photos") == before
    assert "Nothing to remove from 0 files for 40 photos." in command(f"export {run}/run photos --undo")[2]


def test_the_command_writes_for_a_program_and_says_what_to_do_there(command, run, tmp_path):
    before = files(tmp_path / "photos")
    code, planned, err = command(f"export {run}/run photos --to immich --dry-run")
    assert (code, files(tmp_path / "photos")) == (0, before)
    assert len(planned.splitlines()) == 40
    assert "In Immich" not in err
    code, _, err = command(f"export {run}/run photos --to immich")
    assert code == 0
    assert "Added 40 tags to 40 files for 40 photos, about 39 right. In Immich, run the jobs" in " ".join(err.split())
    assert b"<rdf:li>blue/red</rdf:li>" in (tmp_path / "photos" / "001.png.xmp").read_bytes()
    assert command(f"export {run}/run photos --to immich --undo")[0] == 0
    assert files(tmp_path / "photos") == before


def test_the_command_writes_a_table(command, run, tmp_path):
    code, _, err = command(f"export {run}/run photos --to csv -o tags.csv -k 1 --min-confidence 0.9")
    assert code == 0
    assert "Wrote tags.csv" in err
    rows = list(csv.DictReader(io.StringIO((tmp_path / "tags.csv").read_text(encoding="utf-8"))))
    assert len(rows) == 40
    assert {row["predicted"] for row in rows} <= {"red", "blue", ""}


def test_an_export_replaces_an_earlier_export_and_no_other_table(command, run, tmp_path):
    for to, own in (("csv", "file_name,tags\na.jpg,red\n"), ("jsonl", '{"file_name": "a.jpg", "tags": ["red"]}\n')):
        mine = tmp_path / f"mine.{to}"
        mine.write_text(own)
        code, _, err = command(f"export {run}/run photos --to {to} -o {mine} -k 1")
        assert code != 0
        assert "is not an earlier export, and would be overwritten" in err
        assert mine.read_text() == own
        for _ in range(2):
            assert command(f"export {run}/run photos --to {to} -o again.{to} -k 1")[0] == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--to pdf", "--to is 'pdf'; expected xmp, embed, txt, lightroom, digikam, darktable, immich, photoprism, csv"),
        ("--to csv", "--to csv writes a file, named by -o"),
        ("--to csv --undo --dry-run", "--undo is for"),
        ("--to xmp -o x", "-o is for tables, data sets and models"),
        ("--to csv --overwrite --dry-run", "--overwrite is for tags in files of photos"),
        ("--to darktable --overwrite", "--overwrite is for tags inside photos"),
        ("--min-confidence 1.5", "--min-confidence is 1.5; expected a number from 0 to 1."),
    ],
)
def test_what_the_command_cannot_do_is_refused(options, message, command, run, tmp_path):
    before = files(tmp_path / "photos")
    code, out, err = command(f"export {run}/run photos {options}")
    assert (code, out) == (2, "")
    assert message in err
    assert files(tmp_path / "photos") == before


def test_a_catalogue_writes_given_and_accepted_tags_and_never_rejected_ones(command, run, tmp_path):
    before = files(tmp_path / "photos")
    names = sorted(before)
    tags = [["Ann"] if name == "000.png" else [] for name in names]
    catalogue = Catalogue(Tagger.load(run / "run", n_jobs=1))
    catalogue.add([tmp_path / "photos" / name for name in names], tags).save(tmp_path / "catalogue")
    stored = Catalogue.load(tmp_path / "catalogue").stored
    ids = {image.name: image.id for image in stored.images.all()}
    stored.tags.judge(ids[str(tmp_path / "photos" / "001.png")], "red", -1)
    stored.tags.judge(ids[str(tmp_path / "photos" / "002.png")], "blue", 1)
    stored.close()
    code, out, err = command("export catalogue")
    assert (code, out) == (0, ""), err
    after = files(tmp_path / "photos")
    assert {name: after[name] for name in names} == before
    found = [keywords(tmp_path / "photos" / f"{number}.png.xmp") for number in ("000", "002", "003")]
    assert [(sorted(f.tags), f.people_tags) for f in found] == [
        (["Ann", "blue"], ["Ann"]),
        (["blue"], ["blue"]),
        (["red"], []),
    ]
    assert "001.png.xmp" not in after
    stored = Catalogue.load(tmp_path / "catalogue").stored
    image_id = ids[str(tmp_path / "photos" / "000.png")]
    assert [w.tag for w in stored.written.of_target("xmp") if w.image_id == image_id] == ["Ann", "blue"]
    stored.close()
    assert command("export catalogue --undo")[0] == 0
    assert files(tmp_path / "photos") == before
    assert "is only for runs" in command("export catalogue photos")[2]


def test_a_run_wants_images(command, run):
    assert "IMAGES is missing" in command(f"export {run}/run")[2]


def test_photos_that_could_not_be_written_are_named_with_their_reasons(command, run, tmp_path):
    for number in range(5):
        (tmp_path / "photos" / f"{number:03}.png").write_bytes(b"no picture")
    for number in (5, 6):
        (tmp_path / "photos" / f"{number:03}.png.xmp").write_text("<no xmp")
    code, _, err = command(f"export {run}/run photos")
    assert code == 3
    lines = [line for line in err.splitlines() if line.startswith("Skipped ")]
    assert [line.partition(": ")[0] for line in lines[:-1]] == [f"Skipped photos/{i:03}.png" for i in range(7)]
    assert all("image" in line for line in lines[:5])
    assert lines[-1] == ("Skipped 7 photos (5 not an image, 2 not written because its XMP file is not well-formed XML)")
    assert not (tmp_path / "skipped.jsonl").exists()


@pytest.mark.parametrize("to", ["xmp", "csv"])
def test_a_dry_run_says_how_many_photos_and_tags_there_are(to, command, run, tmp_path):
    (tmp_path / "photos" / "000.png").write_bytes(b"no picture")
    options = f"export {run}/run photos --to {to} -k 1"
    _, out, err = command(f"{options} --dry-run --json")
    totals = json.loads(out.splitlines()[-1])["totals"]
    nothing = dict.fromkeys(("removed", "left_out", "copied", "taken_off", "put_back"), 0)
    to_files = {"files": 39, "added": 39, "right": 38.1, "staying": {}, **nothing}
    assert totals == {"photos": 39, "skipped": 1, **(to_files if to == "xmp" else {"predicted": 39})}
    expected = (
        "Would add 39 tags to 39 files for 39 photos, about 38 right."
        if to == "xmp"
        else ("Would write: 39 photos, 0 tags of people, 39 predictions.")
    )
    assert expected in err


def test_a_dry_run_of_a_catalogue_says_how_many_are_right_and_what_a_higher_precision_adds(command, run, tmp_path):
    paths = sorted((tmp_path / "photos").iterdir())
    Catalogue(Tagger.load(run / "run", n_jobs=1)).add(paths, [["Ann"]] * 40).save(tmp_path / "catalogue")
    _, out, err = command("export catalogue --dry-run --json")
    *changes, totals = [json.loads(line) for line in out.splitlines()]
    added = [mark for change in changes for mark in change["added"]]
    right = sum(mark.get("confidence", 1.0) for mark in added)
    assert totals["totals"]["right"] == pytest.approx(right, abs=0.1)
    precise = totals["totals"]["precise"]
    assert precise["precision"] == 0.9
    assert f"Would add 80 tags to 40 files for 40 photos, about {right:.0f} right; with precision 0.9: " in err
    _, out, err = command("export catalogue --dry-run --json --precision 0.9")
    totals = json.loads(out.splitlines()[-1])["totals"]
    assert (totals["added"], totals["right"]) == (precise["added"], precise["right"])
    assert "precise" not in totals
    assert "with precision" not in err


def test_a_keyword_that_was_taken_off_is_named_and_goes_with_take_off(command, run, tmp_path):
    paths = sorted((tmp_path / "photos").iterdir())
    for path in paths[:2]:
        path.with_suffix(".xmp").write_bytes(packet("beach"))
    before = files(tmp_path / "photos")
    catalogue = Catalogue(Tagger.load(run / "run", n_jobs=1)).add(paths, [["beach"], ["beach"], *[[]] * 38])
    catalogue.save(tmp_path / "catalogue")
    catalogue = Catalogue.load(tmp_path / "catalogue")
    catalogue.take(0, ["beach"])
    catalogue.stored.close()
    _, out, err = command("export catalogue --dry-run")
    assert "1 keyword that you rejected stays in 1 file: beach (1). --take-off removes them." in " ".join(err.split())
    assert "000.xmp: +blue 9" in out
    assert "beach stays" in out
    assert command("export catalogue --take-off --parent visterm")[0] == 0
    assert keywords(paths[0].with_suffix(".xmp")).people_tags == []
    assert b"visterm|blue" in paths[0].with_suffix(".xmp").read_bytes()
    assert keywords(paths[1].with_suffix(".xmp")).people_tags == ["beach"]
    _, _, err = command("export catalogue --undo")
    assert "1 keyword put back" in err
    assert files(tmp_path / "photos") == before


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("--to csv -o x.csv --take-off", "--take-off is for tags in files of photos"),
        ("--to txt --parent visterm", "--parent is for keywords in XMP. Leave --parent out."),
        ("--undo --take-off", "--take-off does not go with --undo"),
        ("--parent a//b", "--parent 'a//b' has an empty part; expected a tag such as visterm."),
    ],
)
def test_a_branch_and_taking_off_are_for_keywords_in_xmp(options, problem, command, run):
    code, _, err = command(f"export {run}/run photos {options}")
    assert code == 2
    assert problem in " ".join(err.split())
