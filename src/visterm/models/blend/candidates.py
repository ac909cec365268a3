"""What `auto` tries: models that did best for their seconds, the cheapest first, on all features or on one block."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from visterm.core.types import Matrix
from visterm.models.neighbours.distances import read_blocks

Listed = tuple[tuple[str, dict[str, Any]], ...]

QUICK: Listed = (("knn", {}), ("kernel_ridge", {}), ("ridge", {}))
EMBEDDING: Listed = (("wsabie", {}),)

GROWTHS = {
    "knn": 1,
    "kernel_ridge": 1.6,
    "prior": 1,
    "ridge": 1.5,
    "tagprop": 1.2,
    "text_ridge": 1.5,
    "two_pass_knn": 1,
    "wsabie": 1,
}
"""Seconds of a fit and of scores grow with the images to about these powers, measured from 450 to 3,600 images of 1,280
features. With many more images they grow less: all of these look at a part of them only to choose their settings."""

PAIRWISE = 2  # The power for all other models: each image is compared with each
FILLED = 0.1
"""Share of values that are not 0 from which on a block is taken as an array: bags of visterms are far below it, and
outputs of networks mostly above."""

MOST_BYTES = 2**30
"""Of all columns as an array, where some blocks are well filled and others are not: as CSR, neighbours among 4,000 rows
of visterms and a network took 25 times as long."""


def candidates_for(*, by_number: bool) -> Listed:
    """List the names and settings of models to try.

    Of images known only by number none can be held out, so there is one candidate.
    """
    return EMBEDDING if by_number else (*QUICK, *EMBEDDING)


class Columns(NamedTuple):
    """Which columns, and in which form."""

    block: int  # 1 for the first block; 0 for all columns
    # The first column, and the one after the last
    first: int
    stop: int
    dense: int  # 1: as an array, 0: as CSR, or all columns in the form that they come in

    def of(self, X: Matrix) -> Matrix:
        """Take them from rows (n_images, n_features), an array or CSR."""
        if self.block == 0 and not self.dense:
            return X
        part: Any = X[:, self.first : self.stop]
        if self.dense:
            return np.ascontiguousarray(part.toarray() if sp.issparse(part) else part)
        return sp.csr_array(part)


def column_sets(X: Matrix, blocks: Any) -> list[Columns]:
    """List all columns and, if there are several blocks (as `read_blocks` takes them), each block.

    All columns are taken as an array too if one of the blocks is; they are left out if that would be too large.
    Training rows `X`, (n_images, n_features), tell how full a block is.
    """
    n, width = X.shape
    slices = read_blocks(blocks, width)
    if len(slices) == 1:
        return [Columns(0, 0, width, 0)]
    parts = []
    for number, part in enumerate(slices, start=1):
        values: Any = X[:, part]
        filled = (values.nnz if sp.issparse(values) else np.count_nonzero(values)) / max(1, np.prod(values.shape))
        parts.append(Columns(number, int(part.start), int(part.stop), int(filled >= FILLED)))
    dense = int(sp.issparse(X) and any(part.dense for part in parts))
    return parts if dense and 4 * n * width > MOST_BYTES else [Columns(0, 0, width, dense), *parts]
