"""The tags of images that are joined already: read from files, by whatever process."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.features.streaming.tag_pairs import TagPairs, ones_at

BITS, COLUMNS = "bits.npy", "columns.npy"


class TagRows:
    """Which images are learned from, and their tags.

    Attributes
    ----------
    bits : ndarray of uint8, shape (n_images,)
        What is known of the splits of each image; a memory map.
    learned : int
        The bit of the images to learn from.
    n_tags : int
    """

    bits: NDArray[np.uint8]
    learned: int
    n_tags: int
    _pairs: TagPairs
    _column_of: NDArray[np.int64]

    @classmethod
    def opened(cls, folder: Path, learned: int, n_tags: int) -> TagRows:
        """Open what `save_columns` completed, to be read."""
        found = TagRows()
        found.bits = np.load(folder / BITS, mmap_mode="r")
        found._pairs = TagPairs.opened(folder)
        found._column_of = np.load(folder / COLUMNS)
        found.learned, found.n_tags = learned, n_tags
        return found

    def save_columns(self, folder: Path) -> Self:
        """Write the one thing that the folder of the tags does not hold yet."""
        np.save(folder / COLUMNS, self._column_of)
        return self

    def rows(self, first: int, kept: NDArray[np.bool_]) -> sp.csr_array:
        """Return the tags of those images that are kept among the ones from position `first` on, see `rows_at`."""
        return self.rows_at(first + np.flatnonzero(kept))

    def rows_at(self, positions: NDArray[np.int64]) -> sp.csr_array:
        """Return the tags of images at some positions.

        Returns
        -------
        csr_array of float32, shape (n_positions, n_tags)
            Ones.
        """
        candidates, images = self._pairs.at(positions)
        columns = self._column_of[candidates]
        there = columns >= 0
        return ones_at(images[there], columns[there], (positions.size, self.n_tags))

    def learned_among(self, first: int, last: int) -> NDArray[np.bool_]:
        """Say which images of a range of positions are learned from."""
        return (np.asarray(self.bits[first:last]) & self.learned) > 0
