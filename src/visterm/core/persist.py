"""Folders that are whole or not there: JSON and safetensors, checksums stored and checked, nothing pickled."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
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
from visterm.core.learned import check_learned, learned_attributes
from visterm.core.packing import pack, put_times, unpack, without_times
from visterm.core.registry import Registry
from visterm.core.remote import RemotePath, as_path
from visterm.core.system import is_alive
from visterm.core.types import Arrays, Skipped
from visterm.core.wording import json_text
from visterm.core.writing import check_space, storage_error, sync, temporary_beside, whole_file, writing

LOG = logging.getLogger("visterm")
MANIFEST = "manifest.json"
FORMAT = 1
FORMAT_KEY = "visterm_format"
"""What the manifest calls the format. Folders from before the first release call it ``format`` and are refused."""

MOST_JSON = GB  # Bytes of a JSON file of a run or of another folder: the vocabulary of millions of tags is the largest
HOW_TO_MEND = "Restore it from a backup or make it anew."
HOW_TO_MAKE = {
    "run": "Make one with: visterm fit IMAGES --tags FILE -o RUN",
    "catalogue": "Make one with: visterm index RUN IMAGES -o CATALOGUE",
    "features folder": "Make one with: visterm encode IMAGES -o FEATURES",
}

TIMES = ".times.json"  # The end of files that say how long things took: the manifest has no checksums of them
MALFORMED = (
    ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, SafetensorError, TypeError, ValueError,
)  # fmt: skip
"""What Python and its libraries raise where a file's content has another form than the code that reads it expects."""

LONGEST_REASON = 200

_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+:/", re.IGNORECASE)


@contextmanager
def new_folder(
    path: str | os.PathLike[str],
    kind: str,
    *,
    changing: bool = False,
    check: Callable[[Path], None] | None = None,
    **facts: str,
) -> Iterator[Path]:
    """Yield a temporary folder to write into, and put it in place at the end, in one step.

    Whatever happens inside, `path` is afterwards either what it was, or whole. A folder that is there already is
    replaced only if it is of the same `kind` ("run", "catalogue", ...), which the manifest names and `open_folder`
    checks; it keeps `facts`, too. With `changing`, its files will be written to later, so no checksums of them are
    kept. `check` opens the folder as it was written, before it takes the place of an earlier one, and raises an error
    if it cannot be used. Raises StorageError if something else lies at `path`; DiskError if its disk is full, or
    refuses in another way; nothing is left of what was written.
    """
    target = Path(path)
    check_target(target, kind)
    with whole_folder(target) as temporary:
        yield temporary
        files = sorted(p for p in temporary.rglob("*") if p.is_file())
        lasting = [] if changing else [file for file in files if not file.name.endswith(TIMES)]
        sums = {p.relative_to(temporary).as_posix(): file_hash(p) for p in lasting}
        write_json(temporary / MANIFEST, {"kind": kind, FORMAT_KEY: FORMAT, "sha256": sums, **facts})
        if check is not None:
            check(temporary)
        for file in [*files, temporary / MANIFEST]:
            sync(file)
        sync(temporary)


@contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """Write a folder beside its place and put it there at the end, whatever lay there, without manifest or checksums.

    For thousands of files that are quickly made again, which `new_folder` would take long to hash and to sync. Raises
    DiskError if its disk is full, or refuses in another way; nothing is left of what was written.
    """
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    backup = _bring_back(target)
    shutil.rmtree(backup, ignore_errors=True)
    for folder in target.parent.glob(f".{target.name}.*-*.tmp"):  # what processes left that were killed
        pid = folder.name.removeprefix(f".{target.name}.").partition("-")[0]
        if not pid.isdigit() or not is_alive(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)

    temporary = temporary_beside(target)
    try:
        with writing(target):
            temporary.mkdir()
            yield temporary
            if target.exists():  # it goes aside, and `open_folder` brings it back if a kill falls in between
                os.replace(target, backup)
            os.replace(temporary, target)
            sync(target.parent)
            shutil.rmtree(backup, ignore_errors=True)
    except BaseException:
        _bring_back(target)
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def check_target(path: str | os.PathLike[str], kind: str) -> None:
    """Refuse, before any long work, a place where a folder of this kind may not be written."""
    target = Path(path)
    if _ADDRESS.match(os.fspath(path)):  # which Path has taken a slash from
        raise StorageError(f"{os.fspath(path)} is an address, and a {kind} is kept on this machine. Name a folder.")
    parent = next(folder for folder in target.absolute().parents if folder.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise StorageError(f"{target} cannot be written: {parent} is no folder that you may write to. Choose another.")
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    if not target.is_dir() or folder_kind(target) != kind:
        raise StorageError(
            f"{target} exists and is not a {kind} of visterm, so it is not replaced. Choose another name."
        )


def check_replaceable(path: str | os.PathLike[str], kind: str, *, overwrite: bool) -> None:
    """Refuse, before any long work, to replace a folder of this kind unless `overwrite` says so.

    One that also holds files that visterm did not write there is never replaced. Raises UserError; StorageError as
    `check_target` does.
    """
    check_target(path, kind)
    target = Path(path)
    if folder_kind(target) != kind:
        return
    ours = {MANIFEST, *read_json(target / MANIFEST).get("sha256", ())}
    names = [p.relative_to(target).as_posix() for p in sorted(target.rglob("*")) if p.is_file()]
    others = [name for name in names if name not in ours and not name.endswith(TIMES) and name[0] != "."]
    if others:
        raise StorageError(
            f"{target} is a {kind}, but visterm did not write all that it holds ({others[0]}), so it is not replaced. "
            "Move such files away, or choose another name."
        )
    if not overwrite:
        advice = "Choose another name, or replace it with `overwrite`."
        raise UserError(f"{target} is a {kind} already.", setting="overwrite", value=overwrite, advice=advice)


def open_folder(path: str | os.PathLike[str], kind: str) -> Path:
    """Find a folder that `new_folder` wrote, check its checksums, and return its path.

    Raises StorageError if nothing is there, or it is of another kind, of a newer format or from before the first
    release; CorruptFileError if a file is missing or was changed.
    """
    target = as_path(path)
    if isinstance(target, Path) and not target.exists():
        _bring_back(target)
    if not target.exists():
        raise StorageError(f"There is no {kind} at {target}. {HOW_TO_MAKE.get(kind, '')}")

    try:
        manifest = read_json(target / MANIFEST)
    except CorruptFileError:
        manifest = None
    actual_kind = manifest.get("kind") if isinstance(manifest, dict) else None
    if actual_kind != kind:
        actual = f"a {actual_kind}" if isinstance(actual_kind, str) else "not a folder written by visterm"
        raise StorageError(f"{target} is {actual}; expected a {kind}. {HOW_TO_MAKE.get(kind, '')}")
    if FORMAT_KEY not in manifest and "format" in manifest:
        raise StorageError(
            f"{target} is a {kind} from before visterm's first release, which is not read; expected format {FORMAT}. "
            f"{HOW_TO_MAKE.get(kind, 'Make it anew in another folder.')}"
        )
    if not isinstance(manifest.get(FORMAT_KEY), int) or not isinstance(manifest.get("sha256"), dict):
        raise CorruptFileError(f"{target / MANIFEST} lacks the format or the checksums. {HOW_TO_MEND}")
    if manifest[FORMAT_KEY] > FORMAT:
        newer = manifest[FORMAT_KEY]
        raise StorageError(f"{target} has format {newer}; this visterm reads up to {FORMAT}. Install a newer visterm.")

    for name, expected in manifest["sha256"].items():
        file = target / name
        if not file.is_file() or file_hash(file) != expected:
            state = "was changed since it was written" if file.is_file() else "is missing"
            raise CorruptFileError(f"{file} {state}: the {kind} cannot be trusted. {HOW_TO_MEND}")

    return target


def save_estimator(estimator: Estimator, registry: Registry, folder: Path, name: str) -> None:
    """Write an estimator as ``<name>.json`` (class by registered name, parameters) and ``<name>.safetensors`` (arrays).

    What is kept, and the errors, are those of `pack`. Seconds that training took go to ``<name>.times.json``, so that
    the other files are the same whenever the same is learned.
    """
    packed, arrays = pack(estimator, registry)
    description, times = without_times(packed)
    write_json(folder / f"{name}.json", description)
    save_arrays(folder / f"{name}.safetensors", arrays)
    if times:
        write_json(folder / f"{name}{TIMES}", times)


def read_description(folder: Path, name: str) -> Any:
    """Read the JSON of an estimator that `save_estimator` wrote, with the seconds that training took.

    Seconds that cannot be read are left out with a warning: nothing but reports shows them. Raises CorruptFileError if
    the estimator's file is no JSON.
    """
    description, file = read_json(folder / f"{name}.json"), folder / f"{name}{TIMES}"
    if file.exists():
        try:
            put_times(description, read_json(file))
        except (StorageError, DataError) as error:
            reason = str(error).rstrip(".")
            LOG.warning("%s cannot be used: %s. It only holds training times and can be removed.", file, reason)
    return description


def load_estimator(registry: Registry, folder: Path, name: str) -> Any:
    """Read what `save_estimator` wrote; whoever wrote it, nothing is used that is not as its class declares it.

    Raises CorruptFileError if the files cannot be read, or a setting or learned attribute is not as the class declares
    it; UnknownNameError, MissingExtraError if the class, or a setting, is not known here, or needs a package that is
    not there.
    """
    file = folder / f"{name}.json"
    description, arrays = read_description(folder, name), load_arrays(folder / f"{name}.safetensors")
    with refusing(file):
        estimator = unpack(registry, description, arrays)
        if not learned_attributes(estimator):
            check_learned(estimator)  # refuses one that lost all that it learned
    return estimator


@contextmanager
def refusing(file: Path) -> Iterator[None]:
    """Turn what is wrong with the content of a file into an error that names the file, and says what to do.

    Raises CorruptFileError in place of a `DataError`, of a `UserError` of settings that the file holds, and of whatever
    Python raises where a value is not of the form that the code expects.
    """
    try:
        yield
    except (UnknownNameError, MissingExtraError, StorageError):
        raise
    except (DataError, UserError) as error:
        reason = str(error).rstrip(".")
        raise CorruptFileError(f"{file}: {reason}. {HOW_TO_MEND}") from error
    except MALFORMED as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:LONGEST_REASON]
        raise CorruptFileError(f"{file} is not as visterm writes it ({reason}). {HOW_TO_MEND}") from error


