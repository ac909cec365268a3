"""Training with a related tag as context: draw it, put it into the image's row, and take its step."""

from __future__ import annotations

import numpy as np
from numba import njit

from visterm.kernels.random import draw_below, stream_of
from visterm.kernels.row_moves import limit_norm


@njit(cache=True, nogil=True)
def draw_contexts(examples, tags, first_partner, partners, seed, epoch, contexts, places):
    """Draw for each example one of the tags that its tag is related to, all with the same chance.

    The numbers in `examples` key the draws. ``partners[first_partner[t]:first_partner[t + 1]]`` are the tags related to
    t. All arrays are int64; `contexts` are overwritten with the related tag, or -1 where there is none, and `places`
    with which entry of `partners` it is.
    """
    for p in range(examples.shape[0]):
        first, last = first_partner[tags[p]], first_partner[tags[p] + 1]
        contexts[p] = -1
        if last > first:
            places[p] = first + draw_below(stream_of(seed, epoch, examples[p]), 0, last - first)
            contexts[p] = partners[places[p]]


@njit(cache=True, nogil=True)
def add_contexts(contexts, tag_at, context_at, dim, alpha, V, U):
    """Add to each example's row what its context contributes to the scores of all tags.

    Rows of tags, `V`, float32 (n_tags, width), hold vectors of `dim` numbers one behind the other, for the tag as a
    label of an image (at 0), as a whole and as a part; where two begin at the same column they are one and the same. Of
    int64 (n,), `contexts` are tags, or -1; `tag_at` are the columns where the vectors begin by which the examples' tags
    take part in the relations, and `context_at` those of the contexts. `alpha` is the weight of the score of two tags.
    The first `dim` columns of `U`, float32 (n, width), hold the embedded images; `U` is changed.
    """
    weight = np.float32(alpha)
    for p in range(contexts.shape[0]):
        row = U[p]
        for c in range(dim, row.shape[0]):
            row[c] = 0.0
        if contexts[p] >= 0:
            source = V[contexts[p]]
            column, other = tag_at[p], context_at[p]
            for c in range(dim):
                row[column + c] += weight * source[other + c]


@njit(cache=True, nogil=True)
def move_contexts(
    contexts, tag_at, context_at, tags, violators, gains, steps, dim, factor, alpha_rate, spare, max_norm, V
):
    """Take the steps of a block on the contexts' side, then bring the vectors that moved back under the norm limit.

    The step of a tag that outranked the true one has already pushed it away from the context; a share of that is taken
    back, on both sides: that the two are not known to be related does not say that they are not.

    `contexts`, `tag_at`, `context_at` and `dim` are as for `add_contexts`. Of (n,), `tags` are the true tags,
    `violators` those that outranked them, or -1, and `gains` float32. `steps`, float32 (n, width), are those of the
    image's side, ``rate · gain · (V_y - V_ȳ)``; `factor` is alpha times the learning rate of tags over that of the
    image's side, and `alpha_rate` alpha times the former. `spare`, 0 to 1, is the share of the push that is taken back,
    and `max_norm` limits each vector of `dim` numbers. Of `V`, float32 (n_tags, width), the rows of contexts are
    changed, and those of `tags` and `violators` as far as they are too long.
    """
    scale = np.float32(factor)
    for p in range(contexts.shape[0]):
        if violators[p] >= 0 and contexts[p] >= 0:
            target, step, wrong = V[contexts[p]], steps[p], V[violators[p]]
            column, other = tag_at[p], context_at[p]
            back = np.float32(spare * alpha_rate) * gains[p]
            for c in range(dim):
                was = target[other + c]
                target[other + c] += scale * step[column + c] + back * wrong[column + c]
                wrong[column + c] += back * was
    for p in range(contexts.shape[0]):
        if violators[p] >= 0:
            for tag in (tags[p], violators[p], contexts[p]):
                if tag >= 0:
                    row = V[tag]
                    for at in range(0, row.shape[0], dim):
                        limit_norm(row[at : at + dim], max_norm)
