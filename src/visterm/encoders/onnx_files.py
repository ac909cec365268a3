"""The files of an ONNX network: its own, and those beside it that hold its weights, named by all their content."""

from __future__ import annotations

import hashlib
import os
from functools import lru_cache
from pathlib import Path

from visterm.core.errors import StorageError
from visterm.encoders.network_file import network_hash, read_network
from visterm.encoders.onnx_graph import weight_files


def onnx_hash(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of an ONNX network: of its file, or of that and of the files that hold its weights.

    Exporters put weights into a file of their own beside the graph, so that the graph's file stays the same when the
    network is trained on.

    Raises
    ------
    StorageError
        If one of the files is missing, or the network's is not ONNX.
    """
    own = network_hash(path)
    beside = _beside(os.path.abspath(path), own)
    if not beside:
        return own
    digest = hashlib.sha256(own.encode())
    for name in beside:
        file = Path(path).parent / name
        if not file.is_file():
            raise StorageError(f"{path} keeps weights in {name}, which is not at {file}. Put both side by side.")
        digest.update(f"\n{name} {network_hash(file)}".encode())
    return digest.hexdigest()


@lru_cache(maxsize=64)
def _beside(path: str, sha256: str) -> tuple[str, ...]:
    """Name the files of weights beside a network of this content."""
    try:
        return tuple(weight_files(read_network(path)))
    except StorageError as error:
        raise StorageError(f"{path} cannot be opened as an ONNX network: {error}") from error
