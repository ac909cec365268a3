"""Bags of visterms: the words of each image's blocks, added up and weighted by tf-idf into sparse rows of length 1."""

from __future__ import annotations

import numpy as np
from numba import njit


def bag_rows(words, shares, starts, idf, root):
    """Add up each image's words and weight them.

    Parameters
    ----------
    words : ndarray of int32, shape (n_blocks, n_nearest)
        Below n_words.
    shares : ndarray of float32, shape (n_blocks, n_nearest)
        What the block counts for each of its words.
    starts : ndarray of int64, shape (n_images + 1,)
        The blocks of image i are ``starts[i]`` to ``starts[i + 1]``.
    idf : ndarray of float32, shape (n_words,)
    root : bool
        Weigh by the square root of the term frequency.

    Returns
    -------
    data : ndarray of float32
    indices : ndarray of int32
        Increasing within a row.
    indptr : ndarray of int64, shape (n_images + 1,)
        A row is all zero (empty) where no word has weight.
    """
    most = words.size
    data, indices = np.empty(most, np.float32), np.empty(most, np.int32)
    indptr = np.zeros(len(starts), np.int64)
    _fill_rows(words, shares, starts, idf, root, data, indices, indptr)
    return data[: indptr[-1]].copy(), indices[: indptr[-1]].copy(), indptr


@njit(cache=True, nogil=True)
def _fill_rows(words, shares, starts, idf, root, data, indices, indptr):
    """Fill a CSR matrix row by row; `terms` is all zero again after each row."""
    n_words = idf.shape[0]
    terms = np.zeros(n_words)
    size = 0
    for image in range(starts.shape[0] - 1):
        for block in range(starts[image], starts[image + 1]):
            for j in range(words.shape[1]):
                word = words[block, j]
                if 0 <= word < n_words:
                    terms[word] += shares[block, j]
        begin = size
        square = 0.0
        for word in range(n_words):
            if terms[word] > 0.0 and idf[word] > 0.0:
                weight = (np.sqrt(terms[word]) if root else terms[word]) * idf[word]
                square += weight * weight
                data[size] = weight
                indices[size] = word
                size += 1
            terms[word] = 0.0
        if square > 0.0:
            length = np.sqrt(square)
            for i in range(begin, size):
                data[i] = data[i] / length
        indptr[image + 1] = size
