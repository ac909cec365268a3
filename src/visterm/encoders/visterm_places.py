"""Which blocks a bag of visterms comes from: each visterm's weight, shared out among the blocks that count for it."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.encoders.blocks import Codes
from visterm.encoders.places import Places
from visterm.encoders.words import WordFinder
from visterm.kernels.termweights import bag_row


def block_places(codes: Codes, finder: WordFinder, idf: NDArray[np.float32], *, root: bool) -> Places:
    """Take the row of an image apart by its blocks.

    A visterm's weight in the row, root and length included, is shared out among the blocks in proportion to what each
    counts for it: the weights of a visterm over all blocks sum to the one in the row.

    Parameters
    ----------
    codes : Codes
    finder : WordFinder
    idf : ndarray of float32, shape (n_words,)
    root : bool
        As for `bag_row`.
    """
    words, counts = finder.find(codes)
    values, columns = bag_row(words, counts, idf, root)
    weights = np.zeros(len(idf))
    weights[columns] = values
    totals = np.bincount(words.ravel(), counts.ravel(), minlength=len(idf))
    a_count = np.divide(weights, totals, out=np.zeros(len(idf)), where=totals > 0)
    blocks = np.repeat(np.arange(len(words)), words.shape[1])
    given = sp.coo_array((counts.ravel() * a_count[words.ravel()], (blocks, words.ravel())), (len(words), len(idf)))
    rows = sp.csr_array(given)
    rows.eliminate_zeros()
    n_scales = len(finder.cutter.sides)
    boxes = np.concatenate([finder.cutter.boxes(codes, scale) for scale in range(n_scales)])
    return Places(boxes, rows, np.zeros(len(idf)), "block", "visterm")
