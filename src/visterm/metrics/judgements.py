"""What counts as relevant, and what is left out of the rankings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import as_csr, check_tags
from visterm.core.errors import ShapeError


@dataclass(frozen=True, slots=True)
class Judgements:
    """The relevant (image, tag) entries as a CSR pattern, and the entries that are not ranked at all.

    Attributes
    ----------
    n_images, n_tags : int
        Shape of the score matrix that is judged.
    indptr : ndarray of int64, shape (n_images + 1,)
        Where each image's relevant entries begin.
    tags : ndarray of int64, shape (n_relevant,)
        Relevant tags, image by image, ascending within an image.
    excluded : csr_array or None
        Entries left out of the rankings; none of them is relevant.
    """

    n_images: int
    n_tags: int
    indptr: NDArray[np.int64]
    tags: NDArray[np.int64]
    excluded: sp.csr_array | None

    @classmethod
    def of(cls, Y: Any, exclude: Any = None) -> Judgements:
        """Judge by a tag matrix.

        Parameters
        ----------
        Y : array-like or sparse, shape (n_images, n_tags)
            Above 0: relevant. Unknown tags (0) and explicit negatives (below 0) are alike not relevant.
        exclude : array-like or sparse, shape (n_images, n_tags), optional
            Entries that are not 0 are left out of the rankings, relevant or not: tags known beforehand, say.

        Raises
        ------
        ShapeError
            If the two have different shapes.
        DataError
            If `Y` is not numeric, or not finite.
        """
        given = check_tags(Y, Y.shape[0] if hasattr(Y, "shape") else len(Y))
        relevant = as_csr(given > 0)
        excluded = None
        if exclude is not None:
            excluded = as_csr(as_csr(exclude) != 0)
            if excluded.shape != given.shape:
                raise ShapeError(f"exclude has the shape {excluded.shape}; expected that of Y, {given.shape}.")
            relevant = as_csr(relevant - relevant.multiply(excluded))
        n_images, n_tags = given.shape
        return cls(n_images, n_tags, relevant.indptr.astype(np.int64), relevant.indices.astype(np.int64), excluded)

    @property
    def images(self) -> NDArray[np.int64]:
        """The image of each relevant entry, shape (n_relevant,)."""
        return np.repeat(np.arange(self.n_images), np.diff(self.indptr))

    def span(self, rows: slice) -> slice:
        """Return where the relevant entries of some rows lie in `tags`."""
        return slice(int(self.indptr[rows.start]), int(self.indptr[rows.stop]))
