"""Rows as matrices: stacked, and their lengths."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.types import Matrix


def stack_rows(parts: Sequence[Matrix]) -> Matrix:
    """Put rows under each other: an array if all parts are, else CSR; (0, 0) if there are none."""
    if not parts:
        return np.empty((0, 0), np.float32)
    if len(parts) == 1:
        return parts[0]
    if any(sp.issparse(part) for part in parts):
        return sp.csr_array(sp.vstack([sp.csr_array(part) for part in parts], format="csr"))
    return np.concatenate(parts)


def row_lengths(rows: Matrix) -> NDArray[np.float32]:
    """Return the Euclidean length of each row."""
    if isinstance(rows, sp.csr_array):
        squares = np.asarray(rows.multiply(rows).sum(axis=1), np.float32).ravel()
    else:
        squares = np.asarray(np.einsum("ij,ij->i", rows, rows), np.float32)
    return np.sqrt(squares)
