"""What a model scored images that it held out of a fit, kept until somebody asks for it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.types import Matrix


class HeldOutFit(NamedTuple):
    """The fit that chose when to stop, as far as it scores the images that it was not fitted on.

    Attributes
    ----------
    images : ndarray of int64, shape (n_held_out,)
        Their places among the images given to `fit`.
    image_rows : array or CSR of float32, shape (n_held_out, width)
    tag_rows : array or CSR of float32, shape (n_tags, width)
    """

    images: NDArray[np.int64]
    image_rows: Matrix
    tag_rows: Matrix

    def scores(self, places: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the scores of some of these images, shape (len(places), n_tags)."""
        found: Any = self.image_rows[places] @ self.tag_rows.T
        return np.ascontiguousarray(found.toarray() if sp.issparse(found) else found, np.float32)
