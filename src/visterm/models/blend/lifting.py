"""How far a blend lifts rare tags: a factor for each tag, which search for one tag does not notice."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.models.blend.mixing import image_map

LIFTS = tuple(step / 40 for step in range(21))
LIFT_COST = 0.003
"""MAP over images that lifting rare tags may cost."""

LEAST_SPREAD = 0.02
"""Tags whose scores hardly differ from image to image are taken to have this share of the mean spread."""


def tag_factors(scores: NDArray[np.float32], lift: float) -> NDArray[np.float64]:
    """Return ``spread_t^-lift`` of each tag, of mean 1; the spread is the standard deviation of its scores.

    Factors by the frequency of tags, by their highest scores, or of deviations from the mean score of each tag, and
    numbers added instead of factors, gave as many different tags only at the same or a greater cost.
    """
    spread = scores.std(axis=0, dtype=np.float64)
    spread = np.maximum(spread, LEAST_SPREAD * spread.mean()) if spread.any() else np.ones(spread.size)
    factors = spread**-lift
    scaled: NDArray[np.float64] = factors / factors.mean()
    return scaled


def best_lift(scores: NDArray[np.float32], Y: sp.csr_array, best_alone: float) -> float:
    """Find the greatest lift that costs little.

    Parameters
    ----------
    scores : ndarray of float32, shape (n_images, n_tags)
    Y : csr_array, shape (n_images, n_tags)
        Their tags.
    best_alone : float
        MAP over images below which the lift shall not bring the scores either.
    """
    reached = {lift: image_map(scores * tag_factors(scores, lift).astype(np.float32), Y) for lift in LIFTS}
    least = max(reached[0.0], best_alone) - LIFT_COST
    return max((lift for lift in LIFTS if reached[lift] >= least), default=0.0)
