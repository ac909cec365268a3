"""Skip-gram with negatives (Mikolov et al. 2013) over lists of tags: each tag of a list predicts others of it."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from visterm.kernels.dot import dot
from visterm.kernels.random import draw_below, draw_unit, stream_of


@njit(cache=True, nogil=True)
def skipgram_epoch(starts, tags, ends, words, contexts, n_contexts, n_negatives, rate, last_rate, seed, epoch):
    """Go once over the lists, one after the other: a step for each pair drawn and for each of its negatives.

    The steps climb ``log σ(w·c) + Σ log σ(-w·c')``, with w the vector of a tag, c the context vector of another one of
    its list and c' those of tags drawn by `ends`; a negative that is c itself is passed over, as in word2vec. List i is
    ``tags[starts[i] : starts[i + 1]]``, no tag twice. `ends`, (n_tags,), are running sums of the chances of negatives;
    the last is their total. `words` and `contexts`, (n_tags, dim), are changed in place. Each tag of a list predicts
    `n_contexts` others: drawn with replacement where there are more, else each once. The learning rate falls from
    `rate` to `last_rate` in a line. Returns the sum of the losses, before each step.
    """
    n_lists, n_tags, dim = starts.shape[0] - 1, words.shape[0], words.shape[1]
    step = np.empty(dim, np.float32)
    loss = 0.0

    for i in range(n_lists):
        first, n = starts[i], starts[i + 1] - starts[i]
        if n < 2:
            continue
        now = rate + (last_rate - rate) * i / n_lists
        stream = stream_of(seed, epoch, i)
        draw = 0
        for p in range(n):
            word = words[tags[first + p]]
            for q in range(min(n_contexts, n - 1)):
                other = q
                if n - 1 > n_contexts:
                    other = draw_below(stream, draw, n - 1)
                    draw += 1
                target = tags[first + other + (1 if other >= p else 0)]
                step[:] = 0
                loss += _step(word, contexts[target], 1.0, now, step)
                for _ in range(n_negatives):
                    at = draw_unit(stream, draw) * ends[n_tags - 1]
                    draw += 1
                    negative = min(np.searchsorted(ends, at, side="right"), n_tags - 1)
                    if negative != target:
                        loss += _step(word, contexts[negative], 0.0, now, step)
                for c in range(dim):
                    word[c] += step[c]
    return loss


@njit(cache=True, nogil=True)
def _step(word, context, label, rate, step):
    """Move a context vector, add to `step` what the word's vector is to be moved by, and give the loss."""
    score = dot(word, context)
    chance = 1.0 / (1.0 + math.exp(-score))
    factor = np.float32(rate * (label - chance))
    for c in range(word.shape[0]):
        step[c] += factor * context[c]
        context[c] += factor * word[c]
    # -log σ(s) for a neighbour (label 1), -log σ(-s) for a drawn tag (label 0)
    away = -score if label > 0.5 else score
    return max(away, 0.0) + math.log1p(math.exp(-abs(away)))
