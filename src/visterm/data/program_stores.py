"""Keywords that photo programs keep in stores of their own: Lightroom, digiKam, Apple Photos, Google Takeout.

Stores are only read. A database is opened as unchangeable, or copied first if a program has it open, and never locked.
Sources: schemas of Lightroom Classic 4 to 13; digiKam's ``core/libs/database`` and databases (schemas 7 to 16); schemas
of Photos 5 to 10, as in osxphotos; exports of Google Takeout, 2016 to 2026, as described by immich-go.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from visterm.core.errors import TagFileError, UserError
from visterm.core.files import read_regular_text
from visterm.core.vocabulary import tag_fault, tag_key
from visterm.core.wording import count_of
from visterm.data.contents import exif_of
from visterm.data.image_folders import IMAGE_SUFFIXES, PHOTO_SUFFIXES, VIDEO_SUFFIXES, name_key, suffix_of
from visterm.data.program_tags import people_tags, program_path
from visterm.data.tag_formats.record import TagsFound, record, refused_remarks, usable_keywords
from visterm.data.tag_tree import MAX_LEVELS, suffixes, tree_of_places

TagPath = tuple[str, ...]  # Names of a tag and of the tags above it, the topmost first

MAX_JSON = 2**22  # Maximum bytes of a JSON file of Takeout
MAX_EXAMPLES = 3  # Maximum number of photos that a remark names
MAX_COPIES = 5  # Attempts to copy a database while its program writes
TAKEOUT_NAME = 46  # Google cuts names of JSON files, without ".json", to this many UTF-16 code units
ALBUM_FILE = re.compile(r"(?i)(meta(da(ta|ten|tos|des|ti|dos)|dáta)|métadonnées|метадан(ные|ни))(\(\d+\))?\.json")
DATE_FOLDER = re.compile(r"\d{4}-\d{2}-\d{2}.*")  # Albums that Takeout made by itself until 2020
NUMBERED = re.compile(r"(.*)(\(\d+\))")
EDITED = re.compile(  # Before a number
    "-(edited|effects|smile|mix|bearbeitet|bewerkt|(ha )?editado|editat|edytowane|modificato|modifié|编辑|編集済み)"
    r"(?=(\(\d+\))?$)"
)

LIGHTROOM_PHOTOS = """
    SELECT image.id_local AS id, image.captureTime AS taken, file.extension, file.sidecarExtensions AS sidecars,
      root.absolutePath || coalesce(folder.pathFromRoot, '') || file.baseName AS stem
    FROM Adobe_images AS image
    JOIN AgLibraryFile AS file ON file.id_local = image.rootFile
    JOIN AgLibraryFolder AS folder ON folder.id_local = file.folder
    JOIN AgLibraryRootFolder AS root ON root.id_local = folder.rootFolder
    ORDER BY image.id_local
"""
DIGIKAM_PHOTOS = """
    SELECT image.id, root.identifier, root.specificPath || album.relativePath || '/' || image.name AS path,
      image.fileSize AS size, information.creationDate AS taken
    FROM Images AS image
    JOIN Albums AS album ON album.id = image.album
    JOIN AlbumRoots AS root ON root.id = album.albumRoot
    LEFT JOIN ImageInformation AS information ON information.imageid = image.id
    WHERE image.status = 1  -- neither hidden nor in the trash
    ORDER BY image.id
"""
DIGIKAM_TAGS = """
    SELECT id AS id_local, pid AS parent, nullif(name, '_Digikam_root_tag_') AS name, id NOT IN (SELECT tagid
      FROM TagProperties WHERE property IN ('unknownPerson', 'unconfirmedPerson', 'ignoredPerson')) AS includeOnExport
    FROM Tags
