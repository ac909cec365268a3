"""Bands of tags by their number of training images, to evaluate rare and frequent tags separately."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from visterm.metrics.annotation import f1_of_means

BAND_STARTS = (0, 1, 5, 20, 100)
"""Minimum number of training images of a tag in each band; 0 is for words added without images."""

THIRD_NAMES = ("rare", "middling", "frequent")


class Band(NamedTuple):
    """Tags with a similar number of training images."""

    name: str  # Numbers of training images, such as "5 to 19"; for thirds, such as "rare (1 to 3)"
    # Minimum and maximum number of training images, inclusive; `most` is -1 if there is no maximum
    least: int
    most: int
    tags: NDArray[np.int64]  # Columns, ascending


def frequency_bands(counts: ArrayLike) -> list[Band]:
    """Divide tags into bands by fixed numbers of training images, or into thirds if all tags are in the same band.

    `counts`, int of shape (n_tags,), are the numbers of training images of the tags. Returns the non-empty bands, the
    rarest first: 1 to 4, 5 to 19, 20 to 99, and 100 or more images. These are fixed so that runs and libraries can be
    compared. If all tags are in one of them, returns the thirds of `thirds_of`.
    """
    fixed_bands = bands_from(counts, BAND_STARTS)
    return fixed_bands if len(fixed_bands) > 1 else max(fixed_bands, thirds_of(counts), key=len)


def bands_from(counts: ArrayLike, starts: Sequence[int]) -> list[Band]:
    """Divide tags with `counts`, int of shape (n_tags,), into bands at given numbers of training images.

    `starts` are the minimum counts of the bands, ascending; the last band has no maximum. Tags below the first minimum
    are in no band. Returns the non-empty bands, in the order of `starts`.
    """
    counts = np.asarray(counts, np.int64)
    ends = [*(start - 1 for start in starts[1:]), -1]
    bands = []
    for least, most in zip(starts, ends, strict=True):
        tags = np.flatnonzero((counts >= least) & ((counts <= most) | (most < 0)))
        if tags.size:
            bands.append(Band(_range_text(least, most), least, most, tags))
    return bands


def thirds_of(counts: ArrayLike) -> list[Band]:
    """Divide tags into rare, middling and frequent bands of about equal size; return the non-empty ones, rarest first.

    Tags with the same number of training images are in the same third: the third of the middle tag among them. The tags
    with the fewest images are always rare, even if they are the majority, and the tags with the most are frequent.
    """
    counts = np.asarray(counts, np.int64)
    _, inverse, tie_sizes = np.unique(counts, return_inverse=True, return_counts=True)
    # In half ranks, so that the middle of an even number of ties is an integer
    middle_half_ranks = 2 * np.cumsum(tie_sizes) - tie_sizes
    thirds = 3 * middle_half_ranks // (2 * max(counts.size, 1))
    thirds[-1:] = len(THIRD_NAMES) - 1
    thirds[:1] = 0
    third_of_tag = thirds[inverse]
    bands = []
    for third_index, name in enumerate(THIRD_NAMES):
        tags = np.flatnonzero(third_of_tag == third_index)
        if tags.size:
            least, most = int(counts[tags].min()), int(counts[tags].max())
            bands.append(Band(f"{name} ({_range_text(least, most)})", least, most, tags))
    return bands


def band_values(values: dict[str, NDArray[np.float64]], band: Band, k: int) -> dict[str, NDArray[np.float64]]:
    """Return the measures of a band's tags, from the values of all tags that `visterm.metrics.measure` returned.

    `values` has ``tag_p@k``, ``tag_r@k`` and, if measured, ``word_map``. Returns them, float64, with one value per tag
    of the band, NaN if no measured image has the tag; and ``tag_f1@k`` and ``n_plus@k``, shape (1,), of the band alone.
    Images still get their k best of *all* tags. Returns {} if no measured image has a tag of the band.
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


def _range_text(least: int, most: int) -> str:
    if most < 0:
        return f"{least:,} or more"
    return "none" if most == 0 else f"{least:,}" if least == most else f"{least:,} to {most:,}"
