"""Measures of search by one word: each tag is a query that ranks the images, in memory or in files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.errors import TooLargeError
from visterm.core.writing import new_map
from visterm.kernels.ranks import count_irrelevant_above
from visterm.metrics.blocks import Judgements, ScoreBlocks, Scores
from visterm.metrics.ranking import Ranks, ratio

ENTRIES = 2**20  # Entries handled together
MOST_IMAGES = 2**32  # An entry is 8 bytes: 4 of the score, and 4 of the image's number
_SIGN = np.uint32(2**31)


class ImageRanker:
    """Ranks the relevant images of each tag in two passes over blocks of rows, without ever holding a column.

    The first pass (`add`) takes the scores of the relevant entries; the second (`count`) counts, between
    them, the scores of all the other images. Memory grows with the relevant entries only.
    """

    def __init__(self, judgements: Judgements) -> None:
        self._judgements = judgements
        self._scores = np.zeros(judgements.tags.size, np.float64)
        self._n_above = np.zeros(judgements.tags.size, np.int64)
        counts = np.bincount(judgements.tags, minlength=judgements.n_tags)
        self._indptr = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        self._order: NDArray[np.int64] | None = None
        self._images = judgements.images

    def add(self, rows: slice, block: NDArray[Any]) -> None:
        """Take the scores of the relevant entries of some images."""
        span = self._judgements.span(rows)
        self._scores[span] = block[self._images[span] - rows.start, self._judgements.tags[span]]

    def count(self, rows: slice, block: NDArray[Any]) -> None:
        """Count the irrelevant ones of some images above each relevant entry, once every block is added."""
        if self._order is None:
            self._order = np.lexsort((self._images, -self._scores, self._judgements.tags))
            self._scores, self._images = self._scores[self._order], self._images[self._order]
        count_irrelevant_above(block, rows.start, self._indptr, self._scores, self._images, self._n_above)

    def result(self) -> Ranks:
        """Return the ranks, once every block is counted."""
        tags = np.repeat(np.arange(self._judgements.n_tags), np.diff(self._indptr))
        total = np.concatenate(([0], np.cumsum(self._n_above)))
        first = self._indptr[tags]
        place = np.arange(1, tags.size + 1)
        return Ranks(self._judgements.n_tags, tags, self._images, place - first + total[place] - total[first])


def rank_images(scores: Scores, Y: Any, *, exclude: Any = None) -> Ranks:
    """Rank the relevant images of each tag within its column of scores; ties are broken by the smaller image id.

    Parameters and errors are those of `visterm.metrics.ranking.rank_tags`; a one-time iterator of more than 512 MiB
    is refused with `TooLargeError`, because the scores are gone through twice.
    """
    judgements = Judgements.of(Y, exclude)
    blocks, ranker = ScoreBlocks(scores, judgements), ImageRanker(judgements)
    for rows, block in blocks.first_time():
        ranker.add(rows, block)
    for rows, block in blocks.go_again():
        ranker.count(rows, block)
    return ranker.result()


class StoredImageRanker:
    """Ranks the relevant images of each tag in two passes over the images, as `ImageRanker`, but in files.

    First all images are gathered: an entry's key sorts by score, the best first, then by image. `sort` brings the keys
    of each tag into order, where they lie. Then all images are counted. Files in `folder` take 28 bytes a relevant
    entry; `n_relevant`, int64 of shape (n_tags,), counts the relevant images of each tag, over all images. Raises
    TooLargeError if there are more images than four bytes can number.
    """

    def __init__(self, folder: Path, n_relevant: NDArray[np.int64], n_images: int) -> None:
        if n_images > MOST_IMAGES:
            raise TooLargeError(
                f"Words are measured on at most {MOST_IMAGES:,} images, and there are {n_images:,}. Leave word_map and "
                "word_p out."
            )
        self._indptr = np.concatenate(([0], np.cumsum(n_relevant))).astype(np.int64)
        self._next = self._indptr[:-1].copy()
        shape = (max(1, int(self._indptr[-1])),)
        self._keys = np.asarray(new_map(folder / "keys.npy", np.uint64, shape))
        self._scores = np.asarray(new_map(folder / "scores.npy", np.float32, shape))
        self._images = np.asarray(new_map(folder / "images.npy", np.int64, shape))
        self._n_above = np.asarray(new_map(folder / "above.npy", np.int64, shape))

    def gather(self, first: int, block: NDArray[np.float32], relevant: sp.csr_array) -> None:
        """Take the relevant entries of some images, of which the first has the number `first`."""
        rows = np.repeat(np.arange(block.shape[0]), np.diff(relevant.indptr))
        order = np.argsort(relevant.indices, kind="stable")
        rows, tags = rows[order], relevant.indices[order]
        each, start, counts = np.unique(tags, return_index=True, return_counts=True)
        places = np.repeat(self._next[each] - start, counts) + np.arange(tags.size)
        self._next[each] += counts
        keys = _descending(block[rows, tags]).astype(np.uint64) << np.uint64(32)
        self._keys[places] = keys | (rows + first).astype(np.uint64)

    def sort(self) -> None:
        """Bring the entries of each tag into their order, once all are gathered."""
        for start, stop in zip(self._indptr[:-1].tolist(), self._indptr[1:].tolist(), strict=True):
            self._keys[start:stop].sort()
        for start in range(0, int(self._indptr[-1]), ENTRIES):
            some = slice(start, min(start + ENTRIES, int(self._indptr[-1])))
            self._images[some] = self._keys[some] & np.uint64(MOST_IMAGES - 1)
            self._scores[some] = _score_of((self._keys[some] >> np.uint64(32)).astype(np.uint32))

    def count(self, first: int, block: NDArray[np.float32]) -> None:
        """Count the irrelevant ones of some images above each relevant entry, once these are sorted."""
        count_irrelevant_above(block, first, self._indptr, self._scores, self._images, self._n_above)

    def average_precision(self) -> NDArray[np.float64]:
        """Return the average precision of each tag as a query, NaN of one that is nowhere relevant, shape (n_tags,)."""
        return ratio(self._sums(lambda place, rank: place / rank), np.diff(self._indptr))

    def precision(self, k: int) -> NDArray[np.float64]:
        """Return the relevant images among the first k of each tag over k, likewise."""
        return ratio(self._sums(lambda _, rank: rank <= k), np.where(np.diff(self._indptr) > 0, k, 0))

    def _sums(self, measure: Any) -> NDArray[np.float64]:
        """Sum over each tag's entries a measure of their places among the relevant ones and among all."""
        n_tags = self._indptr.size - 1
        sums = np.zeros(n_tags)
        before, above = -1, 0  # the tag of the last entry of the part before, and the irrelevant images above that
        for start in range(0, int(self._indptr[-1]), ENTRIES):
            stop = min(start + ENTRIES, int(self._indptr[-1]))
            entries = np.arange(start, stop)
            tags = np.searchsorted(self._indptr, entries, side="right") - 1
            total = np.concatenate(([0], np.cumsum(self._n_above[start:stop])))
            n_above = total[1:] - total[np.maximum(self._indptr[tags] - start, 0)]
            n_above[tags == before] += above
            before, above = int(tags[-1]), int(n_above[-1])
            place = entries - self._indptr[tags] + 1
            sums += np.bincount(tags, measure(place, place + n_above), minlength=n_tags)
        return sums


def _descending(scores: NDArray[np.float32]) -> NDArray[np.uint32]:
    """Return four bytes of each score that are the smaller, the larger the score is; equal for 0 and -0."""
    bits = (scores.astype(np.float32) + np.float32(0)).view(np.uint32)
    return np.where(bits < _SIGN, ~(bits | _SIGN), bits).astype(np.uint32)


def _score_of(keys: NDArray[np.uint32]) -> NDArray[np.float32]:
    """Return the scores that `_descending` took."""
    return np.where(keys < _SIGN, ~keys ^ _SIGN, keys).astype(np.uint32).view(np.float32)