"""


class StoredPhoto(NamedTuple):
    """A photo as a store names it."""

    path: str  # Absolute, or with as many folders as are known
    tags: list[TagPath]
    size: int | None = None  # In bytes
    taken: str | None = None  # Local time of the camera in ISO 8601


class StoredTags(NamedTuple):
    """The contents of a store."""

    photos: list[StoredPhoto]
    aliases: Mapping[str, TagPath] = {}  # Synonym -> the tag


def read_store(name: str, folder: Path, files: Sequence[Path]) -> TagsFound:
    """Read the tags of the images `files` in `folder` from ``PROGRAM:PATH``.

    A photo of the store is the file with the same path, or else the one of the same size whose path ends in the most
    equal names, if no other photo is nearer to it; of several, the one that was taken at the same time. Raises
    UserError for an unknown program; TagFileError if there is no such store, or it cannot be read.
    """
    program, _, location = name.partition(":")
    path = Path(location).expanduser()
    read, example = READERS[program]
    if not path.exists():
        raise UserError(f"There is no {path}.", setting="tags", value=name, advice=f"Name it: {program}:{example}.")
    try:
        stored = read(path)
    except (OSError, sqlite3.Error, LookupError, StopIteration) as error:
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
    if any((place / "archive_browser.html").exists() for place in (folder, folder.parent)):
        names.append(f"takeout:{folder}")
    return names[0] if len(names) == 1 else None


def is_store(source: object) -> bool:
    """Return whether a source of tags is a store: ``PROGRAM:PATH``, a ``.lrcat`` file or a ``digikam4.db``."""
    return isinstance(source, str | os.PathLike) and store_name(source).partition(":")[0] in READERS


def store_name(source: str | os.PathLike[str]) -> str:
    """Return ``PROGRAM:PATH``, with an absolute path, of a source that names a store; any other source is unchanged."""
    name = os.fspath(source)
    program, _, path = name.partition(":")
    if program not in READERS:
        is_digikam, path = PurePosixPath(name).name == "digikam4.db", name
        program = "lightroom" if name.endswith(".lrcat") else "digikam" if is_digikam else ""
    return f"{program}:{os.path.abspath(os.path.expanduser(path))}" if program else name


def _found(program: str, path: Path, stored: StoredTags, folder: Path, files: Sequence[Path]) -> TagsFound:
    """Match the photos of a store with files, and name their tags."""
    file_of, ambiguous, missing = _matches(stored.photos, files)
    invalid: list[str] = []
    paths_of: defaultdict[Path, dict[TagPath, None]] = defaultdict(dict)
    for photo, file in zip(stored.photos, file_of, strict=True):
        if file is not None and photo.tags:
            paths_of[file] |= dict.fromkeys(_usable(photo.tags, str(file), invalid))

    tree, names = tree_of_places([tag for tags in paths_of.values() for tag in tags])
    records = [
        record(file.relative_to(folder).as_posix(), [names[tag] for tag in tags], None, source=str(file))
        for file, tags in paths_of.items()
        if tags
    ]
    known = {tag_key(name) for name in names.values()}
    synonyms = ((alias, tag) for alias, tag in stored.aliases.items() if tag in names and tag_key(alias) not in known)
    aliases = {alias: names[tag] for alias, tag in synonyms}
    remarks = [f"Tags: {program}, {path}."]
    for paths, problem in ((missing, "Not in the folder"), (ambiguous, "Left out, may be one of several files")):
        if paths:
            photos = f"{count_of(len(paths), 'photo')} of {path.name}"
            remarks.append(f"{problem}: {photos}, such as {', '.join(paths[:MAX_EXAMPLES])}.")
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


def _matches(photos: Sequence[StoredPhoto], files: Sequence[Path]) -> tuple[list[Path | None], list[str], list[str]]:
    """Return the file of each photo, the paths of photos that may be one of several files, and of missing ones."""
    by_name: defaultdict[str, list[tuple[TagPath, Path]]] = defaultdict(list)
    for file in files:
        parts = _parts(os.path.abspath(file))
        by_name[parts[-1]].append((parts, file))
    nearest_of = [_nearest(photo, by_name[_parts(photo.path)[-1]]) for photo in photos]
    most_equal: dict[Path, int] = {}  # File -> the most names that it has in common with a photo
    for n_equal, nearest in nearest_of:
        most_equal |= {file: max(n_equal, most_equal.get(file, 0)) for file in nearest}
    n_photos = Counter(nearest[0] for n_equal, nearest in nearest_of if nearest and n_equal == most_equal[nearest[0]])

    file_of: list[Path | None] = []
    ambiguous, missing = [], []
    for photo, (n_equal, nearest) in zip(photos, nearest_of, strict=True):
        if not nearest or (len(nearest) == 1 and n_equal < most_equal[nearest[0]]):  # or its file is another photo
            missing.append(photo.path)
            nearest = []
        elif len(nearest) > 1 or (photo.size is None and n_photos[nearest[0]] > 1):
            time = (photo.taken or "unknown")[:19]
            nearest = [file for file in nearest if (exif_of(file).taken or "")[:19] == time]
            ambiguous += [] if len(nearest) == 1 else [photo.path]
        file_of.append(nearest[0] if len(nearest) == 1 else None)
    return file_of, ambiguous, missing


def _nearest(photo: StoredPhoto, same_name: Sequence[tuple[TagPath, Path]]) -> tuple[int, list[Path]]:
    """Return how many names at its end a photo's path has in common with the nearest files, and these files."""
    parts = _parts(photo.path)
    n_equal_of = {}
    for other, file in same_name:
        pairs = zip(reversed(parts), reversed(other), strict=False)
        n_equal_of[file] = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    if photo.size is not None and max(n_equal_of.values(), default=0) < max(len(parts), 2):  # the path is another one
        n_equal_of = {file: n for file, n in n_equal_of.items() if file.stat().st_size == photo.size}
    n_equal = max(n_equal_of.values(), default=0)
    return n_equal, [file for file, n in n_equal_of.items() if n == n_equal]


