"""Exact best pairs of tags (one of an object, one of a part) without computing the scores of all K × K pairs.

The score of the object's tag i and the part's tag j is ``(a[i] + b[j]) + F[i, j]``, added in this order in float32, as
in NumPy. Rounding is monotonic: the rounded sum of larger numbers is never below the rounded sum of smaller ones. So
``(a[i] + max b) + max F[i]``, rounded the same way, bounds the scores of row i, and no slack is needed.

The rows with the largest bounds come first and give a floor that the k best must reach. Then all rows are visited in
order, and rows whose bound is below the floor are skipped; the floor rises with the worst of the k best so far. The
diagonal (a tag with itself), which is largest if F has products of rows of equal length, is excluded from max F[i].

The last functions train with a related tag as context: they draw it, add it to the image's row, and take its step.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from visterm.kernels.compiled import kernel
from visterm.kernels.random import draw_below, stream_of
from visterm.kernels.row_moves import limit_norm
from visterm.kernels.topk import _select_rows, heapify, replace_worst, sort_heap

FIRST_ROWS = 8, 64
"""Minimum and maximum number of rows that are visited first; k rows if k is between them."""

COLUMNS = 64  # Number of scores of a row that are compared with the floor at once, in vector registers


class PairTerms(NamedTuple):
    """The label-label term F of all pairs, and its bounds."""

    F: np.ndarray  # float32, shape (K, K). Row: tag of the object, column: tag of the part. C order, finite.
    diagonal: np.ndarray  # float32, shape (K,). Diagonal of F, a tag with itself; excluded below.
    # float32, shape (K,). Largest and smallest value of each row; minus infinity and infinity for a single tag.
    row_max: np.ndarray
    row_min: np.ndarray


def pair_terms(F):
    """Compute the bounds of a finite (K, K) matrix of float32 in C order; once per model."""
    others = ~np.eye(len(F), dtype=bool)
    row_max, row_min = F.max(axis=1, where=others, initial=-np.inf), F.min(axis=1, where=others, initial=np.inf)
    return PairTerms(F, F.diagonal().copy(), row_max, row_min)


@kernel
def top_pairs(A, B, terms, first, stop, ids, scores):
    """Fill `ids` and `scores` with the k best pairs of the examples `first` .. `stop` - 1, ties by the smaller id.

    `A` and `B`, float32 (n, K), are the scores of tags for the object's and the part's image. They and all sums with F
    are finite. A tag with itself is a pair, too. `ids`, int64 (n, k), are overwritten with ``i * K + j``; k is from 1
    to the number of pairs.
    """
    n, k = terms.F.shape[0], ids.shape[1]
    _check_examples(A, B, terms, first, stop)
    if k < 1 or k > n * n:
        raise IndexError("k is below 1, or more than there are pairs")
    n_first = min(n, max(FIRST_ROWS[0], min(FIRST_ROWS[1], k)))
    bounds = np.empty((1, n), np.float32)
    first_rows, first_bounds = np.empty((1, n_first), np.int64), np.empty((1, n_first), np.float32)

    for x in range(first, stop):
        a, b, heap_ids, heap_scores = A[x], B[x], ids[x], scores[x]
        b_max = b.max()
        for i in range(n):
            bounds[0, i] = max((a[i] + b_max) + terms.row_max[i], (a[i] + b[i]) + terms.diagonal[i])
        _select_rows(bounds, first_rows, first_bounds)
        count, floor = 0, np.float32(-np.inf)
        for i in first_rows[0]:
            count, floor = _merge_row(i, a[i], b, terms.F[i], heap_ids, heap_scores, count, floor)

        floor = heap_scores[0] if count == k else np.float32(-np.inf)
        count = 0
        for i in range(n):
            if bounds[0, i] >= floor:
                count, floor = _merge_row(i, a[i], b, terms.F[i], heap_ids, heap_scores, count, floor)
        sort_heap(heap_ids, heap_scores)


@kernel
def pair_ranks(A, B, terms, objects, parts, first, stop, ranks):
    """Fill `ranks`, int64 (n,), with the number of pairs before each example's pair, in the order of `top_pairs`.

    The pairs are `objects` and `parts`, int64 (n,). Rank 0 is best.
    """
    n = terms.F.shape[0]
    _check_examples(A, B, terms, first, stop)
    for x in range(first, stop):
        a, b, whole, part = A[x], B[x], objects[x], parts[x]
        if whole < 0 or whole >= n or part < 0 or part >= n:
            raise IndexError("a tag of a pair is outside F")
        score = (a[whole] + b[part]) + terms.F[whole, part]
        above = np.nextafter(score, np.float32(np.inf))  # ties: the smaller id comes first
        rank = _count_at_least(a[whole], b[:part], terms.F[whole, :part], score)
        rank += _count_at_least(a[whole], b[part:], terms.F[whole, part:], above)
        b_max, b_min = b.max(), b.min()

        for i in range(n):
            limit = above if i > whole else score
            if i == whole:
                continue
            if (a[i] + b_max) + terms.row_max[i] < limit:
                rank += (a[i] + b[i]) + terms.diagonal[i] >= limit
            elif (a[i] + b_min) + terms.row_min[i] >= limit:
                rank += n - 1 + ((a[i] + b[i]) + terms.diagonal[i] >= limit)
            else:
                rank += _count_at_least(a[i], b, terms.F[i], limit)
        ranks[x] = rank


@kernel
def _check_examples(A, B, terms, first, stop):
    n = terms.F.shape[0]
    if A.shape[1] != n or B.shape[1] != n or first < 0 or stop > min(A.shape[0], B.shape[0]):
        raise IndexError("the examples are outside A and B, or these are not as wide as F")


@kernel
def _merge_row(i, a_i, b, row, ids, scores, count, floor):
    """Merge the pairs of row i of F that reach the floor into the heap; return the heap's size and the new floor."""
    n, k = b.shape[0], ids.shape[0]
    for start in range(0, n, COLUMNS):
        stop = min(start + COLUMNS, n)
        if _count_at_least(a_i, b[start:stop], row[start:stop], floor) == 0:
            continue
        for j in range(start, stop):
            score = (a_i + b[j]) + row[j]
            if score < floor:
                continue
            if count == k:
                replace_worst(ids, scores, i * n + j, score)
            else:
                ids[count], scores[count] = i * n + j, score
                count += 1
                if count < k:
                    continue
                heapify(ids, scores)
            floor = np.nextafter(scores[0], np.float32(np.inf))
    return count, floor


