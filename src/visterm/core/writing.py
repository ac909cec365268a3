"""Writing to a disk that may refuse: files that are whole or as they were, locks, and one error that says what to do.

A full disk reaches us as an `OSError`, as text of a library in Rust or C++, or, of a memory map, as a signal that ends
the process; `storage_error` reads the first two, `new_map` prevents the third.
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

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_OTHERS = (errno.EROFS, errno.EMFILE, errno.ENFILE, errno.EIO)
_IN_RUST = re.compile(r"\(os error (\d+)\)")
_CODES = {text: code for code in (*_FULL, *_OTHERS) if (text := os.strerror(code)) != "Unknown error"}
_IN_C = re.compile("|".join(map(re.escape, _CODES)))

_OURS = re.compile(r"^\..*\.tmp|^\.unfinished$")
"""Files and folders that only we know of: what is being written, and is put in place at the end."""

_UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))

_BLOCK = 2**20

Place = str | os.PathLike[str]


def storage_error(error: BaseException, path: Place | None = None) -> DiskError | None:
    """Return an error of ours that says how the disk or the system refused; None for an error of any other kind.

    An error of ours gives None: it says already what it has to. `path` is what was being written, unless the error
    names a file in another folder; None is the file that the error names.
    """
    if isinstance(error, VistermError):
        return None
    named = getattr(error, "filename", None)
    elsewhere = isinstance(named, str) and (
        path is None or not Path(named).absolute().is_relative_to(Path(path).absolute().parent)
    )
    return disk_error(_code_of(error), named if path is None or elsewhere else path)


def disk_error(code: int | None, path: Place | None = None) -> DiskError | None:
    """Return the error of ours that an error number of the system means; None for those that mean something else."""
    if code not in (*_FULL, *_OTHERS):
        return None
    file = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    disk, free = _disk_of(file), None if file is None else _free(file)
    largest, most_files = limit_of("RLIMIT_FSIZE"), limit_of("RLIMIT_NOFILE")
    if code == errno.ENOSPC:
        remaining = "" if free is None else f" ({in_bytes(free)} free)"
        return OutOfSpaceError(f"{disk} is full{remaining}. Make space there and try again.")

    if code == errno.EDQUOT:
        return OutOfSpaceError(f"The quota of {disk.lower()} is used up. Make space there or get a larger quota.")
    if code == errno.EFBIG:
        return OutOfSpaceError(
            f"A file {f'of {file} ' if file else ''}grew beyond the largest size that is allowed"
            f"{'' if largest is None else f' ({in_bytes(largest)})'}. Raise the limit (ulimit -f), or write to a disk "
            "that takes larger files."
        )

    too = f"{file} cannot be opened: too" if file else "Too"
    advice = "Close other programs" if most_files is None else f"The limit is {most_files:,}. Raise it (ulimit -n)"
    others = {
        errno.EROFS: f"{disk} is read-only. Write to another, or mount it so that it can be written.",
        errno.EMFILE: f"{too} many files are open. {advice}.",
        errno.ENFILE: f"{too} many files are open. {advice}.",
        errno.EIO: f"{disk} fails (input/output error). Look at the system's log, and save your data.",
    }
    return DiskError(others[code])


@contextmanager
def writing(path: Place) -> Iterator[None]:
    """Turn what the disk of `path` refuses while files are written there into a `DiskError`."""
    try:
        yield
    except Exception as error:  # libraries in Rust and C++ raise errors of their own for a full disk
        ours = storage_error(error, path)
        if ours is None:
            raise
        raise ours from error


def check_space(path: Place, n_bytes: int) -> None:
    """Raise OutOfSpaceError, with the bytes that are missing, if `n_bytes` are more than are free."""
    free = _free(os.fspath(path))
    if free is not None and n_bytes > free:
        raise OutOfSpaceError(
            f"{_disk_of(os.fspath(path))} has too little space: {in_bytes(n_bytes)} needed, {in_bytes(free)} free. "
            "Make space there and try again."
        )


@contextmanager
def whole_file(path: Place, *, shared: bool = False) -> Iterator[Path]:
    """Yield a temporary file beside `path`, and put it in place at the end, on disk when this returns.

    Whatever happens inside, the file is afterwards what it was, or whole. With `shared`, others may be writing the same
    file, such as a worker that was given up: the temporary name is nobody else's, and begins with the number of the
    process. Else it is always the same, so that what a kill leaves is written over by the next. Raises DiskError.
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
    """Return a name beside a path that nobody else has, with the number of this process in it."""
    return path.with_name(f".{path.name}.{os.getpid()}-{uuid.uuid4().hex[:8]}.tmp")


