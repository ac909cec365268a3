"""What a step costs by P and N: the sampled cross-entropy's O(max(P, N)) beside sampled Fast0Tag's O(P N)."""

from __future__ import annotations

from visterm.app.reproduce.run import Comparison
from visterm.app.reproduce.search_trials import SearchTrials


def costs_part(comparison: Comparison, trials: SearchTrials, *, quick: bool) -> None:
    """Section 2.2: time the output layer alone over a grid of P and N, and write a table, a figure and claims.

    Parameters are those of `times_part`.
    """