@kernel
def _count_at_least(a_i, b, row, limit):
    """Count the pairs of a section of a row with a score of `limit` or more."""
    count = np.int32(0)
    for c in range(b.shape[0]):
        count += np.int32((a_i + b[c]) + row[c] >= limit)
    return np.int64(count)


@kernel
def draw_contexts(examples, tags, first_partner, partners, seed, epoch, contexts, entries):
    """Draw, for each example, a tag that is related to its tag; all related tags are equally likely.

    The numbers in `examples` are the keys of the draws. ``partners[first_partner[t]:first_partner[t + 1]]`` are the
    tags related to t. All arrays are int64. Overwrites `contexts` with related tags, or -1 for a tag without related
    tags, and `entries` with their indices in `partners`.
    """
    for p in range(examples.shape[0]):
        first, stop = first_partner[tags[p]], first_partner[tags[p] + 1]
        contexts[p] = -1
        if stop > first:
            entries[p] = first + draw_below(stream_of(seed, epoch, examples[p]), 0, stop - first)
            contexts[p] = partners[entries[p]]


@kernel
def add_contexts(contexts, tag_start, context_start, dim, alpha, V, U):
    """Add to each example's row the contribution of its context to the scores of all tags.

    A row of `V`, float32 (n_tags, width), joins vectors of `dim` numbers: for the tag as a label of an image (at column
    0), as an object and as a part; roles that begin at the same column share a vector. `contexts`, int64 (n,), are tags
    or -1. `tag_start` and `context_start`, int64 (n,), are the first columns of the vectors that represent the
    examples' tags and the contexts in the relation. `alpha` is the weight of the score of two tags. The first `dim`
    columns of `U`, float32 (n, width), are the embedded images; `U` is changed.
    """
    weight = np.float32(alpha)
    for p in range(contexts.shape[0]):
        row = U[p]
        row[dim:] = 0.0
        if contexts[p] >= 0:
            source = V[contexts[p]]
            column, context_column = tag_start[p], context_start[p]
            for c in range(dim):
                row[column + c] += weight * source[context_column + c]


@kernel
def move_contexts(
    contexts, tag_start, context_start, tags, violators, gains, steps, dim, factor, alpha_rate, undo_share, max_norm, V
):
    """Take the steps of a block for the contexts, then limit the norms of the vectors that moved.

    The step of a violator has already pushed it away from the context. A share of this push is undone, for both tags:
    two tags without a known relation may still be related.

    `contexts`, `tag_start`, `context_start` and `dim` are as in `add_contexts`. `tags`, shape (n,), are the true tags;
    `violators`, (n,), the tags that outranked them, or -1; `gains`, (n,), is float32. `steps`, float32 (n, width), are
    the steps of the image's side, ``rate · gain · (V_y - V_ȳ)``; `factor` is alpha times the learning rate of tags,
    divided by the learning rate of the image's side, and `alpha_rate` is alpha times the learning rate of tags.
    `undo_share`, 0 to 1, is the share of the push to undo, and `max_norm` limits each vector of `dim` numbers. Changes
    rows of `V`, float32 (n_tags, width): those of contexts and violators, and those of `tags` above the norm limit.
    """
    scale = np.float32(factor)
    for p in range(contexts.shape[0]):
        if violators[p] >= 0 and contexts[p] >= 0:
            target, step, violator_row = V[contexts[p]], steps[p], V[violators[p]]
            column, context_column = tag_start[p], context_start[p]
            undo_factor = np.float32(undo_share * alpha_rate) * gains[p]
            for c in range(dim):
                old_value = target[context_column + c]
                target[context_column + c] += scale * step[column + c] + undo_factor * violator_row[column + c]
                violator_row[column + c] += undo_factor * old_value
    for p in range(contexts.shape[0]):
        if violators[p] >= 0:
            for tag in (tags[p], violators[p], contexts[p]):
                if tag >= 0:
                    row = V[tag]
                    for column_of_role in range(0, row.shape[0], dim):
                        limit_norm(row[column_of_role : column_of_role + dim], max_norm)
