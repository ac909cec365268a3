"""Skip-gram with negatives over lists of tags, in plain NumPy with the formulas of word2vec."""

from __future__ import annotations

import numpy as np

from reference.warp import draw_below, draw_unit


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def skipgram_epoch(lists, chances, words, contexts, n_contexts, n_negatives, rate, last_rate, seed, epoch):
    """Go once over the lists and change both tables; give the sum of the losses."""
    ends, loss = np.cumsum(chances), 0.0
    for i, tags in enumerate(lists):
        if len(tags) < 2:
            continue
        now = rate + (last_rate - rate) * i / len(lists)
        draw = 0
        for tag in tags:
            others = [other for other in tags if other != tag]
            for place in range(min(n_contexts, len(others))):
                target = others[place]
                if len(others) > n_contexts:
                    target = others[draw_below(seed, epoch, i, draw, len(others))]
                    draw += 1
                pairs = [(target, 1.0)]
                for _ in range(n_negatives):
                    negative = int(np.searchsorted(ends, draw_unit(seed, epoch, i, draw) * ends[-1], side="right"))
                    draw += 1
                    if negative != target:
                        pairs.append((negative, 0.0))
                step = np.zeros(words.shape[1])
                for context, wanted in pairs:
                    chance = sigmoid(words[tag] @ contexts[context])
                    loss -= np.log(chance if wanted else 1 - chance)
                    step += now * (wanted - chance) * contexts[context]
                    contexts[context] += now * (wanted - chance) * words[tag]
                words[tag] += step
    return loss
