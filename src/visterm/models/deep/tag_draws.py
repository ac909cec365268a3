"""Tags drawn for a batch of images: a fixed number that each has, and a fixed number from the background."""

from __future__ import annotations

from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import check_choice, check_count, check_number, check_size
from visterm.models.base import Limit

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

BACKGROUNDS: Final = ("exact", "subset", "adjacent")
DRAW_LIMITS: Final[dict[str, Limit]] = {
    "positives": check_count,
    "negatives": check_count,
    "subset_size": check_count,
    "power": partial(check_number, least=0),
    "background": partial(check_choice, choices=BACKGROUNDS),
    "alpha": partial(check_number, least=0),
}
"""Settings of the draws, and of the sampled tagger's pairs of tags."""

MAX_STEP_BYTES: Final = 2**33
FEW_TAGS: Final = 8  # For each draw: a table of which images have which of them is then quicker than a search


class DrawnTags(NamedTuple):
    """What was drawn for a batch of images."""

    positives: Ints  # shape (n_images, P): tags that the image has
    has: Flags  # shape (n_images, P): False in rows of images that have none
    negatives: Ints  # shape (n_images, N)
    counts: Flags  # shape (n_images, N): False where the image has the tag, or there was none to draw


class TagDraws:
    """Draws P (`positives`) tags that an image has, and N (`negatives`) of the background distribution, for batches.

    Positives are drawn uniformly, without replacement where an image has enough of them and else with (section 2.2). Of
    tags that an image explicitly has not (-1 in `Y`), up to half of its negatives are drawn. A negative that the image
    has is left out of the sums, not drawn again, so that a draw takes the same time for any number of tags.

    The background distribution is how often tags are given (or denied) to the power `power`: 1, as in the paper, is the
    tag distribution, 0 takes all tags alike. The background "exact" draws each negative from it. The two fast ways of
    section 3.3: "subset" draws `subset_size` tags from it at each epoch, and negatives uniformly from those; "adjacent"
    takes the tags of the next image in the batch, whatever the power.
    """

    def __init__(
        self, Y: sp.csr_array, *, positives: int, negatives: int, power: float, background: str, subset_size: int
    ) -> None:
        self._P, self._N = positives, negatives
        self._given, self._denied = sp.csr_array(Y > 0), sp.csr_array(Y < 0)
        self._background, self._subset_size = background, subset_size
        seen = np.bincount(Y.indices, minlength=Y.shape[1]).astype(np.float64)
        weights = np.where(seen > 0, np.maximum(seen, 1) ** power, 0.0)
        self._cumulated = np.cumsum(weights)
        self._subset = np.empty(0, np.int64)

    def start_epoch(self, rng: np.random.Generator) -> None:
        """Draw what is drawn once an epoch."""
        if self._background == "subset":
            self._subset = self._from_distribution(rng.random(self._subset_size))

    def draw(self, images: Ints, rng: np.random.Generator) -> DrawnTags:
        """Draw for these images, in this order."""
        positives, has = _draw_stored(self._given, images, self._P, rng)
        if self._background == "adjacent":
            negatives, counts = _draw_stored(self._given, np.roll(images, -1), self._N, rng)
        else:
            chances = rng.random((images.size, self._N))
            counts = np.ones(chances.shape, np.bool_)
            if self._background == "subset":
                negatives = self._subset[(chances * self._subset.size).astype(np.int64)]
            else:
                negatives = self._from_distribution(chances)
        if self._denied.nnz:
            half = (self._N + 1) // 2
            denied, are = _draw_stored(self._denied, images, half, rng)
            negatives[:, :half] = np.where(are, denied, negatives[:, :half])
            counts[:, :half] |= are
        return DrawnTags(positives, has, negatives, counts & ~_has_tags(self._given, images, negatives))

    def _from_distribution(self, chances: NDArray[np.float64]) -> Ints:
        total = self._cumulated[-1]
        wanted = chances.ravel() * total
        order = np.argsort(wanted)  # places that are looked for in order are found in a third of the time
        tags: Ints = np.empty(wanted.size, np.int64)
        tags[order] = np.searchsorted(self._cumulated, wanted[order], side="right")
        last: int = int(np.searchsorted(self._cumulated, total))
        return np.minimum(tags, last).reshape(chances.shape)  # a chance next to 1 may be rounded up to the total


def draws_for(model: Any, Y: sp.csr_array, dim: int) -> TagDraws:
    """Return the draws that a model's settings ask for, if their vectors and products fit in memory with gradients.

    Raises TooLargeError if they do not.
    """
    n = model.positives + model.negatives
    n_images = min(model.batch_size, Y.shape[0])
    n_bytes = 4 * n_images * (4 * n * dim + n * n + 4 * model.positives * n)
    what = f"A step of {n_images:,} images with {n:,} drawn tags each"
    check_size(n_bytes, MAX_STEP_BYTES, what, "Take fewer positives or negatives, or a smaller batch_size.")
    names = ("positives", "negatives", "power", "background", "subset_size")
    return TagDraws(Y, **{name: getattr(model, name) for name in names})


def _draw_stored(stored: sp.csr_array, images: Ints, n: int, rng: np.random.Generator) -> tuple[Ints, Flags]:
    """Draw n stored columns of each row, without replacement where there are as many; say which rows have any."""
    starts, lengths = stored.indptr[images].astype(np.int64), np.diff(stored.indptr)[images].astype(np.int64)
    chances = rng.random((images.size, n))
    places = (chances * lengths[:, None]).astype(np.int64)
    many = np.flatnonzero(lengths >= n)
    if many.size:
        sizes = lengths[many]
        firsts = np.cumsum(sizes) - sizes
        owner = np.repeat(np.arange(many.size), sizes)
        order = np.lexsort((rng.random(owner.size), owner))
        places[many] = order[firsts[:, None] + np.arange(n)] - firsts[:, None]
    has_any = np.broadcast_to(lengths[:, None] > 0, places.shape).copy()
    if stored.nnz == 0:
        return np.zeros(places.shape, np.int64), has_any
    at = np.where(has_any, starts[:, None] + places, 0)
    return stored.indices[at].astype(np.int64), has_any


def _has_tags(given: sp.csr_array, images: Ints, tags: Ints) -> Flags:
    rows = given[images]
    if rows.shape[1] <= FEW_TAGS * tags.shape[1]:
        return np.asarray((rows.toarray() > 0)[np.arange(images.size)[:, None], tags])
    n_tags = np.int64(given.shape[1])
    keys = np.repeat(np.arange(images.size), np.diff(rows.indptr)) * n_tags + rows.indices
    drawn = np.arange(images.size)[:, None] * n_tags + tags
    if keys.size == 0:
        return np.zeros(tags.shape, np.bool_)
    places = np.minimum(np.searchsorted(keys, drawn), keys.size - 1)
    return np.asarray(keys[places] == drawn)
