"""What an image file holds, told without decoding it: size, date and hash, on this machine and in object stores."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from visterm.core.files import open_regular
from visterm.core.persist import file_hash
from visterm.core.remote import as_path, as_remote, is_remote
from visterm.core.threads import resolve_jobs
from visterm.data.fetching import READERS

T = TypeVar("T")


def content_hash(path: str | os.PathLike[str]) -> str | None:
    """Return the SHA-256 of an image file; None where it cannot be read, which the encoder then tells the reason of.

    For an object that of its stamp stands, see `stamp_hash`.
    """
    remote = as_remote(path)
    if remote is not None:
        return stamp_hash(remote.stamp())
    try:
        return file_hash(path)
    except OSError:
        return None


def stamps(paths: Sequence[Path]) -> list[object]:
    """Return what a file that is written again changes, or an object that is put again; None of what is not there."""
    return _of_all(_stamp, paths)


def stamp_hash(stamp: object) -> str | None:
    """Return what stands for the content of an object: the SHA-256 of its stamp; None of files of this machine.

    The store has hashed what it holds (ETag), and to fetch a library only to see that nothing in it has changed would
    take as long as to encode it.
    """
    return hashlib.sha256(stamp.encode()).hexdigest() if isinstance(stamp, str) else None


def file_states(paths: Sequence[str | None]) -> list[tuple[int, int] | None]:
    """Return size and date of files, see `file_state`, of objects many at the same time; None stays None."""
    return _of_all(lambda path: None if path is None else file_state(path), paths)


def file_state(path: str) -> tuple[int, int] | None:
    """Return the size of a file in bytes, and when it was last changed in nanoseconds; None of what is not there."""
    remote = as_remote(path)
    if remote is not None:
        return remote.state()
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns


def reading_threads(paths: Sequence[Any], n_jobs: int | None) -> int:
    """Say how many threads look at files: those that are asked for, and no fewer than a store answers at a time."""
    wanted = resolve_jobs(n_jobs)
    return max(wanted, READERS) if any(map(is_remote, paths)) else wanted


def is_there(path: str | os.PathLike[str]) -> bool:
    """Return whether there is a file, or an object."""
    return as_path(path).exists()


@contextmanager
def readable(path: str | os.PathLike[str]) -> Iterator[Any]:
    """Yield what Pillow reads an image from: a regular file, or an object of which it fetches no more than it reads.

    Raises
    ------
    OSError
        If there is no such file or object, or it is no regular file.
    """
    with as_path(path).open("rb") if is_remote(path) else open_regular(path) as file:
        yield file


def _of_all(told: Callable[[Any], T], paths: Sequence[Any]) -> list[T]:
    if any(map(is_remote, paths)):
        with ThreadPoolExecutor(READERS, thread_name_prefix="visterm-fetch") as pool:
            return list(pool.map(told, paths))
    return [told(path) for path in paths]


def _stamp(path: Path) -> object:
    remote = as_remote(path)
    if remote is not None:
        return remote.stamp()
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
