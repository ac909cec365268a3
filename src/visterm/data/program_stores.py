"""Keywords that photo programs keep in stores of their own: Lightroom, digiKam, Apple Photos, Google Takeout.

Stores are only read. A database is opened as unchangeable, or copied first if a program has it open, and never locked.
Sources: catalogues of Lightroom Classic 6 to 14; digiKam's ``core/libs/database/dbengine`` and its test databases
(schemas 7 to 16); schemas of Photos 5 to 10 as published by osxphotos; exports of Google Takeout, 2016 to 2025.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import quote

from visterm.core.errors import TagFileError, UserError
from visterm.core.files import read_regular_text
from visterm.core.vocabulary import tag_fault, tag_key
from visterm.core.wording import count_of
from visterm.data.image_folders import name_key
from visterm.data.program_tags import people_tags, program_path
from visterm.data.tag_formats.record import TagsFound, record, refused_remarks, usable_keywords
from visterm.data.tag_tree import MAX_LEVELS, suffixes, tree_of_places

TagPath = tuple[str, ...]  # Names of a tag and of the tags above it, the topmost first

MAX_JSON = 2**22  # Maximum bytes of a JSON file of Takeout
TAKEOUT_NAME = 46  # Google cuts names of JSON files, without ".json", to this many characters
ALBUM_FILES = ("metadata.json", "metadata", "Metadaten.json", "métadonnées.json", "metadatos.json", "metadati.json")

LIGHTROOM_PHOTOS = """
    SELECT image.id_local AS id, root.absolutePath || folder.pathFromRoot || file.baseName AS stem, file.extension
    FROM Adobe_images AS image
    JOIN AgLibraryFile AS file ON file.id_local = image.rootFile
    JOIN AgLibraryFolder AS folder ON folder.id_local = file.folder
    JOIN AgLibraryRootFolder AS root ON root.id_local = folder.rootFolder
    ORDER BY image.id_local
"""
DIGIKAM_PHOTOS = """
    SELECT image.id, root.specificPath AS root, album.relativePath AS album, image.name, image.fileSize AS size
    FROM Images AS image
    JOIN Albums AS album ON album.id = image.album
    JOIN AlbumRoots AS root ON root.id = album.albumRoot
    WHERE image.status = 1  -- neither hidden nor in the trash
    ORDER BY image.id
"""
DIGIKAM_INTERNAL = """
    SELECT tagid FROM TagProperties
    WHERE property IN ('internalTag', 'unknownPerson', 'unconfirmedPerson', 'ignoredPerson')
