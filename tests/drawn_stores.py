"""Stores of other programs, drawn with the tables and names that their versions have; and what a person put into them.

Sources: a published schema of Lightroom Classic 13 and a description of catalogues of 4 and 6; digiKam's
``dbconfig.xml`` and a dump of a database of digiKam 8; osxphotos' table of Photos 5 to 9; immich-go's description of
Google Takeout.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import numpy as np
from PIL import ExifTags, Image

NAMES = [f"{folder}/{n}.jpg" for folder in ("2019/Köln", "2020/北京") for n in range(6)]
MISSING = "2019/Köln/gone.jpg"
DRAWN = {
    NAMES[0]: ["Hund"], NAMES[1]: ["cat", "sea"], NAMES[2]: ["Möwe"], NAMES[6]: ["Hund", "猫"], MISSING: ["Hund"],
}  # fmt: skip
"""Photo -> the tags that a person gave; two more photos have only tags that are no person's, or hidden ones."""

TREE = [("Hund", "Tiere"), ("Möwe", "Vögel"), ("Vögel", "Tiere"), ("cat", "Tiere"), ("猫", "Tiere")]

LIGHTROOM_VERSIONS, DIGIKAM_VERSIONS, TAKEOUT_YEARS = ("4", "6", "13"), ("5", "7", "8"), (2018, 2022, 2025)
PHOTOS_VERSIONS = {"5": 37, "6": 36, "7": 38, "8": 40, "9": 40, "10": 52}
"""Version of Photos -> the number in the column of keywords: entities are numbered anew in each."""

LIGHTROOM = """
CREATE TABLE Adobe_images (id_local INTEGER PRIMARY KEY, id_global UNIQUE NOT NULL, captureTime, copyName,
  fileFormat NOT NULL DEFAULT 'JPG', masterImage INTEGER, pick NOT NULL DEFAULT 0, rating,
  rootFile INTEGER NOT NULL DEFAULT 0);
CREATE TABLE AgLibraryFile (id_local INTEGER PRIMARY KEY, id_global UNIQUE NOT NULL, baseName NOT NULL DEFAULT '',
  extension NOT NULL DEFAULT '', folder INTEGER NOT NULL DEFAULT 0, idx_filename NOT NULL DEFAULT '', modTime,
  originalFilename NOT NULL DEFAULT '', sidecarExtensions);
CREATE TABLE AgLibraryFolder (id_local INTEGER PRIMARY KEY, id_global UNIQUE NOT NULL, {folder} pathFromRoot,
  rootFolder INTEGER NOT NULL DEFAULT 0);
CREATE TABLE AgLibraryRootFolder (id_local INTEGER PRIMARY KEY, id_global UNIQUE NOT NULL,
  absolutePath UNIQUE NOT NULL DEFAULT '', name NOT NULL DEFAULT '', relativePathFromCatalog);
CREATE TABLE AgLibraryFolderStack (id_local INTEGER PRIMARY KEY, id_global UNIQUE NOT NULL, collapsed, text);
CREATE TABLE AgLibraryFolderStackImage (id_local INTEGER PRIMARY KEY, collapsed, image INTEGER, position,
  stack INTEGER);
CREATE TABLE AgLibraryKeywordImage (id_local INTEGER PRIMARY KEY, image INTEGER NOT NULL DEFAULT 0,
  tag INTEGER NOT NULL DEFAULT 0);
CREATE TABLE AgLibraryKeywordSynonym (id_local INTEGER PRIMARY KEY, keyword INTEGER NOT NULL DEFAULT 0, lc_name, name);
CREATE TABLE AgLibraryKeyword (id_local INTEGER PRIMARY KEY, id_global UNIQUE NOT NULL, genealogy NOT NULL DEFAULT '',
  includeOnExport INTEGER NOT NULL DEFAULT 1, includeParents INTEGER NOT NULL DEFAULT 1,
  includeSynonyms INTEGER NOT NULL DEFAULT 1, {keyword} lc_name, name, parent INTEGER);
CREATE UNIQUE INDEX index_AgLibraryKeyword_parentAndLcName ON AgLibraryKeyword (parent, lc_name);
INSERT INTO AgLibraryKeywordSynonym VALUES (1, 3, 'pooch', 'Pooch'), (2, 3, 'cat', 'cat'), (3, 10, 'gull', 'Gull');
INSERT INTO AgLibraryFolderStack VALUES (1, 'stack', 1, '');
INSERT INTO AgLibraryFolderStackImage VALUES (1, 1, 1, 1, 1), (2, 1, 2, 2, 1), (3, 1, 101, 3, 1);
"""
KEYWORDS = [  # number, name, parent, on export, with those above
    (1, None, None, 1, 1), (2, "Tiere", 1, 1, 1), (3, "Hund", 2, 1, 1), (4, "cat", 2, 1, 1), (5, "WORK", 1, 0, 1),
    (6, "draft", 5, 0, 1), (7, "猫", 2, 1, 1), (8, "sea", 2, 1, 0), (9, "Vögel", 2, 1, 1), (10, "Möwe", 9, 1, 1),
]  # fmt: skip
NUMBER_OF = {name: number for number, name, *_ in KEYWORDS}

