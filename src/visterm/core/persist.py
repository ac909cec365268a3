"""Folders that are written atomically: JSON and safetensors with stored checksums; nothing is pickled."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import lru_cache
from glob import escape
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from visterm.core.errors import (
    CorruptFileError,
    DataError,
    MissingExtraError,
    StorageError,
    UnknownNameError,
    UserError,
)
from visterm.core.estimator import Estimator
from visterm.core.files import GB, open_regular, open_text, read_regular
from visterm.core.registry import Registry
from visterm.core.remote import RemotePath, as_path
from visterm.core.system import is_alive
from visterm.core.types import Arrays, Place, Skipped
from visterm.core.wording import json_text
from visterm.core.writing import check_space, storage_error, sync, temporary_beside, write_whole, writing

LOG = logging.getLogger("visterm")
MANIFEST = "manifest.json"
FORMAT = 1
FORMAT_KEY = "visterm_format"  # Key of the format in the manifest

UPGRADES: dict[int, Callable[[Path], None]] = {}
"""Format n -> the upgrade of a run's files, in a copy of its folder, to format n + 1; see `open_folder`.

To change the files of runs, raise `FORMAT` by one, and add an upgrade. Folders of other kinds are read in all formats.
"""

UPGRADE_SECONDS = 600.0  # Maximum time to wait while another process upgrades the same run
MAX_JSON_BYTES = GB  # Maximum size of a JSON file: a vocabulary of millions of tags is the largest
REPAIR_ADVICE = "Restore it from a backup or make it again."
CREATION_ADVICE = {
    "run": "Make one with: visterm fit IMAGES --tags FILE -o RUN; a catalogue's own are in CATALOGUE/runs",
    "catalogue": "Make one with: visterm index RUN IMAGES -o CATALOGUE",
    "features folder": "Make one with: visterm encode IMAGES -o FEATURES",
}

TIMES_SUFFIX = ".times.json"  # Files of training times, which have no checksums in the manifest
CONTENT_ERRORS = (
    ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, SafetensorError, TypeError, ValueError,
)  # fmt: skip
"""Errors that Python and its libraries raise if a file's content does not have the expected form."""

MAX_REASON_LENGTH = 200

_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+:/", re.IGNORECASE)


@contextmanager
def new_folder(
    path: Place, kind: str, *, changing: bool = False, check: Callable[[Path], None] | None = None, **facts: str
) -> Iterator[Path]:
    """Yield a temporary folder to write into, and move it to `path` at the end, atomically.

    After an error or a kill, `path` is unchanged. An existing folder is replaced only if it has the same `kind` ("run",
    "catalogue", ...). The manifest stores the kind, which `open_folder` checks, and `facts`. With `changing`, no
    checksums are stored, as the files will be changed later. `check` is called with the temporary folder before the
    move, and raises an error if the folder cannot be used. Raises StorageError if something else is at `path`;
    DiskError if the disk is full or cannot be written.
    """
    target = Path(path)
    check_target(target, kind)
    with whole_folder(target) as temporary:
        yield temporary
        files = sorted(p for p in temporary.rglob("*") if p.is_file())
        hashed_files = [] if changing else [file for file in files if not file.name.endswith(TIMES_SUFFIX)]
        checksums = {p.relative_to(temporary).as_posix(): file_hash(p) for p in hashed_files}
        write_json(temporary / MANIFEST, {"kind": kind, FORMAT_KEY: FORMAT, "sha256": checksums, **facts})
        if check is not None:
            check(temporary)
        for file in [*files, temporary / MANIFEST]:
            sync(file)
        sync(temporary)


@contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """Yield a temporary folder to write into, and replace `target` with it at the end, without manifest or checksums.

    It is for thousands of files that are quick to recompute, but slow to hash and to sync, as `new_folder` does. Raises
    DiskError if the disk is full or cannot be written; the temporary folder is then deleted.
    """
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    backup = _restore_backup(target)
    shutil.rmtree(backup, ignore_errors=True)
    try:
        with writing(target), temporary_folder(target) as temporary:
            yield temporary
            if target.exists():  # `open_folder` restores the backup after a kill between the two renames
                os.replace(target, backup)
            os.replace(temporary, target)
            sync(target.parent)
            shutil.rmtree(backup, ignore_errors=True)
    except BaseException:
        _restore_backup(target)
        raise


