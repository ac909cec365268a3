"""Which blocks a bag of visterms comes from: each visterm's weight, shared out among the blocks that count for it."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.encoders.blocks import Codes
from visterm.encoders.places import Places
from visterm.encoders.visterm_pyramid import VistermPyramid
from visterm.encoders.words import WordFinder
from visterm.kernels.termweights import bag_row


def block_places(
    codes: Codes, finder: WordFinder, pyramid: VistermPyramid, idf: NDArray[np.float32], *, root: bool
) -> Places:
    """Take the row of an image apart by its blocks.

    A visterm's weight in the row, root and length included, is shared out among the blocks in proportion to what each
    counts for it: the weights of a visterm over all blocks sum to the one in the row. In a pyramid a visterm of a cell
    is shared out among the blocks of that cell.

    Parameters
    ----------
    codes : Codes
    finder : WordFinder
    pyramid : VistermPyramid
    idf : ndarray of float32, shape (n_columns,)
    root : bool
        As for `bag_row`.
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
