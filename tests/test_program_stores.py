"""Tags from stores of other programs: each version that is named, read without a lock and left as it was."""

import hashlib
import json
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from PIL import Image

import visterm
from command_line import visterm as command
from drawn_stores import (
    DIGIKAM_VERSIONS,
    DRAWN,
    IDENTIFIERS,
    LIGHTROOM_VERSIONS,
    MISSING,
    NAMES,
    PHOTOS_VERSIONS,
    TAKEOUT_YEARS,
    TREE,
    apple_photos,
    digikam,
    draw_photos,
    lightroom,
    takeout,
)
from refusals import refused
from visterm.connectors.watch import tags_as_indexed
from visterm.core.errors import TagFileError
from visterm.data import program_stores
from visterm.data.corpus import Corpus
from visterm.data.tag_files import find_tags

FOUND = {name: tags for name, tags in DRAWN.items() if name != MISSING}
VERSIONS = [
    *(("lightroom", version) for version in LIGHTROOM_VERSIONS),
    *(("digikam", version) for version in DIGIKAM_VERSIONS),
    *(("apple-photos", version) for version in PHOTOS_VERSIONS),
    *(("takeout", year) for year in TAKEOUT_YEARS),
]
NEWEST = dict(VERSIONS)
DATABASES = [program for program in NEWEST if program != "takeout"]


@pytest.fixture
def photos(tmp_path):
    return draw_photos(tmp_path / "photos")


def draw(program, folder, version=None):
    """Draw a store of the photos in `folder`, or with them in it; return its path and the folder of photos."""
    version = version or NEWEST[program]
    if program == "apple-photos":
        library = apple_photos(folder.with_name("Ann.photoslibrary"), version=version)
        return library, library / "originals"
    if program == "takeout":
        return takeout(folder, year=version), folder
    draw_photos(folder)
    if program == "digikam":
        return digikam(folder.with_name("digikam4.db"), folder, folder, version=version), folder
    return lightroom(folder.with_name("ten years.lrcat"), folder, version=version), folder


def tags_of(found):
    return {row.image: row.tags for row in found.records}


def sorted_tags(found):
    return {row.image: sorted(row.tags) for row in found.records}


