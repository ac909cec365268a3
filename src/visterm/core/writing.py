"""Writing files atomically, locks, and clear errors for a full or failing disk.

A full disk causes an `OSError`, an error text from a library in Rust or C++, or, for a memory map, a signal that ends
the process. `storage_error` recognises the first two, and `new_map` prevents the third.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import socket
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import DTypeLike, NDArray

from visterm.core.errors import DiskError, OutOfSpaceError, StorageError, VistermError
from visterm.core.remote import is_remote
from visterm.core.system import limit_of
from visterm.core.types import Place

_FULL_DISK_CODES = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_OTHER_DISK_CODES = (errno.EROFS, errno.EMFILE, errno.ENFILE, errno.EIO)
_RUST_ERROR = re.compile(r"\(os error (\d+)\)")
_CODES = {
    text: code for code in (*_FULL_DISK_CODES, *_OTHER_DISK_CODES) if (text := os.strerror(code)) != "Unknown error"
}
_C_ERROR = re.compile("|".join(map(re.escape, _CODES)))

_TEMPORARY_NAME = re.compile(r"^\..*\.tmp|^\.unfinished$")
"""Names of visterm's temporary files and folders, which are renamed when they are complete."""

_UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))

_BLOCK_BYTES = 2**20


def storage_error(error: BaseException, path: Place | None = None) -> DiskError | None:
    """Return a `DiskError` for an error of the disk or the system; None for other errors and for a `VistermError`.

    `path` is the file that was being written. If the error has a file name in another folder, or `path` is None, the
    file name of the error is used.
    """
    if isinstance(error, VistermError):
        return None
    filename = getattr(error, "filename", None)
    is_elsewhere = isinstance(filename, str) and (
        path is None or not Path(filename).absolute().is_relative_to(Path(path).absolute().parent)
    )
    return disk_error(_error_number(error), filename if path is None or is_elsewhere else path)


def disk_error(code: int | None, path: Place | None = None) -> DiskError | None:
    """Return the `DiskError` for an error number of the system; None if the number is not about a disk."""
    if code not in (*_FULL_DISK_CODES, *_OTHER_DISK_CODES):
        return None
    file = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    disk, free_bytes = _disk_text(file), None if file is None else _free_bytes(file)
    max_file_bytes, max_files = limit_of("RLIMIT_FSIZE"), limit_of("RLIMIT_NOFILE")
    free_text = "" if free_bytes is None else f" ({in_bytes(free_bytes)} free)"
    limit_text = "" if max_file_bytes is None else f" ({in_bytes(max_file_bytes)})"
    advice = "Close other programs" if max_files is None else f"The limit is {max_files:,}. Raise it (ulimit -n)"
    too_many_files = f"{f'{file} cannot be opened: too' if file else 'Too'} many files are open. {advice}."
    messages = {
        errno.ENOSPC: f"{disk} is full{free_text}. Make space there and try again.",
        errno.EDQUOT: f"The quota of {disk.lower()} is used up. Make space there or get a larger quota.",
        errno.EFBIG: f"A file {f'of {file} ' if file else ''}grew beyond the largest size that is allowed{limit_text}. "
        "Raise the limit (ulimit -f), or write to a disk that takes larger files.",
        errno.EROFS: f"{disk} is read-only. Write to another disk, or mount it with write access.",
        errno.EMFILE: too_many_files,
        errno.ENFILE: too_many_files,
        errno.EIO: f"{disk} fails (input/output error). Look at the system's log, and save your data.",
    }
    return OutOfSpaceError(messages[code]) if code in _FULL_DISK_CODES else DiskError(messages[code])


@contextmanager
def writing(path: Place) -> Iterator[None]:
    """Convert errors of the disk while files are written at `path` into a `DiskError`."""
    try:
        yield
    except Exception as error:  # libraries in Rust and C++ have their own errors for a full disk
        refusal = storage_error(error, path)
        if refusal is None:
            raise
        raise refusal from error


def check_space(path: Place, n_bytes: int) -> None:
    """Raise OutOfSpaceError if the disk of `path` has less than `n_bytes` free."""
    free_bytes = _free_bytes(os.fspath(path))
    if free_bytes is not None and n_bytes > free_bytes:
        raise OutOfSpaceError(
            f"{_disk_text(os.fspath(path))} has too little space: {in_bytes(n_bytes)} needed, {in_bytes(free_bytes)} "
            "free. Make space there and try again."
        )