def save_arrays(path: Path, arrays: Arrays, metadata: dict[str, str] | None = None) -> None:
    """Write named arrays as safetensors, if there is space for them."""
    check_space(path, sum(array.nbytes for array in arrays.values()))
    with writing(path):
        path.touch()
        mode = path.stat().st_mode
        save_file(arrays, path, metadata)
        path.chmod(stat.S_IMODE(mode))  # safetensors lets nobody else read it, whatever the umask says


def load_arrays(path: Path, only: str | None = None) -> Arrays:
    """Read what `save_arrays` wrote: all of it, or `only` one array, or the parts of one sparse matrix (`csr_parts`).

    Raises CorruptFileError if the file cannot be read, or is not whole: its arrays are never larger than the file.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            names = [name for name in file.keys() if only is None or name.partition(":")[0] == only]  # noqa: SIM118
            return {name: file.get_tensor(name) for name in names}
    except (OSError, SafetensorError, KeyError, ValueError, TypeError, OverflowError) as error:
        reason = str(error) or type(error).__name__
        raise CorruptFileError(f"{path} cannot be read as safetensors: {reason}. {HOW_TO_MEND}") from error


def file_hash(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file's bytes, in hex."""
    target: object = as_path(path)
    if isinstance(target, RemotePath):
        return hashlib.sha256(target.read_bytes()).hexdigest()
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_json(path: Path, value: object) -> None:
    """Write JSON that people can read and programs can compare."""
    path.write_text(json_text(value, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def read_json(path: Path) -> Any:
    """Read JSON, or say that the file is broken."""
    try:
        return json.loads(read_regular(path, MOST_JSON).decode("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        damaged = CorruptFileError(f"{path} cannot be read as JSON: {str(error).rstrip('.')}. {HOW_TO_MEND}")
        raise storage_error(error, path) or damaged from error


def write_skipped(path: Path, skipped: Iterable[Skipped]) -> None:
    """Write one JSON object a line for each image that could not be read; a list that does not fit the disk stays."""
    if path.exists() and not path.is_file():  # a pipe, or /dev/null
        path.write_bytes(skipped_bytes(skipped))
    else:
        with whole_file(path) as temporary:
            temporary.write_bytes(skipped_bytes(skipped))


def skipped_bytes(skipped: Iterable[Skipped]) -> bytes:
    """Return what `write_skipped` writes."""
    return "".join(json_text(item.as_dict()) + "\n" for item in skipped).encode()


def read_skipped(path: Path) -> list[Skipped]:
    """Read what `write_skipped` wrote."""
    with open_text(path) as lines:
        return [Skipped(**json.loads(line)) for line in lines]


def folder_kind(path: str | os.PathLike[str]) -> str | None:
    """Return the kind of a folder that `new_folder` wrote, or None for anything else."""
    file = as_path(path) / MANIFEST
    if isinstance(file, Path) and not os.path.isfile(file):
        return None
    try:
        manifest = read_json(file)
    except CorruptFileError:
        return None
    kind = manifest.get("kind") if isinstance(manifest, dict) else None
    return kind if isinstance(kind, str) else None


def _bring_back(target: Path) -> Path:
    """Put the old folder back in its place where a kill, or an error, fell between the two renames.

    Returns where an old folder waits while a new one takes its place.
    """
    backup = target.with_name(f".{target.name}.old")
    if not target.exists() and backup.exists():
        os.replace(backup, target)
    return backup
