"""Candidates of a blend: each fitted on a part of the images and judged on others, within a time budget."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter as now
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.errors import DivergedError, TooLargeError
from visterm.core.estimator import clone
from visterm.core.packing import learned_parts
from visterm.core.progress import Progress, Titled
from visterm.core.tables import MODELS
from visterm.core.types import Matrix
from visterm.models.abilities import Explains
from visterm.models.base import Annotator
from visterm.models.blend.candidates import GROWTHS, PAIRWISE, ColumnSet, Settings, make_member, own_settings
from visterm.models.blend.kept import explains, tag_vectors
from visterm.models.blend.mixing import gain_of, image_map, word_map
from visterm.models.stopping import visible_columns

PROBE_PART = 8  # One row in this number is fitted first, to see how long all would take
FEWEST_PROBED = 50

WARM_ROWS = 50  # Rows of the fit that only has kernels compiled
MOST_SETS = 3  # Sets of columns on which all candidates are tried; on the others only the first is
MOST_WEIGHED = 6  # Finding weights takes seconds as the square of the models

KEPT = "ranks nothing: kept to explain scores and compare tags"
SPARE = "no candidate: kept to explain scores and compare tags"

NEARLY = 0.8  # Share of the best sum of MAPs from which on a model that is stored smaller is kept in its place
SPARE_ROWS = 1_000  # Images of the first fit of a model that is no candidate: it is soon over, whatever the budget


class Budget:
    """Seconds from now on; None: no limit."""

    def __init__(self, seconds: float | None) -> None:
        self.limited = seconds is not None
        self._end = math.inf if seconds is None else now() + seconds

    def extend(self, seconds: float) -> None:
        """Put the end off."""
        self._end += seconds

    def left(self) -> float:
        """Return the seconds that are left; below 0 once they are over."""
        return self._end - now()


class TaggedRows(NamedTuple):
    """Images to learn from, or to judge by, and their tags."""

    X: Matrix
    Y: sp.csr_array


@dataclass(eq=False)
class MemberTrial:
    """A candidate and how it did."""

    name: str
    model: Annotator  # Fitted on the part that is learned from, where `scores` is there
    settings: Settings  # Those that are not its defaults
    position: int  # Its place among the candidates
    columns: ColumnSet  # What it reads of the features
    scores: NDArray[np.float32] | None = None  # shape (n_judged, n_tags), with mean 0 and variance 1; None: not fitted
    mean: float = 0.0  # Of the scores before
    scale: float = 1.0  # Their standard deviation before
    seconds: float | None = None  # Of fit and scores
    n_rows: int = 0  # Images that it was fitted on
    # What it reaches alone on the judged images, over images and over tags
    map: float | None = None
    word_map: float | None = None
    reason: str = ""  # Why it was not fitted; empty where it was
    error: Exception | None = None  # What it was not fitted for, where that was not the time

    @property
    def title(self) -> str:
        """Its name, and the block that it reads."""
        return f"{self.name}, block {self.columns.block}" if self.columns.block else self.name

    @property
    def promise(self) -> float:
        """The sum of the two MAPs; 0 if it was not fitted."""
        return (self.map or 0.0) + (self.word_map or 0.0)

    def seconds_again(self, n_all: int) -> float:
        """Estimate the seconds of a fit of all images, of one that was fitted on some of them."""
        return self.seconds_for(self.seconds or 0.0, self.n_rows, n_all) if n_all > self.n_rows > 0 else 0.0

    def seconds_for(self, seconds: float, n_some: int, n_all: int) -> float:
        """Estimate the seconds of a fit of `n_all` rows from those of one of `n_some`: they grow with rows^growth."""
        return float(seconds * (n_all / n_some) ** GROWTHS.get(self.name, PAIRWISE))


def try_candidates(
    trials: Sequence[MemberTrial],
    learned: TaggedRows,
    judged: TaggedRows,
    n_all: int,
    budget: Budget,
    monitor: Progress,
    rng: np.random.Generator,
) -> list[MemberTrial]:
    """Fit each candidate and judge it, or say in its `reason` why not; return them in the order of trial.

    With a budget, the seconds of a fit are estimated from one of an eighth of the rows, which `rng` draws; what it
    then adds to the best so far, fitted on these rows too, is said of one that is left out. A candidate
    is left out if less is left than these and the fits on `n_all` images (those of the last fit; as many as are learned
    from if there is none) of it and all those before. The first one is always fitted, and no fit is cut short. Kernels
    are compiled first, in a tiny fit that counts neither for estimates nor for the budget.

    Trials are changed in place. Without images to judge by, only the first one is fitted. Raises what the first one was
    not fitted for if none could be.
    """
    done: list[MemberTrial] = []
    again, can_judge = 0.0, judged.X.shape[0] > 0
    for trial in () if can_judge else trials[1:]:
        trial.reason = "left out: there are no images to judge by"
    for trial in in_turn(trials) if can_judge else trials:
        if budget.limited and can_judge and not trial.reason:
            if not done or budget.left() > again:
                _warm_up(trial, learned, budget, rng)
            if done:
                trial.reason = _too_long(trial, done, learned, judged, n_all, budget.left() - again, rng)
        if not trial.reason:
            attempt(trial, learned, judged, monitor)
            again += trial.seconds_again(n_all)
        done.append(trial)
    if done[0].error is not None and not any(trial.n_rows for trial in done):
        raise done[0].error
    return done


def _warm_up(trial: MemberTrial, learned: TaggedRows, budget: Budget, rng: np.random.Generator) -> None:
    """Fit a few rows so that kernels are compiled, and put the end of the budget off by the time of it."""
    rows = np.sort(rng.permutation(learned.X.shape[0])[:WARM_ROWS])
    X = visible_columns(trial.model, trial.columns.of(learned.X[rows]), rows)
    began = now()
    with suppress(DivergedError, TooLargeError):  # if all rows do that too, the fit of these says so
        clone(trial.model).fit(X, learned.Y[rows]).decision_function(X)
    budget.extend(now() - began)


def _too_long(
    trial: MemberTrial,
    done: list[MemberTrial],
    learned: TaggedRows,
    judged: TaggedRows,
    n_all: int,
    seconds_left: float,
    rng: np.random.Generator,
) -> str:
    """Explain why a candidate cannot be fitted in the seconds that are left; nothing if it can."""
    if seconds_left <= 0:
        return "left out: no time was left"
    n = learned.X.shape[0]
    rows = np.sort(rng.permutation(n)[: max(n // PROBE_PART, FEWEST_PROBED)])
    began = now()
    try:
        scores = _probe(trial, learned, judged, rows)
    except (DivergedError, TooLargeError) as error:
        trial.error = error
        return f"left out: {error}"

    spent = now() - began
    about = trial.seconds_for(spent, rows.size, n)
    about += trial.seconds_for(about, n, n_all) if n_all > n else 0.0
    seconds_left = max(seconds_left - spent, 0)
    if about <= seconds_left:
        return ""
    digits = 1 if seconds_left < 10 else 0
    reason = f"left out: about {about:.{digits}f} s, {seconds_left:.{digits}f} s were left"
    best = max(done, key=lambda each: each.promise)
    if best.scores is None or best.seconds_for(best.seconds or 0.0, n, rows.size) > seconds_left:
        return reason
    gain = gain_of(scores, _probe(best, learned, judged, rows), judged.Y)
    return f"{reason}; after an eighth of the images, it adds {gain:.3f} to the MAP of {best.title}"


def _probe(trial: MemberTrial, learned: TaggedRows, judged: TaggedRows, rows: NDArray[np.int64]) -> NDArray[np.float32]:
    model = clone(trial.model)
    some, others = (visible_columns(model, trial.columns.of(X), rows) for X in (learned.X[rows], judged.X))
    return _scaled(model.fit(some, learned.Y[rows]).decision_function(others))[0]


def attempt(trial: MemberTrial, learned: TaggedRows, judged: TaggedRows, monitor: Progress) -> None:
    """Fit a candidate and measure it on the judged images, if there are any; if it can't be, `reason` says why."""
    began = now()
    try:
        trial.model.fit(trial.columns.of(learned.X), learned.Y, monitor=Titled(monitor, trial.title))
        scores = trial.model.decision_function(trial.columns.of(judged.X)) if judged.X.shape[0] else None
    except (DivergedError, TooLargeError) as error:
        trial.error, trial.reason = error, f"left out: {error}"
        return
    trial.n_rows, trial.seconds = learned.X.shape[0], now() - began
    if scores is None:
        return
    trial.scores, trial.mean, trial.scale = _scaled(scores)
    trial.map, trial.word_map = image_map(scores, judged.Y), word_map(scores, judged.Y)