def contents(store):
    """Return the hash of each file of a store, and of what lies beside it."""
    files = [file for file in store.parent.rglob("*") if file.is_file()]
    return {file: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


@pytest.mark.parametrize(("program", "version"), VERSIONS)
def test_tags_are_what_was_drawn_and_no_byte_of_the_store_changes(tmp_path, program, version):
    store, folder = draw(program, tmp_path / "photos", version)
    before = contents(store)
    found = find_tags(f"{program}:{store}", folder)
    assert contents(store) == before
    assert sorted_tags(found) == FOUND
    has_tree = program in ("lightroom", "digikam")
    assert sorted(found.tree) == (TREE if has_tree else [])
    assert found.aliases == ({"Pooch": "Hund", "Gull": "Möwe"} if program == "lightroom" else {})
    is_listed = any(f"1 photo of {store.name}, such as" in text and "gone.jpg" in text for text in found.remarks)
    assert is_listed == (program != "takeout")  # its photos are the files that it has


@pytest.mark.parametrize("program", DATABASES)
@pytest.mark.parametrize("volume", ["elsewhere", "deeper/in/another/place"])
def test_photos_that_moved_are_found_by_the_end_of_their_path(tmp_path, program, volume):
    store, folder = draw(program, tmp_path / "photos")
    moved = tmp_path / volume
    moved.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(folder, moved)
    assert sorted_tags(find_tags(f"{program}:{store}", moved)) == FOUND


def test_photos_of_an_export_of_takeout_that_were_copied_elsewhere_are_found_by_name_and_size(tmp_path):
    store, folder = draw("takeout", tmp_path / "Takeout")
    (tmp_path / "flat").mkdir()
    for number, name in enumerate(NAMES):
        (folder / name).rename(folder / name.replace(f"{number % 6}.jpg", f"{number}.jpg"))
    for file in folder.rglob("*.jpg"):
        shutil.copy(file, tmp_path / "flat" / file.name)
    for file in folder.rglob("*.json"):  # those of the second folder have new names, too
        if file.parent.name == "北京":
            file.rename(file.with_name(f"{6 + int(file.name[0])}{file.name[1:]}"))
    found = sorted_tags(find_tags(f"takeout:{store}", tmp_path / "flat"))
    assert found == {f"{NAMES.index(name)}.jpg": tags for name, tags in FOUND.items()}


HOLD = """
import sqlite3, sys
program = sqlite3.connect(sys.argv[1], isolation_level=None)
program.execute(f"PRAGMA journal_mode = {sys.argv[2]}")
program.execute("PRAGMA wal_autocheckpoint = 0")
program.execute("CREATE TABLE written (a)")
program.execute("BEGIN EXCLUSIVE")
program.execute("DELETE FROM " + sys.argv[3])
program.execute("PRAGMA cache_flush")  # what is not committed is in the file, as with a large change
print("held", flush=True)
sys.stdin.readline()
program.execute("COMMIT")
print(program.execute("SELECT count(*) FROM " + sys.argv[3]).fetchone()[0], flush=True)
sys.stdin.readline()
"""
GIVEN = {"lightroom": "AgLibraryKeywordImage", "digikam": "ImageTags", "apple-photos": "Z_1KEYWORDS"}


@pytest.mark.parametrize("mode", ["WAL", "DELETE"])
@pytest.mark.parametrize("program", DATABASES)
def test_a_store_is_read_while_its_program_writes_and_keeps_its_lock(tmp_path, program, mode):
    store, folder = draw(program, tmp_path / "photos")
    database = store / "database/Photos.sqlite" if program == "apple-photos" else store
    command = [sys.executable, "-c", HOLD, database, mode, GIVEN[program]]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout.readline() == "held\n"
        before = contents(store)
        assert sorted_tags(find_tags(f"{program}:{store}", folder)) == FOUND  # as before what is not committed
        assert contents(store) == before
        with (
            closing(sqlite3.connect(database, timeout=0)) as other,
            pytest.raises(sqlite3.OperationalError, match="lock"),
        ):
            other.execute("BEGIN IMMEDIATE")
        writer.stdin.write("commit\n")
        writer.stdin.flush()
        assert writer.stdout.readline() == "0\n"
        with refused("tags", error=TagFileError) as info:  # what is committed is read, also from the journal alone
            find_tags(f"{program}:{store}", folder)
        assert "has a tag in" in str(info.value)
        writer.stdin.close()


def test_a_database_that_is_written_while_it_is_copied_is_copied_again(photos, tmp_path, monkeypatch):
    store = lightroom(tmp_path / "open.lrcat", photos)
    with closing(sqlite3.connect(store, isolation_level=None)) as program:
        program.execute("PRAGMA journal_mode = WAL")
        program.execute("INSERT INTO AgLibraryKeywordImage (image, tag) VALUES (4, 4)")
        copy, copied = shutil.copyfile, []

        def copy_while_it_is_written(source, target):
            copy(source, target)
            copied.append(Path(source).name)
            if len(copied) in times:  # the journal goes into the file: a file and a journal that don't belong together
                program.execute("INSERT INTO AgLibraryKeywordImage (image, tag) VALUES (5, 4)")
                program.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                program.execute("INSERT INTO AgLibraryKeywordImage (image, tag) VALUES (6, 4)")

        monkeypatch.setattr(shutil, "copyfile", copy_while_it_is_written)
        times = [1]
        found = tags_of(find_tags(f"lightroom:{store}", photos))
        assert [found.get(name) for name in NAMES[3:6]] == [["cat"]] * 3
        assert len(copied) == 4
        times = range(1000)
        with refused("tags", error=TagFileError) as info:
            find_tags(f"lightroom:{store}", photos)
        assert "Close its program" in str(info.value)


def test_a_database_that_is_written_while_it_is_read_is_refused(photos, tmp_path, monkeypatch):
    store = lightroom(tmp_path / "all.lrcat", photos)

    def write(*arguments):
        with closing(sqlite3.connect(store)) as program, program:
            program.execute("INSERT INTO AgLibraryKeywordImage (image, tag) VALUES (4, 4)")
        return {}

    monkeypatch.setattr(program_stores, "_tag_paths", write)
    with refused("tags", error=TagFileError) as info:
        find_tags(f"lightroom:{store}", photos)
    assert "was written while it was read" in str(info.value)


@pytest.mark.parametrize("root", ["D:/Fotos/alle", "//server/share", "/elsewhere/2018"])
def test_roots_of_other_systems_are_read(photos, tmp_path, root):
    assert sorted_tags(find_tags(f"lightroom:{lightroom(tmp_path / 'a.lrcat', root)}", photos)) == FOUND


@pytest.mark.parametrize("volume", IDENTIFIERS)
def test_collections_of_digikam_have_their_folder_in_the_identifier_or_beside_it(tmp_path, volume):
    folder = draw_photos(tmp_path / "Bilder & mehr")
    store = digikam(tmp_path / "digikam4.db", folder, folder, volume=volume)
    (folder / NAMES[0]).write_bytes(b"edited since digiKam saw it")  # the path alone tells which photo it is
    found = find_tags(f"digikam:{store}", folder)
    assert sorted_tags(found) == FOUND
    assert any(str(folder / MISSING) in remark.replace("//", "/") for remark in found.remarks)


def test_a_photo_is_not_another_one_that_only_has_its_name(photos, tmp_path):
    """A missing photo, and one of another folder, have the names of photos that are there."""
    other = tmp_path / "digikam4.db"
    store = digikam(other, "/elsewhere", photos, {NAMES[0]: ["Hund"], f"album/{NAMES[1]}": ["cat"]})
    found = find_tags(f"digikam:{store}", photos)
    assert tags_of(found) == {NAMES[0]: ["Hund"]}  # its size is not that of the file with its name
    near = lightroom(tmp_path / "a.lrcat", photos, {NAMES[0]: ["Hund"], f"album/{NAMES[1]}": ["cat"]})
    found = find_tags(f"lightroom:{near}", photos)
    assert tags_of(found) == {NAMES[0]: ["Hund"]}  # the file is a photo of its own, without a tag
    assert any(f"album/{NAMES[1]}" in remark for remark in found.remarks)


def test_of_several_photos_with_a_name_the_one_of_the_same_time_is_meant_and_none_is_guessed(photos, tmp_path):
    (tmp_path / "new").mkdir()
    for folder, name in (("a", NAMES[0]), ("b", NAMES[6])):
        (tmp_path / "new" / folder).mkdir()
        (photos / name).rename(tmp_path / "new" / folder / "0.jpg")
    store = lightroom(tmp_path / "moved.lrcat", "/Volumes/Fotos")
    found = find_tags(f"lightroom:{store}", tmp_path / "new")
    assert tags_of(found) == {"a/0.jpg": ["Hund"], "b/0.jpg": ["Hund", "猫"]}
    for folder in "ab":
        Image.new("RGB", (8, 8)).save(tmp_path / "new" / folder / "0.jpg")  # without a time
    with refused("tags", error=TagFileError) as info:
        find_tags(f"lightroom:{store}", tmp_path / "new")
    assert "may be one of several files: 2 photos of moved.lrcat" in str(info.value)


def test_photos_without_a_folder_and_jpegs_of_raw_files_have_their_keywords(tmp_path):
    folder = draw_photos(tmp_path / "photos", ["top.jpg", "raw/1.JPG", "raw/1.CR2"])
    store = lightroom(tmp_path / "a.lrcat", folder, {"top.jpg": ["Hund"], "raw/1.CR2": ["cat"]})
    files = [folder / name for name in ("top.jpg", "raw/1.JPG", "raw/1.CR2")]
    assert tags_of(find_tags(f"lightroom:{store}", folder, files=files)) == {
        "top.jpg": ["Hund"], "raw/1.CR2": ["cat"], "raw/1.JPG": ["cat"],
    }  # fmt: skip


def test_photos_that_a_library_of_apple_only_refers_to_are_found(photos, tmp_path):
    library = apple_photos(tmp_path / "Ann.photoslibrary")
    shutil.rmtree(library / "originals")
    with closing(sqlite3.connect(library / "database/Photos.sqlite")) as database, database:
        database.execute("UPDATE ZASSET SET ZDIRECTORY = ? || '/' || ZDIRECTORY", [str(photos)])
    assert sorted_tags(find_tags(f"apple-photos:{library}", photos)) == FOUND


@pytest.mark.parametrize("program", NEWEST)
def test_auto_finds_the_store_that_lies_in_the_folder_of_the_photos(tmp_path, program):
    store, folder = draw(program, tmp_path / "photos")
    if program in ("lightroom", "digikam"):
        store.rename(folder / store.name)
    assert sorted_tags(find_tags("auto", folder)) == FOUND
    assert Corpus.read(folder).aliases == ({"Pooch": "Hund", "Gull": "Möwe"} if program == "lightroom" else {})


LONG = "Urlaub in Knaufspesch in der Schneifel"
SIDECARS = {  # photo -> its JSON file, as exports of 2016 to 2026 have them
    "IMG_1.jpg": "IMG_1.jpg.json",
    "IMG_2(1).jpg": "IMG_2.jpg(1).json",
    "IMG_3.jpg": "IMG_3.jpg.supplemental-metadata.json",
    "IMG_4(2).jpg": "IMG_4.jpg.supplemental-metadata(2).json",
    "IMG_5-edited.jpg": "IMG_5.jpg.json",
    "IMG_6(1)-bearbeitet.jpg": "IMG_6.jpg(1).json",
    "IMG_7-modifie\u0301(1).jpg": "IMG_7.jpg.supplemental-metadata(1).json",  # as macOS writes the letter
    "IMG_8(1).jpg": "IMG_8(1).jpg.json",  # "(1)" is of its own name
    f"{LONG} (38).jpg": f"{LONG} (38).jp.json",
    f"{'a' * 44}.jpg": f"{'a' * 44}.j.json",
    f"{'b' * 41}.jpg": f"{'b' * 41}.jpg..json",
    "Screenshot_2017-07-05-10-05-26.png": "Screenshot_2017-07-05-10-05-26.png.supplementa.json",
    "D7157814-D2D5-4A62-AFCE-9CF465CB7D66.jpeg": "D7157814-D2D5-4A62-AFCE-9CF465CB7D66.jpeg.supp.json",
    f"{'c' * 47}(494).jpg": f"{'c' * 46}(494).json",
    "😀😃😄😁😆😅😂🤣🥲😊😇🙂🙃😉😌😍🥰😘😗😙😚😋😛😜.jpg": "😀😃😄😁😆😅😂🤣🥲😊😇🙂🙃😉😌😍🥰😘😗😙😚😋😛.json",
}


def test_takeout_finds_the_file_of_each_photo_by_its_odd_name(tmp_path):
    for number, (photo, name) in enumerate(SIDECARS.items()):
        Image.new("RGB", (8, 8)).save(tmp_path / photo)
        content = {"title": photo, "photoTakenTime": {"timestamp": "1"}, "people": [{"name": f"person {number}"}]}
        (tmp_path / name).write_text(json.dumps(content))
    found = tags_of(find_tags(f"takeout:{tmp_path}", tmp_path))
    assert found == {photo: [f"person {number}"] for number, photo in enumerate(SIDECARS)}


ALBUMS = {  # folder -> the file of the album, and its content
    "Rom 2019": ("metadata.json", {"title": "Rom", "access": "protected"}),
    "Été": ("me\u0301tadonne\u0301es.json", {"title": "Été"}),
    "Köln": ("Metadaten.json", {"title": "Köln"}),
    "東京": ("метаданные.json", {"albumData": {"title": "東京"}}),
}
NO_ALBUMS = {
    "2005-02-05": ("Metadaten.json", {"title": "5. Februar 2005"}),  # each day was a folder until 2020
    "Photos from 2019": ("metadata.txt", {"title": "none"}),
    "Untitled": ("metadata.json", {"title": ""}),
}


def test_takeout_gives_albums_of_people_in_all_languages_and_none_of_its_own(tmp_path):
    for number, (folder, (name, content)) in enumerate((ALBUMS | NO_ALBUMS).items()):
        (tmp_path / folder).mkdir()
        Image.new("RGB", (8 + number, 8)).save(tmp_path / folder / "1.jpg")
        (tmp_path / folder / name).write_text(json.dumps(content))
    (tmp_path / "Untitled" / "metadata(1).json").write_text('{"title": "Another"}')  # albums of one name share a folder
    (tmp_path / "Köln" / "1.jpg.json").write_text("no JSON")
    found = tags_of(find_tags(f"takeout:{tmp_path}", tmp_path))
    assert {Path(name).parent.name: tags for name, tags in found.items()} == {
        "Rom 2019": ["Rom"], "Été": ["Été"], "Köln": ["Köln"], "東京": ["東京"],
    }  # fmt: skip


def test_stores_that_are_missing_or_damaged_are_refused(photos, tmp_path):
    (tmp_path / "bad.lrcat").write_bytes(b"SQLite format 3\0" + b"x" * 5000)
    with closing(sqlite3.connect(tmp_path / "other.db")) as database, database:
        database.execute("CREATE TABLE t (a)")
    (tmp_path / "empty.photoslibrary").mkdir()
    with refused("tags"):
        find_tags("lightroom:nowhere.lrcat", photos)
    for name in ("lightroom:{}/bad.lrcat", "digikam:{}/other.db", "apple-photos:{}/empty.photoslibrary"):
        source = name.format(tmp_path)
        with refused("tags", value=source, error=TagFileError):
            find_tags(source, photos)


def test_a_run_is_learned_from_a_catalogue_of_lightroom_alone(photos, tmp_path):
    lightroom(tmp_path / "all.lrcat", photos, {name: [("Hund", "cat")[n % 2]] for n, name in enumerate(NAMES)})
    code, _, err = command(
        "fit photos --tags lightroom:all.lrcat --model ridge --encoder visterms --encoder-set codebook=4 -o run",
        tmp_path,
    )
    assert code == 0, err
    tagger = visterm.Tagger.load(tmp_path / "run")
    assert set(tagger.vocabulary.tags) == {"Tiere", "cat", "Hund"}
    assert tagger.vocabulary.aliases["Pooch"] == "Hund"
    code, _, err = command("index run photos --tags lightroom:all.lrcat -o catalogue", tmp_path)
    assert code == 0, err
    stored = visterm.Catalogue.load(tmp_path / "catalogue").stored
    assert tags_as_indexed(stored) == f"lightroom:{tmp_path / 'all.lrcat'}"  # what `watch` reads, wherever it runs
    (tmp_path / "all.lrcat").rename(tmp_path / "other.lrcat")
    assert tags_as_indexed(stored) is None
    code, out, err = command("search catalogue --tag Hund --json", tmp_path)
    assert code == 0, err
    assert {json.loads(line)["image"] for line in out.splitlines()} == set(NAMES[::2])
