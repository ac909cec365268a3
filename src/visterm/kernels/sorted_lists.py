"""Sorted lists of numbers, such as the tags of an image: is one in it, which are not, and what lists share."""

from __future__ import annotations

from numba import njit

FEW = 8  # Numbers up to which looking at each in turn costs less than a search whose turns no processor foresees


@njit(cache=True, nogil=True)
def nth_absent(numbers, first, last, r):
    """Return the number r, counted from 0, among those that are not in the sorted ``numbers[first:last]``.

    It is r + c, where c counts the listed numbers that come before it: those at position q with numbers[q] - q ≤ r.
    """
    if last - first <= FEW:
        for q in range(first, last):
            r += numbers[q] <= r
        return r
    low, high = first, last
    while low < high:
        middle = (low + high) // 2
        if numbers[middle] - (middle - first) <= r:
            low = middle + 1
        else:
            high = middle
    return r + (low - first)


@njit(cache=True, nogil=True)
def lower_bound(numbers, low, high, least):
    """Find the first position in low .. high of sorted numbers whose number is `least` or more."""
    while low < high:
        middle = (low + high) // 2
        if numbers[middle] < least:
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True, nogil=True)
def contains(numbers, first, last, number):
    """Return whether a number is in the sorted ``numbers[first:last]``."""
    position = lower_bound(numbers, first, last, number)
    return position < last and numbers[position] == number


@njit(cache=True, nogil=True)
def intersect_lists(start, members, query_start, query_lists, counts, out_start, out):
    """Find the members that all the lists of each query share; a query of no list has none.

    The shortest list is gone through and the others are searched, so a query costs about as much as its rarest word.
    ``members[start[t]:start[t + 1]]`` is list t, sorted, without repetitions;
    ``query_lists[query_start[q]:query_start[q + 1]]`` are the lists of query q. `counts` are overwritten with how many
    members were found. An empty `out_start` only counts; else it says, from the counts of an earlier call, where in
    `out` the sorted members of each query go.
    """
    for q in range(counts.shape[0]):
        counts[q] = 0
        first, last = query_start[q], query_start[q + 1]
        if first == last:
            continue
        base = query_lists[first]
        for w in range(first + 1, last):
            t = query_lists[w]
            if start[t + 1] - start[t] < start[base + 1] - start[base]:
                base = t
        for e in range(start[base], start[base + 1]):
            member = members[e]
            shared = True
            for w in range(first, last):
                t = query_lists[w]
                if t != base and not contains(members, start[t], start[t + 1], member):
                    shared = False
                    break
            if not shared:
                continue
            if out_start.shape[0] > 0:
                out[out_start[q] + counts[q]] = member
            counts[q] += 1