def _scaled(scores: NDArray[np.float32]) -> tuple[NDArray[np.float32], float, float]:
    """Bring scores, in place, to mean 0 and variance 1, and return them with the mean and deviation that they had."""
    mean, scale = float(scores.mean(dtype=np.float64)), float(scores.std(dtype=np.float64)) or 1.0
    scores -= np.float32(mean)
    scores /= np.float32(scale)
    return scores, mean, scale


def in_turn(trials: Sequence[MemberTrial]) -> Iterator[MemberTrial]:
    """Yield the first candidate on all columns and on each block, then the others on the columns where it did best.

    The others come one kind of model after the other, each on the best columns first; at the end those on columns that
    are not worth it, with their reason. Judge each trial before you ask for the next, as the order depends on it.
    """
    first_trials = [trial for trial in trials if trial.position == 0]
    yield from first_trials
    ranked = sorted(first_trials, key=lambda trial: trial.promise, reverse=True)
    ranks = {trial.columns: rank for rank, trial in enumerate(ranked)}
    others = sorted(
        (trial for trial in trials if trial.position), key=lambda trial: (trial.position, ranks.get(trial.columns, 0))
    )
    poor = {columns for columns, rank in ranks.items() if rank >= MOST_SETS}
    yield from (trial for trial in others if trial.columns not in poor)
    for trial in others:
        if trial.columns in poor:
            trial.reason = f"left out: {first_trials[0].name} did better on other columns"
            yield trial


