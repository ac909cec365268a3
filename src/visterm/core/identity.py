"""Identity rows: the features of images that are known only by number."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from visterm.core.errors import DataError


def identity_rows(n_images: int) -> sp.csr_array:
    """Return the identity matrix of float32 as CSR, shape (n_images, n_images)."""
    return sp.csr_array(sp.eye_array(n_images, dtype=np.float32, format="csr"))


def is_identity(X: Any) -> bool:
    """Return whether a matrix is the identity, as canonical CSR; a dense one is taken for features like any other."""
    if not sp.issparse(X) or X.shape[0] != X.shape[1] or X.nnz != X.shape[0]:
        return False
    return bool((X.data == 1).all() and np.array_equal(X.indices, np.arange(X.nnz)) and _one_entry_a_row(X))


def count_rows(Y: Any) -> int:
    """Count the images that tags are of, where only the tags are given.

    Raises
    ------
    DataError
        If there are no tags either, or no images.
    """
    if Y is None:
        raise DataError("Both X and Y are None: Y holds the tags, (n_images, n_tags).")
    n_images: int = Y.shape[0] if sp.issparse(Y) else len(np.atleast_1d(np.asarray(Y)))
    if n_images == 0:
        raise DataError("Y has 0 rows (images); at least 1 is needed.")
    return n_images


def _one_entry_a_row(X: sp.csr_array) -> bool:
    return bool((np.diff(X.indptr) == 1).all())
