"""Paths in object stores: `s3://bucket/photos` stands where a folder of this machine may, and is read as one.

A `RemotePath` has those methods of `pathlib.Path` that reading needs, and writes an object in one step: it is whole or
not there. fsspec does the work, and is imported at the first object, never for paths of this machine.

A program that a person starts opens only the stores that this person named (`only_named_stores`): a catalogue that
somebody else made, or a list of photos, could name any address, also of hosts that only this machine can reach.
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
NAMED = "VISTERM_STORES"
"""The environment variable that lists the stores that may be opened (``s3://bucket``), also by processes that are
started; where there is none, all may: in Python whoever writes the program names them."""

_NAMED_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://[^\s,]+", re.IGNORECASE)

_ETAGS = ("ETag", "etag", "md5Hash", "md5", "content_md5")
_DATES = ("LastModified", "last_modified", "updated", "mtime", "created")
_BLOCK, _TEXT_BLOCK = 2**16, 2**22


def as_remote(path: object) -> RemotePath | None:
    """Return an address (``s3://bucket/photos``) as what it is; None for a path of this machine, as ``file://`` is."""
    if isinstance(path, RemotePath):
        return path
    scheme = _ADDRESS.match(path) if isinstance(path, str) else None
    return None if scheme is None or scheme[1].lower() == "file" else RemotePath(scheme.string)


def is_remote(path: object) -> bool:
    """Return whether a path is an address, not one on this machine, and no other object."""
    return as_remote(path) is not None


def as_path(path: str | os.PathLike[str]) -> Path:
    """Return a path of this machine as it is, ``file://`` taken off, and an address as a `RemotePath`.

    It is typed as the `Path` that it stands in for.
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


def in_full(path: str | os.PathLike[str]) -> Path:
    """Return a path from the root of this machine on; an address is one already."""
    target = as_path(path)
    return Path(os.path.abspath(target)) if isinstance(target, Path) else target


def real_path(path: str | os.PathLike[str]) -> str:
    """Return a path from the root of this machine on, links followed; an address is one already."""
    remote = as_remote(path)
    return str(remote) if remote is not None else os.path.realpath(path)


def start_of_paths(folder: str) -> str:
    """Return what the paths in full of all that lies in a folder begin with."""
    separator = "/" if is_remote(folder) else os.sep
    return folder.rstrip(separator) + separator


@dataclass(frozen=True, order=True, slots=True)
class RemotePath(os.PathLike[str]):
    """An object, or all objects below a name, in an object store: ``s3://bucket/photos``.

    The scheme is one that fsspec knows; credentials and endpoint are what its library finds, in the environment for S3
    (``AWS_ACCESS_KEY_ID``, ``AWS_ENDPOINT_URL``, ...).
    """

    address: str  # Without a slash at its end, the scheme in small letters

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
        """The ending of the name, with its dot."""
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
        """Return the path itself: an address has nothing before it."""
        return self

    def with_name(self, name: str) -> RemotePath:
        """Return the path of another name beside this one."""
        return self.parent / name

    def is_relative_to(self, other: str | os.PathLike[str]) -> bool:
        """Return whether this is below another address, or is it."""
        above = str(as_path(other))
        return self.address == above or self.address.startswith(f"{above}/")

    def relative_to(self, other: str | os.PathLike[str]) -> PurePosixPath:
        """Return the name below another address. Raises ValueError if it is not below it."""
        if not self.is_relative_to(other):
            raise ValueError(f"{self.address} is not below {os.fspath(other)}")
        return PurePosixPath(self.address[len(str(as_path(other))) + 1 :])

    def exists(self) -> bool:
        """Return whether there is an object of this name, or one below it."""
        return bool(self._ask("exists"))

    def is_file(self) -> bool:
        """Return whether there is an object of this name."""
        return bool(self._ask("isfile"))

    def is_dir(self) -> bool:
        """Return whether there are objects below this name."""
        return bool(self._ask("isdir"))

    def children(self) -> list[str]:
        """List the names right below this one, of objects and of what has objects below it; sorted."""
        key, names = self._listed("ls", detail=False)
        return sorted({each.rstrip("/").rpartition("/")[2] for each in names if each.strip("/") != key.strip("/")})

    def files(self) -> list[str]:
        """List the names of all objects below this one, as `relative_to` gives them; sorted."""
        key, names = self._listed("find")
        start = len(key.rstrip("/")) + 1
        return sorted(each[start:] for each in names if len(each) > start and not each.endswith("/"))

    def stamp(self) -> str | None:
        """Return what another content changes: the store's tag of it (ETag) and its size, or its date; None if gone."""
        facts = self._facts()
        if facts is None:
            return None
        tag = next((facts[name] for name in (*_ETAGS, *_DATES) if facts.get(name)), "")
        return f"{tag} {facts.get('size')}"

    def state(self) -> tuple[int, int] | None:
        """Return the size in bytes and the time of upload in nanoseconds (0 if the store has none); None if gone."""
        facts = self._facts()
        if facts is None:
            return None
        date = next((facts[name] for name in _DATES if facts.get(name)), 0)
        seconds = date.timestamp() if isinstance(date, datetime) else date
        return int(facts.get("size") or 0), int(seconds * 1e9) if isinstance(seconds, int | float) else 0

    def _facts(self) -> dict[str, Any] | None:
        """Return what the store says of the object; None if there is none."""
        try:
            facts: dict[str, Any] = self._ask("info")
        except FileNotFoundError:
            return None
        return facts

    def _listed(self, how: str, **settings: object) -> tuple[str, list[str]]:
        """Return the store's name of this path, and the names that one of its methods lists there."""
        with opened_store(self.address, "read") as (store, key):
            try:
                return key, getattr(store, how)(key, **settings)
            except FileNotFoundError:
                return key, []

    def _ask(self, question: str) -> Any:
        """Call a method of the store that takes the name of an object."""
        with opened_store(self.address, "read") as (store, key):
            return getattr(store, question)(key)

    def open(self, mode: str = "r", *, encoding: str | None = None, newline: str | None = None) -> Any:
        """Open for reading: as text, part after part; as bytes, fetching only the parts that are read."""
        with opened_store(self.address, "read") as (store, key):
            if "b" in mode:
                return store.open(key, "rb", block_size=_BLOCK, cache_type="readahead")
            file = store.open(key, "rb", block_size=_TEXT_BLOCK, cache_type="readahead")
            return io.TextIOWrapper(file, encoding=encoding or "utf-8", newline=newline)

    def read_bytes(self) -> bytes:
        """Fetch the object.

        Raises FileNotFoundError if there is none; StorageError if the store cannot be reached, or does not allow it.
        """
        return bytes(self._ask("cat_file"))

    def read_text(self, encoding: str | None = None) -> str:
        """Fetch the object as text."""
        return self.read_bytes().decode(encoding or "utf-8")

    def write_bytes(self, content: bytes) -> None:
        """Put the object, in one step: until then, and if this fails, the old one is there."""
        with opened_store(self.address, "written") as (store, key):
            store.pipe_file(key, content)

    def create(self, content: bytes) -> bool:
        """Put the object unless there is one of this name; return whether it was put."""
        with opened_store(self.address, "written") as (store, key):
            try:
                store.pipe_file(key, content, mode="create")
            except FileExistsError:
                return False
            return True

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove the object."""
        with opened_store(self.address, "written") as (store, key):
            try:
                store.rm_file(key)
            except (FileNotFoundError, KeyError):
                if not missing_ok:
                    raise


@contextmanager
def only_named_stores(words: Iterable[str]) -> Iterator[None]:
    """Open no stores but those of the addresses in some words, such as a command line, and of the environment."""
    before = os.environ.get(NAMED)
    addresses = [address for word in (*words, before or "") for address in _NAMED_ADDRESS.findall(word)]
    os.environ[NAMED] = " ".join(dict.fromkeys(map(_store_name, addresses)))
    try:
        yield
    finally:
        if before is None:
            del os.environ[NAMED]
        else:
            os.environ[NAMED] = before


def check_named(address: str) -> None:
    """Refuse an address in a store that nobody has named.

    Raises UserError if so, or it is a chain of addresses, in which one store opens another.
    """
    if os.environ.get(NAMED) is None:
        return
    if "::" in address:
        raise UserError(f"{address} is a chain of addresses, which is not opened. Use an address such as s3://bucket.")
    if not is_named(address):
        raise UserError(
            f"{address} lies in a store that was not named when visterm was started, so it is not opened: a catalogue, "
            f"a list or a run may name any. If you trust it, name it: {NAMED}={_store_name(address)} visterm ..."
        )


def is_named(address: str) -> bool:
    """Return whether the store, or the server, of an address was named; in Python, all are."""
    named = os.environ.get(NAMED)
    return named is None or _store_name(address) in named.split()


def _store_name(address: str) -> str:
    """Return what names the store of an address: its scheme and bucket, or host."""
    scheme, _, name = address.partition("://")
    return f"{scheme.lower()}://{name.split('/')[0]}"


@contextmanager
def opened_store(address: str, what: str) -> Iterator[tuple[Any, str]]:
    """Yield the store of an address and the name there; its errors become ours.

    `what`, "read" or "written", is for messages. Raises FileNotFoundError if an object that is read is not there;
    MissingExtraError if the store's package is not installed; UserError if no store has such addresses, or nobody has
    named this one (`check_named`); StorageError if the store cannot be reached, or does not allow it.
    """
    check_named(address)
    try:
        yield _store_of(address)
    except VistermError:
        raise
    except FileNotFoundError as error:
        if what == "read":
            raise
        raise StorageError(f"{address} cannot be written: {error}. Is the bucket there?") from error
    except PermissionError as error:
        raise StorageError(
            f"{address} may not be {what}: {error}. Check the credentials in the environment (for S3: "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE)."
        ) from error
    except Exception as error:  # each library of a store has errors of its own
        raise StorageError(
            f"{address} cannot be {what}: {type(error).__name__}: {error}. Check the address, the network and, in the "
            "environment, endpoint and credentials (for S3: AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, "
            "AWS_SECRET_ACCESS_KEY)."
        ) from error


def _store_of(address: str) -> tuple[Any, str]:
    """Return fsspec's file system of an address, which keeps no listings for others to outdate, and the name there."""
    try:
        from fsspec.core import url_to_fs

        store, name = url_to_fs(address, use_listings_cache=False)
    except ImportError as error:
        raise MissingExtraError(f"{address} needs a package: {error}. For S3: pip install 'visterm[s3]'") from error
    except ValueError as error:
        raise UserError(f"The address {address} is not understood: {error}. Write s3://bucket/photos.") from error
    return store, str(name)
