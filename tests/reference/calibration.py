"""Slow twins of calibrated confidences: one image and one cut at a time."""

from __future__ import annotations

import math
from itertools import product


def confidence(calibration, scores, tags, signs):
    """Return P(all wanted words, no unwanted one) of one image, from the scores of the words."""
    chances = [
        1 / (1 + math.exp(-calibration.slope[tag] * score - calibration.offset[tag]))
        for tag, score in zip(tags, scores, strict=True)
    ]
    wanted = [p for p, sign in zip(chances, signs, strict=True) if sign > 0]
    found = math.prod(1 - p for p, sign in zip(chances, signs, strict=True) if sign < 0)
    if wanted:
        found *= math.prod(wanted) ** (1 - calibration.together) * min(wanted) ** calibration.together
    return found


def expected_f1(chances, k):
    """Return the exact mean of F1 at k over all ways in which independent entries may be relevant."""
    total = 0.0
    for relevant in product((0, 1), repeat=len(chances)):
        weight = math.prod(p if r else 1 - p for p, r in zip(chances, relevant, strict=True))
        if sum(relevant):
            total += weight * 2 * sum(relevant[:k]) / (k + sum(relevant))
    return total
