"""Draw tags for a batch of images: a fixed number of each image's tags, and a fixed number from the background."""

from __future__ import annotations

from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import check_choice, check_count, check_number, check_size
from visterm.core.types import Doubles, Ints
from visterm.models.base import Limit

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
"""Limits of the settings of the draws, and of `alpha`, the weight of pairs of tags."""

MAX_STEP_BYTES: Final = 2**33
MAX_TAGS_PER_DRAW: Final = 8  # Up to this many tags per draw, a dense table of tags is faster than a search


class DrawnTags(NamedTuple):
    """The drawn tags of a batch of images."""

    positives: Ints  # shape (n_images, P): tags that the image has
    is_positive: Flags  # shape (n_images, P): False in rows of images without tags
    negatives: Ints  # shape (n_images, N)
    is_negative: Flags  # shape (n_images, N): False if the image has the tag, or there was no tag to draw


class TagDraws:
    """Draws P (`positives`) tags of each image of a batch, and N (`negatives`) tags of the background distribution.

    Positives are drawn uniformly, without replacement if an image has enough tags, otherwise with replacement (section
    2.2). Up to half of an image's negatives are drawn from its explicit negatives (-1 in `Y`). A drawn negative that is
    a tag of the image is left out of the sums and not drawn again, so the time does not depend on the number of tags.

    The background distribution is the frequency of tags (given or denied) to the power `power`: 1, as in the paper, is
    the tag distribution, 0 is uniform. The background "exact" draws each negative from it. Section 3.3 has two faster
    methods: "subset" draws `subset_size` tags from it for each epoch, and negatives uniformly from the subset;
    "adjacent" uses the tags of the next image in the batch, and ignores `power`.
    """

    def __init__(
        self, Y: sp.csr_array, *, positives: int, negatives: int, power: float, background: str, subset_size: int
    ) -> None:
        self._P, self._N = positives, negatives
        self._given, self._denied = sp.csr_array(Y > 0), sp.csr_array(Y < 0)
        self._background, self._subset_size = background, subset_size
        tag_counts = np.bincount(Y.indices, minlength=Y.shape[1]).astype(np.float64)
        self._cumulated = np.cumsum(np.where(tag_counts > 0, np.maximum(tag_counts, 1) ** power, 0.0))
        self._subset = np.empty(0, np.int64)

    def start_epoch(self, rng: np.random.Generator) -> None:
        """Draw the subset of the epoch, for the background "subset"."""
        if self._background == "subset":
            self._subset = self._from_distribution(rng.random(self._subset_size))

    def draw(self, images: Ints, rng: np.random.Generator) -> DrawnTags:
        """Draw tags for each of the images."""
        positives, is_positive = _draw_stored(self._given, images, self._P, rng)
        if self._background == "adjacent":
            negatives, is_negative = _draw_stored(self._given, np.roll(images, -1), self._N, rng)
        else:
            uniforms = rng.random((images.size, self._N))
            is_negative = np.ones(uniforms.shape, np.bool_)
            if self._background == "subset":
                negatives = self._subset[(uniforms * self._subset.size).astype(np.int64)]
            else:
                negatives = self._from_distribution(uniforms)
        if self._denied.nnz:
            n_denied = (self._N + 1) // 2
            denied, has_denied = _draw_stored(self._denied, images, n_denied, rng)
            negatives[:, :n_denied] = np.where(has_denied, denied, negatives[:, :n_denied])
            is_negative[:, :n_denied] |= has_denied
        return DrawnTags(positives, is_positive, negatives, is_negative & ~_has_tags(self._given, images, negatives))

    def _from_distribution(self, uniforms: Doubles) -> Ints:
        total = self._cumulated[-1]
        targets = uniforms.ravel() * total
        order = np.argsort(targets)  # searching for sorted values takes a third of the time
        tags: Ints = np.empty(targets.size, np.int64)
        tags[order] = np.searchsorted(self._cumulated, targets[order], side="right")
        last_tag: int = int(np.searchsorted(self._cumulated, total))
        return np.minimum(tags, last_tag).reshape(uniforms.shape)  # a number near 1 may be rounded up to the total


def draws_for(model: Any, Y: sp.csr_array, dim: int) -> TagDraws:
    """Return the `TagDraws` for a model's settings.

    Raises TooLargeError if the vectors and products of a step, with gradients, don't fit in memory.
    """
    n = model.positives + model.negatives
    n_images = min(model.batch_size, Y.shape[0])
    n_bytes = 4 * n_images * (4 * n * dim + n * n + 4 * model.positives * n)
    description = f"A step of {n_images:,} images with {n:,} drawn tags each"
    check_size(n_bytes, MAX_STEP_BYTES, description, "Use fewer positives or negatives, or a smaller batch_size.")
    names = ("positives", "negatives", "power", "background", "subset_size")
    return TagDraws(Y, **{name: getattr(model, name) for name in names})


def _draw_stored(stored: sp.csr_array, images: Ints, n: int, rng: np.random.Generator) -> tuple[Ints, Flags]:
    """Draw n stored columns per row, without replacement if there are enough; return them, and flags: row not empty."""
    starts, lengths = stored.indptr[images].astype(np.int64), np.diff(stored.indptr)[images].astype(np.int64)
    draws = (rng.random((images.size, n)) * lengths[:, None]).astype(np.int64)
    rows_with_enough = np.flatnonzero(lengths >= n)
    if rows_with_enough.size:
        sizes = lengths[rows_with_enough]
        firsts = np.cumsum(sizes) - sizes
        row_of_entry = np.repeat(np.arange(rows_with_enough.size), sizes)
        order = np.lexsort((rng.random(row_of_entry.size), row_of_entry))
        draws[rows_with_enough] = order[firsts[:, None] + np.arange(n)] - firsts[:, None]

    has_any = np.broadcast_to(lengths[:, None] > 0, draws.shape).copy()
    if stored.nnz == 0:
        return np.zeros(draws.shape, np.int64), has_any
    return stored.indices[np.where(has_any, starts[:, None] + draws, 0)].astype(np.int64), has_any


def _has_tags(given: sp.csr_array, images: Ints, tags: Ints) -> Flags:
    rows = given[images]
    if rows.shape[1] <= MAX_TAGS_PER_DRAW * tags.shape[1]:
        return np.asarray((rows.toarray() > 0)[np.arange(images.size)[:, None], tags])
    n_tags = np.int64(given.shape[1])
    keys = np.repeat(np.arange(images.size), np.diff(rows.indptr)) * n_tags + rows.indices
    drawn = np.arange(images.size)[:, None] * n_tags + tags
    if keys.size == 0:
        return np.zeros(tags.shape, np.bool_)
    return np.asarray(keys[np.minimum(np.searchsorted(keys, drawn), keys.size - 1)] == drawn)