"""


class StoredPhoto(NamedTuple):
    """A photo as a store names it."""

    path: str  # Absolute, or with as many folders as are known
    tags: list[TagPath]
    size: int | None = None  # In bytes


class StoredTags(NamedTuple):
    """The contents of a store."""

    photos: list[StoredPhoto]
    aliases: Mapping[str, TagPath] = {}  # Synonym -> the tag


def read_store(name: str, folder: Path, files: Sequence[Path]) -> TagsFound:
    """Read the tags of the images `files` in `folder` from ``PROGRAM:PATH``.

    A photo of the store is the file with the same path. If the folder was moved, it is the file whose path ends in the
    most equal names, if only one does; the sizes must be equal if the store knows the size. Raises UserError for an
    unknown program; TagFileError if there is no such store, or it cannot be read.
    """
    program, _, location = name.partition(":")
    path = Path(location).expanduser()
    read, example = READERS[program]
    if not path.exists():
        advice = f"Name it: {program}:{example}."
        raise UserError(f"There is no {path}.", setting="tags", value=name, advice=advice)
    try:
        stored = read(path)
    except (sqlite3.Error, LookupError, StopIteration) as error:
        raise TagFileError(
            f"{path} cannot be read as a store of {program}: {error}.",
            setting="tags", value=name, advice="Check that it is not damaged, or of another program.",
        ) from error  # fmt: skip
    return _found(program, path, stored, folder, files)


def store_in(folder: Path) -> str | None:
    """Return ``PROGRAM:PATH`` for a store that lies in a folder of images; None if there is none, or several."""
    names = [store_name(path) for path in (*folder.glob("digikam4.db"), *folder.glob("*.lrcat"))]
    if folder.name == "originals" and folder.parent.suffix == ".photoslibrary":
        names.append(f"apple-photos:{folder.parent}")
    return names[0] if len(names) == 1 else None


def is_store(source: object) -> bool:
    """Return whether a source of tags is a store: ``PROGRAM:PATH``, a ``.lrcat`` file or a ``digikam4.db``."""
    return isinstance(source, str | os.PathLike) and store_name(source).partition(":")[0] in READERS


def store_name(source: str | os.PathLike[str]) -> str:
    """Return ``PROGRAM:PATH`` of a source whose file name says that it is a store; any other source is unchanged."""
    name = os.fspath(source)
    if name.partition(":")[0] in READERS:
        return name
    program = "lightroom" if name.endswith(".lrcat") else "digikam" if PurePosixPath(name).name == "digikam4.db" else ""
    return f"{program}:{name}" if program else name


def _found(program: str, path: Path, stored: StoredTags, folder: Path, files: Sequence[Path]) -> TagsFound:
    """Match the photos of a store with files, and name their tags."""
    file_of, n_ambiguous, missing = _matches(stored.photos, files)
    invalid: list[str] = []
    paths_of: defaultdict[Path, dict[TagPath, None]] = defaultdict(dict)
    for photo, file in zip(stored.photos, file_of, strict=True):
        if file is not None and photo.tags:
            paths_of[file] |= dict.fromkeys(_usable(photo.tags, str(file), invalid))

    used = [tag for tags in paths_of.values() for tag in tags]
    tree, names = tree_of_places(used)
    records = [
        record(file.relative_to(folder).as_posix(), [names[tag] for tag in tags], None, source=str(file))
        for file, tags in paths_of.items()
        if tags
    ]
    known = {tag_key(name) for name in names.values()}
    synonyms = ((alias, tag) for alias, tag in stored.aliases.items() if tag in names and tag_key(alias) not in known)
    aliases = {alias: names[tag] for alias, tag in synonyms}
    remarks = [f"Tags: {program}, {path}."]
    if missing:
        remarks.append(f"Not in the folder: {count_of(len(missing), 'photo')} of {path.name}, such as {missing[0]}.")
    if n_ambiguous:
        remarks.append(f"Left out: {count_of(n_ambiguous, 'photo')} of {path.name} that may be one of several files.")
    remarks += refused_remarks(invalid)
    if not records:
        raise TagFileError(
            f"No photo in {folder} has a tag in {path}. {' '.join(remarks[1:])}".strip(),
            setting="tags", value=f"{program}:{path}", advice="Check the folder of the photos.",
        )  # fmt: skip
    return TagsFound(records, remarks, f"without tags in {path.name}", tree.pairs, aliases=aliases)


def _usable(tags: Sequence[TagPath], image: str, invalid: list[str]) -> Iterator[TagPath]:
    """Yield the tags that people gave, without programs' own; append those that no tag can be to `invalid`."""
    for tag in tags:
        if program_path("|".join(tag)) or not people_tags(tag):
            continue
        if any(tag_fault(name) is not None for name in suffixes(tag)):
            usable_keywords([tag[-1]], image, invalid)
        else:
            yield tag


def _matches(photos: Sequence[StoredPhoto], files: Sequence[Path]) -> tuple[list[Path | None], int, list[str]]:
    """Return the file of each photo, the number of photos that may be several files, and the paths of missing ones."""
    by_name: defaultdict[str, list[tuple[TagPath, Path]]] = defaultdict(list)
    for file in files:
        parts = _parts(os.path.abspath(file))
        by_name[parts[-1]].append((parts, file))
    file_of: list[Path | None] = []
    n_ambiguous, missing = 0, []
    n_same_names = Counter(_parts(photo.path)[-1] for photo in photos)

    for photo in photos:
        parts = _parts(photo.path)
        candidates = [(_common_end(parts, other), file) for other, file in by_name[parts[-1]]]
        best = max((n for n, _ in candidates), default=0)
        nearest = [file for n, file in candidates if n == best]
        if photo.size is not None and best < len(parts):
            nearest = [file for file in nearest if file.stat().st_size == photo.size]
        only_name = best == 1 < len(parts) and (n_same_names[parts[-1]] > 1 or len(candidates) > 1)
        if len(nearest) == 1 and not (only_name and photo.size is None):
            file_of.append(nearest[0])
            continue
        file_of.append(None)
        n_ambiguous += bool(nearest)
        missing += [] if nearest else [photo.path]
    return file_of, n_ambiguous, missing


def _parts(path: str) -> TagPath:
    """Return the names in a path, also one of Windows, as they are compared."""
    return tuple(part for part in name_key(path.replace("\\", "/")).casefold().split("/") if part)


