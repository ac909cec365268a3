"""Tags from stores of other programs: drawn databases with their schemas, read without a lock and left as they are."""

import hashlib
import json
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import visterm
from command_line import visterm as command
from refusals import refused
from visterm.core.errors import TagFileError
from visterm.data.corpus import Corpus
from visterm.data.tag_files import find_tags

NAMES = [f"{folder}/{n}.jpg" for folder in ("2019/Köln", "2020/北京") for n in range(6)]

LIGHTROOM = """
CREATE TABLE Adobe_images (id_local INTEGER PRIMARY KEY, masterImage INTEGER, pick NOT NULL DEFAULT 0, rating,
  rootFile INTEGER);
CREATE TABLE AgLibraryFile (id_local INTEGER PRIMARY KEY, baseName, extension, folder INTEGER);
CREATE TABLE AgLibraryFolder (id_local INTEGER PRIMARY KEY, pathFromRoot, rootFolder INTEGER);
CREATE TABLE AgLibraryRootFolder (id_local INTEGER PRIMARY KEY, absolutePath, name);
CREATE TABLE AgLibraryKeywordImage (id_local INTEGER PRIMARY KEY, image INTEGER, tag INTEGER);
"""
KEYWORDS_OF_TODAY = """
CREATE TABLE AgLibraryKeyword (id_local INTEGER PRIMARY KEY, includeOnExport INTEGER NOT NULL DEFAULT 1,
  includeParents INTEGER NOT NULL DEFAULT 1, includeSynonyms INTEGER NOT NULL DEFAULT 1, keywordType, lc_name, name,
  parent INTEGER);
CREATE TABLE AgLibraryKeywordSynonym (id_local INTEGER PRIMARY KEY, keyword INTEGER, lc_name, name);
INSERT INTO AgLibraryKeywordSynonym VALUES (1, 3, 'pooch', 'Pooch'), (2, 3, 'cat', 'cat');
"""
KEYWORDS_BEFORE = "CREATE TABLE AgLibraryKeyword (id_local INTEGER PRIMARY KEY, lc_name, name, parent INTEGER);"
KEYWORD_ROWS = [  # number, name, parent, on export, with parents
    (1, None, None, 1, 1), (2, "animals", 1, 1, 1), (3, "Hund", 2, 1, 1), (4, "cat", 2, 1, 1), (5, "WORK", 1, 0, 1),
    (6, "draft", 5, 0, 1), (7, "猫", 5, 1, 1), (8, "sea", 2, 1, 0),
]  # fmt: skip
DIGIKAM = """
CREATE TABLE AlbumRoots (id INTEGER PRIMARY KEY, label TEXT, status INTEGER NOT NULL, type INTEGER NOT NULL,
  identifier TEXT, specificPath TEXT);
CREATE TABLE Albums (id INTEGER PRIMARY KEY, albumRoot INTEGER NOT NULL, relativePath TEXT NOT NULL);
CREATE TABLE Images (id INTEGER PRIMARY KEY, album INTEGER, name TEXT NOT NULL, status INTEGER NOT NULL,
  category INTEGER NOT NULL, modificationDate DATETIME, fileSize INTEGER, uniqueHash TEXT);
CREATE TABLE Tags (id INTEGER PRIMARY KEY, pid INTEGER, name TEXT NOT NULL, icon INTEGER, iconkde TEXT);
CREATE TABLE ImageTags (imageid INTEGER NOT NULL, tagid INTEGER NOT NULL);
CREATE TABLE TagProperties (tagid INTEGER, property TEXT, value TEXT);
INSERT INTO Tags VALUES (0, -1, '_Digikam_root_tag_', NULL, NULL), (1, 0, '_Digikam_Internal_Tags_', NULL, NULL),
  (2, 1, 'Color Label Red', NULL, NULL), (3, 0, 'Tiere', NULL, NULL), (4, 3, 'Hund', NULL, NULL),
  (5, 0, 'People', NULL, NULL), (6, 5, 'Unknown', NULL, NULL), (7, 5, 'Ann', NULL, NULL);
INSERT INTO TagProperties VALUES (1, 'internalTag', NULL), (6, 'unknownPerson', NULL);
"""
APPLE = """
CREATE TABLE {assets} (Z_PK INTEGER PRIMARY KEY, ZTRASHEDSTATE INTEGER, ZADDITIONALATTRIBUTES INTEGER,
  ZDIRECTORY VARCHAR, ZFILENAME VARCHAR);
CREATE TABLE ZADDITIONALASSETATTRIBUTES (Z_PK INTEGER PRIMARY KEY, ZASSET INTEGER, ZORIGINALFILENAME VARCHAR);
CREATE TABLE ZKEYWORD (Z_PK INTEGER PRIMARY KEY, ZTITLE VARCHAR);
CREATE TABLE Z_1KEYWORDS (Z_1ASSETATTRIBUTES INTEGER, {keywords} INTEGER, PRIMARY KEY (Z_1ASSETATTRIBUTES, {keywords}));
"""


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    rng = np.random.default_rng(0)
    for name in NAMES:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 255, (24, 24, 3), np.uint8)).save(path)
    return folder


