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
def add_contexts(contexts, tag_at, context_at, dim, alpha, W, U):
    """Add to each example's row what its context contributes to the scores of all tags.

    Rows of tags hold vectors of `dim` numbers one behind the other, for the tag as a label of an image (at 0), as a
    whole and as a part; where two begin at the same column they are one and the same.

    Parameters
    ----------
    contexts : ndarray of int64, shape (n,)
        A tag, or -1.
    tag_at : ndarray of int64, shape (n,)
        The column at which the vector begins by which the example's tag takes part in the relation.
    context_at : ndarray of int64, shape (n,)
        The same of the context.
    dim : int
    alpha : float
        Weight of the score of two tags.
    W : ndarray of float32, shape (n_tags, width)
    U : ndarray of float32, shape (n, width)
        The first `dim` columns hold the embedded images; changed.
    """
    weight = np.float32(alpha)
    for p in range(contexts.shape[0]):
        row = U[p]
        for c in range(dim, row.shape[0]):
            row[c] = 0.0
        if contexts[p] >= 0:
            source = W[contexts[p]]
            place, other = tag_at[p], context_at[p]
            for c in range(dim):
                row[place + c] += weight * source[other + c]


@njit(cache=True, nogil=True)
def move_contexts(
    contexts, tag_at, context_at, tags, violators, gains, steps, dim, factor, alpha_rate, spare, max_norm, W
):
    """Take the steps of a block on the contexts' side, then bring the vectors that moved back under the norm limit.

    The step of a tag that outranked the true one has already pushed it away from the context; a share of that is taken
    back, on both sides: that the two are not known to be related does not say that they are not.

    Parameters
    ----------
    contexts, tag_at, context_at, dim
        As for `add_contexts`.
    tags, violators : ndarray of int64, shape (n,)
        The true tag and the one that outranked it, or -1.
    gains : ndarray of float32, shape (n,)
    steps : ndarray of float32, shape (n, width)
        Steps of the image's side, ``rate · gain · (W_y - W_ȳ)``.
    factor : float
        `alpha` times the learning rate of tags over that of the image's side.
    alpha_rate : float
        `alpha` times the learning rate of tags.
    spare : float
        Share of the push that is taken back, 0 to 1.
    max_norm : float
        Limit of the norm of each vector of `dim` numbers.
    W : ndarray of float32, shape (n_tags, width)
        Changed: the rows of contexts, and those of `tags` and `violators` as far as they are too long.
    """
    scale = np.float32(factor)
    for p in range(contexts.shape[0]):
        if violators[p] >= 0 and contexts[p] >= 0:
            target, step, wrong = W[contexts[p]], steps[p], W[violators[p]]
            place, other = tag_at[p], context_at[p]
            back = np.float32(spare * alpha_rate) * gains[p]
            for c in range(dim):
                was = target[other + c]
                target[other + c] += scale * step[place + c] + back * wrong[place + c]
                wrong[place + c] += back * was
    for p in range(contexts.shape[0]):
        if violators[p] >= 0:
            for tag in (tags[p], violators[p], contexts[p]):
                if tag >= 0:
                    row = W[tag]
                    for at in range(0, row.shape[0], dim):
                        limit_norm(row[at : at + dim], max_norm)
