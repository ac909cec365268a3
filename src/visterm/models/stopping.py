"""Images held out of training: hold them out, select the columns that a model may see, and keep their scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp

from visterm.core.estimator import Estimator
from visterm.core.products import dense
from visterm.core.progress import Progress
from visterm.core.types import Floats, Ints, Matrix

OPEN = "open"  # The schedule of a training that chooses its number of epochs, see `Wsabie`
MIN_HELD_OUT = 50  # With fewer held-out images, results would be mostly chance: then no images are held out
EpochRecord: TypeAlias = dict[str, Any]
OnEpoch: TypeAlias = Callable[[EpochRecord], str | None]
"""Called with the record of each epoch, which is added to `history_`; return "stop" to end the training."""
Judged: TypeAlias = tuple[Matrix, sp.csr_array] | None  # The held-out rows and tags that epochs are judged on


class Watch(NamedTuple):
    """What follows a training: the progress that is shown, and the callback after each epoch."""

    monitor: Progress
    on_epoch: OnEpoch | None = None


def hold_out(n_images: int, share: float, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Split images at random into sorted training rows and held-out rows; hold out none if there would be too few."""
    n_held = round(share * n_images)
    if n_held < MIN_HELD_OUT:
        return np.arange(n_images), np.empty(0, np.int64)
    order = rng.permutation(n_images)
    return np.sort(order[n_held:]), np.sort(order[:n_held])


class HeldOutFit(NamedTuple):
    """The held-out images and tag rows of the fit that chose when to stop, for scores of images not in training."""

    images: Ints  # shape (n_held_out,): their positions in the images passed to `fit`
    image_rows: Matrix  # array or CSR of float32, shape (n_held_out, width)
    tag_rows: Matrix  # array or CSR of float32, shape (n_tags, width)

    def scores(self, places: Ints) -> Floats:
        """Return the scores of the held-out images at `places`, shape (len(places), n_tags)."""
        return np.ascontiguousarray(dense(self.image_rows[places] @ self.tag_rows.T), np.float32)


def learns_from_kernel(model: Estimator) -> bool:
    """Return whether a model's features are kernel values with the training images, in their order."""
    return bool(model.__sklearn_tags__().input_tags.pairwise)


def visible_columns(model: Estimator, X: Matrix, learned: Ints | None) -> Matrix:
    """Return the columns of feature rows that a model may see if it learns from the images `learned` (None: all).

    Call it for every part of a training set before fitting or measuring a model: with ``kernel="precomputed"``, the
    model needs the square kernel of its training images, and of other images the values with the training images. For
    all other models, the features are returned unchanged.
    """
    return X if learned is None or not learns_from_kernel(model) else X[:, learned]
