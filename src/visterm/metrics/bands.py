"""Bands of tags by how many training images they have, to judge rare tags apart from frequent ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from visterm.metrics.annotation import f1_of_means

STARTS = (0, 1, 5, 20, 100)
"""The least training images of a tag in each band; 0 is for words that were added without images."""

THIRDS = ("rare", "middling", "frequent")


class Band(NamedTuple):
    """Tags with a similar number of training images."""

    name: str  # Such as "5 to 19", by the training images of its tags; of thirds, such as "rare (1 to 3)"
    # Training images of a tag in it, both included; `most` is -1 where there is no end
    least: int
    most: int
    tags: NDArray[np.int64]  # Columns, ascending


def frequency_bands(counts: ArrayLike) -> list[Band]:
    """Part tags by fixed numbers of training images, or, where that leaves them in one band, into thirds.

    `counts`, int of shape (n_tags,), are the training images of each tag. Returns the bands that have tags, the rarest
    first: of 1 to 4, 5 to 19, 20 to 99, and 100 or more images, so that runs and libraries can be compared; thirds as
    of `thirds_of` if all tags are in one of these.
    """
    fixed = bands_from(counts, STARTS)
    return fixed if len(fixed) > 1 else max(fixed, thirds_of(counts), key=len)


def bands_from(counts: ArrayLike, starts: Sequence[int]) -> list[Band]:
    """Part tags with `counts`, int of shape (n_tags,), at given numbers of training images.

    `starts` are the least number of each band, ascending; the last band has no end. Tags below the first are in none.
    Returns the bands that have tags, in the order of `starts`.
    """
    counts = np.asarray(counts, np.int64)
    ends = [*(start - 1 for start in starts[1:]), -1]
    bands = []
    for least, most in zip(starts, ends, strict=True):
        tags = np.flatnonzero((counts >= least) & ((counts <= most) | (most < 0)))
        if tags.size:
            bands.append(Band(_named(least, most), least, most, tags))
    return bands


def thirds_of(counts: ArrayLike) -> list[Band]:
    """Part tags into rare, middling and frequent ones, about as many of each; the rarest first, those that have tags.

    Tags with the same number of training images are in the same third: that of the middle one of them. Those with the
    fewest are always rare, even if these are most tags, and those with the most are frequent.
    """
    counts = np.asarray(counts, np.int64)
    _, inverse, ties = np.unique(counts, return_inverse=True, return_counts=True)
    # In half ranks, so that the middle of an even number of ties is a whole number too.
    middle = 2 * np.cumsum(ties) - ties
    thirds = 3 * middle // (2 * max(counts.size, 1))
    thirds[-1:] = len(THIRDS) - 1
    thirds[:1] = 0
    third = thirds[inverse]
    bands = []
    for number, name in enumerate(THIRDS):
        tags = np.flatnonzero(third == number)
        if tags.size:
            least, most = int(counts[tags].min()), int(counts[tags].max())
            bands.append(Band(f"{name} ({_named(least, most)})", least, most, tags))
    return bands


def band_values(values: dict[str, NDArray[np.float64]], band: Band, k: int) -> dict[str, NDArray[np.float64]]:
    """Return the measures of the tags of a band, out of what `visterm.metrics.measure` returned for all tags.

    `values` have ``tag_p@k`` and ``tag_r@k``; ``word_map`` if it was measured. Returns these, float64, with one value a
    tag of the band, NaN where no measured image has it; ``tag_f1@k`` and ``n_plus@k``, shape (1,), of these tags alone.
    Every image is still given its k best of *all* tags. Nothing where no measured image has a tag of the band.
    """
    precisions, recalls = values[f"tag_p@{k}"][band.tags], values[f"tag_r@{k}"][band.tags]
    if np.isnan(recalls).all():
        return {}
    measures = {
        f"tag_p@{k}": precisions,
        f"tag_r@{k}": recalls,
        f"tag_f1@{k}": f1_of_means(precisions, recalls),
        f"n_plus@{k}": np.full(1, np.count_nonzero(recalls > 0), np.float64),
    }
    word_maps = values.get("word_map")
    if word_maps is not None and not np.isnan(word_maps[band.tags]).all():
        measures["word_map"] = word_maps[band.tags]
    return measures


def _named(least: int, most: int) -> str:
    if most < 0:
        return f"{least:,} or more"
    return "none" if most == 0 else f"{least:,}" if least == most else f"{least:,} to {most:,}"
