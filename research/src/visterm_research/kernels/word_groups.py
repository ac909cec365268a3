"""Approximate nearest words of a codebook in groups: only the groups nearest to a point are searched.

Pairs of a point and a group are sorted by group, so that a group's words stay in the L1 cache while its points are
processed, four at a time. 16 words are scored at once in vector registers. Sums run from the first feature to the last,
so that the bytes are the same for any number of points and on every machine.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import config, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from visterm.kernels import PADDING_SCORE, add_by_word, keep_word

FLOAT, INT = ir.FloatType(), ir.IntType(32)
LANES = 16  # Words scored at once: a vector register of the widest processors
POINTS_AT_ONCE = 4  # Points for which a vector of words is loaded once


class Blocks(NamedTuple):
    """Words by group, in blocks of 16."""

    values: np.ndarray  # float32 (n_blocks, n_features + 1, 16): transposed words over a row of ``-|c|²/2``
    words: np.ndarray  # int32 (n_blocks, 16): ids of the words; padding has 0 and a score of -1e30
    first: np.ndarray  # int64 (n_groups + 1,): the first block of each group


class WordGroups(NamedTuple):
    """A codebook in groups, prepared for `nearest_in_groups`."""

    centres: Blocks  # The centres of the groups, as a single group
    words: Blocks


def prepare_groups(codebook, groups, n_groups):
    """Prepare a codebook, float32 (n_words, n_features), in groups; `groups`, (n_words,), is each word's group."""
    sums, counts = np.zeros((n_groups, codebook.shape[1])), np.zeros(n_groups, np.int64)
    add_by_word(codebook, groups, sums, counts)
    centres = (sums / np.maximum(counts, 1)[:, None]).astype(np.float32)
    return WordGroups(_blocks(centres, np.zeros(n_groups, np.int64), 1), _blocks(codebook, groups, n_groups))


def nearest_in_groups(points, book, n_probed, n_nearest):
    """Find the `n_nearest` nearest words of each point, float32 (n, n_features), in its `n_probed` nearest groups.

    Returns words and scores as `nearest_words`; if the groups have fewer words, the rest are word 0 with a score of
    -1e30. A point's words do not depend on the other points.
    """
    group_ids, scores = _empty_results(len(points), n_probed)
    _search_groups(points, np.zeros((len(points), 1), np.int32), book.centres, group_ids, scores)
    words, scores = _empty_results(len(points), n_nearest)
    _search_groups(points, group_ids[:, :1].copy(), book.words, words, scores)
    _search_groups(points, group_ids[:, 1:].copy(), book.words, words, scores)  # few of these words are near enough
    return words, scores