def tags_of(found):
    return {row.image: row.tags for row in found.records}


def lightroom(path, root, given, *, today=True, missing=True):
    """Draw a catalogue: `given` has the keywords of each photo, and of its virtual copy."""
    with sqlite3.connect(path) as database:
        database.executescript(LIGHTROOM + (KEYWORDS_OF_TODAY if today else KEYWORDS_BEFORE))
        for number, name, parent, on_export, with_parents in KEYWORD_ROWS:
            if today:
                database.execute(
                    "INSERT INTO AgLibraryKeyword VALUES (?, ?, ?, 1, '', ?, ?, ?)",
                    (number, on_export, with_parents, name and name.lower(), name, parent),
                )
            else:
                database.execute("INSERT INTO AgLibraryKeyword VALUES (?, ?, ?, ?)", (number, name, name, parent))
        database.execute("INSERT INTO AgLibraryRootFolder VALUES (1, ?, 'photos')", (f"{root}/",))
        names = [*NAMES, *(["2019/Köln/gone.jpg"] if missing else [])]
        for number, name in enumerate(names, 1):
            folder, _, file = name.rpartition("/")
            database.execute("INSERT INTO AgLibraryFolder VALUES (?, ?, 1)", (number, f"{folder}/"))
            database.execute(
                "INSERT INTO AgLibraryFile VALUES (?, ?, 'jpg', ?)", (number, file.removesuffix(".jpg"), number)
            )
            database.execute("INSERT INTO Adobe_images VALUES (?, NULL, 0, NULL, ?)", (number, number))
        for image, (name, keywords) in enumerate(given.items()):
            number = names.index(name) + 1
            database.execute("INSERT INTO Adobe_images VALUES (?, ?, -1, 5, ?)", (100 + image, number, number))
            for position, keyword in enumerate(keywords):
                holder = number if position == 0 else 100 + image
                database.execute("INSERT INTO AgLibraryKeywordImage (image, tag) VALUES (?, ?)", (holder, keyword))
    database.close()
    return path


GIVEN = {NAMES[0]: [3], NAMES[1]: [4, 8], NAMES[6]: [7, 3], NAMES[7]: [6], "2019/Köln/gone.jpg": [3]}


def test_keywords_of_lightroom_have_their_tree_synonyms_and_virtual_copies(photos, tmp_path):
    path = lightroom(tmp_path / "ten years.lrcat", photos, GIVEN)
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    found = find_tags(f"lightroom:{path}", photos)
    assert tags_of(found) == {NAMES[0]: ["Hund"], NAMES[1]: ["cat", "sea"], NAMES[6]: ["猫", "Hund"]}
    assert sorted(found.tree) == [("Hund", "animals"), ("cat", "animals")]
    assert found.aliases == {"Pooch": "Hund"}
    assert any("1 photo of ten years.lrcat, such as" in remark and "gone.jpg" in remark for remark in found.remarks)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before
    assert sorted(file.name for file in tmp_path.iterdir()) == ["photos", "ten years.lrcat"]


def test_an_older_catalogue_without_the_options_of_keywords_is_read(photos, tmp_path):
    path = lightroom(tmp_path / "old.lrcat", photos, GIVEN, today=False)
    found = tags_of(find_tags(f"lightroom:{path}", photos))
    assert found[NAMES[1]] == ["cat", "sea"]
    assert found[NAMES[7]] == ["draft"]