def _common_end(first: TagPath, second: TagPath) -> int:
    """Return how many names at the end of two paths are equal."""
    pairs = zip(reversed(first), reversed(second), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a database read-only and without locks; one that a program has open is copied, with its journal."""
    with tempfile.TemporaryDirectory(prefix="visterm-") as copies:
        database = path
        journals = [journal for end in ("-wal", "-journal") if (journal := Path(f"{path}{end}")).exists()]
        if any(journal.stat().st_size for journal in journals):
            database = Path(copies) / path.name
            for file in (path, *journals):
                shutil.copyfile(file, database.with_name(file.name))
        options = "mode=ro&immutable=1" if database == path else "mode=rw"
        with closing(sqlite3.connect(f"file:{quote(str(database.absolute()))}?{options}", uri=True)) as connection:
            connection.row_factory = sqlite3.Row
            yield connection


def _columns(database: sqlite3.Connection, table: str) -> set[str]:
    """Return the columns of a table; a table that doesn't exist has none."""
    return {row["name"] for row in database.execute(f"PRAGMA table_info({table})")}


def _read_lightroom(path: Path) -> StoredTags:
    """Read a catalogue of Lightroom Classic: keywords of photos and their virtual copies, hierarchy and synonyms."""
    with _opened(path) as database:
        keywords = {row["id_local"]: dict(row) for row in database.execute("SELECT * FROM AgLibraryKeyword")}
        tags = {number: tag for number in keywords if (tag := _lightroom_tag(number, keywords))}
        given: defaultdict[int, list[TagPath]] = defaultdict(list)
        for image, keyword in database.execute("SELECT image, tag FROM AgLibraryKeywordImage ORDER BY id_local"):
            given[image] += [tags[keyword]] if keyword in tags else []
        photos: dict[str, list[TagPath]] = {}
        for row in database.execute(LIGHTROOM_PHOTOS):
            name = row["stem"] + (f".{row['extension']}" if row["extension"] else "")
            photos.setdefault(name, []).extend(given[row["id"]])
        synonyms = {}
        if _columns(database, "AgLibraryKeywordSynonym"):
            rows = database.execute("SELECT keyword, name FROM AgLibraryKeywordSynonym")
            synonyms = {row["name"]: tags[row["keyword"]] for row in rows if row["name"] and row["keyword"] in tags}
    return StoredTags([StoredPhoto(name, tags_of) for name, tags_of in photos.items()], synonyms)


def _lightroom_tag(number: int, keywords: Mapping[int, Mapping[str, Any]]) -> TagPath:
    """Return the path of a keyword as Lightroom exports it; empty if it isn't exported.

    Keywords above it that aren't exported are left out; nothing is above one without "export containing keywords".
    """
    names: list[str] = []
    keyword = keywords[number]
    if not _is_on(keyword, "includeOnExport"):
        return ()
    while keyword.get("name") is not None and len(names) < MAX_LEVELS:
        names += [str(keyword["name"])] if _is_on(keyword, "includeOnExport") else []
        keyword = keywords.get(keyword["parent"], {}) if _is_on(keyword, "includeParents") else {}
    return tuple(reversed(names))


def _is_on(keyword: Mapping[str, Any], option: str) -> bool:
    """Return whether an option of a keyword is on, as it is by default and in versions without it."""
    return keyword.get(option) not in (0, "0")


def _read_digikam(path: Path) -> StoredTags:
    """Read digiKam's database: the tags of visible photos, without digiKam's own tags and unconfirmed faces."""
    with _opened(path) as database:
        rows = {row["id"]: row for row in database.execute("SELECT id, pid, name FROM Tags")}
        internal: set[int] = set()
        if _columns(database, "TagProperties"):
            internal = {row["tagid"] for row in database.execute(DIGIKAM_INTERNAL)}
        tags: dict[int, TagPath] = {}
        for number in rows:
            chain: list[int] = []
            above = number
            while above in rows and above not in chain:
                chain.append(above)
                above = rows[above]["pid"]
            names = tuple(rows[tag]["name"] for tag in reversed(chain) if rows[tag]["name"] != "_Digikam_root_tag_")
            if names and not internal & set(chain):
                tags[number] = names
        given = defaultdict(list)
        for image, tag in database.execute("SELECT imageid, tagid FROM ImageTags ORDER BY imageid, tagid"):
            if tag in tags:
                given[image].append(tags[tag])
        photos = [
            StoredPhoto(f"{row['root']}{row['album']}/{row['name']}".replace("//", "/"), given[row["id"]], row["size"])
            for row in database.execute(DIGIKAM_PHOTOS)
        ]
    return StoredTags(photos)


def _read_apple_photos(path: Path) -> StoredTags:
    """Read the keywords of a library of Apple Photos; the photos are in its folder ``originals``."""
    with _opened(path / "database" / "Photos.sqlite") as database:
        assets = "ZASSET" if _columns(database, "ZASSET") else "ZGENERICASSET"
        tables = database.execute("SELECT name FROM sqlite_master WHERE name LIKE 'Z\\_%KEYWORDS' ESCAPE '\\'")
        columns_of = {row["name"]: sorted(_columns(database, row["name"])) for row in tables.fetchall()}
        table, columns = next(item for item in columns_of.items() if len(item[1]) >= 2)
        attribute = next(column for column in columns if column.endswith("ASSETATTRIBUTES"))
        keyword = next(column for column in columns if column.endswith("KEYWORDS"))
        rows = database.execute(
            f"SELECT asset.ZDIRECTORY AS folder, asset.ZFILENAME AS name, keyword.ZTITLE AS tag FROM {assets} AS asset "
            f"LEFT JOIN {table} AS given ON given.{attribute} = asset.ZADDITIONALATTRIBUTES LEFT JOIN ZKEYWORD AS "
            f"keyword ON keyword.Z_PK = given.{keyword} WHERE asset.ZTRASHEDSTATE = 0 ORDER BY asset.Z_PK, keyword.Z_PK"
        )
        photos: dict[str, list[TagPath]] = {}
        for row in rows:
            name = str(path.absolute() / "originals" / (row["folder"] or "") / row["name"])
            photos.setdefault(name, []).extend([(row["tag"],)] if row["tag"] else [])
    return StoredTags([StoredPhoto(name, tags) for name, tags in photos.items()])


def _read_takeout(path: Path) -> StoredTags:
    """Read an export of Google Takeout: people, and albums, whose folders have a file with their title.

    Names of JSON files are cut, and "(1)" stands in other places than in the photo's name: ``a.jpg(1).json`` is of
    ``a(1).jpg``.
    """
    photos: list[StoredPhoto] = []
    for folder, _, names in os.walk(path):
        contents: dict[str, dict[str, Any]] = {name: {} for name in names if name.casefold().endswith(".json")}
        for name in contents:
            with suppress(ValueError, OSError):  # it has no facts about a photo
                content = json.loads(read_regular_text(Path(folder) / name, MAX_JSON))
                contents[name] = content if isinstance(content, dict) else {}

        album = next((contents[name].get("title") for name in ALBUM_FILES if contents.get(name)), None)
        sidecars = {name: content for name, content in contents.items() if "photoTakenTime" in content}
        for name in sorted(names):
            if name in contents or name in ALBUM_FILES:
                continue
            sidecar = next((sidecars[other] for other in _takeout_names(name, sidecars)), {})
            people = [(str(person["name"]),) for person in sidecar.get("people", ()) if person.get("name")]
            albums = [(album,)] if isinstance(album, str) and album.strip() else []
            photos.append(StoredPhoto(str(Path(folder).absolute() / name), [*albums, *people]))
    return StoredTags(photos)


def _takeout_names(photo: str, sidecars: Mapping[str, Any]) -> Iterator[str]:
    """Yield the sidecars that may be of a photo, the likeliest first."""
    stem, suffix = PurePosixPath(photo).stem, PurePosixPath(photo).suffix
    number = ""
    if stem.endswith(")") and "(" in stem and stem[stem.rindex("(") + 1 : -1].isdecimal():
        number = stem[stem.rindex("(") :]
        stem = stem.removesuffix(number)
    stems = [stem, *(stem.removesuffix(end) for end in ("-edited", "-bearbeitet", "-modifié") if stem.endswith(end))]
    for name in stems:
        whole = f"{name}{suffix}.supplemental-metadata"
        cut = {f"{whole[:n]}{number}.json" for n in range(len(f"{name}{suffix}"), len(whole) + 1)}
        cut |= {f"{f'{name}{suffix}'[:TAKEOUT_NAME]}{number}.json", f"{name}{number}.json"}
        yield from (other for other in sorted(cut, key=len, reverse=True) if other in sidecars)


# Program -> the reader of its stores, and an example of a store's name
READERS: dict[str, tuple[Callable[[Path], StoredTags], str]] = {
    "lightroom": (_read_lightroom, "CATALOG.lrcat"),
    "digikam": (_read_digikam, "digikam4.db"),
    "apple-photos": (_read_apple_photos, "LIBRARY.photoslibrary"),
    "takeout": (_read_takeout, "FOLDER"),
}