@contextmanager
def temporary_folder(target: Path) -> Iterator[Path]:
    """Yield a new folder beside `target`, and delete it afterwards, with those that killed processes left before."""
    for folder in target.parent.glob(f".{escape(target.name)}.*-*.tmp"):
        pid = folder.name.removeprefix(f".{target.name}.").partition("-")[0]
        if not pid.isdigit() or not is_alive(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)
    temporary = temporary_beside(target)
    try:
        temporary.mkdir()
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def check_target(path: Place, kind: str) -> None:
    """Raise StorageError, before any long work, if a folder of this kind may not be written at `path`."""
    target = Path(path)
    if _ADDRESS.match(os.fspath(path)):  # not `target`: Path removes a slash
        raise StorageError(f"{os.fspath(path)} is an address, and a {kind} is kept on this machine. Name a folder.")
    parent = next(folder for folder in target.absolute().parents if folder.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise StorageError(f"{target} cannot be written: {parent} is not a writable folder. Choose another.")
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    if not target.is_dir() or folder_kind(target) != kind:
        raise StorageError(
            f"{target} exists and is not a {kind} of visterm, so it is not replaced. Choose another name."
        )


def check_replaceable(path: Place, kind: str, *, overwrite: bool) -> None:
    """Raise UserError, before any long work, if `path` is an existing folder of this kind and `overwrite` is False.

    Raises StorageError if the folder also has files that visterm did not write, or as `check_target` does.
    """
    check_target(path, kind)
    target = Path(path)
    if folder_kind(target) != kind:
        return
    visterm_names = {MANIFEST, *_read_manifest(target).get("sha256", ())}
    names = [p.relative_to(target).as_posix() for p in sorted(target.rglob("*")) if p.is_file()]
    other_names = [n for n in names if n not in visterm_names and not n.endswith(TIMES_SUFFIX) and n[0] != "."]
    if other_names:
        raise StorageError(
            f"{target} is a {kind}, but visterm did not write all that it holds ({other_names[0]}), so it is not "
            "replaced. Move such files away, or choose another name."
        )
    if not overwrite:
        advice = "Choose another name, or replace it with `overwrite`."
        raise UserError(f"{target} is a {kind} already.", setting="overwrite", value=overwrite, advice=advice)


def open_folder(path: Place, kind: str) -> Path:
    """Check the manifest and the checksums of a folder that `new_folder` wrote, and return its path.

    A run of an older format is upgraded: a changed copy of its folder replaces it. Raises StorageError if the folder
    does not exist, has another kind or a format that is not read, or cannot be upgraded where it is; CorruptFileError
    if a file is missing or was changed.
    """
    target = as_path(path)
    if isinstance(target, Path) and not target.exists():
        _restore_backup(target)
    if not target.exists():
        raise StorageError(f"There is no {kind} at {target}. {CREATION_ADVICE.get(kind, '')}")

    manifest = _read_manifest(target)
    if manifest.get("kind") != kind:
        actual = f"a {manifest['kind']}" if manifest else "not a folder written by visterm"
        raise StorageError(f"{target} is {actual}; expected a {kind}. {CREATION_ADVICE.get(kind, '')}")
    if not isinstance(manifest.get(FORMAT_KEY), int) or not isinstance(manifest.get("sha256"), dict):
        raise CorruptFileError(f"{target / MANIFEST} lacks the format or the checksums. {REPAIR_ADVICE}")
    check_format(target, manifest[FORMAT_KEY], FORMAT, UPGRADES)
    for name, expected in manifest["sha256"].items():
        file = target / name
        if not file.is_file() or file_hash(file) != expected:
            state = "was changed since it was written" if file.is_file() else "is missing"
            raise CorruptFileError(f"{file} {state}: the {kind} cannot be trusted. {REPAIR_ADVICE}")

    if kind == "run" and manifest[FORMAT_KEY] < FORMAT:
        _upgrade_run(target)
    return target


def check_format(path: object, number: int, newest: int, upgrades: Mapping[int, object]) -> None:
    """Raise StorageError if a format is newer than `newest`, or older than the first from which there is an upgrade."""
    oldest = min(upgrades, default=newest)
    if number > newest:
        raise StorageError(f"{path} has format {number}; this visterm reads up to {newest}. Install a newer visterm.")
    if number < oldest:
        advice = "Open it with the visterm of a release in between, which upgrades it."
        raise StorageError(f"{path} has format {number}; this visterm reads {oldest} to {newest}. {advice}")


def _upgrade_run(target: Path) -> None:
    """Replace a run's folder by an upgraded copy; the old folder is kept until the copy is in its place."""
    if not isinstance(target, Path) or not os.access(target.absolute().parent, os.W_OK):
        advice = "Copy it to a folder in which you can write."
        raise StorageError(f"{target} has an older format than {FORMAT} and cannot be upgraded where it is. {advice}")
    from filelock import FileLock  # not at the top: it imports asyncio

    lock = target.with_name(f".{target.name}.lock")
    with FileLock(lock, timeout=UPGRADE_SECONDS):
        manifest = read_json(target / MANIFEST)
        number, facts = manifest.pop(FORMAT_KEY), {k: v for k, v in manifest.items() if k not in ("kind", "sha256")}
        if number < FORMAT:  # no other process has upgraded it in the meantime
            with new_folder(target, "run", **facts) as copy:
                shutil.copytree(target, copy, dirs_exist_ok=True)
                (copy / MANIFEST).unlink()
                for version in range(number, FORMAT):
                    UPGRADES[version](copy)
        with suppress(OSError):  # on Windows the lock removes it
            lock.unlink()


def save_estimator(estimator: Estimator, registry: Registry, folder: Path, name: str) -> None:
    """Write an estimator as ``<name>.json`` (class by registered name, parameters) and ``<name>.safetensors`` (arrays).

    `pack` says which attributes are saved, and raises the errors. Training times are written to ``<name>.times.json``,
    so the other files are reproducible.
    """
    from visterm.core.packing import pack, without_times  # here, as sparse matrices take longest to import

    packed, arrays = pack(estimator, registry)
    description, times = without_times(packed)
    write_json(folder / f"{name}.json", description)
    save_arrays(folder / f"{name}.safetensors", arrays)
    if times:
        write_json(folder / f"{name}{TIMES_SUFFIX}", times)


def read_description(folder: Path, name: str) -> Any:
    """Read the JSON of an estimator that `save_estimator` wrote, with its training times.

    If the training times cannot be read, a warning is logged: only reports use them. Raises CorruptFileError if the
    estimator's file is not JSON.
    """
    description, file = read_json(folder / f"{name}.json"), folder / f"{name}{TIMES_SUFFIX}"
    if file.exists():
        from visterm.core.packing import put_times

        try:
            put_times(description, read_json(file))
        except (StorageError, DataError) as error:
            reason = str(error).rstrip(".")
            LOG.warning("%s cannot be used: %s. It only holds training times and can be removed.", file, reason)
    return description


def load_estimator(registry: Registry, folder: Path, name: str) -> Any:
    """Load an estimator that `save_estimator` wrote, from files that may come from an untrusted source.

    Raises CorruptFileError if the files cannot be read, or a setting or learned attribute is not as the class declares
    it; UnknownNameError or MissingExtraError if the class or a setting is unknown, or needs a package that is not
    installed.
    """
    from visterm.core.packing import unpack

    file = folder / f"{name}.json"
    description, arrays = read_description(folder, name), load_arrays(folder / f"{name}.safetensors")
    with refusing(file):
        return unpack(registry, description, arrays)


@contextmanager
def refusing(file: Path) -> Iterator[None]:
    """Turn errors about the content of a file into a `CorruptFileError` that names the file and says what to do.

    It replaces `DataError`, `UserError` (an invalid setting in the file), and the errors in `CONTENT_ERRORS`.
    """
    try:
        yield
    except (UnknownNameError, MissingExtraError, StorageError):
        raise
    except (DataError, UserError) as error:
        reason = str(error).rstrip(".")
        raise CorruptFileError(f"{file}: {reason}. {REPAIR_ADVICE}") from error
    except CONTENT_ERRORS as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:MAX_REASON_LENGTH]
        raise CorruptFileError(f"{file} is not as visterm writes it ({reason}). {REPAIR_ADVICE}") from error


