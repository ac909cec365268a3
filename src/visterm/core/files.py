"""Opening files that users name: only regular files up to a size limit, without ever blocking."""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader, TextIOWrapper
from typing import TextIO

from visterm.core.remote import RemotePath, as_path, is_remote

KB, MB, GB = 2**10, 2**20, 2**30


class NotRegularError(OSError):
    """The path is a named pipe, a device or a socket."""


def open_regular(path: str | os.PathLike[str], limit: int | None = None) -> BufferedReader:
    """Open a local, regular file of at most `limit` bytes for reading.

    Opening a named pipe could block for ever, and a device (or a link to it, such as ``/dev/zero``) may be endless.
    Raises OSError, with a readable ``strerror``, if the file does not exist, is not regular, or is too large.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, flags)
    except PermissionError:
        if os.path.isdir(path):  # Windows cannot open folders
            raise _not_regular(path, stat.S_IFDIR) from None
        raise
    except ValueError as error:  # a NUL or a lone surrogate: no file can have that name
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
    """Open a local file, or an object in a store, as text.

    Raises OSError as `open_regular` does.
    """
    if is_remote(path):
        return as_path(path).open(encoding=encoding, newline=newline)
    return TextIOWrapper(open_regular(path), encoding=encoding, newline=newline)


def why_no_file(path: str | os.PathLike[str]) -> str:
    """Return why a path is not a regular file or object: "does not exist", "is a folder", ..."""
    target = as_path(path)
    return "is a folder" if target.is_dir() else "is not a regular file" if target.exists() else "does not exist"


def read_regular(path: str | os.PathLike[str], limit: int) -> bytes:
    """Return the content of a local file, or of an object in a store, of at most `limit` bytes.

    Raises OSError as `open_regular` does, also if the file grows above the limit while it is read.
    """
    target: object = as_path(path)
    with target.open("rb") if isinstance(target, RemotePath) else open_regular(path, limit) as file:
        chunks, size = [], 0
        while size <= limit and (chunk := file.read(MB)):  # `read` allocates as much memory as requested
            chunks.append(chunk)
            size += len(chunk)
    if size > limit:
        raise _too_large(path, limit)
    return b"".join(chunks)


def read_regular_text(path: str | os.PathLike[str], limit: int) -> str:
    """Return the content of a file as text. Raises OSError as `read_regular` does; UnicodeDecodeError if not UTF-8."""
    return read_regular(path, limit).decode("utf-8")


def _not_regular(path: str | os.PathLike[str], mode: int) -> OSError:
    """Return the error for a path that is not a regular file, with a readable ``strerror``."""
    if stat.S_ISDIR(mode):
        return IsADirectoryError(errno.EISDIR, "it is a folder, not a regular file", os.fspath(path))
    return NotRegularError(errno.EINVAL, "it is a pipe, a device or a socket, not a regular file", os.fspath(path))


def _too_large(path: str | os.PathLike[str], limit: int) -> OSError:
    """Return the error for a file of more than `limit` bytes."""
    sizes = ((GB, "GiB"), (MB, "MiB"), (KB, "KiB"))
    size = next((f"{limit // unit:,} {name}" for unit, name in sizes if limit >= unit), f"{limit:,} bytes")
    return OSError(errno.EFBIG, f"it is larger than {size}, which is more than such a file has", os.fspath(path))
