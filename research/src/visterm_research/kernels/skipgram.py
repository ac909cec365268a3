"""Skip-gram with negatives (Mikolov et al. 2013) over lists of tags: each tag predicts other tags of its list."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from visterm.kernels import draw_below, draw_unit, stream_of


@njit(cache=True, nogil=True)
def skipgram_epoch(starts, tags, cumulated, words, contexts, n_contexts, n_negatives, rate, last_rate, seed, epoch):
    """Train on all lists once, in order: one step per drawn pair and one per negative.

    The steps maximise ``log σ(w·c) + Σ log σ(-w·c')``, where w is the vector of a tag, c the context vector of another
    tag of its list, and c' the context vectors of negatives; a negative equal to c is skipped, as in word2vec. List i
    is ``tags[starts[i] : starts[i + 1]]``, without repeated tags. `cumulated`, (n_tags,), are cumulative sums of the
    negatives' probabilities, up to a factor. `words` and `contexts`, (n_tags, dim), are changed in place. A tag
    predicts all others of its list, or `n_contexts` drawn with replacement if there are more. The learning rate falls
    linearly from `rate` to `last_rate`. Returns the sum of the losses, each before its step.
    """
    n_lists, n_tags, dim = starts.shape[0] - 1, words.shape[0], words.shape[1]
    step = np.empty(dim, np.float32)
    loss = 0.0

    for i in range(n_lists):
        first, n = starts[i], starts[i + 1] - starts[i]
        if n < 2:
            continue
        current_rate = rate + (last_rate - rate) * i / n_lists
        stream = stream_of(seed, epoch, i)
        draw = 0
        for p in range(n):
            word = words[tags[first + p]]
            for q in range(min(n_contexts, n - 1)):
                position = q
                if n - 1 > n_contexts:
                    position = draw_below(stream, draw, n - 1)
                    draw += 1
                target = tags[first + position + (1 if position >= p else 0)]
                step[:] = 0
                loss += _step(word, contexts[target], 1.0, current_rate, step)
                for _ in range(n_negatives):
                    threshold = draw_unit(stream, draw) * cumulated[n_tags - 1]
                    draw += 1
                    negative = min(np.searchsorted(cumulated, threshold, side="right"), n_tags - 1)
                    if negative != target:
                        loss += _step(word, contexts[negative], 0.0, current_rate, step)
                for c in range(dim):
                    word[c] += step[c]
    return loss


@njit(cache=True, nogil=True)
def _step(word, context, label, rate, step):
    """Move a context vector, add the step of the word's vector to `step`, and return the loss."""
    score = 0.0
    for c in range(word.shape[0]):
        score += word[c] * context[c]
    probability = 1.0 / (1.0 + math.exp(-score))
    factor = np.float32(rate * (label - probability))
    for c in range(word.shape[0]):
        step[c] += factor * context[c]
        context[c] += factor * word[c]
    # -log σ(s) for a neighbour (label 1), -log σ(-s) for a drawn tag (label 0)
    logit = -score if label > 0.5 else score
    return max(logit, 0.0) + math.log1p(math.exp(-abs(logit)))