DIGIKAM = """
CREATE TABLE AlbumRoots (id INTEGER PRIMARY KEY, label TEXT, status INTEGER NOT NULL, type INTEGER NOT NULL,
  identifier TEXT, specificPath TEXT, {root} UNIQUE (identifier, specificPath));
CREATE TABLE Albums (id INTEGER PRIMARY KEY, albumRoot INTEGER NOT NULL, relativePath TEXT NOT NULL, date DATE,
  caption TEXT, collection TEXT, icon INTEGER, {album} UNIQUE (albumRoot, relativePath));
CREATE TABLE Images (id INTEGER PRIMARY KEY, album INTEGER, name TEXT NOT NULL, status INTEGER NOT NULL,
  category INTEGER NOT NULL, modificationDate DATETIME, fileSize INTEGER, uniqueHash TEXT, {image}
  UNIQUE (album, name));
CREATE TABLE ImageInformation (imageid INTEGER PRIMARY KEY, rating INTEGER, creationDate DATETIME);
CREATE TABLE Tags (id INTEGER PRIMARY KEY, pid INTEGER, name TEXT NOT NULL, icon INTEGER, iconkde TEXT,
  UNIQUE (name, pid));
CREATE TABLE TagsTree (id INTEGER NOT NULL, pid INTEGER NOT NULL, UNIQUE (id, pid));
CREATE TABLE ImageTags (imageid INTEGER NOT NULL, tagid INTEGER NOT NULL, UNIQUE (imageid, tagid));
CREATE TABLE ImageRelations (subject INTEGER, object INTEGER, type INTEGER, UNIQUE (subject, object, type));
CREATE TABLE TagProperties (tagid INTEGER, property TEXT, value TEXT);
CREATE TABLE ImageTagProperties (imageid INTEGER, tagid INTEGER, property TEXT, value TEXT);
INSERT INTO Tags VALUES (20, 0, '_Digikam_Internal_Tags_', NULL, NULL), (21, 20, 'Color Label Red', NULL, NULL),
  (22, 20, 'Current Version', NULL, NULL), (30, 0, 'Personen', NULL, NULL), (31, 30, 'Unbekannt', NULL, NULL),
  (32, 30, 'Unbestätigt', NULL, NULL), (33, 30, 'Ignoriert', NULL, NULL), (34, 30, 'Ann', NULL, NULL);
INSERT INTO TagProperties VALUES (20, 'internalTag', NULL), (31, 'person', 'Unbekannt'), (31, 'unknownPerson', NULL),
  (32, 'unconfirmedPerson', NULL), (33, 'ignoredPerson', NULL), (34, 'person', 'Ann');
INSERT INTO ImageRelations VALUES (2, 1, 2), (3, 1, 1);  -- one is grouped under the first, and one a version of it
INSERT INTO ImageTags VALUES (1, 21), (2, 22), (9, 31), (10, 32);
INSERT INTO ImageTagProperties VALUES (9, 31, 'autodetectedFace', '<rect x="1" y="1" width="9" height="9"/>'),
  (10, 32, 'autodetectedPerson', '34,tagRegion,<rect x="1" y="1" width="9" height="9"/>');
"""
ROOT_TAG = "INSERT INTO Tags VALUES (0, -1, '_Digikam_root_tag_', NULL, NULL);"
IDENTIFIERS = {
    "uuid": "volumeid:?uuid=c4b2bf2a&fileuuid=39d5", "path": "volumeid:?path=", "share": "networkshareid:?mountpath=",
}  # fmt: skip

