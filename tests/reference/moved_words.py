"""Equations (3) and (4) of the sampled-tagging paper, word by word and term by term."""

from __future__ import annotations

import numpy as np


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def kept_relations(words, old_words, old_tags, new_tags):
    """Return the sum of equation (4) for words in new places; m runs over the tags and over all words."""
    total = 0.0
    for d in range(len(words)):
        for m in range(len(old_tags)):
            wanted = sigmoid(old_words[d] @ old_tags[m])
            now = sigmoid(words[d] @ new_tags[m])
            total += wanted * np.log(now) + (1 - wanted) * np.log(1 - now)
        for m in range(len(words)):
            wanted = sigmoid(old_words[d] @ old_words[m])
            now = sigmoid(words[d] @ words[m])
            total += wanted * np.log(now) + (1 - wanted) * np.log(1 - now)
    return total
