"""What an image file holds, told without decoding it: the hash of its bytes, and what another content changes first."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from visterm.core.persist import file_hash
from visterm.core.remote import RemotePath, is_remote
from visterm.data.fetching import READERS


def content_hash(path: Path) -> str | None:
    """Give the SHA-256 of an image file; None where it cannot be read, which the encoder then tells the reason of."""
    try:
        if is_remote(path):
            return file_hash(path)
        return file_hash(path) if stat.S_ISREG(path.stat().st_mode) else None  # a named pipe would wait for ever
    except OSError:
        return None


def stamps(paths: Sequence[Path]) -> list[object]:
    """Give what a file that is written again changes, or an object that is put again; None of what is not there."""
    if any(map(is_remote, paths)):
        with ThreadPoolExecutor(READERS, thread_name_prefix="visterm-fetch") as pool:
            return list(pool.map(_stamp, paths))
    return [_stamp(path) for path in paths]


def stamp_hash(stamp: object) -> str | None:
    """Give what stands for the content of an object: the SHA-256 of its stamp; None of files of this machine.

    The store has hashed what it holds (ETag), and to fetch a library only to see that nothing in it has changed would
    take as long as to encode it.
    """
    return hashlib.sha256(stamp.encode()).hexdigest() if isinstance(stamp, str) else None


def _stamp(path: Path) -> object:
    if isinstance(path, RemotePath):
        return path.stamp()
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
