"""Matrices in files that several processes map into their memory: there once a machine, however many read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

CSR = ("data", "indices", "indptr", "shape")


def write_matrix(folder: Path, name: str, matrix: Any) -> None:
    """Write a matrix, dense or CSR, under a name."""
    if not sp.issparse(matrix):
        np.save(folder / f"{name}.npy", np.asarray(matrix))
        return
    csr = sp.csr_array(matrix)
    for part in CSR:
        np.save(folder / f"{name}.{part}.npy", np.asarray(getattr(csr, part)))


def read_matrix(folder: Path, name: str) -> Any:
    """Map a matrix into memory, to be read only; None where nothing was written under that name."""
    if (folder / f"{name}.npy").exists():
        return np.load(folder / f"{name}.npy", mmap_mode="r")
    if not (folder / f"{name}.shape.npy").exists():
        return None
    data, indices, indptr, shape = (np.load(folder / f"{name}.{part}.npy", mmap_mode="r") for part in CSR)
    return sp.csr_array((data, indices, indptr), shape=tuple(int(size) for size in shape))