@contextmanager
def whole_file(path: Place, *, shared: bool = False) -> Iterator[Path]:
    """Yield a temporary path in the folder of `path`, rename it to `path` at the end, and wait until it is on disk.

    After an error or a kill, the old file is unchanged. With `shared`, other processes may write the same file, so the
    temporary name is unique. Otherwise the name is always the same, and the next call overwrites a file that a killed
    process left. Raises DiskError.
    """
    path = Path(path)
    temporary = temporary_beside(path) if shared else path.with_name(f".{path.name}.tmp")
    try:
        with writing(path):
            yield temporary
            sync(temporary)
            os.replace(temporary, path)
            sync(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def temporary_beside(path: Path) -> Path:
    """Return a unique path in the same folder for a temporary file; its name contains the process id."""
    return path.with_name(f".{path.name}.{os.getpid()}-{uuid.uuid4().hex[:8]}.tmp")


def write_whole(path: Path, content: bytes) -> None:
    """Write a file atomically, also in an object store; after a kill or on a full disk, the old file is unchanged."""
    if is_remote(path):
        path.write_bytes(content)
        return
    with whole_file(path, shared=True) as temporary:
        temporary.write_bytes(content)


def new_map(path: Path, dtype: DTypeLike, shape: tuple[int, ...]) -> NDArray[Any]:
    """Create a `.npy` file of zeros as a writable memory map, and allocate all its disk space.

    Without the allocation, a disk that becomes full later would end the process with a signal (SIGBUS) and no message.
    Raises OutOfSpaceError if the disk has too little space; the file is then deleted.
    """
    n_bytes = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    with writing(path):
        check_space(path, n_bytes)
        try:
            start = open_memmap(path, "w+", dtype, shape).offset
            with path.open("r+b") as file:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file.fileno(), 0, max(1, start + n_bytes))
                else:
                    file.seek(start)
                    for begin in range(0, n_bytes, _BLOCK_BYTES):
                        file.write(bytes(min(_BLOCK_BYTES, n_bytes - begin)))
        except OSError:
            path.unlink(missing_ok=True)
            raise
        array: NDArray[Any] = open_memmap(path, "r+")
    return array


def find_write_error(path: Path, n_bytes: int = 2**16) -> DiskError | None:
    """Try to write a file in the folder of `path`, and return the error, if any; SQLite's errors lack the reason."""
    try:
        with tempfile.TemporaryFile(dir=path.parent) as probe:
            probe.write(bytes(n_bytes))
            probe.flush()
    except OSError as error:
        return storage_error(error, path)
    return None


def sync(path: Place) -> None:
    """Wait until a file, or a folder's list of files, is on disk."""
    is_folder = os.path.isdir(path)
    try:  # Windows syncs only files that are opened for writing
        descriptor = os.open(path, os.O_RDWR if not is_folder and os.access(path, os.W_OK) else os.O_RDONLY)
    except PermissionError:
        if is_folder:  # Windows cannot open folders, and writes the list of files by itself
            return
        raise
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(path: Path, refusal: Callable[[str], StorageError]) -> Iterator[None]:
    """Hold a lock file during the block; if another process has it, raise ``refusal(holder)`` with its description.

    A second file describes the holder, because a locked file cannot be read on Windows.
    """
    from filelock import FileLock, Timeout  # not at the top: it imports asyncio

    lock, note = FileLock(path, thread_local=False), holder_note(path)

    try:
        lock.acquire(blocking=False)
    except Timeout as error:
        holder = "another process"
        with suppress(OSError, ValueError, KeyError, TypeError):  # the holder may not have written its note yet
            facts = json.loads(note.read_text("utf-8"))
            holder = f"process {facts['pid']} on {facts['host']} since {facts['since']}"
        raise refusal(holder) from error

    try:
        since = datetime.now(UTC).isoformat(timespec="seconds")
        note.write_text(json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": since}), "utf-8")
        yield
    finally:
        with suppress(OSError):  # another process may be reading it
            note.unlink()
        lock.release()


def holder_note(path: Path) -> Path:
    """Return the path of the file that describes the holder of a lock."""
    return path.with_name(f"{path.name}.json")


def in_bytes(n: int) -> str:
    """Return a number of bytes for people: ``3.4 MB``."""
    for unit, size in _UNITS:
        if n >= size:
            return f"{n / size:.1f} {unit}"
    return f"{n} bytes"


def _error_number(error: BaseException) -> int | None:
    """Return the system's error number of an exception, also from its text; None if it has no such number."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    text = str(error)
    rust_match = _RUST_ERROR.search(text)
    if rust_match:
        code = int(rust_match[1])
        return OSError(code, "", None, code).errno  # translates a Windows error number
    c_match = _C_ERROR.search(text)
    return _CODES[c_match[0]] if c_match else None


def _disk_text(file: str | None) -> str:
    """Return "The disk of PATH" for messages; for a temporary file, PATH is the folder in which it was created."""
    if not file:
        return "The disk"
    path = Path(file)
    temporary = [folder for folder in (path, *path.parents) if _TEMPORARY_NAME.match(folder.name)]
    return f"The disk of {temporary[-1].parent if temporary else path}"


def _free_bytes(file: str) -> int | None:
    """Return the number of free bytes on the disk of a path; None if unknown."""
    for folder in (Path(file), *Path(file).absolute().parents):
        with suppress(OSError):
            return shutil.disk_usage(folder).free
    return None