PHOTOS = """
CREATE TABLE {assets} (Z_PK INTEGER PRIMARY KEY, Z_ENT INTEGER, ZKIND INTEGER, ZTRASHEDSTATE INTEGER,
  ZADDITIONALATTRIBUTES INTEGER, ZDATECREATED TIMESTAMP, ZDIRECTORY VARCHAR, ZFILENAME VARCHAR, ZUUID VARCHAR);
CREATE TABLE ZADDITIONALASSETATTRIBUTES (Z_PK INTEGER PRIMARY KEY, ZASSET INTEGER, ZORIGINALFILENAME VARCHAR);
CREATE TABLE ZKEYWORD (Z_PK INTEGER PRIMARY KEY, Z_ENT INTEGER, ZTITLE VARCHAR, ZUUID VARCHAR);
CREATE TABLE Z_1KEYWORDS (Z_1ASSETATTRIBUTES INTEGER, Z_{number}KEYWORDS INTEGER,
  PRIMARY KEY (Z_1ASSETATTRIBUTES, Z_{number}KEYWORDS));
CREATE TABLE Z_METADATA (Z_VERSION INTEGER PRIMARY KEY, Z_UUID VARCHAR, Z_PLIST BLOB);
"""


def draw_photos(folder: Path, names=NAMES) -> Path:
    """Draw photos, each with other pixels, and a second later than the one before."""
    rng = np.random.default_rng(0)
    for number, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        exif = Image.Exif()
        exif.get_ifd(ExifTags.IFD.Exif)[ExifTags.Base.DateTimeOriginal] = f"2019:07:01 12:00:{number:02}"
        Image.fromarray(rng.integers(0, 255, (24, 24, 3), np.uint8)).save(path, "jpeg", exif=exif)
    return folder


def taken(name: str) -> str:
    """Return when a photo was taken, as databases have it."""
    return f"2019-07-01T12:00:{NAMES.index(name):02}.000" if name in NAMES else "2001-01-01T00:00:00.000"


def lightroom(path: Path, root: object, drawn=DRAWN, *, version: str = "13") -> Path:
    """Draw a catalogue: each photo has its first keyword, its virtual copy the others and one that is not exported."""
    columns = {"folder": "parentId INTEGER, visibility INTEGER," if version == "13" else "",
               "keyword": "" if version == "4" else "keywordType, lastApplied,"}  # fmt: skip
    with closing(sqlite3.connect(path)) as database, database:
        database.executescript(LIGHTROOM.format(**columns))
        for number, name, parent, on_export, with_parents in KEYWORDS:
            database.execute(
                "INSERT INTO AgLibraryKeyword (id_local, id_global, includeOnExport, includeParents, lc_name, name, "
                "parent) VALUES (?, ?, ?, ?, ?, ?, ?)",
                (number, f"k{number}", on_export, with_parents, name and name.lower(), name, parent),
            )
        database.execute("INSERT INTO AgLibraryRootFolder VALUES (1, 'r', ?, 'photos', NULL)", (f"{root}/",))
        names = [*NAMES, *(name for name in drawn if name not in NAMES)]
        folders = list(dict.fromkeys(name.rpartition("/")[0] for name in names))
        for number, folder in enumerate(folders, 1):
            database.execute(
                "INSERT INTO AgLibraryFolder (id_local, id_global, pathFromRoot, rootFolder) VALUES (?, ?, ?, 1)",
                (number, f"d{number}", f"{folder}/" if folder else None),
            )
        for number, name in enumerate(names, 1):
            folder, _, file = name.rpartition("/")
            stem, _, ending = file.partition(".")
            database.execute(
                "INSERT INTO AgLibraryFile (id_local, id_global, baseName, extension, folder, sidecarExtensions) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                (number, f"f{number}", stem, ending, 1 + folders.index(folder), "JPG,xmp" if ending == "CR2" else ""),
            )
            for image, copy in ((number, None), (100 + number, "Copy 1")):
                database.execute(
                    "INSERT INTO Adobe_images (id_local, id_global, captureTime, copyName, masterImage, rootFile) "
                    "VALUES (?, ?, ?, ?, ?, ?)",
                    (image, f"i{image}", taken(name), copy, number if copy else None, number),
                )
            for position, tag in enumerate([*drawn.get(name, ()), "draft"]):
                image = number if position == 0 else 100 + number
                database.execute(
                    "INSERT INTO AgLibraryKeywordImage (image, tag) VALUES (?, ?)", (image, NUMBER_OF[tag])
                )
    return path