def shortlist(fitted: Sequence[MemberTrial]) -> list[MemberTrial]:
    """Return those to find weights for, in their order: the best on each set of columns, then the best of the rest."""
    ranked = sorted(fitted, key=lambda trial: trial.promise, reverse=True)
    leaders: list[MemberTrial] = []
    for trial in ranked:
        if all(trial.columns != leader.columns for leader in leaders):
            leaders.append(trial)
    rest = [trial for trial in ranked if trial not in leaders]
    chosen = [*leaders, *rest][:MOST_WEIGHED]
    return [trial for trial in fitted if trial in chosen]


def kept_beside(
    used: list[MemberTrial],
    trials: list[MemberTrial],
    learned: TaggedRows,
    judged: TaggedRows,
    n_jobs: int | None,
    monitor: Progress,
) -> list[MemberTrial]:
    """Return the trials to keep beside those that rank, so that one explains and one has vectors of tags.

    Of those fitted that can, it is the smallest that ranks nearly as well as the best; without images to judge by, the
    first candidate that explains is fitted. Where none can, the cheapest model that does both is fitted on some of the
    images and joins the `trials`: `ridge` with a fixed penalty, as choosing one takes longer than the fit. If it can't
    be fitted, as its weights are too many, its reason says so, and nothing is kept.
    """
    if not judged.X.shape[0] and not explains(used[0].model):
        for trial in [trial for trial in trials[1:] if isinstance(trial.model, Explains)][:1]:
            trial.reason = ""
            attempt(trial, learned, judged, monitor)
            trial.reason = trial.reason or KEPT
    ranked = sorted((trial for trial in trials if trial.n_rows), key=lambda trial: trial.promise, reverse=True)
    kept: list[MemberTrial] = []
    for able in (explains, has_vectors):
        if any(able(trial.model) for trial in [*used, *kept]):
            continue
        can = [trial for trial in ranked if able(trial.model)]
        can = [trial for trial in can if trial.promise >= NEARLY * can[0].promise]
        can = sorted(can, key=lambda trial: sum(part.nbytes for _, part in learned_parts(trial.model, "")))[:1]
        if not can and not trials[-1].reason.startswith(SPARE):
            trials.append(_fitted_spare(trials[0].columns, learned, judged, n_jobs, monitor))
            can = [trial for trial in trials[-1:] if trial.n_rows]
        kept += can
    return kept


def has_vectors(model: Annotator) -> bool:
    """Return whether a fitted model has vectors of tags, of more than a number each."""
    V = tag_vectors(model)
    return V is not None and V.shape[1] > 1


def _fitted_spare(
    columns: ColumnSet, learned: TaggedRows, judged: TaggedRows, n_jobs: int | None, monitor: Progress
) -> MemberTrial:
    model = make_member(("ridge", {"alpha": 1.0}), "auto", n_jobs, np.random.default_rng(0))
    trial = MemberTrial(MODELS.name_of(model), model, own_settings(model), -1, columns)
    n = learned.X.shape[0]
    rows = np.unique(np.linspace(0, n - 1, min(n, SPARE_ROWS)).astype(np.int64))
    attempt(trial, TaggedRows(learned.X[rows], learned.Y[rows]), judged, monitor)
    trial.reason = f"{SPARE}, but {trial.reason}" if trial.reason else SPARE
    return trial
