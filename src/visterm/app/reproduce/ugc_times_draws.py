"""Figure 2 of the sampled tagging paper: how good the tagger is after each epoch, for several P and several N."""

from __future__ import annotations

from visterm.app.reproduce.problem import Problem
from visterm.app.reproduce.run import Comparison
from visterm.app.reproduce.search_trials import SearchTrials


def draws_part(comparison: Comparison, trials: SearchTrials, problem: Problem, *, quick: bool) -> None:
    """Figure 2: train with several P, then several N, and with all tags; judge validation rows after each epoch.

    Test rows are not used.

    Parameters
    ----------
    problem : Problem
        Training rows are learned from, validation rows judged.
    comparison, trials, quick
        As in `times_part`.
    """
