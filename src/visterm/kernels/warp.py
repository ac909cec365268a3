"""Algorithm 1 of WSABIE for a block of pairs: draw tags until one violates, weight the step by rank, move the tags.

`visterm.models.ranking.warp` calls these loops in this order. `steps` receives the step of the image's side.

In hot loops pass NamedTuples as plain tuples, ``tuple(pairs)``: Numba needs 1 µs to find the type of a tuple of eight
arrays, and 10 µs for a NamedTuple.

The last functions draw otherwise: `draw_geometric` is WARP, but counts the violators and draws the number of trials
from its distribution; `draw_adaptive` is VSE-ens, and draws tags that are likely to score high for an image, from a
sorted list of tags per dimension.
"""

from __future__ import annotations

import math
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from visterm.kernels.compiled import kernel
from visterm.kernels.dot import ROWS_AHEAD, add_at, dot, dot_at, prefetch_row
from visterm.kernels.random import draw_below, draw_unit, stream_of
from visterm.kernels.row_moves import limit_norm, scale_row
from visterm.kernels.rows import add_row, row_dot, row_square
from visterm.kernels.sorted_lists import MAX_BUCKETS, contains, fill_buckets, nth_absent, nth_absent_near

FEW_DRAWS = 8  # After this number of draws, it is worthwhile to fill buckets for the tags of a pair's image
CHUNK_SCORES = 64  # Number of scores that are compared at once, in vector registers


class Loss(IntEnum):
    """The loss of a pair as a function of its gap f_y - f_ȳ, before the rank weight; see `loss_and_slope`."""

    HINGE = 0
    LOGISTIC = 1


class PairBatch(NamedTuple):
    """Pairs (image x, true tag y) trained with the same weights, and their draws; arrays of shape (n,)."""

    examples: np.ndarray  # int64: numbers of the pairs, the keys of the draws
    # The image, as a row of `PositiveTags`, and the true tag y
    images: np.ndarray  # int64
    tags: np.ndarray  # int64
    row_ids: np.ndarray  # int64: the index of each pair's image row
    violators: np.ndarray  # int64: the other tag ȳ, or -1 if the pair makes no step
    trials: np.ndarray  # int64: N, the number of draws
    gaps: np.ndarray  # float32: f_y - f_ȳ, if there is a violator
    gains: np.ndarray  # float32: rank weight times the loss's slope: the size of the step on the tags' side


class PositiveTags(NamedTuple):
    """The tags of images: image i has the sorted tags ``tags[start[i]:start[i + 1]]``, int32 or int64."""

    start: np.ndarray
    tags: np.ndarray


class Pool(NamedTuple):
    """Tags drawn uniformly for many pairs, shape (m,), possibly empty, and their scores, float32, shape (n, m)."""

    tags: np.ndarray
    scores: np.ndarray


class Draws(NamedTuple):
    """Settings of the draws of other tags."""

    margin: float  # 1 for the hinge; if infinite, the first draw is a violator
    max_trials: int  # Maximum number of draws per pair (the number of candidates is a limit, too)
    # The seed and the epoch are the key of the draws, together with the number of the pair
    seed: int
    epoch: int


class RankLoss(NamedTuple):
    """The cost of a violation: the loss of its gap times the weight of the rank estimated from the draws."""

    weights: np.ndarray
    """float32, shape (n_tags + 1,): L(k) for each rank k; longer if `rank_numerator` is above n_tags."""
    rank_numerator: int  # γ: the rank is estimated as floor(γ / N); 0: as floor(candidates / N)
    loss: int = Loss.HINGE  # A `Loss`


