"""Where to end a ranking: the rank down to which precision and recall are expected to balance best."""

from __future__ import annotations

from typing import Any

import numpy as np


def expected_f1_cutoff(confidences: Any) -> int:
    """Return how many of the first entries have the largest expected F1.

    Of the first k, ``Σ_{i ≤ k} P_i`` are expected to be relevant, and ``Σ_i P_i`` of all; so F1 is about
    ``2 Σ_{i ≤ k} P_i / (k + Σ_i P_i)``. The confidence at the cut is then about half of the best F1: a search that is
    easily answered ends early, one that is not goes on longer.

    Parameters
    ----------
    confidences : array-like, shape (n,)
        Chances that the entries of a ranking are relevant, best first.

    Returns
    -------
    int
        The smallest such rank; 0 where no entry has a chance.

    References
    ----------
    Lewis: Evaluating and optimizing autonomous text classification systems. SIGIR 1995.
    """
    P = np.asarray(confidences, np.float64)
    total = P.sum()
    if not total > 0:
        return 0
    return int(np.argmax(2 * np.cumsum(P) / (np.arange(1, P.size + 1) + total))) + 1