def _parts(path: str) -> TagPath:
    """Return the names in a path, also one of Windows, as they are compared."""
    return tuple(part for part in name_key(path.replace("\\", "/")).casefold().split("/") if part)


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a database read-only and without locks; one that a program has open is copied, with its journal."""
    with tempfile.TemporaryDirectory(prefix="visterm-") as copies:
        for _ in range(MAX_COPIES):
            before, database = _state(path), path
            with suppress(FileNotFoundError):  # the program has deleted a journal in the meantime
                for file in before if any(size for size, _ in list(before.values())[1:]) else ():
                    database = Path(copies) / path.name
                    shutil.copyfile(file, database.with_name(file.name))
            if _state(path) == before:
                break
        else:
            raise TagFileError(f"{path} changes all the time.", setting="tags", advice="Close its program.")
        options = "mode=ro&immutable=1" if database == path else "mode=rw"
        with closing(sqlite3.connect(f"file:{quote(str(database.absolute()))}?{options}", uri=True)) as connection:
            connection.row_factory = sqlite3.Row
            yield connection
        if database == path and _state(path) != before:
            raise TagFileError(f"{path} was written while it was read.", setting="tags", advice="Try again.")


def _state(path: Path) -> dict[Path, tuple[int, int]]:
    """Return a database's file and its journals, as far as they exist, with their sizes and times of change."""
    files = [file for end in ("", "-wal", "-journal") if (file := Path(f"{path}{end}")).exists()]
    return {file: (file.stat().st_size, file.stat().st_mtime_ns) for file in files}


def _read_lightroom(path: Path) -> StoredTags:
    """Read a catalogue of Lightroom Classic: keywords of photos and their virtual copies, hierarchy and synonyms."""
    with _opened(path) as database:
        tags = _tag_paths(database.execute("SELECT * FROM AgLibraryKeyword"))
        given = defaultdict[int, list[TagPath]](list)
        for image, tag in database.execute("SELECT image, tag FROM AgLibraryKeywordImage ORDER BY id_local"):
            given[image] += [tags[tag]] if tag in tags else []
        photos: dict[str, StoredPhoto] = {}
        for row in database.execute(LIGHTROOM_PHOTOS):
            beside = (row["sidecars"] or "").split(",")  # such as the JPEG of a RAW file
            for end in (row["extension"], *(end for end in beside if f".{end.lower()}" in PHOTO_SUFFIXES)):
                name = f"{row['stem']}.{end or ''}".removesuffix(".")
                photos.setdefault(name, StoredPhoto(name, [], taken=row["taken"])).tags.extend(given[row["id"]])
        rows = database.execute("SELECT keyword, name FROM AgLibraryKeywordSynonym")
        synonyms = {row["name"]: tags[row["keyword"]] for row in rows if row["name"] and row["keyword"] in tags}
    return StoredTags(list(photos.values()), synonyms)


def _tag_paths(rows: Iterable[sqlite3.Row]) -> dict[int, TagPath]:
    """Return number -> path of the keywords that are exported, with those above as the options of Lightroom say."""
    keywords = {row["id_local"]: dict(row) for row in rows}
    paths: dict[int, TagPath] = {}
    for number, keyword in keywords.items():
        names: list[str] = []
        while keyword.get("name") is not None and len(names) < MAX_LEVELS:
            names += [str(keyword["name"])] if keyword.get("includeOnExport", 1) else []
            keyword = keywords.get(keyword["parent"], {}) if keyword.get("includeParents", 1) else {}
        if names and keywords[number].get("includeOnExport", 1):
            paths[number] = tuple(reversed(names))
    return paths


def _read_digikam(path: Path) -> StoredTags:
    """Read digiKam's database: the tags of visible photos, without faces that have no name or are not confirmed."""
    with _opened(path) as database:
        tags = _tag_paths(database.execute(DIGIKAM_TAGS))
        given = defaultdict[int, list[TagPath]](list)
        for image, tag in database.execute("SELECT imageid, tagid FROM ImageTags ORDER BY imageid, tagid"):
            given[image] += [tags[tag]] if tag in tags else []
        photos = [
            StoredPhoto(_volume(row["identifier"]) + row["path"], given[row["id"]], row["size"], row["taken"])
            for row in database.execute(DIGIKAM_PHOTOS)
        ]
    return StoredTags(photos)


def _volume(identifier: str | None) -> str:
    """Return the folder of a collection of digiKam, ``volumeid:?path=%2Fmnt``; empty if only its disk is known."""
    path = re.search(r"[?&](?:mount)?path=([^&]*)", identifier or "")
    return unquote(path[1]) if path else ""


