"""What a run keeps of held-out images to choose cut-offs by later: the chances of tags, and which were right."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from visterm.metrics.bands import frequency_bands

LEAST_CHANCE = 0.02
"""No cut-off lies below; most entries do, and are not kept."""


class HeldOutChances(NamedTuple):
    """The chances of 2 % or more, tag by tag and each tag's largest first, by curves not fitted on their images.

    Attributes
    ----------
    starts : ndarray of int64, shape (n_tags + 1,)
        Where the entries of each tag begin.
    chances : ndarray of float32, shape (n_entries,)
    right : ndarray of bool, shape (n_entries,)
        Whether the image has the tag.
    groups : ndarray of int8, shape (n_tags,)
        Tags with about as many training images have the same number, the rarest 0.
    n_given : int
        Tags that the images have, of any chance.
    """

    starts: NDArray[np.int64]
    chances: NDArray[np.float32]
    right: NDArray[np.bool_]
    groups: NDArray[np.int8]
    n_given: int

    @property
    def tags(self) -> NDArray[np.int64]:
        """Return the tag of each entry, shape (n_entries,)."""
        return np.repeat(np.arange(self.groups.size), np.diff(self.starts))

    @classmethod
    def of(cls, chances: NDArray[np.float64], given: NDArray[np.bool_], counts: NDArray[Any]) -> Self:
        """Keep what matters of the chances of all tags, shape (n_images, n_tags), and of what people gave.

        `counts` are the training images of each tag, shape (n_tags,).
        """
        n_tags = chances.shape[1]
        images, tags = np.nonzero(chances >= LEAST_CHANCE)
        values = chances[images, tags]
        groups = np.zeros(n_tags, np.int8)
        for number, band in enumerate(frequency_bands(counts)):
            groups[band.tags] = number
        order = np.lexsort((images, -values, tags))
        starts = np.concatenate([[0], np.cumsum(np.bincount(tags, minlength=n_tags))]).astype(np.int64)
        return cls(
            starts,
            values[order].astype(np.float32),
            given[images, tags][order],
            groups,
            int(given.sum()),
        )

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return what there is to store."""
        return {f"held_out_{name}": np.asarray(value) for name, value in self._asdict().items()}

    @classmethod
    def of_arrays(cls, arrays: dict[str, NDArray[Any]]) -> Self | None:
        """Put together what `arrays` took apart; None where nothing was kept."""
        if "held_out_starts" not in arrays:
            return None
        starts, chances, right, groups, n_given = (arrays[f"held_out_{name}"] for name in cls._fields)
        return cls(starts, chances, right.astype(np.bool_), groups, int(n_given))