@kernel
def loss_and_slope(loss, gap):
    """Return the loss of a pair with the gap f_y - f_ȳ, float64, and the rate at which it falls with the gap.

    `Loss.HINGE` is ``|1 - gap|₊``, `Loss.LOGISTIC` ``log(1 + exp(-gap))``. A slope of 0 makes no step.
    """
    if loss == Loss.LOGISTIC:
        if gap > 0:
            exp_gap = math.exp(-gap)
            return math.log1p(exp_gap), exp_gap / (1.0 + exp_gap)
        exp_gap = math.exp(gap)
        return math.log1p(exp_gap) - gap, 1.0 / (1.0 + exp_gap)
    if gap < 1.0:
        return 1.0 - gap, 1.0
    return 0.0, 0.0


@kernel
def draw_violators(pairs, first, stop, positives, rows, V, pool, draws):
    """Draw tags ȳ that the image does not have until f_ȳ(x) > f_y(x) - margin, for pairs first .. stop-1.

    The draws are uniform, with replacement. They may begin with the tags of a pool, whose scores are one matrix
    product. Each pair reads the pool from a random position and skips the tags of its image, so a pair's draws are
    uniform and independent, as without a pool. Only pairs that share a pool depend on each other.

    Fills `violators`, `trials` and `gaps`; `V` has shape (n_tags, width), and `rows` are `Rows` of the same width.
    """
    examples, images, tags, row_ids, violators, trials, gaps, _ = pairs
    tags_start, positive_tags = positives
    margin, max_trials, seed, epoch = draws
    pool_tags, pool_scores = pool
    n_tags, width, m = V.shape[0], V.shape[1], pool_tags.shape[0]
    buckets = np.empty(MAX_BUCKETS, np.int64)
    for p in range(first, stop):  # brings the lists of tags into the cache
        trials[p] = positive_tags[tags_start[images[p]]]

    for ahead in range(first, stop + ROWS_AHEAD):
        if ahead < stop:
            prefetch_row(V, tags[ahead])
            begin, end = tags_start[images[ahead]], tags_start[images[ahead] + 1]
            if m == 0 and end - begin < n_tags:
                drawn = draw_below(stream_of(seed, epoch, examples[ahead]), 0, n_tags - (end - begin))
                violators[ahead] = nth_absent(positive_tags, begin, end, drawn)
                prefetch_row(V, violators[ahead])
        p = ahead - ROWS_AHEAD
        if p < first:
            continue
        begin, end = tags_start[images[p]], tags_start[images[p] + 1]
        candidates = n_tags - (end - begin)
        limit = min(candidates, max_trials)
        y, row_id = tags[p], row_ids[p]
        start = rows.start[row_id]
        is_dense = rows.start[row_id + 1] - start == width
        true_score = dot_at(rows.vals, start, V, y * width, width) if is_dense else row_dot(rows, row_id, V[y])
        threshold = true_score - np.float32(margin)
        stream = stream_of(seed, epoch, examples[p])
        violator = np.int64(-1)
        n = 0
        if m > 0:
            pool_index = draw_below(stream, max_trials, m)
            for _ in range(m):
                if n == limit:
                    break
                drawn = pool_tags[pool_index]
                score = pool_scores[p, pool_index]
                if not contains(positive_tags, begin, end, drawn):
                    n += 1
                    if score > threshold:
                        violator = drawn
                        gaps[p] = true_score - score
                        break
                pool_index = pool_index + 1 if pool_index + 1 < m else 0
        if n < limit and violator < 0:
            violator, n, gaps[p] = _draw_until_violator(
                rows, row_id, V, true_score, threshold, positive_tags, begin, end, stream, n, limit,
                violators[p] if m == 0 else np.int64(-1), buckets,
            )  # fmt: skip
        violators[p] = violator
        trials[p] = n