@pytest.mark.parametrize("root", ["/Volumes/Fotos", "D:\\Fotos\\alle", "/elsewhere/2018"])
def test_photos_that_were_moved_are_found_by_the_end_of_their_path(photos, tmp_path, root):
    path = lightroom(tmp_path / "moved.lrcat", root.replace("\\", "/"), GIVEN)
    assert tags_of(find_tags(f"lightroom:{path}", photos))[NAMES[6]] == ["猫", "Hund"]


def test_names_that_several_photos_have_are_not_guessed(photos, tmp_path):
    other = tmp_path / "flat"
    other.mkdir()
    for n in (0, 5):
        (photos / f"2019/Köln/{n}.jpg").rename(other / f"{n}.jpg")
    path = lightroom(tmp_path / "moved.lrcat", "/Volumes/Fotos", GIVEN)
    with refused("tags", error=TagFileError) as info:
        find_tags(f"lightroom:{path}", other)
    assert "may be one of several files" in str(info.value)


def test_a_catalogue_that_lightroom_has_open_is_read_without_a_lock(photos, tmp_path):
    path = lightroom(tmp_path / "open.lrcat", photos, GIVEN)
    program = sqlite3.connect(path)
    program.execute("PRAGMA journal_mode = WAL")
    program.execute("INSERT INTO AgLibraryKeywordImage (image, tag) VALUES (3, 4)")
    program.commit()
    program.execute("BEGIN EXCLUSIVE")
    program.execute("INSERT INTO AgLibraryKeywordImage (image, tag) VALUES (4, 4)")
    found = tags_of(find_tags(f"lightroom:{path}", photos))
    assert found[NAMES[2]] == ["cat"]  # written, but only in the journal
    assert NAMES[3] not in found
    program.commit()
    assert program.execute("SELECT count(*) FROM AgLibraryKeywordImage WHERE image = 4").fetchone() == (1,)
    program.close()


def test_auto_finds_the_catalogue_that_lies_beside_the_photos(photos, tmp_path):
    lightroom(photos / "all.lrcat", photos, GIVEN)
    assert tags_of(find_tags("auto", photos))[NAMES[0]] == ["Hund"]
    assert Corpus.read(photos).aliases == {"Pooch": "Hund"}


def digikam(path, root, *, sizes):
    with sqlite3.connect(path) as database:
        database.executescript(DIGIKAM)
        database.execute("INSERT INTO AlbumRoots VALUES (1, 'Bilder', 0, 1, 'volumeid:?uuid=1', ?)", (str(root),))
        for number, name in enumerate(NAMES, 1):
            folder, _, file = name.rpartition("/")
            database.execute("INSERT INTO Albums VALUES (?, 1, ?)", (number, f"/{folder}"))
            size = sizes.get(name)
            status = 3 if number == 3 else 1
            database.execute(
                "INSERT INTO Images VALUES (?, ?, ?, ?, 1, '', ?, '')", (number, number, file, status, size)
            )
        database.executemany(
            "INSERT INTO ImageTags VALUES (?, ?)", [(1, 4), (1, 2), (2, 6), (2, 7), (3, 4), (7, 3), (8, 4)]
        )
    database.close()
    return path


def test_tags_of_digikam_leave_out_its_own_tags_and_hidden_photos(photos, tmp_path):
    sizes = {name: (photos / name).stat().st_size for name in NAMES}
    path = digikam(tmp_path / "digikam4.db", photos, sizes=sizes)
    found = find_tags(f"digikam:{path}", photos)
    assert tags_of(found) == {NAMES[0]: ["Hund"], NAMES[1]: ["Ann"], NAMES[6]: ["Tiere"], NAMES[7]: ["Hund"]}
    assert sorted(found.tree) == [("Ann", "People"), ("Hund", "Tiere")]
    moved = digikam(tmp_path / "moved.db", "/home/ann/Bilder", sizes=sizes | {NAMES[0]: 1})
    assert NAMES[0] not in tags_of(find_tags(f"digikam:{moved}", photos))  # another photo of that name