def write_whole(path: Path, content: bytes) -> None:
    """Write a file in one step, also in an object store; a kill or a full disk leaves the old one, or none."""
    if is_remote(path):
        path.write_bytes(content)
        return
    with whole_file(path, shared=True) as temporary:
        temporary.write_bytes(content)


def new_map(path: Path, dtype: DTypeLike, shape: tuple[int, ...]) -> NDArray[Any]:
    """Make a `.npy` file, full of zeros, that is mapped to be written; all its space is taken now.

    Without that a disk that fills up later ends the process with a signal (SIGBUS), and no message. Raises
    OutOfSpaceError if there is too little space; no file is left.
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
                    for begin in range(0, n_bytes, _BLOCK):
                        file.write(bytes(min(_BLOCK, n_bytes - begin)))
        except OSError:
            path.unlink(missing_ok=True)
            raise
        made: NDArray[Any] = open_memmap(path, "r+")
    return made


def why_refused(path: Path, n_bytes: int = 2**16) -> DiskError | None:
    """Find out what SQLite and other programs leave out of their errors, by writing some bytes beside a file."""
    try:
        with tempfile.TemporaryFile(dir=path.parent) as probe:
            probe.write(bytes(n_bytes))
            probe.flush()
    except OSError as error:
        return storage_error(error, path)
    return None


def sync(path: Place) -> None:
    """Wait until a file, or the list of files of a folder, is on disk; of folders, where the system opens them."""
    is_folder = os.path.isdir(path)
    try:  # Windows syncs only what may be written
        descriptor = os.open(path, os.O_RDWR if not is_folder and os.access(path, os.W_OK) else os.O_RDONLY)
    except PermissionError:
        if is_folder:  # on Windows, which keeps such lists by itself
            return
        raise
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(path: Path, refusal: Callable[[str], StorageError]) -> Iterator[None]:
    """Hold the lock of a file, which is made; raise what `refusal` makes of the name of its holder if another has it.

    A file beside it names the holder: on Windows nobody else can read a locked file.
    """
    from filelock import FileLock, Timeout  # which loads asyncio

    lock, note = FileLock(path, thread_local=False), holder_note(path)

    try:
        lock.acquire(blocking=False)
    except Timeout as error:
        holder = "another process"
        with suppress(OSError, ValueError, KeyError, TypeError):  # it has just taken the lock and not written its name
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
    """Return the file that says who holds a lock."""
    return path.with_name(f"{path.name}.json")


def in_bytes(n: int) -> str:
    """Return a size as people read it: ``3.4 MB``."""
    for unit, size in _UNITS:
        if n >= size:
            return f"{n / size:.1f} {unit}"
    return f"{n} bytes"


def _code_of(error: BaseException) -> int | None:
    """Return the error number of the system that an error stands for, if any."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    text = str(error)
    in_rust = _IN_RUST.search(text)
    if in_rust:
        code = int(in_rust[1])
        return OSError(code, "", None, code).errno  # on Windows it is a number of Windows, which this translates
    in_c = _IN_C.search(text)
    return _CODES[in_c[0]] if in_c else None


def _disk_of(file: str | None) -> str:
    """Name a disk by a path that its reader knows: not by that of one of our temporary files."""
    if not file:
        return "The disk"
    path = Path(file)
    hidden = [folder for folder in (path, *path.parents) if _OURS.match(folder.name)]
    return f"The disk of {hidden[-1].parent if hidden else path}"


def _free(file: str) -> int | None:
    """Return the free bytes of the disk that a path is on; None where that cannot be known."""
    for folder in (Path(file), *Path(file).absolute().parents):
        with suppress(OSError):
            return shutil.disk_usage(folder).free
    return None
