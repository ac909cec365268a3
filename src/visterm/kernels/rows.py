"""A common view of dense and sparse feature rows, and its products in training: with weights and into weights."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from visterm.kernels.compiled import kernel
from visterm.kernels.dot import ROWS_AHEAD, add_at, dot, dot_at, prefetch_row
from visterm.kernels.row_moves import limit_norm, mean_square, scale_row
from visterm.kernels.sorted_lists import lower_bound


class Rows(NamedTuple):
    """A view of feature rows: row i has the values ``vals[start[i]:start[i + 1]]``, in ascending columns."""

    start: np.ndarray  # int64, shape (n_rows + 1,)
    shift: np.ndarray
    """int64, shape (n_rows,). Value number `e` of row i is in column ``cols[e - shift[i]]``. It is 0 for
    sparse rows and the start of the row for dense rows, so that all rows share the columns 0, 1, 2, ..."""
    cols: np.ndarray  # int32 or int64
    vals: np.ndarray  # float32


def dense_rows(X):
    """View a C-contiguous float32 array (n_rows, n_columns) as `Rows`."""
    n, width = X.shape
    start = np.arange(n + 1, dtype=np.int64) * width
    return Rows(start, start[:-1], np.arange(width, dtype=np.int32), X.reshape(-1))


def sparse_rows(data, indices, indptr):
    """View the three arrays of a canonical CSR matrix (sorted columns, no duplicates) as `Rows`."""
    return Rows(indptr.astype(np.int64), np.zeros(len(indptr) - 1, np.int64), indices, data)


@kernel
def embed(rows, ids, A, out):
    """Multiply the rows `ids` by a projection A: ``out[p] = x(ids[p]) · A``.

    Columns of rows are below n_features; `A` has shape (n_features, width). Overwrites the first `width` columns of
    `out`, shape (n, width) or wider.
    """
    width = A.shape[1]
    for p in range(ids.shape[0]):
        i = ids[p]
        out_row = out[p]
        for c in range(width):
            out_row[c] = 0.0
        for e in range(rows.start[i], rows.start[i + 1]):
            if e + ROWS_AHEAD < rows.start[i + 1]:
                prefetch_row(A, rows.cols[e + ROWS_AHEAD - rows.shift[i]])
            a_row = A[rows.cols[e - rows.shift[i]]]
            value = rows.vals[e]
            for c in range(width):
                out_row[c] += value * a_row[c]


@kernel
def row_of(rows, i):
    """Return views of the columns and values of row i."""
    first, stop, shift = rows.start[i], rows.start[i + 1], rows.shift[i]
    return rows.cols[first - shift : stop - shift], rows.vals[first:stop]


@kernel
def row_dot(rows, i, vector):
    """Return the dot product of row i and a float32 vector; a dense row is read without its columns."""
    first, stop = rows.start[i], rows.start[i + 1]
    if stop - first == vector.shape[0]:
        return dot(rows.vals[first:stop], vector)
    cols, values = row_of(rows, i)
    total = np.float32(0.0)
    for e in range(values.shape[0]):
        total += values[e] * vector[np.uint64(cols[e])]  # unsigned: no check for negative indices, twice as fast
    return total


@kernel
def row_square(rows, i):
    """Return the squared length of row i."""
    values = rows.vals[rows.start[i] : rows.start[i + 1]]
    return dot(values, values)


@kernel
def row_squares(rows, out):
    """Fill `out`, float32 (n_rows,), with the squared lengths of all rows."""
    for i in range(out.shape[0]):
        out[i] = row_square(rows, i)


@kernel
def add_row(rows, i, factor, vector):
    """Add `factor` times row i to a float32 vector, in place."""
    first, stop = rows.start[i], rows.start[i + 1]
    if stop - first == vector.shape[0]:
        values = rows.vals[first:stop]
        for c in range(vector.shape[0]):
            vector[c] += factor * values[c]
        return
    cols, values = row_of(rows, i)
    for e in range(values.shape[0]):
        vector[np.uint64(cols[e])] += factor * values[e]


@kernel
def add_outer(rows, ids, active, steps, first, stop, rule, squares, A, stamps, stamp, touched):
    """Add a block of outer products to rows of a projection A, then limit the norms of the changed rows.

    ``A[j] += Σ_p x(ids[p])[j] · steps[p]`` for the features first .. stop-1 and the active p, in the order of p.
    With AdaGrad the sum of a row is divided by the root of its `squares` (see `mean_square`), including this block;
    with L2 the row first shrinks once per term. Threads with disjoint ranges of features change different rows, and the
    order of summation does not depend on the ranges.

    `ids` is int64 (n,); p is skipped if ``active[p]`` is below 0. `steps`, float32 (n, width), are gradients times
    the learning rate. Entries first .. stop-1 of these arrays are changed: `A`, float32 (n_features, width);
    `squares`, float32 (n_features,), 1 plus the mean squares of the row's gradients so far, empty for SGD; `stamps`,
    int64 (n_features,), the last `stamp` that changed the row, which grows with each call; `touched`, int64
    (n_features,), scratch.
    """
    width = A.shape[1]
    n_touched = 0
    is_adaptive = squares.shape[0] > 0
    if is_adaptive or rule.keep < 1.0:
        for p in range(ids.shape[0]):
            if active[p] < 0:
                continue
            i = ids[p]
            step_square = mean_square(steps[p], rule.rate)
            shift = rows.shift[i]
            e = lower_bound(rows.cols, rows.start[i] - shift, rows.start[i + 1] - shift, first)
            end = rows.start[i + 1] - shift
            while e < end and rows.cols[e] < stop:
                j = rows.cols[e]
                value = rows.vals[e + shift]
                if is_adaptive:
                    squares[j] += value * value * step_square
                if rule.keep < 1.0:
                    scale_row(A[j], rule.keep)
                e += 1

    for p in range(ids.shape[0]):
        if active[p] < 0:
            continue
        i = ids[p]
        step = steps[p]
        shift = rows.shift[i]
        e = lower_bound(rows.cols, rows.start[i] - shift, rows.start[i + 1] - shift, first)
        end = rows.start[i + 1] - shift
        while e < end and rows.cols[e] < stop:
            j = rows.cols[e]
            value = rows.vals[e + shift]
            if is_adaptive:
                value /= np.float32(math.sqrt(squares[j]))
            a_row = A[j]
            for c in range(width):
                a_row[c] += value * step[c]
            if stamps[j] != stamp:
                stamps[j] = stamp
                touched[first + n_touched] = j
                n_touched += 1
            e += 1
    for t in range(n_touched):
        limit_norm(A[touched[first + t]], rule.max_norm)


@kernel
def add_steps(ids, active, steps, first, stop, rule, squares, A):
    """Add a block of steps to the rows `ids`, then limit the norms of these rows.

    ``A[j] += Σ_p steps[p]`` over the active p with ``ids[p] == j``, in the order of p, for the rows first ..
    stop-1: the same as `add_outer` for one-hot features, with the same arguments. Threads with disjoint ranges of rows
    change different rows.
    """
    width, is_adaptive = A.shape[1], squares.shape[0] > 0
    if is_adaptive or rule.keep < 1.0:
        for p in range(ids.shape[0]):
            j = ids[p]
            if active[p] < 0 or j < first or j >= stop:
                continue
            if is_adaptive:
                squares[j] += mean_square(steps[p], rule.rate)
            if rule.keep < 1.0:
                scale_row(A[j], rule.keep)

    for p in range(ids.shape[0]):
        j = ids[p]
        if active[p] < 0 or j < first or j >= stop:
            continue
        if p + ROWS_AHEAD < ids.shape[0]:
            prefetch_row(A, ids[p + ROWS_AHEAD])
        factor = np.float32(1.0) / np.float32(math.sqrt(squares[j])) if is_adaptive else np.float32(1.0)
        add_at(A, j * width, steps, p * width, width, factor)
    for p in range(ids.shape[0]):
        j = ids[p]
        if active[p] < 0 or j < first or j >= stop:
            continue
        if math.sqrt(dot_at(A, j * width, A, j * width, width)) > rule.max_norm:
            limit_norm(A[j], rule.max_norm)
