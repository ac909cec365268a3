"""A bag of visterms: the words of an image's blocks, added up and weighted by tf-idf into a sparse row of length 1."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def bag_row(words, shares, idf, root):
    """Add up an image's words and weight them.

    Parameters
    ----------
    words : ndarray of int32, shape (n_blocks, n_nearest)
        Below n_words; others are left out.
    shares : ndarray of float32, shape (n_blocks, n_nearest)
        What the block counts for each of its words.
    idf : ndarray of float32, shape (n_words,)
    root : bool
        Weigh by the square root of the term frequency.

    Returns
    -------
    weights : ndarray of float32
        Above 0. Their squares add up to 1; none are given where no word has weight.
    columns : ndarray of int32
        Their words, increasing.
    """
    n_words = idf.shape[0]
    terms = np.zeros(n_words)
    for block in range(words.shape[0]):
        for j in range(words.shape[1]):
            word = words[block, j]
            if 0 <= word < n_words:
                terms[word] += shares[block, j]
    size = 0
    square = 0.0
    for word in range(n_words):
        terms[word] = (np.sqrt(terms[word]) if root else terms[word]) * idf[word]
        if terms[word] > 0.0:
            size += 1
            square += terms[word] * terms[word]
    weights = np.empty(size, np.float32)
    columns = np.empty(size, np.int32)
    length = np.sqrt(square)
    place = 0
    for word in range(n_words):
        if terms[word] > 0.0:
            weights[place] = terms[word] / length
            columns[place] = word
            place += 1
    return weights, columns
