"""Which visual words each block of an image counts for, and which blocks a row comes from."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.encoders.blocks import BlockCutter, Codes
from visterm.encoders.places import Places
from visterm.encoders.pyramid import VistermPyramid
from visterm.kernels.histograms import bag_row
from visterm.kernels.nearest import nearest_words, prepare_codebook


class WordFinder:
    """Finds the nearest words of blocks, among the words of their own scale.

    `codebook`, (n_words, n_features), has the words of all scales, one scale after the other, `scale_words` how many
    each scale has, and `spread` the mean squared distance of its blocks to their nearest word. A block gets
    `neighbours` words; where a scale has fewer, it counts once for each of them. For `softness` see `Visterms`.
    """

    def __init__(
        self,
        codebook: NDArray[np.float32],
        scale_words: NDArray[np.int64],
        spread: NDArray[np.float32],
        cutter: BlockCutter,
        neighbours: int,
        softness: float,
    ) -> None:
        self.cutter = cutter
        self.neighbours = min(neighbours, int(scale_words.max()))
        self.softness = softness
        self._first = np.cumsum(scale_words) - scale_words
        self._n_words = scale_words
        self._prepared = [
            prepare_codebook(codebook[first : first + n]) for first, n in zip(self._first, scale_words, strict=True)
        ]
        self._spread = spread

    def find(self, codes: Codes) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the words of all blocks of an image, int32 (n_blocks, neighbours), and their shares, float32.

        A share says how much of the block the word gets: rows add up to 1.
        """
        words, shares = [], []
        for scale in range(len(self._prepared)):
            found, part = self._find(self.cutter.points(codes, scale), scale)
            words.append(found)
            shares.append(part)
        return np.concatenate(words), np.concatenate(shares)

    def boxes(self, codes: Codes) -> NDArray[np.float64]:
        """Return where the blocks of an image lie, in the order of `find` (see `BlockCutter.boxes`)."""
        return np.concatenate([self.cutter.boxes(codes, scale) for scale in range(len(self._prepared))])

    def _find(self, points: NDArray[np.float32], scale: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the words of points of one scale; columns beyond the scale's number of words have share 0."""
        ids = np.zeros((len(points), self.neighbours), np.int32)
        shares = np.zeros((len(points), self.neighbours), np.float32)
        n = min(self.neighbours, int(self._n_words[scale]))
        words, scores = nearest_words(points, self._prepared[scale], n)
        ids[:, :n] = words + np.int32(self._first[scale])
        spread: float = max(float(self._spread[scale]), float(np.finfo(np.float32).tiny))
        width = max(self.softness * spread, float(np.finfo(np.float32).tiny))
        further = 2 * (scores[:, :1].astype(np.float64) - scores)
        weights = np.exp(-further / width)
        shares[:, :n] = weights / weights.sum(axis=1, keepdims=True)
        return ids, shares


def block_places(
    codes: Codes, finder: WordFinder, pyramid: VistermPyramid, idf: NDArray[np.float32], *, root: bool
) -> Places:
    """Return the row of an image by its blocks.

    A visterm's weight in the row, root and length included, is shared out among the blocks in proportion to what each
    counts for it: the weights of a visterm over all blocks sum to the one in the row. In a pyramid a visterm of a cell
    is shared out among the blocks of that cell. For `idf` (n_columns,) and `root` see `bag_row`.
    """
    words, counts = finder.find(codes)
    boxes = finder.boxes(codes)
    given = [
        _given(level.words, counts, idf[level.columns], root=root) * float(level.factor)
        for level in pyramid.levels(words, boxes)
    ]
    rows = sp.csr_array(sp.hstack(given, format="csr"))
    rows.eliminate_zeros()
    return Places(boxes, rows, np.zeros(len(idf)), "block", "visterm")


def _given(
    words: NDArray[np.int32], counts: NDArray[np.float32], idf: NDArray[np.float32], *, root: bool
) -> sp.coo_array:
    """Share one bag out among the blocks, shape (n_blocks, n_words)."""
    values, columns = bag_row(words, counts, idf, root)
    weights = np.zeros(len(idf))
    weights[columns] = values
    totals = np.bincount(words.ravel(), counts.ravel(), minlength=len(idf))
    a_count = np.divide(weights, totals, out=np.zeros(len(idf)), where=totals > 0)
    blocks = np.repeat(np.arange(len(words)), words.shape[1])
    shared = counts.ravel() * a_count[words.ravel()]
    return sp.coo_array((shared, (blocks, words.ravel())), (len(words), len(idf)))
