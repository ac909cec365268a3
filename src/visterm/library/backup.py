"""Back up a catalogue into one file, while it is in use, and restore it; rows are computed again.

BACKUP (a zip file)
├── manifest.json       kind, format, and the SHA-256 of each other file
├── catalogue.sqlite    images, tags, judgements, runs, history; without rows, features, predictions and jobs
└── runs/<fingerprint>/ the current run and the runs to go back to, as in the catalogue
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from visterm.core.errors import CorruptFileError, DataError, StorageError, UserError
from visterm.core.learned import HASH, Record, Sizes, Text, Whole
from visterm.core.persist import MANIFEST, folder_kind, new_folder, read_json, temporary_folder
from visterm.core.progress import SILENT, Progress
from visterm.core.types import CHUNK
from visterm.core.writing import sync, writing
from visterm.library.catalogue import Catalogue
from visterm.library.rows import RowWriter
from visterm.store import DATABASE, RUNS
from visterm.store.catalogue import StoredCatalogue
from visterm.store.history import CatalogueJob

BACKUP, FORMAT = "visterm backup", 1
BACK_UP, RESTORE = "back up", "restore"  # Kinds of history entries and jobs
COMPUTED = ("predictions", "rows", "dead_rows", "row_sums", "indexes", "segments", "features", "jobs")
"""Tables that are computed again, in the order in which they can be emptied."""

MANIFEST_KIND = Record({"kind": Text(), "format": Whole(least=1), "images": Whole(), "sha256": Record()})
READ_BYTES = 2**20


class BackedUp(NamedTuple):
    """A backup that was written."""

    path: Path
    images: int
    runs: int
    bytes: int


class Restored(NamedTuple):
    """What a restored catalogue has."""

    images: int
    rows: int  # Rows that were computed now
    missing: int  # Photos that were changed, or are no longer where they were


def back_up(catalogue: str | os.PathLike[str], path: str | os.PathLike[str], *, overwrite: bool = False) -> BackedUp:
    """Write a backup of a catalogue, which may be in use; the file gets its name when it is complete and checked.

    Raises UserError if there is a file at `path` and `overwrite` is False; StorageError if there is no catalogue, or
    the file cannot be written.
    """
    stored, out = StoredCatalogue.open(catalogue), Path(path)
    assert stored.folder is not None
    if out.exists() and not overwrite:
        raise UserError(f"{out} exists already.", setting="out", value=str(out), advice="Choose another name.")
    beside = out.with_name(f"visterm-backup-{socket.gethostname()}")  # whatever the file's name: it often has a date
    # SQLite works in the catalogue's folder; `out` may be on a network drive, where its locks fail
    with writing(out), temporary_folder(stored.folder / "backup") as temporary, temporary_folder(beside) as unfinished:
        database, part = temporary / DATABASE, unfinished / out.name
        stored.database.copy_to(database)
        _empty_computed(database)
        files = {DATABASE: database}
        folders = [folder for folder in sorted((stored.folder / RUNS).iterdir()) if (folder / MANIFEST).exists()]
        for folder in folders:
            files |= {f"{RUNS}/{folder.name}/{f.name}": f for f in sorted(folder.iterdir()) if f.is_file()}
        images = len(stored)
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
            sums = {}
            for name, file in files.items():
                content = file.read_bytes()
                sums[name] = hashlib.sha256(content).hexdigest()
                archive.writestr(name, content)
            manifest = {"kind": BACKUP, "format": FORMAT, "images": images, "sha256": sums}
            archive.writestr(MANIFEST, json.dumps(manifest, indent=1))
        with zipfile.ZipFile(part) as archive:
            _extract(archive, temporary / "read again", out)
        n_bytes = part.stat().st_size
        sync(part)
        os.replace(part, out)
        sync(out.parent)
    stored.history.note(BACK_UP, path=str(out.absolute()), images=images, bytes=n_bytes)
    return BackedUp(out, images, len(folders), n_bytes)


def restore(
    path: str | os.PathLike[str], catalogue: str | os.PathLike[str], *, progress: Progress = SILENT
) -> Restored:
    """Make a catalogue from a backup, and compute the rows of its photos; call it again to continue after a kill.

    Photos that are no longer at their path are encoded when they are found again: index their folder. Raises
    StorageError if there is another catalogue at `catalogue`, or no backup at `path`; CorruptFileError if the backup is
    damaged.
    """
    file, target = Path(path), Path(catalogue)
    try:
        archive = zipfile.ZipFile(file)
    except (OSError, zipfile.BadZipFile) as error:
        raise StorageError(f"{file} is not a backup of visterm: {error}.") from error
    with archive:
        manifest = _manifest(archive, file)
        mark = hashlib.sha256(json.dumps(manifest["sha256"], sort_keys=True).encode()).hexdigest()
        if folder_kind(target) != "catalogue":
            with new_folder(target, "catalogue", changing=True, restored_from=mark) as folder:
                _extract(archive, folder, file)
        elif read_json(target / MANIFEST).get("restored_from") != mark:
            raise StorageError(f"{target} is a catalogue already. Choose another name, or move it away.")

    opened = Catalogue.load(target)
    stored, tagger = opened.stored, opened.tagger
    run = stored.runs.current()
    with CatalogueJob(stored.jobs, RESTORE, None) as job, stored.writing():
        writer = RowWriter(tagger, stored, run.id)
        filled = writer.fill(CHUNK, job, progress)
        writer.predict(CHUNK, job, progress)
        stored.history.note(RESTORE, path=str(file.absolute()), rows=filled.rows)
    return Restored(stored.images.count(), filled.rows, len(stored.images.without_rows(run.id)))


def _empty_computed(database: Path) -> None:
    """Delete what is computed again, and the space that it took."""
    with closing(sqlite3.connect(database)) as connection:
        for table in COMPUTED:
            connection.execute(f"DELETE FROM {table}")
        connection.commit()
        connection.execute("PRAGMA journal_mode = DELETE")  # one file
        connection.execute("VACUUM")


def _manifest(archive: zipfile.ZipFile, file: Path) -> dict[str, Any]:
    """Read the manifest of a backup. Raises StorageError if it has none, or a newer visterm wrote it."""
    try:
        manifest: dict[str, Any] = json.loads(archive.read(MANIFEST))
        MANIFEST_KIND.check(manifest, Sizes())
        for name, digest in manifest["sha256"].items():
            Text(pattern=HASH).check(digest, Sizes())
            if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts or "\\" in name:
                raise ValueError(f"it names the file {name!r}")
    except (KeyError, ValueError, DataError, zipfile.BadZipFile) as error:
        raise StorageError(f"{file} is not a backup of visterm: {error}.") from error
    if manifest["kind"] != BACKUP or manifest["format"] > FORMAT:
        raise StorageError(
            f"{file} has format {manifest['format']} of '{manifest['kind']}'; this visterm reads up to {FORMAT}. "
            "Install a newer visterm."
        )
    return manifest


def _extract(archive: zipfile.ZipFile, folder: Path, file: Path) -> None:
    """Write the files of a backup into a folder. Raises CorruptFileError if one is missing or was changed."""
    for name, digest in _manifest(archive, file)["sha256"].items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        checksum = hashlib.sha256()
        try:
            with archive.open(name) as source, target.open("wb") as copy:
                while block := source.read(READ_BYTES):
                    checksum.update(block)
                    copy.write(block)
        except (KeyError, zipfile.BadZipFile, EOFError) as error:
            raise CorruptFileError(f"{file} is damaged: {name}: {error}. Restore another backup.") from error
        if checksum.hexdigest() != digest:
            raise CorruptFileError(f"{file} is damaged: {name} was changed. Restore another backup.")
