"""Table 1 of the sampled tagging paper: seconds an epoch, with all tags in each step and with few drawn ones."""

from __future__ import annotations

from visterm.app.reproduce.run import Comparison
from visterm.app.reproduce.search_trials import SearchTrials


def times_part(comparison: Comparison, trials: SearchTrials, *, quick: bool) -> None:
    """Table 1: time epochs on drawn data of the paper's shapes, and write the table, its notes and claims.

    Parameters
    ----------
    comparison : Comparison
        Its document and claims grow; what there is no time for is noted.
    trials : SearchTrials
        Its record, seed, threads and clock are used.
    quick : bool
        Small shapes: it says that everything runs.
    """
