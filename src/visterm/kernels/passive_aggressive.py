"""Passive-aggressive steps, one after the other: just far enough to satisfy the margin, but no farther than a limit.

Tags are separated from images without them; PAMIR's steps are on triplets of a query, a relevant image and another:
linear, by a kernel, and for the top.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from visterm.kernels.dot import dot
from visterm.kernels.random import draw_below, stream_of
from visterm.kernels.rows import add_row, row_dot, row_of
from visterm.kernels.sorted_lists import lower_bound, nth_absent

DRAWS = 3  # Draws of a step: the query, the relevant image, the other
ALIKE = 1e-6  # Squared distances below this share of the squared lengths are the rounding of a float32 kernel


class JudgedQueries(NamedTuple):
    """Queries, and the images that are relevant to each."""

    q_start: np.ndarray  # int64, shape (n_queries + 1,)
    q_words: np.ndarray  # int32 or int64: query q has the words ``q_words[q_start[q]:q_start[q + 1]]``, each once
    q_weights: np.ndarray  # float32: their weights
    r_start: np.ndarray  # int64, shape (n_queries + 1,)
    r_images: np.ndarray  # int32 or int64
    """``r_images[r_start[q]:r_start[q + 1]]`` are the images relevant to query q, sorted: some, but not all."""


@njit(cache=True, nogil=True)
def separate_in_turn(
    first, last, start, members, rows, squares, offsets, n_negatives, aggressiveness, seed, epoch, W, sums
):
    """Train tags first .. last-1, each against its own images and images drawn among the others: PA-I.

    A tag's images are visited in a random order; after each come `n_negatives` images, drawn uniformly among those that
    have not got the tag (and `n_negatives` in all where no image has it). With s = 1 for the former and -1 for the
    latter, and the loss ``l = |1 - s (x · w - offset(x))|₊``, the step is
    ``w += s · min(aggressiveness, l / |x|²) · x``.

    Ranges of tags that do not meet change different rows. ``members[start[t]:start[t + 1]]`` are the images that have
    tag t, sorted; `squares`, float32 (n_images,), are the squared lengths of `rows`, and `offsets`, float32
    (n_images,), the scores from which on a tag counts as given. Rows first .. last-1 of `W`, float32 (n_tags, width),
    are changed, and those of `sums`, float64 (n_tags, 3), overwritten: sum of the losses, examples, steps.

    References
    ----------
    Crammer, Dekel, Keshet, Shalev-Shwartz, Singer: Online passive-aggressive algorithms. JMLR 7, 2006; Eq. 6, PA-I.
    """
    n_images = squares.shape[0]
    for t in range(first, last):
        begin, end = start[t], start[t + 1]
        n_members = end - begin
        others = n_images - n_members
        stream = stream_of(seed, epoch, t)
        order = members[begin:end].copy()
        sums[t, :] = 0.0
        draw = 0
        for q in range(max(n_members, 1) - 1, -1, -1):
            image = 0
            if n_members > 0:
                r = draw_below(stream, draw, q + 1)
                draw += 1
                image = order[r]
                order[r] = order[q]
            for negative in range(0 if n_members > 0 else 1, 1 + (n_negatives if others > 0 else 0)):
                sign = 1.0
                if negative > 0:
                    image = nth_absent(members, begin, end, draw_below(stream, draw, others))
                    draw += 1
                    sign = -1.0
                loss = 1.0 - sign * (np.float64(row_dot(rows, image, W[t])) - offsets[image])
                sums[t, 1] += 1.0
                if not loss > 0 or not squares[image] > 0:
                    continue
                sums[t, 0] += loss
                sums[t, 2] += 1.0
                add_row(rows, image, np.float32(sign * min(aggressiveness, loss / squares[image])), W[t])


@njit(cache=True, nogil=True)
def draw_triplet(stream, step, r_start, r_images, n_images):
    """Draw a query, then an image relevant to it, then one that is not, each uniformly.

    `step` counts the triplets of a stream of `stream_of`, from 0; for `r_start` and `r_images` see `JudgedQueries`.
    """
    query = draw_below(stream, DRAWS * step, r_start.shape[0] - 1)
    first, last = r_start[query], r_start[query + 1]
    plus = np.int64(r_images[first + draw_below(stream, DRAWS * step + 1, last - first)])
    minus = nth_absent(r_images, first, last, draw_below(stream, DRAWS * step + 2, n_images - (last - first)))
    return query, plus, np.int64(minus)


@njit(cache=True, nogil=True)
def rank_triplets(n_steps, queries, rows, n_images, aggressiveness, key, W, scratch):
    """Draw triplets (q, p+, p-) and make q score p+ above p- by 1, one after the other (PAMIR, Eq. 10).

    With ``v = γ(q, p+) - γ(q, p-)``, whose part of word t is ``q_t (p+ - p-)``, and the loss
    ``l = |1 - w · v|₊``, the step is ``w += τ v``, ``τ = min(aggressiveness, l / |v|²)``. Only the rows of the query's
    words are touched. Images that are alike to the last number are the same to the model, and make no step.

    Words of `queries` are below n_words, images below `n_images`; `rows` are image rows. `key` is the seed and the
    epoch of the draws. `W`, float32 (n_words, width), is changed, `scratch`, float32 (width,), overwritten. Returns the
    sum of the losses, and how many triplets made a step.
    """
    q_start, q_words, q_weights, r_start, r_images = queries
    width = W.shape[1]
    stream = stream_of(key[0], key[1], 0)
    total = 0.0
    n_moved = 0
    if r_start.shape[0] < 2:
        return total, n_moved

    for step in range(n_steps):
        query, plus, minus = draw_triplet(stream, step, r_start, r_images, n_images)
        first, last = q_start[query], q_start[query + 1]
        full = rows.start[plus + 1] - rows.start[plus] == rows.start[minus + 1] - rows.start[minus] == width
        score = np.float32(0.0)
        length = np.float32(0.0)
        if full:
            _put_difference(rows, plus, minus, scratch)
            for e in range(first, last):
                score += q_weights[e] * dot(scratch, W[q_words[e]])
        else:
            for e in range(first, last):
                score += q_weights[e] * _difference_dot(rows, plus, minus, W[q_words[e]])
        loss = 1.0 - np.float64(score)
        if loss > 0:
            for e in range(first, last):
                length += q_weights[e] * q_weights[e]
            square = dot(scratch, scratch) if full else difference_square(rows, plus, minus, scratch)
            square = np.float64(length) * np.float64(square)
            total += loss
            if square > 0:
                n_moved += 1
                size = min(aggressiveness, loss / square)
                for e in range(first, last):
                    factor = np.float32(size * q_weights[e])
                    add_row(rows, plus, factor, W[q_words[e]])
                    add_row(rows, minus, -factor, W[q_words[e]])
    return total, n_moved


@njit(cache=True, nogil=True)
def _put_difference(rows, plus, minus, out):
    """Overwrite `out` with row `plus` minus row `minus`, both without gaps."""
    a = rows.vals[rows.start[plus] : rows.start[plus + 1]]
    b = rows.vals[rows.start[minus] : rows.start[minus + 1]]
    for c in range(out.shape[0]):
        out[c] = a[c] - b[c]


@njit(cache=True, nogil=True)
def _difference_dot(rows, plus, minus, weights):
    """Multiply row `plus` minus row `minus` by a float32 vector: four sums side by side, so that none waits long.

    A signed column would be checked at every turn whether it counts from the end; the casts halve the time.
    """
    a_cols, a_vals = row_of(rows, plus)
    b_cols, b_vals = row_of(rows, minus)
    a0 = a1 = b0 = b1 = np.float32(0.0)
    n_pairs = min(a_vals.shape[0], b_vals.shape[0]) // 2
    for p in range(n_pairs):
        e = 2 * p
        a0 += a_vals[e] * weights[np.uint64(a_cols[e])]
        b0 += b_vals[e] * weights[np.uint64(b_cols[e])]
        a1 += a_vals[e + 1] * weights[np.uint64(a_cols[e + 1])]
        b1 += b_vals[e + 1] * weights[np.uint64(b_cols[e + 1])]
    for e in range(2 * n_pairs, a_vals.shape[0]):
        a0 += a_vals[e] * weights[np.uint64(a_cols[e])]
    for e in range(2 * n_pairs, b_vals.shape[0]):
        b0 += b_vals[e] * weights[np.uint64(b_cols[e])]
    return (a0 + a1) - (b0 + b1)


@njit(cache=True, nogil=True)
def difference_square(rows, plus, minus, scratch):
    """Return the squared length of row `plus` minus row `minus`: exactly 0 where they are alike."""
    a_cols, a_vals = row_of(rows, plus)
    b_cols, b_vals = row_of(rows, minus)
    for e in range(b_vals.shape[0]):
        scratch[np.uint64(b_cols[e])] = 0.0
    for e in range(a_vals.shape[0]):
        scratch[np.uint64(a_cols[e])] = a_vals[e]
    for e in range(b_vals.shape[0]):
        scratch[np.uint64(b_cols[e])] -= b_vals[e]
    total = np.float32(0.0)
    for cols in (a_cols, b_cols):
        for e in range(cols.shape[0]):
            c = np.uint64(cols[e])
            total += scratch[c] * scratch[c]
            scratch[c] = 0.0  # columns that both rows have count once
    return total


@njit(cache=True, nogil=True)
def rank_triplets_by_kernel(n_steps, queries, K, images, scale, aggressiveness, key, W, F):
    """Draw triplets (q, p+, p-) as `rank_triplets` does, and make its steps on expansions ``w_t = Σ_j W[t, j] p_j``.

    Section III-E of the PAMIR paper: a step ``w_t += τ q_t (p+ - p-)`` adds ``τ q_t`` to the weight of p+ and takes as
    much from that of p-, and ``|p+ - p-|² = k(p+, p+) + k(p-, p-) - 2 k(p+, p-)``. The scores of all images for all
    words, ``F = W K``, are kept up to date, so that a triplet that makes no step costs next to nothing. Images at a
    squared distance that is 0, rounding, or below 0 (the kernel is then none of Mercer's) make no step.

    The kernel is `scale` times `K`, float32 (n, n), C-contiguous and symmetric. `images`, int64, are the rows of K that
    are learned from, and queries name images by their place there; the others have a score, and never a weight. Changed
    are `W`, float32 (n_words, at least n), in the columns of `images`, and ``F = scale · W K``, float32 (n_words, n).
    Returns what `rank_triplets` does.
    """
    q_start, q_words, q_weights, r_start, r_images = queries
    stream = stream_of(key[0], key[1], 0)
    total = 0.0
    n_moved = 0
    if r_start.shape[0] < 2:
        return total, n_moved

    for step in range(n_steps):
        query, p, m = draw_triplet(stream, step, r_start, r_images, images.shape[0])
        plus, minus = images[p], images[m]
        first, last = q_start[query], q_start[query + 1]
        score = 0.0
        length = 0.0
        for e in range(first, last):
            weight = np.float64(q_weights[e])
            score += weight * (np.float64(F[q_words[e], plus]) - np.float64(F[q_words[e], minus]))
            length += weight * weight
        loss = 1.0 - score
        if not loss > 0:
            continue
        total += loss
        lengths = np.float64(K[plus, plus]) + np.float64(K[minus, minus])
        square = lengths - 2.0 * np.float64(K[plus, minus])
        if not square * length > ALIKE * abs(lengths) * length:
            continue
        n_moved += 1
        size = min(aggressiveness, loss / (length * scale * square))
        for e in range(first, last):
            factor = size * q_weights[e]
            word_weights = W[q_words[e]]
            word_weights[plus] += np.float32(factor)
            word_weights[minus] -= np.float32(factor)
            _add_difference(K[plus], K[minus], np.float32(factor * scale), F[q_words[e]])
    return total, n_moved


@njit(cache=True, nogil=True)
def _add_difference(a, b, factor, out):
    """Add `factor` times ``a - b`` to a vector, in place; all float32."""
    for j in range(out.shape[0]):
        out[j] += factor * (a[j] - b[j])


@njit(cache=True, nogil=True)
def rank_violators(n_steps, queries, gains, shares, table, rows, n_images, max_trials, aggressiveness, key, W, scratch):
    """Draw (q, p+), then images of less gain until one, p-, scores within 1 of p+; step as `rank_triplets` does.

    If the n-th draw is the first such image, about ``r = n_images / n`` images are within the margin or above. The
    longest step is ``aggressiveness · table[r] · (gain of p+ - gain of p-) · share of q``. A draw of an image of as
    much gain counts as one that does not violate, so that r is right without knowing how many there are. Where none of
    `max_trials` draws violates, no step is made.

    A query may have all images, if their gains differ. `gains`, float32, are those of the entries of `r_images`, above
    0; other images have a gain of 0. `shares`, float32 (n_queries,), are what a gain is multiplied by, and `table`,
    float32 (n_images + 1,), weights by rank; the rest is as for `rank_triplets`. Returns the sum of the losses
    ``1 - score of p+ + score of p-``, each weighed as its step, the pairs that made a step, and the images drawn.
    """
    q_start, q_words, q_weights, r_start, r_images = queries
    total = 0.0
    n_moved = 0
    n_trials = 0
    if r_start.shape[0] < 2:
        return total, n_moved, n_trials

    for step in range(n_steps):
        stream = stream_of(key[0], key[1], step)
        query = draw_below(stream, 0, r_start.shape[0] - 1)
        first, last = r_start[query], r_start[query + 1]
        begin, end = q_start[query], q_start[query + 1]
        chosen = first + draw_below(stream, 1, last - first)
        plus = np.int64(r_images[chosen])
        plus_score = _score(rows, plus, begin, end, q_words, q_weights, W)
        for trial in range(max_trials):
            n_trials += 1
            minus = np.int64(draw_below(stream, 2 + trial, n_images))
            gap = gains[chosen] - _gain_of(minus, r_images, gains, first, last)
            if not gap > 0:
                continue
            loss = 1.0 - plus_score + _score(rows, minus, begin, end, q_words, q_weights, W)
            if not loss > 0:
                continue
            weight = np.float64(table[max(1, n_images // (trial + 1))]) * gap * shares[query]
            total += weight * loss
            length = np.float32(0.0)
            for e in range(begin, end):
                length += q_weights[e] * q_weights[e]
            square = np.float64(length) * np.float64(difference_square(rows, plus, minus, scratch))
            if square > 0:
                n_moved += 1
                size = min(aggressiveness * weight, loss / square)
                for e in range(begin, end):
                    factor = np.float32(size * q_weights[e])
                    add_row(rows, plus, factor, W[q_words[e]])
                    add_row(rows, minus, -factor, W[q_words[e]])
            break
    return total, n_moved, n_trials


@njit(cache=True, nogil=True)
def _score(rows, image, begin, end, q_words, q_weights, W):
    score = 0.0
    for e in range(begin, end):
        score += np.float64(q_weights[e]) * np.float64(row_dot(rows, image, W[q_words[e]]))
    return score


@njit(cache=True, nogil=True)
def _gain_of(image, r_images, gains, first, last):
    """Find an image in the sorted list ``r_images[first:last]``; 0 where it is not there."""
    entry = lower_bound(r_images, first, last, image)
    return gains[entry] if entry < last and r_images[entry] == image else np.float32(0.0)
