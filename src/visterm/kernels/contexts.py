"""Train with a related tag as context: draw it, add it to the image's row, and take its step."""

from __future__ import annotations

import numpy as np
from numba import njit

from visterm.kernels.random import draw_below, stream_of
from visterm.kernels.row_moves import limit_norm


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
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