@kernel
def _draw_until_violator(
    rows, row_id, V, true_score, threshold, positive_tags, begin, end, stream, n, limit, first_draw, buckets
):
    """Draw tags from draw number n on, until one scores above the threshold, or up to `limit` draws.

    `first_draw` is the tag of draw number 0, or -1 if it is not known. Returns the violator or -1, the number of draws,
    and the gap.
    """
    width, candidates = V.shape[1], V.shape[0] - (end - begin)
    start = rows.start[row_id]
    is_dense = rows.start[row_id + 1] - start == width
    shift = -1
    while n < limit:
        if shift < 0 and n >= FEW_DRAWS:
            shift = fill_buckets(positive_tags, begin, end, candidates, buckets)
        r = draw_below(stream, n, candidates)
        if shift >= 0:
            drawn = nth_absent_near(positive_tags, begin, end, r, buckets[r >> shift])
        else:
            drawn = first_draw if n == 0 and first_draw >= 0 else nth_absent(positive_tags, begin, end, r)
        score = dot_at(rows.vals, start, V, drawn * width, width) if is_dense else row_dot(rows, row_id, V[drawn])
        n += 1
        if score > threshold:
            return drawn, n, true_score - score
    return np.int64(-1), n, np.float32(0.0)


@kernel
def weigh_pairs(pairs, first, stop, positives, rank_loss, rate, V, steps):
    """Compute the gains of pairs first .. stop-1, and the steps of the image's side.

    After N draws the rank of y is about floor(candidates / N), and the cost is L(rank) times the loss. The gain is
    L(rank) times the loss's slope, and the image's step is ``rate · gain · (V_y - V_ȳ)``. If the gain is 0, `violators`
    is set to -1. `steps`, (n, width), or (n, 0) if the image's side does not move, is overwritten.

    Returns the sum of the costs, the number of draws, and the number of pairs with a gain.
    """
    _, images, tags, _, violators, trials, gaps, gains = pairs
    tags_start, _ = positives
    rank_weights, rank_numerator, loss = rank_loss
    total = 0.0
    n_trials = n_steps = 0

    for p in range(first, stop):
        n_trials += trials[p]
        gain = np.float32(0.0)
        if violators[p] >= 0:
            image = images[p]
            candidates = V.shape[0] - (tags_start[image + 1] - tags_start[image])
            pair_loss, slope = loss_and_slope(loss, np.float64(gaps[p]))
            weight = rank_weights[(rank_numerator or candidates) // max(1, trials[p])]
            gain = weight * np.float32(slope)
            total += weight * pair_loss
        gains[p] = gain
        step = steps[p]  # a view: loops over steps[p, c] are not vectorised
        if gain == 0.0:
            violators[p] = -1
            step[:] = 0.0
            continue
        n_steps += 1
        factor = np.float32(rate) * gain
        true_row, violator_row = V[tags[p]], V[violators[p]]
        for c in range(step.shape[0]):
            step[c] = factor * (true_row[c] - violator_row[c])
    return total, n_trials, n_steps


@kernel
def add_tag_steps(pairs, rows, rule, squares, first, stop, V):
    """Move tags first .. stop-1 by ``V_y += rate · gain · u`` and ``V_ȳ -= rate · gain · u``, then limit their norms.

    Steps are taken in the order of the pairs. With AdaGrad a step is divided by the root of the tag's `squares`,
    (n_tags,): 1 plus the mean squares of its gradients so far, including this block; `squares` is empty for SGD. With
    L2 a row first shrinks once per step. Threads with disjoint ranges of tags change different rows.
    """
    _, _, tags, row_ids, violators, _, _, gains = pairs
    is_adaptive, width = squares.shape[0] > 0, V.shape[1]
    if is_adaptive or rule.keep < 1.0:
        _add_squares_and_shrink(pairs, rows, rule, squares, first, stop, V)
    entries, n = np.empty(2 * tags.shape[0], np.int64), 0
    for p in range(tags.shape[0]):  # without branches, which would be mispredicted
        entries[n] = 2 * p
        n += (violators[p] >= 0) & (first <= tags[p]) & (tags[p] < stop)
        entries[n] = 2 * p + 1
        n += (violators[p] >= 0) & (first <= violators[p]) & (violators[p] < stop)
    moved_tags, n_moved = np.empty(n, np.int64), 0
    is_listed = np.zeros(stop - first, np.uint8)

    for e in range(n):
        if e + ROWS_AHEAD < n:
            p = entries[e + ROWS_AHEAD] >> 1
            prefetch_row(V, violators[p] if entries[e + ROWS_AHEAD] & 1 else tags[p])
        p = entries[e] >> 1
        row_id = row_ids[p]
        factor = np.float32(rule.rate) * gains[p]
        y = tags[p]
        if entries[e] & 1:
            y, factor = violators[p], -factor
        moved_tags[n_moved] = y
        n_moved += 1 - is_listed[y - first]
        is_listed[y - first] = 1
        if is_adaptive:
            factor /= np.float32(math.sqrt(squares[y]))
        if rows.start[row_id + 1] - rows.start[row_id] == width:
            add_at(V, y * width, rows.vals, rows.start[row_id], width, factor)
        else:
            add_row(rows, row_id, factor, V[y])

    for e in range(n_moved):
        if e + ROWS_AHEAD < n_moved:
            prefetch_row(V, moved_tags[e + ROWS_AHEAD])
        start = moved_tags[e] * width
        if math.sqrt(dot_at(V, start, V, start, width)) > rule.max_norm:
            limit_norm(V[moved_tags[e]], rule.max_norm)


@kernel
def _add_squares_and_shrink(pairs, rows, rule, squares, first, stop, V):
    """Prepare the steps of a block: update the squares for AdaGrad, and shrink the rows for L2."""
    _, _, tags, row_ids, violators, _, _, gains = pairs
    for p in range(tags.shape[0]):
        if violators[p] < 0:
            continue
        square = gains[p] * gains[p] * row_square(rows, row_ids[p]) / np.float32(V.shape[1])
        for y in (tags[p], violators[p]):
            if first <= y < stop:
                if squares.shape[0] > 0:
                    squares[y] += square
                if rule.keep < 1.0:
                    scale_row(V[y], rule.keep)


class SortedTags(NamedTuple):
    """A sorted list of tags per dimension."""

    order: np.ndarray  # int64, shape (dim, n_tags). Tags by their value, largest first, ties by the smaller tag.
    sigmas: np.ndarray  # float64, shape (dim,). Standard deviation of the values over the tags (Eq. 8).
    scale: float  # λ |A|, the scale of the distribution of ranks


@kernel
def sort_tags(V, first, stop, lists):
    """Fill `lists`, a `SortedTags`, for the dimensions first .. stop-1 of V (n_tags, dim)."""
    for f in range(first, stop):
        values = -V[:, f].astype(np.float64)
        lists.order[f] = np.argsort(values, kind="mergesort")
        lists.sigmas[f] = np.std(values)


@kernel
def draw_rank(unit, scale, n):
    """Return the quantile `unit` (0 to 1) of the ranks 0 .. n-1 with p(r) ∝ exp(-r / scale)."""
    mass = 1.0 - math.exp(-n / scale)
    r = int(-scale * math.log1p(-unit * mass))
    return min(max(r, 0), n - 1)


@kernel
def draw_dimension(unit, u, sigmas):
    """Return the quantile `unit` of the dimensions with p(f) ∝ |u_f| σ_f (Eq. 7); uniform if all weights are 0."""
    dim = u.shape[0]
    total = 0.0
    for f in range(dim):
        total += abs(u[f]) * sigmas[f]
    if not total > 0:
        return min(int(unit * dim), dim - 1)
    remaining = unit * total
    dimension = 0
    for f in range(dim):
        weight = abs(u[f]) * sigmas[f]
        if weight > 0:
            dimension = f
            if remaining < weight:
                break
            remaining -= weight
    return dimension


@kernel
def draw_adaptive(pairs, first, stop, positives, U, V, lists, draws):
    """Draw a tag that probably ranks high for each pair first .. stop-1 (Algorithm 1, lines 12 to 18).

    Draw a rank r from p(r) ∝ exp(-r / scale) and a dimension f from p(f) ∝ |u_f| σ_f, and take the tag at position r of
    the list of f, counted from the end if u_f is not positive. If the image has that tag, draw r and f again; after
    `max_trials` attempts draw a tag uniformly. `U`, (n, dim), are image rows; the margin is ignored.

    References
    ----------
    Guo, Zhai, Yuan, Liu, Wang 2018, section "Process of Sampling".
    """
    examples, images, tags, _, violators, trials, gaps, _ = pairs
    tags_start, positive_tags = positives
    order, sigmas, scale = lists
    _, max_trials, seed, epoch = draws
    n_tags = V.shape[0]

    for p in range(first, stop):
        begin, end = tags_start[images[p]], tags_start[images[p] + 1]
        candidates = n_tags - (end - begin)
        violators[p] = -1
        trials[p] = 0
        if candidates == 0:
            continue
        u = U[p]
        stream = stream_of(seed, epoch, examples[p])
        drawn = -1
        n = 0
        while n < max_trials and drawn < 0:
            r = draw_rank(draw_unit(stream, 2 * n), scale, n_tags)
            f = draw_dimension(draw_unit(stream, 2 * n + 1), u, sigmas)
            tag = order[f, r] if u[f] > 0 else order[f, n_tags - 1 - r]
            if not contains(positive_tags, begin, end, tag):
                drawn = tag
            n += 1
        if drawn < 0:
            drawn = nth_absent(positive_tags, begin, end, draw_below(stream, 2 * n, candidates))
            n += 1
        violators[p] = drawn
        trials[p] = n
        gaps[p] = dot(u, V[tags[p]]) - dot(u, V[drawn])


@kernel
def draw_geometric(pairs, first, stop, positives, scores, draws):
    """Draw violators for pairs first .. stop-1, with the same distribution as `draw_violators`, from all their scores.

    Among c candidates with v violators, draws with replacement hit the first violator at draw N with
    p(N) = (1 - v/c)^(N-1) v/c, and every violator is equally likely. So one random number gives N, another the
    violator, and the work does not grow with N.

    `scores` are U · Vᵀ, float32, shape (stop - first, n_tags); the scores of an image's own tags are overwritten.
    """
    examples, images, tags, _, violators, trials, gaps, _ = pairs
    tags_start, positive_tags = positives
    margin, max_trials, seed, epoch = draws
    n_tags = scores.shape[1]

    for p in range(first, stop):
        row = scores[p - first]
        begin, end = tags_start[images[p]], tags_start[images[p] + 1]
        candidates = n_tags - (end - begin)
        true_score = row[tags[p]]
        threshold = true_score - np.float32(margin)
        for q in range(begin, end):
            row[positive_tags[q]] = -np.inf
        violators[p] = -1
        trials[p] = min(candidates, max_trials)
        count = _count_above(row, threshold)
        if count == 0:
            continue
        stream = stream_of(seed, epoch, examples[p])
        n = 1
        if count < candidates:
            n += int(math.log1p(-draw_unit(stream, 0)) / math.log1p(-count / candidates))
        if n <= trials[p]:
            trials[p] = n
            violators[p] = _nth_above(row, threshold, draw_below(stream, 1, count))
            gaps[p] = true_score - row[violators[p]]


@kernel
def _count_above(values, limit):
    count = np.int32(0)
    for c in range(values.shape[0]):
        count += np.int32(values[c] > limit)
    return count


@kernel
def _nth_above(values, limit, n):
    """Return the index of the n-th value, counted from 0, above a limit."""
    for start in range(0, values.shape[0], CHUNK_SCORES):
        chunk = values[start : start + CHUNK_SCORES]
        count = _count_above(chunk, limit)
        if n >= count:
            n -= count
            continue
        for c in range(chunk.shape[0]):
            if chunk[c] > limit:
                if n == 0:
                    return start + c
                n -= 1
    raise IndexError("fewer values are above the limit")
