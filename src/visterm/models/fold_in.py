"""Rows of new users from their items, without a fit: images known by number that a model was not fitted on."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.errors import UserError
from visterm.core.tables import MODELS
from visterm.core.types import Matrix
from visterm.models.abilities import FoldsIn
from visterm.models.base import Annotator
from visterm.models.blend.stacked import concatenated

SAMPLE_IMAGES = 20_000  # Images of the fit from which the map from tags to rows is learned
RIDGE = 1e-3  # Penalty of this map, as a share of the mean variance of its input


def folded_rows(model: Annotator, Y: sp.csr_array, X_fit: Matrix, Y_fit: sp.csr_array) -> Matrix:
    """Return image rows, shape (n_new, width), of new images with the tags `Y`, (n_new, n_tags).

    A model that can (`FoldsIn`) computes them. For an embedding, ``u = A [ȳ, 1]``, where ``ȳ`` is the mean of the
    vectors of the image's tags, and the matrix A is fitted by least squares to the rows of images of the fit, `X_fit`,
    whose tags are `Y_fit`. In a blend, each member folds in. Raises UserError if the model cannot, because its rows
    don't depend on tags.
    """
    if hasattr(model, "members_"):
        blend: Any = model
        parts = [folded_rows(member, Y, X_fit, Y_fit) for member in blend._ranking()[0]]
        return concatenated([*parts, np.ones((Y.shape[0], 1), np.float32)])
    if isinstance(model, FoldsIn):
        return model.fold_in(Y)
    V = model._tag_rows()
    if not getattr(model, "by_number_", False) or V is None or sp.issparse(V):
        name = MODELS.name_of(model)
        raise UserError(
            f"The model '{name}' has no rows for new users.",
            setting="model", value=name, advice="Choose another `model`: auto, ease, knn, wsabie or vse_ens.",
        )  # fmt: skip

    images = np.flatnonzero(np.diff(Y_fit.indptr))
    images = np.sort(np.random.default_rng(0).permutation(images)[:SAMPLE_IMAGES])
    known = _mean_vectors(Y_fit[images], V)
    rows = np.asarray(model.image_rows(X_fit[images]), np.float64)
    gram = known.T @ known
    gram[np.diag_indices_from(gram)] += RIDGE * np.trace(gram) / len(gram)
    solution = np.linalg.solve(gram, known.T @ rows)
    return np.ascontiguousarray(_mean_vectors(Y, V) @ solution, np.float32)


def _mean_vectors(Y: sp.csr_array, V: Any) -> NDArray[np.float64]:
    """Return the mean of the vectors of each image's tags, and a 1."""
    sums = np.asarray(Y @ np.asarray(V, np.float64))
    totals = np.asarray(Y.sum(axis=1), np.float64).reshape(-1, 1)
    return np.hstack([sums / np.maximum(totals, 1e-30), np.ones_like(totals)])