def save_arrays(path: Path, arrays: Arrays, metadata: dict[str, str] | None = None) -> None:
    """Write named arrays as safetensors, if the disk has space for them."""
    check_space(path, sum(array.nbytes for array in arrays.values()))
    with writing(path):
        path.touch()
        mode = path.stat().st_mode
        save_file(arrays, path, metadata)
        path.chmod(stat.S_IMODE(mode))  # safetensors makes files private, regardless of the umask


def load_arrays(path: Path, only: str | None = None) -> Arrays:
    """Load the arrays that `save_arrays` wrote; with `only`, one array or the parts of one sparse matrix (`csr_parts`).

    Raises CorruptFileError if the file cannot be read or is truncated.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            names = [name for name in file.keys() if only is None or name.partition(":")[0] == only]  # noqa: SIM118
            return {name: file.get_tensor(name) for name in names}
    except (OSError, SafetensorError, KeyError, ValueError, TypeError, OverflowError) as error:
        reason = str(error) or type(error).__name__
        raise CorruptFileError(f"{path} cannot be read as safetensors: {reason}. {REPAIR_ADVICE}") from error


def file_hash(path: Place) -> str:
    """Return the SHA-256 of a file's bytes, in hex."""
    target: object = as_path(path)
    if isinstance(target, RemotePath):
        return hashlib.sha256(target.read_bytes()).hexdigest()
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def current_hash(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a local file, read again only when its size or time has changed."""
    status = os.stat(path)
    return _hash_at(os.path.abspath(path), status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=64)
def _hash_at(path: str, mtime_ns: int, size: int) -> str:
    return file_hash(path)


def write_json(path: Path, value: object) -> None:
    """Write JSON, indented and with sorted keys."""
    path.write_text(json_text(value, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def read_json(path: Path) -> Any:
    """Read JSON. Raises CorruptFileError if the file is not valid JSON; DiskError if the disk fails."""
    try:
        return json.loads(read_regular(path, MAX_JSON_BYTES).decode("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        corrupt_error = CorruptFileError(f"{path} cannot be read as JSON: {str(error).rstrip('.')}. {REPAIR_ADVICE}")
        raise storage_error(error, path) or corrupt_error from error


def write_skipped(path: Path, skipped: Iterable[Skipped]) -> None:
    """Write a JSON line for each image that could not be read; if the disk is full, the old file is unchanged."""
    write_whole(path, "".join(json_text(asdict(item)) + "\n" for item in skipped).encode())


def read_skipped(path: Path) -> list[Skipped]:
    """Read the list of skipped images that `write_skipped` wrote."""
    with open_text(path) as lines:
        return [Skipped(**json.loads(line)) for line in lines]


def folder_kind(path: Place) -> str | None:
    """Return the kind of a folder that `new_folder` wrote; None for anything else."""
    kind: str | None = _read_manifest(as_path(path)).get("kind")
    return kind


def _read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of a folder that `new_folder` wrote; {} for anything else."""
    if isinstance(folder, Path) and not os.path.isfile(folder / MANIFEST):
        return {}
    try:
        manifest = read_json(folder / MANIFEST)
    except CorruptFileError:
        return {}
    return manifest if isinstance(manifest, dict) and isinstance(manifest.get("kind"), str) else {}


def _restore_backup(target: Path) -> Path:
    """Restore the old folder after a kill or an error between the two renames of `whole_folder`.

    Returns the path of the backup, to which `whole_folder` moves the old folder before it renames the new one.
    """
    backup = target.with_name(f".{target.name}.old")
    if not target.exists() and backup.exists():
        os.replace(backup, target)
    return backup
