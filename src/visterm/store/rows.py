"""Rows on disk as plain arrays that can be memory-mapped: one ``.npy`` file if dense, three if CSR."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.errors import CorruptFileError
from visterm.core.persist import read_json, write_json
from visterm.core.types import Matrix

CSR_PARTS = ("data", "indices", "indptr")


def stack_rows(parts: Sequence[Matrix]) -> Matrix:
    """Put rows under each other: an array if all parts are, else CSR; (0, 0) if there are none."""
    if not parts:
        return np.empty((0, 0), np.float32)
    if len(parts) == 1:
        return parts[0]
    if any(sp.issparse(part) for part in parts):
        return sp.csr_array(sp.vstack([sp.csr_array(part) for part in parts], format="csr"))
    return np.concatenate(parts)


def write_rows(folder: Path, name: str, U: Matrix) -> None:
    """Write rows as ``<name>.json`` (kind and shape) and ``<name>*.npy``, float32 in C order."""
    if sp.issparse(U):
        arrays = {f"{name}.{part}": getattr(U, part) for part in CSR_PARTS}
    else:
        arrays = {name: np.ascontiguousarray(U, dtype=np.float32)}
    for stem, array in arrays.items():
        np.save(folder / f"{stem}.npy", array, allow_pickle=False)
    write_json(folder / f"{name}.json", {"kind": "csr" if sp.issparse(U) else "dense", "shape": list(U.shape)})


def open_rows(folder: Path, name: str) -> Matrix:
    """Open what `write_rows` wrote, memory-mapped and read-only.

    Raises
    ------
    CorruptFileError
        If the files do not hold what they should.
    """
    description = read_json(folder / f"{name}.json")
    shape = tuple(description["shape"])
    if description["kind"] == "csr":
        data, indices, indptr = (_open(folder / f"{name}.{part}.npy") for part in CSR_PARTS)
        return sp.csr_array((data, indices, indptr), shape=shape, copy=False)
    rows: NDArray[np.float32] = _open(folder / f"{name}.npy")
    if rows.shape != shape:
        raise CorruptFileError(f"{folder / name}.npy has the shape {rows.shape}; expected {shape}.")
    return rows


def _open(path: Path) -> NDArray[Any]:
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise CorruptFileError(f"{path} cannot be read as an array: {error}.") from error
    return array
