"""Images as counts of visterms and captions as counts of tags, the input of generative models of words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.errors import DataError
from visterm.core.types import Matrix
from visterm.models import Annotator

if TYPE_CHECKING:
    from sklearn.utils import Tags

Counts = Any  # Array or CSR of float64, shape (n_images, n_features), nothing below 0


class CountingAnnotator(Annotator):
    """An annotator whose features are counts, 0 or more; its scikit-learn tags declare this."""

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        return tags


def as_counts(X: Matrix, length: float | None = None) -> Counts:
    """Return features as counts, float64, in the form of `X`; raise DataError for a feature below 0.

    Counts may be fractions: a visterm of weight 0.3 counts 0.3. With `length`, the counts of every image are scaled to
    this sum; an image without visterms stays empty.
    """
    values: Any = X.data if sp.issparse(X) else X
    if values.min(initial=0) < 0:
        raise DataError(
            f"Negative values in data passed as X: the lowest is {values.min():g}. This model takes features as counts "
            "of visterms, 0 or more. Encode with visterms or histograms, or use a model for any features (mbrm, knn)."
        )
    counts: Counts = X.astype(np.float64)
    return counts if length is None else scale_rows(counts, length)


def count_tags(Y: sp.csr_array) -> tuple[NDArray[np.int64], sp.csr_array]:
    """Return the rows of images that have a tag, and their tags as counts of 1; raise DataError if no image has one."""
    given = sp.csr_array(Y > 0, dtype=np.float64)
    rows = np.flatnonzero(np.diff(given.indptr))
    if rows.size == 0:
        raise DataError(
            f"No image has a tag (n_samples={Y.shape[0]}, and Y has no value above 0), so there is nothing to learn."
        )
    return rows, given[rows]


def scale_rows(counts: Counts, length: float = 1.0) -> Counts:
    """Scale each row, except rows of zeros, to the sum `length`; 1 gives the frequencies within an image."""
    sums = np.asarray(counts.sum(axis=1), np.float64).ravel()
    factors = np.divide(length, sums, out=np.zeros_like(sums), where=sums > 0)
    return sp.csr_array(sp.diags_array(factors) @ counts) if sp.issparse(counts) else counts * factors[:, None]
