"""Candidates of a blend, each fitted on a part of the images and judged on others, as far as the seconds reach."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import clone

from visterm.core.errors import DivergedError, TooLargeError
from visterm.core.progress import Progress, Titled
from visterm.core.types import Matrix
from visterm.models.base import Annotator
from visterm.models.budget import Budget, now, seconds_for
from visterm.models.mixing import image_map, word_map

PROBE_PART = 8
"""One row of so many is fitted first, to see how long all would take."""

FEWEST_PROBED = 50


class Rows(NamedTuple):
    """Images to learn from, or to judge by, and their tags."""

    X: Matrix
    Y: sp.csr_array


@dataclass
class Trial:
    """What came of a candidate.

    Attributes
    ----------
    name : str
    model : Annotator
        Fitted on the part that is learned from, where `scores` is there.
    settings : dict
        Those that are not its defaults.
    growth : float
        Its seconds grow with the images to this power.
    scores : ndarray of float32, shape (n_judged, n_tags), or None
        Of the judged images, brought to mean 0 and variance 1; None where it was not fitted.
    mean, scale : float
        Mean and standard deviation of the scores before.
    seconds : float or None
        Of fit and scores.
    map, word_map : float or None
        What it reaches alone on the judged images, over images and over tags.
    reason : str
        Why it was not fitted; empty where it was.
    error : Exception or None
        What it was not fitted for, where that was not the time.
    """

    name: str
    model: Annotator
    settings: dict[str, Any]
    growth: float
    scores: NDArray[np.float32] | None = None
    mean: float = 0.0
    scale: float = 1.0
    seconds: float | None = None
    map: float | None = None
    word_map: float | None = None
    reason: str = ""
    error: Exception | None = None


def try_all(
    trials: Sequence[Trial],
    learned: Rows,
    judged: Rows,
    n_all: int,
    budget: Budget,
    monitor: Progress,
    rng: np.random.Generator,
) -> None:
    """Fit each candidate and judge it, or say why not.

    Before a fit its seconds are estimated from one of an eighth of the rows. A candidate is left out if they, and those
    of fitting it and all those before it again on `n_all` images, are more than are left. The first one is never left
    out, and a fit that has begun is not cut short.

    Parameters
    ----------
    trials : sequence of Trial
        Changed in place.
    learned, judged : Rows
    n_all : int
        Images of the last fit; as many as are learned from if there is none.
    budget : Budget
    monitor : Progress
    rng : Generator
        Draws the rows of the estimates; not asked where the budget has no end.
    """
    n = learned.X.shape[0]
    again = 0.0
    for place, trial in enumerate(trials):
        if budget.limited and place:
            trial.reason = _too_long(trial, learned, judged, n_all, budget.left() - again, rng)
            if trial.reason:
                continue
        _try(trial, learned, judged, monitor)
        if trial.seconds is not None:
            again += _again(trial.seconds, n, n_all, trial.growth)


def seconds_again(trial: Trial, n: int, n_all: int) -> float:
    """Estimate the seconds of the fit of all images of a candidate that was fitted on `n`."""
    return _again(trial.seconds or 0.0, n, n_all, trial.growth)


def _again(seconds: float, n: int, n_all: int, growth: float) -> float:
    return seconds_for(seconds, n, n_all, growth) if n_all > n else 0.0


def _too_long(trial: Trial, learned: Rows, judged: Rows, n_all: int, left: float, rng: np.random.Generator) -> str:
    """Say why a candidate cannot be fitted in the seconds that are left; nothing if it can."""
    if left <= 0:
        return "left out: no time was left"
    n = learned.X.shape[0]
    rows = np.sort(rng.permutation(n)[: min(n, max(n // PROBE_PART, FEWEST_PROBED))])
    probe = clone(trial.model)
    began = now()
    try:
        probe.fit(learned.X[rows], learned.Y[rows]).decision_function(judged.X)
    except (DivergedError, TooLargeError) as error:
        trial.error = error
        return f"left out: {error}"
    spent = now() - began
    about = seconds_for(spent, rows.size, n, trial.growth)
    about += _again(about, n, n_all, trial.growth)
    left = max(left - spent, 0)
    return f"left out: about {about:.0f} s, {left:.0f} s were left" if about > left else ""


def _try(trial: Trial, learned: Rows, judged: Rows, monitor: Progress) -> None:
    began = now()
    try:
        trial.model.fit(*learned, monitor=Titled(monitor, trial.name))
        scores = trial.model.decision_function(judged.X)
    except (DivergedError, TooLargeError) as error:
        trial.error, trial.reason = error, f"left out: {error}"
        return
    trial.seconds = now() - began
    trial.mean = float(scores.mean(dtype=np.float64))
    trial.scale = float(scores.std(dtype=np.float64)) or 1.0
    scores -= np.float32(trial.mean)
    scores /= np.float32(trial.scale)
    trial.scores = scores
    trial.map, trial.word_map = image_map(scores, judged.Y), word_map(scores, judged.Y)
