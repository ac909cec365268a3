"""Which visual words each block of an image counts for, and which blocks a row comes from."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.encoders.blocks import BlockCutter, Codes
from visterm.encoders.codebook import assign_words, learn_codebook
from visterm.encoders.places import Places
from visterm.encoders.pyramid import VistermPyramid
from visterm.kernels.histograms import bag_row
from visterm.kernels.nearest import nearest_words, prepare_codebook
from visterm.kernels.word_groups import nearest_in_groups, prepare_groups

LookUp: TypeAlias = "Callable[[NDArray[np.float32]], tuple[NDArray[np.int32], NDArray[np.float32]]]"


class WordFinder:
    """Finds the nearest words of blocks, among the words of their own scale, or of all scales where they share them.

    `codebook`, (n_words, n_features), has the words of all scales, one scale after the other, `scale_words` how many
    each scale has, and `spread` the mean squared distance of its blocks to their nearest word; these two have one
    number for all scales of the `cutter` that share their words. A block gets
    `neighbours` words; where a scale has fewer, it counts once for each of them. For `softness` and `nearest_groups`
    see `Visterms`.
    """

    def __init__(
        self,
        codebook: NDArray[np.float32],
        scale_words: NDArray[np.int64],
        spread: NDArray[np.float32],
        cutter: BlockCutter,
        neighbours: int,
        softness: float,
        nearest_groups: int | None = None,
    ) -> None:
        self.cutter = cutter
        self.neighbours = min(neighbours, int(scale_words.max()))
        self.softness = softness
        self._first = np.cumsum(scale_words) - scale_words
        self._n_words = scale_words
        self._look_up = []
        for first, n in zip(self._first, scale_words, strict=True):
            self._look_up.append(_look_up(codebook[first : first + n], min(neighbours, int(n)), nearest_groups))
        self._spread = spread

    def find(
        self, codes: Codes, *, with_boxes: bool
    ) -> tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.float64]]:
        """Return the words of all blocks of an image, their shares, and where the blocks lie (`BlockCutter.boxes`).

        Words are int32 (n_blocks, neighbours). A share, float32, says how much of the block the word gets: rows add up
        to 1, and columns beyond the number of a scale's words have 0. There are no boxes unless `with_boxes`.
        """
        words, shares, boxes = [], [], [np.empty((0, 4))]
        tiny = float(np.finfo(np.float32).tiny)
        for scale in range(len(self.cutter.sides)):
            book = 0 if len(self._look_up) == 1 else scale
            points = self.cutter.points(codes, scale)
            ids = np.zeros((len(points), self.neighbours), np.int32)
            part = np.zeros(ids.shape, np.float32)
            n = min(self.neighbours, int(self._n_words[book]))
            found, scores = self._look_up[book](points)
            ids[:, :n] = found + np.int32(self._first[book])
            width = max(self.softness * max(float(self._spread[book]), tiny), tiny)
            further = 2 * (scores[:, :1].astype(np.float64) - scores)
            weights = np.exp(-further / width)
            part[:, :n] = weights / weights.sum(axis=1, keepdims=True)
            words.append(ids)
            shares.append(part)
            if with_boxes:
                boxes.append(self.cutter.boxes(codes, scale))
        return np.concatenate(words), np.concatenate(shares), np.concatenate(boxes)


def _look_up(words: NDArray[np.float32], n_nearest: int, nearest_groups: int | None) -> LookUp:
    """Return what finds the nearest words of points, and their scores: among all, or in the groups nearest to a point.

    There are as many groups as words in a group, each of words that k-means finds near to each other.
    """
    n_groups = math.isqrt(len(words))
    if nearest_groups is None or nearest_groups >= n_groups:
        return partial(nearest_words, prepared=prepare_codebook(words), n_nearest=n_nearest)
    centres = learn_codebook(words, n_groups, np.random.default_rng(0))
    nearest, _ = assign_words(words, prepare_codebook(centres))
    groups = np.unique(nearest, return_inverse=True)[1]  # none without words
    book = prepare_groups(words, groups, int(groups.max()) + 1)
    n_probed = min(nearest_groups, int(groups.max()) + 1)
    return partial(nearest_in_groups, book=book, n_probed=n_probed, n_nearest=n_nearest)


def block_places(
    codes: Codes, finder: WordFinder, pyramid: VistermPyramid, idf: NDArray[np.float32], *, root: bool
) -> Places:
    """Return the row of an image by its blocks.

    A visterm's weight in the row, root and length included, is shared out among the blocks in proportion to what each
    counts for it: the weights of a visterm over all blocks sum to the one in the row. In a pyramid a visterm of a cell
    is shared out among the blocks of that cell. For `idf` (n_columns,) and `root` see `bag_row`.
    """
    words, counts, boxes = finder.find(codes, with_boxes=True)
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
