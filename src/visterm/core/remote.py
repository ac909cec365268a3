"""Paths in object stores: `s3://bucket/photos` can be used like a local folder.

A `RemotePath` has the methods of `pathlib.Path` that reading needs, and writes an object atomically. It uses fsspec,
which is imported at the first access to an object, and not for local paths.

The command line opens only the stores that the user named (`only_named_stores`): a list of photos, or a catalogue from
someone else, could contain any address, including hosts that only this machine can reach.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any, cast

from visterm.core.errors import MissingExtraError, StorageError, UserError, VistermError

_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]+)://", re.IGNORECASE)
STORES_VARIABLE = "VISTERM_STORES"
"""Environment variable with the stores that this process and its child processes may open (``s3://bucket``). If it is
not set, as in Python programs, all stores may be opened."""

_NAMED_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://[^\s,]+", re.IGNORECASE)

_ETAGS = ("ETag", "etag", "md5Hash", "md5", "content_md5")
_DATES = ("LastModified", "last_modified", "updated", "mtime", "created")
_BLOCK_BYTES, _TEXT_BLOCK_BYTES = 2**16, 2**22


def as_remote(path: object) -> RemotePath | None:
    """Return an address (``s3://bucket/photos``) as a `RemotePath`; None for a local path, including ``file://``."""
    if not isinstance(path, str):
        return path if isinstance(path, RemotePath) else None
    scheme = _ADDRESS.match(path) if "://" in path else None  # lists of local files have hundreds of thousands of paths
    return None if scheme is None or scheme[1].lower() == "file" else RemotePath(scheme.string)


def is_remote(path: object) -> bool:
    """Return whether a value is an address in an object store; False for local paths and other objects."""
    return as_remote(path) is not None


def as_path(path: str | os.PathLike[str]) -> Path:
    """Return a local path, without ``file://``, as a `Path`, and an address as a `RemotePath`.

    The return type is `Path` because a `RemotePath` can be used in its place.
    """
    if isinstance(path, Path):
        return path
    text = os.fspath(path)
    remote = as_remote(path) or as_remote(text)
    if remote is not None:
        return cast("Path", remote)
    if _ADDRESS.match(text) is None:
        return Path(text)
    text = text[len("file://") :]
    return Path(text[1:] if os.path.splitdrive(text[1:])[0] else text)  # file:///C:/photos is C:/photos


def absolute(path: str | os.PathLike[str]) -> Path:
    """Return an absolute path; an address is returned unchanged."""
    target = as_path(path)
    return Path(os.path.abspath(target)) if isinstance(target, Path) else target


def real_path(path: str | os.PathLike[str]) -> str:
    """Return an absolute path with symbolic links resolved; an address is returned unchanged."""
    remote = as_remote(path)
    return str(remote) if remote is not None else os.path.realpath(path)


def start_of_paths(folder: str) -> str:
    """Return the prefix of the absolute paths of all files in a folder: the folder with a separator at the end."""
    separator = "/" if is_remote(folder) else os.sep
    return folder.rstrip(separator) + separator


@dataclass(frozen=True, order=True, slots=True)
class RemotePath(os.PathLike[str]):
    """An object, or all objects below a name, in an object store: ``s3://bucket/photos``.

    The scheme is one that fsspec supports. Credentials and endpoint come from the environment, for S3
    ``AWS_ACCESS_KEY_ID``, ``AWS_ENDPOINT_URL`` and so on.
    """

    address: str  # Without a trailing slash, the scheme in lower case

    def __post_init__(self) -> None:
        scheme, _, name = self.address.partition("://")
        object.__setattr__(self, "address", f"{scheme.lower()}://{name.strip('/')}")

    def __fspath__(self) -> str:
        return self.address

    def __str__(self) -> str:
        return self.address

    def __truediv__(self, name: str | os.PathLike[str]) -> RemotePath:
        return RemotePath(f"{self.address}/{os.fspath(name)}")

    @property
    def name(self) -> str:
        """The last part of the address."""
        return self.address.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """The extension of the name, with its dot."""
        return os.path.splitext(self.name)[1]

    @property
    def parent(self) -> RemotePath:
        """All but the last part; a bucket is its own parent."""
        scheme, _, name = self.address.partition("://")
        return RemotePath(f"{scheme}://{name.rpartition('/')[0] or name}")

    def as_posix(self) -> str:
        """Return the address."""
        return self.address

    def absolute(self) -> RemotePath:
        """Return the path itself, as every address is absolute."""
        return self

    def with_name(self, name: str) -> RemotePath:
        """Return the path with another name and the same parent."""
        return self.parent / name

    def is_relative_to(self, other: str | os.PathLike[str]) -> bool:
        """Return whether this address is equal to another address, or below it."""
        parent = str(as_path(other))
        return self.address == parent or self.address.startswith(f"{parent}/")

    def relative_to(self, other: str | os.PathLike[str]) -> PurePosixPath:
        """Return the name below another address. Raises ValueError if it is not below it."""
        if not self.is_relative_to(other):
            raise ValueError(f"{self.address} is not below {os.fspath(other)}")
        return PurePosixPath(self.address[len(str(as_path(other))) + 1 :])

    def exists(self) -> bool:
        """Return whether an object with this name, or below it, exists."""
        return bool(self._call("exists"))

    def is_file(self) -> bool:
        """Return whether an object with this name exists."""
        return bool(self._call("isfile"))

    def is_dir(self) -> bool:
        """Return whether objects below this name exist."""
        return bool(self._call("isdir"))

    def children(self) -> list[str]:
        """Return the sorted names of the objects and folders directly below this path."""
        key, names = self._list("ls", detail=False)
        return sorted({name.rstrip("/").rpartition("/")[2] for name in names if name.strip("/") != key.strip("/")})

    def files(self) -> list[str]:
        """Return the sorted names of all objects below this path, relative to it."""
        key, names = self._list("find")
        start = len(key.rstrip("/")) + 1
        return sorted(name[start:] for name in names if len(name) > start and not name.endswith("/"))

    def stamp(self) -> str | None:
        """Return a text that changes with the content: ETag (or date) and size; None if the object does not exist."""
        metadata = self._metadata()
        if metadata is None:
            return None
        version = next((metadata[name] for name in (*_ETAGS, *_DATES) if metadata.get(name)), "")
        return f"{version} {metadata.get('size')}"

    def state(self) -> tuple[int, int] | None:
        """Return size in bytes and upload time in nanoseconds (0 if unknown); None if the object does not exist."""
        metadata = self._metadata()
        if metadata is None:
            return None
        date = next((metadata[name] for name in _DATES if metadata.get(name)), 0)
        seconds = date.timestamp() if isinstance(date, datetime) else date
        return int(metadata.get("size") or 0), int(seconds * 1e9) if isinstance(seconds, int | float) else 0

    def _metadata(self) -> dict[str, Any] | None:
        """Return the store's metadata of the object; None if it does not exist."""
        try:
            metadata: dict[str, Any] = self._call("info")
        except FileNotFoundError:
            return None
        return metadata

    def _list(self, method: str, **options: object) -> tuple[str, list[str]]:
        """Return the store's key of this path, and the names that the store's method ("ls" or "find") lists for it."""
        with opened_store(self.address, "read") as (store, key):
            try:
                return key, getattr(store, method)(key, **options)
            except FileNotFoundError:
                return key, []

    def _call(self, method: str) -> Any:
        """Call a method of the store with the key of this path, and return its result."""
        with opened_store(self.address, "read") as (store, key):
            return getattr(store, method)(key)

    def open(self, mode: str = "r", *, encoding: str | None = None, newline: str | None = None) -> Any:
        """Open for reading, as text or as bytes; only the blocks that are read are fetched."""
        with opened_store(self.address, "read") as (store, key):
            if "b" in mode:
                return store.open(key, "rb", block_size=_BLOCK_BYTES, cache_type="readahead")
            file = store.open(key, "rb", block_size=_TEXT_BLOCK_BYTES, cache_type="readahead")
            return io.TextIOWrapper(file, encoding=encoding or "utf-8", newline=newline)

    def read_bytes(self) -> bytes:
        """Return the content of the object.

        Raises FileNotFoundError if it does not exist; StorageError if the store cannot be reached or denies access.
        """
        return bytes(self._call("cat_file"))

    def read_text(self, encoding: str | None = None) -> str:
        """Return the content of the object as text."""
        return self.read_bytes().decode(encoding or "utf-8")

    def write_bytes(self, content: bytes) -> None:
        """Write the object atomically: after an error, the old object is unchanged."""
        with opened_store(self.address, "written") as (store, key):
            store.pipe_file(key, content)

    def create(self, content: bytes) -> bool:
        """Write the object if no object with this name exists; return whether it was written."""
        with opened_store(self.address, "written") as (store, key):
            try:
                store.pipe_file(key, content, mode="create")
            except FileExistsError:
                return False
            return True

    def unlink(self, missing_ok: bool = False) -> None:
        """Delete the object."""
        with opened_store(self.address, "written") as (store, key):
            try:
                store.rm_file(key)
            except (FileNotFoundError, KeyError):
                if not missing_ok:
                    raise


@contextmanager
def only_named_stores(words: Iterable[str]) -> Iterator[None]:
    """Allow only the stores of the addresses in `words`, such as a command line, and in the environment."""
    old_value = os.environ.get(STORES_VARIABLE)
    addresses = [address for word in (*words, old_value or "") for address in _NAMED_ADDRESS.findall(word)]
    os.environ[STORES_VARIABLE] = " ".join(dict.fromkeys(map(_store_name, addresses)))
    try:
        yield
    finally:
        if old_value is None:
            del os.environ[STORES_VARIABLE]
        else:
            os.environ[STORES_VARIABLE] = old_value


def check_named(address: str) -> None:
    """Raise UserError for an address in a store that the user has not named.

    A chain of addresses, in which one store opens another, is refused as well.
    """
    if os.environ.get(STORES_VARIABLE) is None:
        return
    if "::" in address:
        raise UserError(f"{address} is a chain of addresses, which is not opened. Use an address such as s3://bucket.")
    if not is_named(address):
        raise UserError(
            f"{address} is in a store that was not named when visterm was started, so it is not opened. If you trust "
            f"it, name it: {STORES_VARIABLE}={_store_name(address)} visterm ..."
        )


def is_named(address: str) -> bool:
    """Return whether the store or server of an address may be opened; in Python programs always True."""
    allowed_stores = os.environ.get(STORES_VARIABLE)
    return allowed_stores is None or _store_name(address) in allowed_stores.split()


def _store_name(address: str) -> str:
    """Return the scheme with the bucket or host of an address: ``s3://bucket``."""
    scheme, _, name = address.partition("://")
    return f"{scheme.lower()}://{name.split('/')[0]}"


@contextmanager
def opened_store(address: str, mode: str) -> Iterator[tuple[Any, str]]:
    """Yield the store of an address and the key in the store; convert the store's errors to visterm's.

    `mode`, "read" or "written", is for messages. Raises FileNotFoundError if `mode` is "read" and no object exists;
    MissingExtraError if the store's package is not installed; UserError if the address is invalid or its store was not
    named (`check_named`); StorageError if the store cannot be reached or denies access.
    """
    check_named(address)
    try:
        yield _store_of(address)
    except VistermError:
        raise
    except FileNotFoundError as error:
        if mode == "read":
            raise
        raise StorageError(f"{address} cannot be written: {error}. Does the bucket exist?") from error
    except Exception as error:  # the library of each store has its own errors
        raise StorageError(
            f"{address} cannot be {mode}: {type(error).__name__}: {error}. Check the address, the network and, in the "
            "environment, endpoint and credentials (for S3: AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, or AWS_PROFILE)."
        ) from error


def _store_of(address: str) -> tuple[Any, str]:
    """Return fsspec's file system for an address, without a cache of listings, and the key in the file system."""
    try:
        from fsspec.core import url_to_fs

        store, name = url_to_fs(address, use_listings_cache=False)
    except ImportError as error:
        raise MissingExtraError(f"{address} needs a package: {error}. For S3: pip install 'visterm[s3]'") from error
    except ValueError as error:
        raise UserError(f"The address {address} is not understood: {error}. Write s3://bucket/photos.") from error
    return store, str(name)
