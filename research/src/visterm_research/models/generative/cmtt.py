"""CMTT, the cross-media translation table: P(tag | visterm) from cosines of their occurrences in training images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.linalg import svds

from visterm.core.checks import check_count
from visterm.core.errors import DataError, UserError
from visterm.core.learned import Array, Kind
from visterm.core.threads import one_blas_thread
from visterm.core.types import Matrix, RandomState
from visterm_research.models.generative.counts import CountingAnnotator, Counts, as_counts, count_tags, scale_rows

Floats = NDArray[np.float64]

NORMALIZE = ("tags", "visterms")


@dataclass(kw_only=True, eq=False, repr=False)
class Cmtt(CountingAnnotator):
    """Translates each visterm of an image into tags: ``P(t|p) = Σ_v P(t|v) tf(v, p) / Σ_v tf(v, p)``.

    A tag and a visterm are similar if they occur in the same training images. Each is a vector of its weights in the
    training images; only the `rank` largest singular values of the matrix of all vectors are kept, to reduce noise, and
    the table consists of cosines. Tags are weighted by their idf, ``-log(n_t / (n + 1))``, visterms by their features
    (and by idf with `idf`), both divided by the length of the image's row.

    Features are counts, 0 or more; negative features are an error. The scores of an image without counts are 0. Images
    without a tag are left out of training, and explicit negatives are ignored.

    Parameters
    ----------
    rank : int
        Number of singular values to keep. Fewer is smoother, more separates rarer tags. If it is at least the number of
        images, or of tags and visterms, all are kept.
    normalize : {"tags", "visterms"}
        Over which the table's cosines sum to 1. "tags": ``P(t|v)``, the sum over the tags of a visterm, with negative
        cosines as 0. "visterms": as printed in the paper, over the visterms of a tag, including negative cosines; an
        image's score is then the share of its visterms that are evidence of the tag, and 0 for a tag whose cosines
        don't sum to more than 0.
    idf : bool
        Whether to weight visterms by their idf in the table: for plain counts. Rows of the encoder `visterms` are
        already weighted, and a feature that all images have would have almost no weight.
    random_state : int, RandomState, Generator or None
        Start vector of the search for singular vectors.

    Attributes
    ----------
    tag_rows_ : ndarray of float32, shape (n_tags, n_features)
        The table, if features are sparse or not more than tags: image rows are then the shares of visterms.
    table_ : ndarray of float32, shape (n_features, n_tags)
        The table, otherwise: image rows are then the scores.

    References
    ----------
    J.-Y. Pan, H.-J. Yang, P. Duygulu, C. Faloutsos: Automatic image captioning. ICME 2004. As in Grangier, Bengio 2008,
    section II-B.
    """

    probabilities: ClassVar[bool] = True

    learned: ClassVar[dict[str, Kind]] = {
        "tag_rows_": Array("float32", ("n_tags_", "n_features_in_"), required=False),
        "table_": Array("float32", ("n_features_in_", "n_tags_"), required=False),
    }

    test_params: ClassVar[dict[str, Any]] = {"rank": 12}

    rank: int = 200
    normalize: str = "tags"
    idf: bool = False
    random_state: RandomState = 0

    def _check_learned(self) -> None:
        super()._check_learned()
        if hasattr(self, "tag_rows_") == hasattr(self, "table_"):
            raise DataError("Expected one of tag_rows_ and table_, not both or neither")

    def _check_settings(self) -> None:
        check_count(self.rank, "rank")
        if self.normalize not in NORMALIZE:
            raise UserError(f"normalize is {self.normalize!r}; expected one of {', '.join(map(repr, NORMALIZE))}.")

    def _fit(self, X: Matrix, Y: sp.csr_array, rng: np.random.Generator) -> None:
        self._check_settings()
        tagged, given = count_tags(Y)
        counts = sp.csr_array(as_counts(X[tagged]))
        uses = sp.hstack([_weigh(given, idf=True), _weigh(counts, idf=self.idf)], format="csr")
        with one_blas_thread():
            columns = _unit_rows(_column_vectors(sp.csr_array(uses), self.rank, rng))
            products: Any = columns[: self.n_tags_] @ columns[self.n_tags_ :].T
        cosines: Floats = products.toarray() if sp.issparse(products) else products
        if self.normalize == "tags":
            cosines = np.maximum(cosines, 0)
        sums = cosines.sum(axis=0 if self.normalize == "tags" else 1, keepdims=True)
        table = np.divide(cosines, sums, out=np.zeros_like(cosines), where=sums > 0).astype(np.float32)
        if sp.issparse(X) or X.shape[1] <= self.n_tags_:
            self.tag_rows_ = table
        else:
            self.table_ = np.ascontiguousarray(table.T)

    def _image_rows(self, X: Matrix) -> Matrix:
        shares = scale_rows(as_counts(X)).astype(np.float32)
        if hasattr(self, "tag_rows_"):
            return sp.csr_array(shares) if sp.issparse(shares) else np.asarray(shares)
        return np.asarray(shares @ self.table_, np.float32)


def _weigh(counts: Counts, *, idf: bool) -> sp.csr_array:
    """Weigh the counts of words by idf, if `idf` is set, and scale each image's row to unit length."""
    if idf:
        n_images_with = np.bincount(counts.indices, minlength=counts.shape[1])
        weights = -np.log(np.maximum(n_images_with, 1) / (counts.shape[0] + 1))
        counts = sp.csr_array(counts @ sp.diags_array(weights))
    return sp.csr_array(_unit_rows(counts))


def _column_vectors(uses: sp.csr_array, rank: int, rng: np.random.Generator) -> Any:
    """Return the vector of each column by the largest singular values, (n_columns, rank), with the cosines of M'."""
    if rank >= min(uses.shape):
        return sp.csr_array(uses.T)
    start = rng.standard_normal(min(uses.shape))
    _, lengths, directions = svds(uses, k=rank, v0=start, solver="arpack")
    columns = (directions * lengths[:, None]).T
    columns[np.bincount(uses.indices, minlength=uses.shape[1]) == 0] = 0  # otherwise rounding errors would have cosines
    return columns


def _unit_rows(rows: Any) -> Any:
    """Scale rows to unit length, except rows of zeros."""
    squares = rows.power(2).sum(axis=1) if sp.issparse(rows) else np.einsum("ij,ij->i", rows, rows)
    lengths = np.sqrt(np.asarray(squares, np.float64).ravel())
    factors = np.divide(1, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    return sp.csr_array(sp.diags_array(factors) @ rows) if sp.issparse(rows) else rows * factors[:, None]