def _blocks(rows, groups, n_groups):
    order = np.argsort(groups, kind="stable")
    sizes = np.bincount(groups, minlength=n_groups)
    first = np.concatenate([[0], np.cumsum(-(-sizes // LANES))])
    positions = first[groups[order]] * LANES + np.arange(len(order)) - (np.cumsum(sizes) - sizes)[groups[order]]
    block, lane = positions // LANES, positions % LANES
    words = np.zeros((first[-1], LANES), np.int32)
    words[block, lane] = order
    values = np.zeros((first[-1], rows.shape[1] + 1, LANES), np.float32)
    values[:, -1] = PADDING_SCORE
    values[block, :-1, lane] = rows[order]
    values[block, -1, lane] = np.square(rows[order], dtype=np.float64).sum(axis=1) / -2
    return Blocks(values, words, first)


def _empty_results(n, n_nearest):
    return np.zeros((n, n_nearest), np.int32), np.full((n, n_nearest), PADDING_SCORE, np.float32)


@njit(cache=True, nogil=True)
def _search_groups(points, group_ids, blocks, words, scores):
    """Merge the words of each point's groups, `group_ids` (n, n_probed), into the best `words` and `scores` so far."""
    n_groups = blocks.first.shape[0] - 1
    starts, members = _sorted_by_group(group_ids, n_groups)
    last = words.shape[1] - 1
    block_scores = np.empty((POINTS_AT_ONCE, LANES), np.float32)
    point_ids, hits = np.empty(POINTS_AT_ONCE, np.int64), np.empty(POINTS_AT_ONCE, np.int64)
    worst = np.empty(POINTS_AT_ONCE, np.float32)
    for group in range(n_groups):
        for block in range(blocks.first[group], blocks.first[group + 1]):
            for start in range(starts[group], starts[group + 1], POINTS_AT_ONCE):
                size = min(POINTS_AT_ONCE, starts[group + 1] - start)
                for j in range(POINTS_AT_ONCE):
                    point_ids[j] = members[start + min(j, size - 1)]
                    worst[j] = scores[point_ids[j], last]
                score_block(points, point_ids, blocks.values[block], worst, block_scores, hits)
                for j in range(size):
                    if hits[j]:
                        for lane in range(LANES):
                            if block_scores[j, lane] >= scores[point_ids[j], last]:
                                keep_word(block_scores[j, lane], blocks.words[block, lane], point_ids[j], words, scores)


@njit(cache=True, nogil=True)
def _sorted_by_group(group_ids, n_groups):
    """Return the start of each group's points, (n_groups + 1,), and the points by group, (n · n_probed,)."""
    starts = np.zeros(n_groups + 1, np.int64)
    for i in range(group_ids.shape[0]):
        for j in range(group_ids.shape[1]):
            starts[group_ids[i, j] + 1] += 1
    starts[:] = np.cumsum(starts)
    next_slot = starts[:-1].copy()
    members = np.empty(group_ids.size, np.int64)
    for i in range(group_ids.shape[0]):
        for j in range(group_ids.shape[1]):
            members[next_slot[group_ids[i, j]]] = i
            next_slot[group_ids[i, j]] += 1
    return starts, members


def _plain_scores(points, point_ids, block, worst, block_scores, hits):
    """Compute `score_block` without compiling, with sums in the same order."""
    block_scores[:] = block[-1]
    for feature in range(points.shape[1]):
        block_scores += points[point_ids, feature, None] * block[feature]
    hits[:] = (block_scores >= worst[:, None]).any(axis=1)


@intrinsic
def _vector_scores(typing_context, points, point_ids, block, worst, block_scores, hits):
    """Write the loop of `score_block`: the sums of four points stay in registers, unlike in a plain loop."""
    arguments = (points, point_ids, block, worst, block_scores, hits)
    rows, index_data, numbers = (types.float32, 2), (types.int64, 1), (types.float32, 1)
    if [(kind.dtype, kind.ndim) for kind in arguments] != [rows, index_data, rows, numbers, rows, index_data]:
        return None
    if any(kind.layout != "C" for kind in arguments):
        return None

    def write(context, builder, signature, values):
        proxies = [
            cgutils.create_struct_proxy(kind)(context, builder, value)
            for kind, value in zip(signature.args, values, strict=True)
        ]
        rows, index_data, words, limits, scores_data, hits_data = (proxy.data for proxy in proxies)
        n = builder.extract_value(proxies[0].shape, 1)
        vector = ir.VectorType(FLOAT, LANES)

        def words_at(feature):
            pointer = builder.gep(words, [builder.mul(feature, ir.Constant(n.type, LANES))])
            return builder.load(builder.bitcast(pointer, vector.as_pointer()), align=4)

        def spread(value):
            lane_zero = builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.Constant(INT, 0))
            zeros = ir.Constant(ir.VectorType(INT, LANES), [0] * LANES)
            return builder.shuffle_vector(lane_zero, ir.Constant(vector, ir.Undefined), zeros)

        sums, points_at = [], []
        for j in range(POINTS_AT_ONCE):
            sums.append(cgutils.alloca_once_value(builder, words_at(n)))
            index = builder.load(builder.gep(index_data, [ir.Constant(n.type, j)]))
            points_at.append(builder.gep(rows, [builder.mul(index, n)]))
        with cgutils.for_range(builder, n, intp=n.type) as loop:
            feature_words = words_at(loop.index)
            for total, point in zip(sums, points_at, strict=True):
                feature = spread(builder.load(builder.gep(point, [loop.index])))
                builder.store(builder.fadd(builder.load(total), builder.fmul(feature, feature_words)), total)
        for j, total in enumerate(sums):
            pointer = builder.gep(scores_data, [ir.Constant(n.type, j * LANES)])
            builder.store(builder.load(total), builder.bitcast(pointer, vector.as_pointer()), align=4)
            index = ir.Constant(n.type, j)
            reaches_worst = builder.fcmp_ordered(
                ">=", builder.load(total), spread(builder.load(builder.gep(limits, [index])))
            )
            lanes = builder.zext(builder.bitcast(reaches_worst, ir.IntType(LANES)), n.type)
            builder.store(lanes, builder.gep(hits_data, [index]))
        return context.get_dummy_value()

    return types.void(points, point_ids, block, worst, block_scores, hits), write


@njit(cache=True, nogil=True)
def _compiled_scores(points, point_ids, block, worst, block_scores, hits):
    _vector_scores(points, point_ids, block, worst, block_scores, hits)  # type: ignore[call-arg]


score_block = _plain_scores if config.DISABLE_JIT else _compiled_scores  # type: ignore[attr-defined]
"""Write the scores ``x·c - |c|²/2`` of four points and 16 words into `block_scores`, (4, 16).

`point_ids`, int64 (4,), are rows of `points`; `block`, (n_features + 1, 16), is from `prepare_groups`. Sets `hits`,
int64 (4,), to another number than 0 if one of a point's scores reaches `worst`, (4,).
"""