def _read_apple_photos(path: Path) -> StoredTags:
    """Read the keywords of a library of Apple Photos; the photos are in its folder ``originals``."""
    with _opened(path / "database" / "Photos.sqlite") as database:
        tables = database.execute("SELECT name FROM sqlite_master WHERE name IN ('ZASSET', 'ZGENERICASSET')")
        assets, columns = next(tables)["name"], database.execute("PRAGMA table_info(Z_1KEYWORDS)")
        keyword = next(row["name"] for row in columns if row["name"].endswith("KEYWORDS"))  # such as Z_40KEYWORDS
        rows = database.execute(
            f"SELECT asset.ZDIRECTORY AS folder, asset.ZFILENAME AS name, keyword.ZTITLE AS tag FROM {assets} AS asset "
            "LEFT JOIN Z_1KEYWORDS AS given ON given.Z_1ASSETATTRIBUTES = asset.ZADDITIONALATTRIBUTES LEFT JOIN "
            f"ZKEYWORD AS keyword ON keyword.Z_PK = given.{keyword} WHERE asset.ZTRASHEDSTATE = 0 "
            "ORDER BY asset.Z_PK, keyword.Z_PK"
        )
        photos: dict[str, StoredPhoto] = {}
        for row in rows:
            name = str(path.absolute() / "originals" / (row["folder"] or "") / row["name"])
            photos.setdefault(name, StoredPhoto(name, [])).tags.extend([(row["tag"],)] if row["tag"] else [])
    return StoredTags(list(photos.values()))


def _read_takeout(path: Path) -> StoredTags:
    """Read an export of Google Takeout: people, and albums, whose folders have a file with their title.

    Names of JSON files are cut, and "(1)" stands in other places than in the photo's name: ``a.jpg(1).json`` is of
    ``a(1).jpg``.
    """
    photos: list[StoredPhoto] = []
    for folder, _, names in os.walk(path):
        contents: dict[str, Any] = {}
        for name in (name for name in names if suffix_of(name) == ".json"):
            with suppress(ValueError, OSError, RecursionError):  # it has no facts about a photo
                contents[name_key(name)] = json.loads(read_regular_text(Path(folder) / name, MAX_JSON))
        contents = {name: content for name, content in contents.items() if isinstance(content, dict)}
        albums = [content.get("albumData", content) for name, content in contents.items() if ALBUM_FILE.fullmatch(name)]
        titles = [str(album.get("title") or "").strip() for album in albums if isinstance(album, dict)]
        has_title = len(titles) == 1 and titles[0] and not DATE_FOLDER.fullmatch(Path(folder).name)
        sidecars = {name: content for name, content in contents.items() if "photoTakenTime" in content}
        for name in sorted(name for name in names if suffix_of(name) in IMAGE_SUFFIXES | VIDEO_SUFFIXES):
            facts: dict[str, Any] = next((sidecars[other] for other in _takeout_names(name_key(name), sidecars)), {})
            people = [person.get("name") for person in facts.get("people") or () if isinstance(person, dict)]
            tags = [] if facts.get("trashed") else [*(titles if has_title else ()), *people]
            file = Path(folder).absolute() / name
            photos.append(StoredPhoto(str(file), [(str(tag),) for tag in tags if tag], file.stat().st_size))
    return StoredTags(photos)


def _takeout_names(photo: str, sidecars: Mapping[str, Any]) -> Iterator[str]:
    """Yield the sidecars that may be of a photo, the likeliest first."""
    stem, suffix = os.path.splitext(photo)
    stems = list(dict.fromkeys((stem, EDITED.sub("", stem))))
    numbered = [match.groups() for match in map(NUMBERED.fullmatch, stems) if match]
    for name, number in (*((stem, "") for stem in stems), *numbered):
        whole = f"{name}{suffix}.supplemental-metadata"
        lengths = range(len(whole), len(f"{name}{suffix}") - 1, -1)
        cut = whole.encode("utf-16-le")[: 2 * TAKEOUT_NAME].decode("utf-16-le", "ignore")
        names = (f"{start}{number}.json" for start in (*(whole[:length] for length in lengths), cut, name))
        yield from (other for other in names if other in sidecars)


# Program -> the reader of its stores, and an example of a store's name
READERS: dict[str, tuple[Callable[[Path], StoredTags], str]] = {
    "lightroom": (_read_lightroom, "CATALOG.lrcat"),
    "digikam": (_read_digikam, "digikam4.db"),
    "apple-photos": (_read_apple_photos, "LIBRARY.photoslibrary"),
    "takeout": (_read_takeout, "FOLDER"),
}
