"""The tags that an image has, as a sorted stretch of numbers: is one among them, and which are not."""

from __future__ import annotations

from numba import njit

FEW = 8
"""Up to so many tags, looking at each in turn costs less than a search whose turns no processor foresees."""


@njit(cache=True, nogil=True)
def absent(own, first, last, r):
    """Return the number r, counted from 0, among those that are not in the sorted ``own[first:last]``.

    It is r + c, where c counts the own numbers that come before it: those at position q with own[q] - q ≤ r.
    """
    if last - first <= FEW:
        for q in range(first, last):
            r += own[q] <= r
        return r
    low, high = first, last
    while low < high:
        middle = (low + high) // 2
        if own[middle] - (middle - first) <= r:
            low = middle + 1
        else:
            high = middle
    return r + (low - first)


@njit(cache=True, nogil=True)
def is_own(own, first, last, number):
    """Return whether a number is in the sorted ``own[first:last]``."""
    low, high = first, last
    while low < high:
        middle = (low + high) // 2
        if own[middle] < number:
            low = middle + 1
        else:
            high = middle
    return low < last and own[low] == number