def digikam(path: Path, root: object, photos: Path, drawn=DRAWN, *, version: str = "8", volume: str = "uuid") -> Path:
    """Draw a database whose photos are those in the folder `photos`; a hidden one has a tag, and faces no name."""
    columns = {"root": "caseSensitivity INTEGER," if version == "8" else "",
               "album": "modificationDate DATETIME," if version == "8" else "",
               "image": "" if version == "5" else "manualOrder INTEGER,"}  # fmt: skip
    with closing(sqlite3.connect(path)) as database, database:
        database.executescript(DIGIKAM.format(**columns) + (ROOT_TAG if version == "5" else ""))
        for number, name, parent, *_ in KEYWORDS[1:]:
            above = 0 if parent == 1 or name == "sea" else parent
            database.execute("INSERT INTO Tags VALUES (?, ?, ?, NULL, NULL)", (number, above, name))
        by_path = volume != "uuid"
        identifier = IDENTIFIERS[volume] + (f"{quote(str(root), safe='')}&fileuuid=39d5" if by_path else "")
        database.execute(
            "INSERT INTO AlbumRoots (id, label, status, type, identifier, specificPath) VALUES (1, 'x', 0, 1, ?, ?)",
            (identifier, "/" if by_path else str(root)),
        )
        names = [*NAMES, *(name for name in drawn if name not in NAMES)]
        folders = list(dict.fromkeys(name.rpartition("/")[0] for name in names))
        for number, folder in enumerate(folders, 1):
            row = (number, 1, f"/{folder}")
            database.execute("INSERT INTO Albums (id, albumRoot, relativePath) VALUES (?, ?, ?)", row)
        for number, name in enumerate(names, 1):
            folder, _, file = name.rpartition("/")
            size = (photos / name).stat().st_size if (photos / name).exists() else 1
            database.execute(
                "INSERT INTO Images (id, album, name, status, category, fileSize) VALUES (?, ?, ?, ?, 1, ?)",
                (number, 1 + folders.index(folder), file, 2 if name == NAMES[7] else 1, size),
            )
            database.execute("INSERT INTO ImageInformation VALUES (?, 5, ?)", (number, taken(name)))
            tags = [NUMBER_OF[tag] for tag in drawn.get(name, ())] + ([NUMBER_OF["Hund"]] if name == NAMES[7] else [])
            database.executemany("INSERT INTO ImageTags VALUES (?, ?)", [(number, tag) for tag in tags])
    return path


def apple_photos(library: Path, drawn=DRAWN, *, version: str = "10") -> Path:
    """Draw a library; its photos have keywords without a tree, and one with a keyword is in the trash."""
    (library / "database").mkdir(parents=True)
    draw_photos(library / "originals")
    assets = "ZGENERICASSET" if version == "5" else "ZASSET"
    tags = sorted({tag for given in drawn.values() for tag in given})
    with closing(sqlite3.connect(library / "database/Photos.sqlite")) as database, database:
        database.executescript(PHOTOS.format(assets=assets, number=PHOTOS_VERSIONS[version]))
        database.executemany("INSERT INTO ZKEYWORD VALUES (?, 40, ?, '')", enumerate(tags, 1))
        for number, name in enumerate([*NAMES, *(name for name in drawn if name not in NAMES)], 1):
            folder, _, file = name.rpartition("/")
            is_trashed = name == NAMES[7]
            database.execute(
                f"INSERT INTO {assets} VALUES (?, 3, 0, ?, ?, 0.0, ?, ?, '')",
                (number, int(is_trashed), 500 + number, folder, file),
            )
            database.execute("INSERT INTO ZADDITIONALASSETATTRIBUTES VALUES (?, ?, ?)", (500 + number, number, file))
            given = [1 + tags.index(tag) for tag in ([*drawn.get(name, ()), *(["Hund"] if is_trashed else [])])]
            database.executemany("INSERT INTO Z_1KEYWORDS VALUES (?, ?)", [(500 + number, tag) for tag in given])
    return library


def takeout(folder: Path, drawn=DRAWN, *, year: int = 2025) -> Path:
    """Draw an export: tags are names of people; one photo with a person was deleted, and one has no photo."""
    draw_photos(folder)
    ending = ".supplemental-metadata.json" if year == 2025 else ".json"
    for name in [*NAMES, *(name for name in drawn if name not in NAMES)]:
        is_trashed = name == NAMES[7]
        people = [{"name": tag} for tag in [*drawn.get(name, ()), *(["Hund"] if is_trashed else [])]]
        content = {
            "title": Path(name).name,
            "photoTakenTime": {"timestamp": "1"},
            "people": people,
            "trashed": is_trashed,
        }
        (folder / f"{name}{ending}").write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    (folder / "archive_browser.html").write_text("<html>")
    return folder
