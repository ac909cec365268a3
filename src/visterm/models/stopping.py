"""Images held out of training: what a model may see of them, when to stop by them, and how it scored them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from visterm.core.estimator import Estimator
from visterm.core.products import dense
from visterm.core.types import Matrix

OPEN = "open"  # The schedule of a training that finds its own length, see `Wsabie`
MIN_HELD_OUT = 50  # Fewer held-out images say more about chance than about the model: then none are held out
EpochRecord: TypeAlias = dict[str, Any]
OnEpoch: TypeAlias = Callable[[EpochRecord], str | None]
"""Sees the record of each epoch, as `history_` has it; what returns "stop" ends the training there."""


def hold_out(n_images: int, share: float, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Split images at random into training rows and held-out rows, both sorted; none are held out if too few."""
    n_held = round(share * n_images)
    if n_held < MIN_HELD_OUT:
        return np.arange(n_images), np.empty(0, np.int64)
    order = rng.permutation(n_images)
    return np.sort(order[n_held:]), np.sort(order[:n_held])


class HeldOutFit(NamedTuple):
    """The fit that chose when to stop, as far as it scores the images that it was not fitted on."""

    images: NDArray[np.int64]  # shape (n_held_out,): their places among the images given to `fit`
    image_rows: Matrix  # array or CSR of float32, shape (n_held_out, width)
    tag_rows: Matrix  # array or CSR of float32, shape (n_tags, width)

    def scores(self, places: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the scores of some of these images, shape (len(places), n_tags)."""
        return np.ascontiguousarray(dense(self.image_rows[places] @ self.tag_rows.T), np.float32)


def learns_from_kernel(model: Estimator) -> bool:
    """Return whether a model learns from values of a kernel with the training images, in their order, as features."""
    return bool(model.__sklearn_tags__().input_tags.pairwise)


def visible_columns(model: Estimator, X: Matrix, learned: NDArray[np.int64] | None) -> Matrix:
    """Return what a model may see of feature rows, if it learns only from the images at `learned` (None: from all).

    Every part of a training set that a model is fitted on, or judged by, goes through here: a model over kernel values
    (``kernel="precomputed"``) needs the square kernel of the images that it learns from, and of others their values
    with these. For all other models features are features.
    """
    return X if learned is None or not learns_from_kernel(model) else X[:, learned]
