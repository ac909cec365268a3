"""Rows under each other, dense or CSR."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

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
