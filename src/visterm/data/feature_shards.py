"""Shards of features: a safetensors file with the row, the file name and the content hash of each image."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from safetensors.numpy import save

from visterm.core.checks import as_csr
from visterm.core.errors import CorruptFileError, DataError
from visterm.core.files import open_regular
from visterm.core.learned import Listed, Record, Sizes, Text, Whole
from visterm.core.packing import CSR_PARTS, csr_of_parts, csr_parts
from visterm.core.persist import CONTENT_ERRORS
from visterm.core.remote import as_path, is_remote
from visterm.core.types import Matrix
from visterm.core.wording import json_text

# Arrays of a shard: dense rows, of which `csr_parts` are written if they are sparse; a JSON list; bytes of hashes
FEATURES, FILE_NAME, SHA256 = "features", "file_name", "sha256"
SUFFIX = ".safetensors"

MAX_HEADER_BYTES = 2**16  # Maximum size of a header; ours have less than a kB
DTYPES = {"F32": np.float32, "I32": np.int32, "I64": np.int64, "U8": np.uint8}  # Names in the header -> types
_HASH_BYTES = 32


def _array(dtypes: str, n_dims: int, *, required: bool = True) -> Record:
    """Declare what the header says of an array."""
    return Record(
        {"dtype": Text(pattern=dtypes), "shape": Listed(Whole(), size=n_dims), "data_offsets": Listed(Whole(), size=2)},
        required=required,
    )


_HEADER = Record(
    {FEATURES: _array("F32", 2, required=False), FILE_NAME: _array("U8", 1), SHA256: _array("U8", 2)}
    | {f"{FEATURES}:{part}": _array("F32|I32|I64", 1, required=False) for part in CSR_PARTS}
)


class Shard(NamedTuple):
    """A part of a folder's images, with their feature rows."""

    names: list[str]  # Paths inside the image folder, with ``/`` between
    sha256: list[str]  # Hashes of the files' bytes, in hex
    rows: Matrix  # ndarray or CSR of float32, shape (n_images, width)


def shard_bytes(shard: Shard) -> bytes:
    """Return a shard as a safetensors file; equal shards have equal bytes."""
    arrays = {
        FILE_NAME: np.frombuffer(json_text(shard.names).encode(), np.uint8),
        SHA256: np.frombuffer(bytes.fromhex("".join(shard.sha256)), np.uint8).reshape(len(shard.names), _HASH_BYTES),
    }
    if sp.issparse(shard.rows):
        csr = as_csr(shard.rows)
        index_type = sp.get_index_dtype(maxval=max(csr.nnz, *csr.shape))  # encoders return either type
        indices, indptr = csr.indices.astype(index_type), csr.indptr.astype(index_type)
        arrays |= csr_parts(FEATURES, sp.csr_array((csr.data, indices, indptr), csr.shape))
    else:
        arrays[FEATURES] = np.ascontiguousarray(shard.rows, np.float32)
    return bytes(save(arrays))


def read_shard(path: str | os.PathLike[str]) -> Shard:
    """Read a shard on this machine; dense rows are memory-mapped.

    Raises CorruptFileError if the file is not a shard, as do the functions below.
    """
    with _opened(path) as shard:
        names, sha256 = shard.index()
        rows = shard.rows()
        if rows.shape[0] != len(names):
            raise ValueError(f"it has {rows.shape[0]:,} rows and {len(names):,} names")
        return Shard(names, sha256, rows)


def read_shard_index(path: str | os.PathLike[str]) -> tuple[list[str], list[str]]:
    """Read the names and the content hashes of a shard, without its rows."""
    with _opened(path) as shard:
        return shard.index()


def shard_row_bytes(path: str | os.PathLike[str]) -> int:
    """Return how many bytes the rows of a shard take in memory, from its header."""
    with _opened(path) as shard:
        offsets = (shard.header[name]["data_offsets"] for name in shard.arrays_of_rows)
        return sum(end - begin for begin, end in offsets)


class _OpenShard:
    """A shard that is open for reading: only the arrays that are requested are read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._size = file.seek(0, os.SEEK_END)
        file.seek(0)
        n_bytes = int.from_bytes(file.read(8), "little")
        if n_bytes > min(MAX_HEADER_BYTES, self._size):
            raise ValueError("it does not begin with a header of safetensors")
        self._start = 8 + n_bytes
        self.header: dict[str, Any] = json.loads(file.read(n_bytes))
        _HEADER.check(self.header, Sizes())

    @property
    def arrays_of_rows(self) -> list[str]:
        """The names of the arrays that the rows consist of: one if they are dense."""
        return [name for name in self.header if name.partition(":")[0] == FEATURES]

    def index(self) -> tuple[list[str], list[str]]:
        """Read the names and the content hashes of the images."""
        names = json.loads(self._read(FILE_NAME).tobytes())
        hashes = self._read(SHA256).tobytes().hex()
        step = 2 * _HASH_BYTES
        sha256 = [hashes[start : start + step] for start in range(0, len(hashes), step)]
        if not isinstance(names, list) or not {*map(type, names)} <= {str} or len(names) != len(sha256):
            raise ValueError(f"'{FILE_NAME}' is not a list with a name for each of the {len(sha256):,} hashes")
        return names, sha256

    def rows(self) -> Matrix:
        """Map dense rows into memory, or read sparse ones."""
        if FEATURES not in self.header:
            return as_csr(csr_of_parts(FEATURES, {name: self._read(name) for name in self.arrays_of_rows}))
        dtype, shape, start = self._located(FEATURES)
        return np.asarray(np.memmap(self._file, dtype, "r", start, shape))

    def _read(self, name: str) -> NDArray[Any]:
        dtype, shape, start = self._located(name)
        self._file.seek(start)
        return np.frombuffer(bytearray(self._file.read(math.prod(shape) * dtype.itemsize)), dtype).reshape(shape)

    def _located(self, name: str) -> tuple[np.dtype[Any], tuple[int, ...], int]:
        """Return the type and the shape of an array, and its position in the file."""
        entry = self.header[name]
        dtype, shape, (begin, end) = np.dtype(DTYPES[entry["dtype"]]), tuple(entry["shape"]), entry["data_offsets"]
        start = self._start + begin
        if end - begin != math.prod(shape) * dtype.itemsize or self._start + end > self._size or start % dtype.itemsize:
            raise ValueError(f"'{name}' is {dtype} of shape {shape} in the bytes {start} to {self._start + end}")
        return dtype, shape, start


@contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[_OpenShard]:
    """Open a shard, also in an object store; convert errors about its content to CorruptFileError."""
    location = os.fspath(path)
    try:
        with as_path(path).open("rb") if is_remote(path) else open_regular(path) as file:
            yield _OpenShard(file)
    except (OSError, DataError, *CONTENT_ERRORS) as error:
        raise CorruptFileError(
            f"{location} cannot be read as a shard of features: {' '.join(str(error).split()).rstrip('.')}. Restore it "
            "from a backup, or run the command that wrote it again."
        ) from error
