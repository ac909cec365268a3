"""Sorted lists of numbers, such as the tags of an image: membership, missing numbers and intersections."""

from __future__ import annotations

from visterm.kernels.compiled import kernel

MAX_LINEAR_SEARCH = 8  # Up to this length of a list, a linear search is faster than a binary search
MAX_BUCKETS = 128  # Maximum number of ranges of `fill_buckets`: few lists have two numbers in a range


@kernel
def nth_absent(numbers, first, stop, r):
    """Return the r-th whole number, counted from 0, that is not in the sorted ``numbers[first:stop]``.

    It is r + c, where c counts the listed numbers before it: those at position q with numbers[q] - q ≤ r.
    """
    if stop - first <= MAX_LINEAR_SEARCH:
        for q in range(first, stop):
            r += numbers[q] <= r
        return r
    low, high = first, stop
    while low < high:
        middle = (low + high) // 2
        if numbers[middle] - (middle - first) <= r:
            low = middle + 1
        else:
            high = middle
    return r + (low - first)


@kernel
def fill_buckets(numbers, first, stop, n_absent, buckets):
    """Prepare many calls of `nth_absent_near` for one list, each a fifth of the time of `nth_absent`.

    ``buckets[r >> shift]``, int64, is set to a position at or before that of the r-th absent number, for r below
    `n_absent`. Returns the shift.
    """
    shift = 0
    while (n_absent - 1) >> shift >= buckets.shape[0]:
        shift += 1
    q = first
    for bucket in range(((n_absent - 1) >> shift) + 1):
        while q < stop and numbers[q] - (q - first) <= bucket << shift:
            q += 1
        buckets[bucket] = q
    return shift


@kernel
def nth_absent_near(numbers, first, stop, r, q):
    """Return `nth_absent`, counting from position q: one that `fill_buckets` found for r."""
    while q < stop and numbers[q] - (q - first) <= r:
        q += 1
    return r + (q - first)


@kernel
def lower_bound(numbers, low, high, minimum):
    """Return the first position from `low` to `high` of sorted numbers with a value of at least `minimum`."""
    while low < high:
        middle = (low + high) // 2
        if numbers[middle] < minimum:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def contains(numbers, first, stop, number):
    """Return whether a number is in the sorted ``numbers[first:stop]``."""
    position = lower_bound(numbers, first, stop, number)
    return position < stop and numbers[position] == number


@kernel
def intersect_lists(start, members, query_start, query_lists, counts, out_start, out):
    """Return the members that all lists of a query share, for each query; a query without lists has no members.

    The members of the shortest list are looked up in the others, so a query costs about as much as its rarest word.
    ``members[start[t]:start[t + 1]]`` is list t, sorted, without repetitions;
    ``query_lists[query_start[q]:query_start[q + 1]]`` are the lists of query q. `counts` is overwritten with the number
    of members found. If `out_start` is empty, members are only counted; otherwise it has the position in `out` of each
    query's first member, computed from the counts of an earlier call; members are written in ascending order.
    """
    for q in range(counts.shape[0]):
        counts[q] = 0
        first, stop = query_start[q], query_start[q + 1]
        if first == stop:
            continue
        shortest = query_lists[first]
        for w in range(first + 1, stop):
            t = query_lists[w]
            if start[t + 1] - start[t] < start[shortest + 1] - start[shortest]:
                shortest = t
        for e in range(start[shortest], start[shortest + 1]):
            member = members[e]
            in_all = True
            for w in range(first, stop):
                t = query_lists[w]
                if t != shortest and not contains(members, start[t], start[t + 1], member):
                    in_all = False
                    break
            if not in_all:
                continue
            if out_start.shape[0] > 0:
                out[out_start[q] + counts[q]] = member
            counts[q] += 1