@pytest.mark.parametrize(("assets", "keywords"), [("ZASSET", "Z_40KEYWORDS"), ("ZGENERICASSET", "Z_37KEYWORDS")])
def test_keywords_of_apple_photos_are_read(tmp_path, assets, keywords):
    library = tmp_path / "Ann.photoslibrary"
    (library / "database").mkdir(parents=True)
    (library / "originals/A").mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(library / "originals/A/AB12.jpeg")
    Image.new("RGB", (8, 8), "red").save(library / "originals/A/CD34.jpeg")
    with sqlite3.connect(library / "database/Photos.sqlite") as database:
        database.executescript(APPLE.format(assets=assets, keywords=keywords))
        database.executescript(
            f"INSERT INTO {assets} VALUES (1, 0, 11, 'A', 'AB12.jpeg'), (2, 1, 12, 'A', 'CD34.jpeg');"
            "INSERT INTO ZKEYWORD VALUES (5, 'Straße'), (6, 'sea');"
            "INSERT INTO Z_1KEYWORDS VALUES (11, 5), (11, 6), (12, 6);"
        )
    database.close()
    for source in (f"apple-photos:{library}", "auto"):
        assert tags_of(find_tags(source, library / "originals")) == {"A/AB12.jpeg": ["Straße", "sea"]}


def test_takeout_gives_albums_and_people_by_its_odd_names(tmp_path):
    album = tmp_path / "Takeout/Google Photos/Rom 2019"
    album.mkdir(parents=True)
    (album / "metadata.json").write_text(json.dumps({"title": "Rom"}))
    long = "a" * 44
    sidecars = {
        "IMG_1.jpg": "IMG_1.jpg.json",
        "IMG_2(1).jpg": "IMG_2.jpg(1).json",
        "IMG_3.jpg": "IMG_3.jpg.supplemental-me.json",
        "IMG_4(2).jpg": "IMG_4.jpg.supplemental-metadata(2).json",
        f"{long}.jpg": f"{long}.j.json",
        "IMG_5-edited.jpg": "IMG_5.jpg.json",
    }
    for number, (photo, name) in enumerate(sidecars.items()):
        Image.new("RGB", (8, 8)).save(album / photo)
        content = {"title": photo, "photoTakenTime": {"timestamp": "1"}, "people": [{"name": f"person {number}"}]}
        (album / name).write_text(json.dumps(content))
    found = tags_of(find_tags(f"takeout:{tmp_path / 'Takeout'}", album))
    assert found == {photo: ["Rom", f"person {number}"] for number, photo in enumerate(sidecars)}


def test_stores_that_are_missing_or_damaged_are_refused(photos, tmp_path):
    (tmp_path / "bad.lrcat").write_bytes(b"SQLite format 3\0" + b"x" * 5000)
    with sqlite3.connect(tmp_path / "other.db") as database:
        database.execute("CREATE TABLE t (a)")
    database.close()
    with refused("tags"):
        find_tags("lightroom:nowhere.lrcat", photos)
    for source in (f"lightroom:{tmp_path / 'bad.lrcat'}", f"digikam:{tmp_path / 'other.db'}"):
        with refused("tags", value=source, error=TagFileError):
            find_tags(source, photos)


def test_a_run_is_learned_from_a_catalogue_of_lightroom_alone(photos, tmp_path):
    given = {name: [3] if n % 2 else [4] for n, name in enumerate(NAMES)}
    lightroom(tmp_path / "all.lrcat", photos, given, missing=False)
    code, _, err = command(
        "fit photos --tags lightroom:all.lrcat --model ridge --encoder visterms --encoder-set codebook=4 -o run",
        tmp_path,
    )
    assert code == 0, err
    tagger = visterm.Tagger.load(tmp_path / "run")
    assert set(tagger.vocabulary.tags) == {"animals", "cat", "Hund"}
    assert tagger.vocabulary.aliases["Pooch"] == "Hund"
    code, _, err = command("index run photos --tags lightroom:all.lrcat -o catalogue", tmp_path)
    assert code == 0, err
    hits = visterm.Catalogue.load(tmp_path / "catalogue").search("pooch", k=3).hits
    assert {Path(hit.image).name for hit in hits} <= {Path(name).name for name in NAMES}
