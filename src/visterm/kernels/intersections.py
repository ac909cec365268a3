"""What sorted lists have in common: the images that have all the words of a query."""

from __future__ import annotations

from numba import njit

from visterm.kernels.own import is_own


@njit(cache=True, nogil=True)
def intersect_lists(start, members, wanted_start, wanted, counts, out_start, out):
    """Find the members that all the wanted lists of each query share; a query of no list has none.

    The shortest list is gone through and the others are searched, so a query costs about as much as its rarest word.

    Parameters
    ----------
    start : ndarray of int64, shape (n_lists + 1,)
    members : ndarray of int32 or int64
        ``members[start[t]:start[t + 1]]`` is list t, sorted, without repetitions.
    wanted_start : ndarray of int64, shape (n_queries + 1,)
    wanted : ndarray of int32 or int64
        ``wanted[wanted_start[q]:wanted_start[q + 1]]`` are the lists of query q, below n_lists.
    counts : ndarray of int64, shape (n_queries,)
        Overwritten: members found.
    out_start : ndarray of int64, shape (n_queries + 1,) or (0,)
        Where the members of each query go, as the counts of an earlier call say; empty to count only.
    out : ndarray of int32
        Overwritten, unless only counts are wanted: the members, sorted.
    """
    for q in range(counts.shape[0]):
        counts[q] = 0
        first, last = wanted_start[q], wanted_start[q + 1]
        if first == last:
            continue
        base = wanted[first]
        for w in range(first + 1, last):
            t = wanted[w]
            if start[t + 1] - start[t] < start[base + 1] - start[base]:
                base = t
        for e in range(start[base], start[base + 1]):
            member = members[e]
            shared = True
            for w in range(first, last):
                t = wanted[w]
                if t != base and not is_own(members, start[t], start[t + 1], member):
                    shared = False
                    break
            if not shared:
                continue
            if out_start.shape[0] > 0:
                out[out_start[q] + counts[q]] = member
            counts[q] += 1
