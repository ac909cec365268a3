"""Opening files that people name: only regular ones, never waiting, and never more of them than is expected."""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader, TextIOWrapper
from typing import TextIO

from visterm.core.remote import RemotePath, as_path, is_remote

KB, MB, GB = 2**10, 2**20, 2**30


class NotRegularError(OSError):
    """What was named is a named pipe, a device or a socket."""


def open_regular(path: str | os.PathLike[str], limit: int | None = None) -> BufferedReader:
    """Open a file of this machine for reading, if it is a regular one of at most `limit` bytes.

    A named pipe would wait for a writer for ever, and a device (or a link to one, such as ``/dev/zero``) may never end.
    Raises OSError if it is not there, no regular file, or larger; ``strerror`` says so in words for people.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, flags)
    except PermissionError:
        if os.path.isdir(path):  # Windows opens no folders
            raise _not_regular(path, stat.S_IFDIR) from None
        raise
    except ValueError as error:  # a NUL, or half of a surrogate pair: no file can have that name
        raise FileNotFoundError(errno.ENOENT, "no file can have this name", ascii(os.fspath(path))) from error

    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise _not_regular(path, status.st_mode)
        if limit is not None and status.st_size > limit:
            raise _too_large(path, limit)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def open_text(path: str | os.PathLike[str], *, encoding: str = "utf-8", newline: str | None = None) -> TextIO:
    """Open a file of this machine or of an object store for reading it as text, part after part.

    Raises OSError as `open_regular` does.
    """
    if is_remote(path):
        return as_path(path).open(encoding=encoding, newline=newline)
    return TextIOWrapper(open_regular(path), encoding=encoding, newline=newline)


def why_no_file(path: str | os.PathLike[str]) -> str:
    """Return why there is no regular file, or object, at a path: "does not exist", "is a folder"."""
    target = as_path(path)
    return "is a folder" if target.is_dir() else "is no regular file" if target.exists() else "does not exist"


def read_regular(path: str | os.PathLike[str], limit: int) -> bytes:
    """Read a whole file, of this machine or of an object store, that has at most `limit` bytes.

    Raises OSError as `open_regular`; of a file that grows while it is read, too.
    """
    target: object = as_path(path)
    with target.open("rb") if isinstance(target, RemotePath) else open_regular(path, limit) as file:
        parts, size = [], 0
        while size <= limit and (part := file.read(MB)):  # which sets aside as much memory as it may read
            parts.append(part)
            size += len(part)
    if size > limit:
        raise _too_large(path, limit)
    return b"".join(parts)


def read_regular_text(path: str | os.PathLike[str], limit: int) -> str:
    """Read a whole file as UTF-8. Raises OSError as `read_regular`; UnicodeDecodeError if it is in another encoding."""
    return read_regular(path, limit).decode("utf-8")


def _not_regular(path: str | os.PathLike[str], mode: int) -> OSError:
    """Return the error for what is no regular file, in words for people."""
    if stat.S_ISDIR(mode):
        return IsADirectoryError(errno.EISDIR, "it is a folder, not a regular file", os.fspath(path))
    kinds = {
        stat.S_IFIFO: "a named pipe",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
        stat.S_IFSOCK: "a socket",
    }
    kind = kinds.get(stat.S_IFMT(mode), "something else")
    return NotRegularError(errno.EINVAL, f"it is {kind}, not a regular file", os.fspath(path))


def _too_large(path: str | os.PathLike[str], limit: int) -> OSError:
    """Return the error for a file of more than `limit` bytes."""
    sizes = ((GB, "GiB"), (MB, "MiB"), (KB, "KiB"))
    size = next((f"{limit // unit:,} {name}" for unit, name in sizes if limit >= unit), f"{limit:,} bytes")
    return OSError(errno.EFBIG, f"it is larger than {size}, which is more than such a file has", os.fspath(path))
