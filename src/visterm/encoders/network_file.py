"""The file that a network is read from: named by its content, and found again where it is or where it was."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache

from visterm.core.errors import EncoderMismatchError, StorageError
from visterm.core.files import GB, read_regular

MOST_GRAPH = 2 * GB  # Bytes of an ONNX file: protocol buffers end there, and larger weights lie in files beside it


def network_hash(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a network file, read again only when its size or time has changed.

    Raises StorageError if there is no such file, or it cannot be read.
    """
    try:
        status = os.stat(path)
    except OSError as error:
        raise missing(path) from error
    try:
        return _hash_at(os.path.abspath(path), status.st_mtime_ns, status.st_size)
    except OSError as error:
        raise _unreadable(path, error) from error


def read_network(path: str | os.PathLike[str]) -> bytes:
    """Read the whole file of a network's graph.

    Raises StorageError if it cannot be read, or is larger than the format allows.
    """
    try:
        return read_regular(path, MOST_GRAPH)
    except OSError as error:
        raise _unreadable(path, error) from error


def find_network(places: list[str], sha256: str, parameter: str, hash_of: Callable[[str], str] = network_hash) -> str:
    """Return the place of the network that an encoder was fitted with, whose content has the hash `sha256`.

    The places are tried in order; messages name the encoder's `parameter`. Raises EncoderMismatchError if only another
    network is there; StorageError if nothing is there.
    """
    places = list(dict.fromkeys(map(os.path.abspath, places)))
    found = [place for place in places if os.path.isfile(place)]
    for place in found:
        if hash_of(place) == sha256:
            return place
    if found:
        raise EncoderMismatchError(
            f"The network {found[0]} has changed since this encoder was fitted: its SHA-256 is "
            f"{hash_of(found[0])}, expected {sha256}. Put the old file back, or fit again."
        )
    raise StorageError(
        f"The network that this encoder was fitted with is not at {' nor at '.join(places)}. Put it back there "
        f"(its SHA-256 is {sha256}), or in Python name its new place: encoder.set_params({parameter}=...)."
    )


def missing(path: str | os.PathLike[str]) -> StorageError:
    """Return the error for a path where there is no network."""
    return StorageError(f"There is no file {path}. Check the path of the network, as in --encoder onnx:PATH.")


def _unreadable(path: str | os.PathLike[str], error: OSError) -> StorageError:
    return StorageError(f"The network {path} cannot be read: {error.strerror or error}. Pass the path of its file.")


@lru_cache(maxsize=64)
def _hash_at(path: str, mtime_ns: int, size: int) -> str:
    from visterm.core.persist import file_hash  # which loads SciPy, and lists of networks need no hash

    return file_hash(path)
