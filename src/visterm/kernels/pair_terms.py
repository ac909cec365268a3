"""The label-label term of pairs of tags, and the largest and smallest of its values in each block of columns."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

COLUMNS = 64
"""Columns of a block: one bound for so many pairs, which are then scored in vector registers."""

_LOWEST, _HIGHEST, _SHIFT = np.int32(-(2**31)), np.int32(2**31 - 1), np.int32(31)


class PairTerms(NamedTuple):
    """The label-label term F of all pairs, with what bounds it.

    Attributes
    ----------
    F : ndarray of float32, shape (K, K)
        Row: tag of the object, column: tag of the part. C order, finite.
    own : ndarray of float32, shape (K,)
        The diagonal of F. All that follows leaves it out.
    most, least : ndarray of float32, shape (K, ceil(K / 64))
        Largest and smallest value of each row in each block of columns; minus infinity and infinity where it has none.
    row_most, row_least : ndarray of float32, shape (K,)
        The same of whole rows.
    """

    F: np.ndarray
    own: np.ndarray
    most: np.ndarray
    least: np.ndarray
    row_most: np.ndarray
    row_least: np.ndarray


def pair_terms(F):
    """Make the bounds of a finite (K, K) matrix of float32 in C order; once a model."""
    n = F.shape[0]
    most, least = np.empty((2, n, -(-n // COLUMNS)), np.float32)
    _fill_bounds(F, most, least)
    return PairTerms(F, F.diagonal().copy(), most, least, most.max(axis=1), least.min(axis=1))


@njit(cache=True, nogil=True)
def _fill_bounds(F, most, least):
    row = np.empty(F.shape[0], np.float32)
    unused = np.empty(1, np.float32)
    for i in range(F.shape[0]):
        row[:] = F[i]
        row[i] = -np.inf
        block_extremes(row, most[i], least[i])
        row[i] = np.inf
        block = i // COLUMNS
        block_extremes(row[block * COLUMNS : (block + 1) * COLUMNS], unused, least[i, block : block + 1])


@njit(cache=True, nogil=True)
def block_extremes(values, most, least):
    """Fill `most` and `least` for blocks of float32 (C order, no NaN).

    They are compared as whole numbers of the same order, which the compiler does in vectors.
    """
    bits = values.view(np.int32)
    for block in range(most.shape[0]):
        columns = bits[block * COLUMNS : (block + 1) * COLUMNS]
        largest, smallest = _LOWEST, _HIGHEST
        for c in range(columns.shape[0]):
            key = _key(columns[c])
            largest = key if key > largest else largest
            smallest = key if key < smallest else smallest
        most[block] = _float(largest)
        least[block] = _float(smallest)


@njit(cache=True)
def _key(bits):
    """Return a whole number that is ordered as floats are, for the bits of one; or the bits back."""
    return np.int32(bits ^ (np.int32(bits >> _SHIFT) & _HIGHEST))


@njit(cache=True)
def _float(key):
    return np.int32(_key(key)).view(np.float32)
