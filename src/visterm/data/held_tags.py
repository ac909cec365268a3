"""Hold one tag of each image out: so are images evaluated that are known only by number."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import as_csr
from visterm.core.errors import DataError


class HeldTags(NamedTuple):
    """Tags to learn from, and one held out of each of some images."""

    rest: sp.csr_array  # float32, shape (n_images, n_tags): what is left to learn from
    images: NDArray[np.int64]  # shape (n_held,): images that a tag was held out of, ascending
    held: sp.csr_array  # float32, shape (n_held, n_tags): the one tag of each of these images
    known: sp.csr_array
    """float32, shape (n_held, n_tags): the same images' rows of `rest`: what their rankings leave out."""


def hold_one_out(Y: sp.csr_array, rng: np.random.Generator, *, at_most: int | None = None) -> HeldTags:
    """Hold out one given tag, drawn at random, of each image that has two or more, or of `at_most` images.

    Only entries of `Y`, (n_images, n_tags), above 0 can be held out; the others stay in `rest`. `rng` draws the tags,
    and the images where there are more than `at_most`. Raises DataError if no image has two tags.
    """
    Y = as_csr(Y)
    given = as_csr(Y > 0)
    counts = np.diff(given.indptr)
    images = np.flatnonzero(counts >= 2)
    if images.size == 0:
        raise DataError("No image has two tags or more, so that one could be held out and one be known.")
    if at_most is not None and images.size > at_most:
        images = np.sort(rng.permutation(images)[:at_most])
    chosen = given.indptr[images] + (rng.random(images.size) * counts[images]).astype(np.int64)
    tags = given.indices[chosen]
    one = np.ones(images.size, np.float32)
    held_out = sp.csr_array((one, (images, tags)), shape=Y.shape)
    rest = as_csr(Y - held_out)
    held = sp.csr_array((one, tags, np.arange(images.size + 1)), shape=(images.size, Y.shape[1]))
    return HeldTags(rest, images, held, sp.csr_array(rest[images]))
