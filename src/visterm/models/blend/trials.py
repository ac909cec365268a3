"""Fit candidates of a blend on a part of the images and measure them on the others, within a time budget."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from time import perf_counter as now
from typing import Self

import numpy as np

from visterm.core.errors import DivergedError, TooLargeError
from visterm.core.estimator import clone
from visterm.core.packing import learned_parts
from visterm.core.progress import SILENT, Progress, Titled
from visterm.core.selected_rows import copied
from visterm.core.tables import MODELS
from visterm.core.types import Floats, Matrix
from visterm.models.abilities import FinishesFits
from visterm.models.base import Annotator
from visterm.models.blend import candidates
from visterm.models.blend.kept import explains, tag_vectors
from visterm.models.blend.mixing import NEARLY_BEST, best_pair, both_maps, image_map, surely_gains, word_map
from visterm.models.blend.splits import MAX_WEIGHTED_MODELS, Split, TaggedRows, an_eighth, judged_tags
from visterm.models.stopping import EpochRecord, OnEpoch, visible_columns

MIN_PROBED_IMAGES = 1600
"""Minimum number of images to learn from for trials on an eighth of them: with fewer, the trials mislead, and fits are
fast."""

GAIN_ERROR = 0.15  # A little above the usual standard error of a gain, times the root of the number of judged images
FIRST_RUNG, NEAR_MAP, MIN_RUNG_GAIN = 4, 0.9, 0.004
"""See `Halving`: its first epoch, the share of the best MAP that is near, and the minimum gain in MAP."""

DRAW_COST, SMALL_COST = 32, 0.03
"""See `Halving`. One core did 35 billion products a second in EASE's inverse, and about a billion for WSABIE's draws.
A cost grows at most ninefold until the next check: a candidate that adds nothing takes under a third of its time."""

WARM_UP_ROWS = 50  # Rows of the fit whose only purpose is to compile kernels
MAX_COLUMN_SETS = 3  # All candidates are tried on at most this many sets of columns; on others only the first candidate

KEPT_REASON = "ranks nothing: kept to explain scores and compare tags"
SPARE_REASON = "no candidate: kept to explain scores and compare tags"

SPARE_ROWS = 1_000  # Images of the first fit of the spare model: few, as it doesn't count for the budget


class Budget:
    """A time budget of `seconds`, which starts now; None: no limit."""

    def __init__(self, seconds: float | None) -> None:
        self.limited = seconds is not None
        self._end = math.inf if seconds is None else now() + seconds

    def extend(self, seconds: float) -> None:
        """Extend the budget."""
        self._end += seconds

    def left(self) -> float:
        """Return the remaining seconds; negative when the budget is exceeded."""
        return self._end - now()


@dataclass(eq=False)
class MemberTrial:
    """A candidate and its results."""

    name: str
    model: Annotator  # Fitted on the training part, until it is released to be fitted again
    settings: candidates.Settings  # Settings that differ from the defaults
    position: int  # Position among the candidates
    columns: candidates.ColumnSet  # Columns of the features that it reads
    scores: Floats | None = None  # shape (n_judged, n_tags), with mean 0 and variance 1; None: not fitted
    mean: float = 0.0  # Mean of the scores before scaling
    scale: float = 1.0  # Standard deviation of the scores before scaling
    seconds: float | None = None  # Time of the fit and of the scores
    n_rows: int = 0  # Number of images in the fit, without those whose tags were held out
    # Its MAP on the judged images, over images and over tags
    map: float | None = None
    word_map: float | None = None
    # What remains of the fit once the model is released, see `try_candidates`
    explains: bool = False
    has_vectors: bool = False
    n_bytes: int = 0  # Size of the learned arrays
    chosen: candidates.Settings = field(default_factory=dict)  # Settings that the fit chose
    reason: str = ""  # Why it was not fitted; empty if it was fitted
    error: Exception | None = None  # The error of the fit, if any

    @property
    def title(self) -> str:
        """The name of the model, and the block that it reads."""
        return f"{self.name}, block {self.columns.block}" if self.columns.block else self.name

    @property
    def promise(self) -> float:
        """The sum of the two MAPs; 0 if it was not fitted."""
        return (self.map or 0.0) + (self.word_map or 0.0)

    def release(self, n_all: int) -> None:
        """Free the memory of the model if it will be fitted on `n_all` images from the start."""
        if n_all > self.n_rows > 0 and not isinstance(self.model, FinishesFits):
            self.model = clone(self.model)

    def seconds_again(self, n_all: int) -> float:
        """Estimate the seconds of another fit, on all images; 0 if this one already had all images."""
        return self.seconds_for(self.seconds or 0.0, self.n_rows, n_all) if n_all > self.n_rows > 0 else 0.0

    def seconds_for(self, seconds: float, n_some: int, n_all: int) -> float:
        """Estimate the seconds of a fit on `n_all` rows from those on `n_some` rows: they grow with rows^growth."""
        return float(seconds * (n_all / n_some) ** candidates.GROWTHS.get(self.name, candidates.PAIRWISE))


def try_candidates(
    trials: Sequence[MemberTrial],
    splits: Sequence[Split],
    n_all: int,
    budget: Budget,
    monitor: Progress,
    rng: np.random.Generator,
) -> list[MemberTrial]:
    """Fit and measure each candidate, or set its `reason` to skip it; return the trials in the order of fitting.

    The models `PROBED` are first fitted on an eighth of the images, which `rng` draws, and skipped if they add little
    to the trials so far on the same eighth (see `Probes`). For images known by number, `Halving` ends the training of a
    candidate that won't add to the first one. With a budget, the time of every candidate is estimated from such a fit:
    it is skipped if the remaining time is less than its fit and the final fits on `n_all` images (the number of
    training images if there is no final fit) of it and of all trials before it. The first candidate is always fitted,
    and no fit is interrupted. Kernels are compiled first, in a tiny fit that is not counted.

    Trials are changed in place. Models that will be fitted again are released, as one can be as large as the rows; with
    a budget they are kept, as it may end before. Without judged images, only the first candidate is fitted. If no
    candidate can be fitted, raises the error of the first one.
    """
    done: list[MemberTrial] = []
    probes = Probes(splits, rng)
    refit_seconds, can_judge = 0.0, splits[0].judged.X.shape[0] > 0
    for trial in () if can_judge else trials[1:]:
        trial.reason = "left out: there are no images to judge by"
    for trial in in_turn(trials) if can_judge else trials:
        if budget.limited and can_judge and not trial.reason:
            if not done or budget.left() > refit_seconds:
                _warm_up(trial, splits[0].learned, budget, rng)
            if done:
                trial.reason = _too_long(trial, splits[0], n_all, budget.left() - refit_seconds, rng)
        elif done and not trial.reason and trial.name in candidates.PROBED:
            trial.reason = probes.reason_to_skip(trial, done)
        if not trial.reason:
            halving = Halving.beside(done, splits[0], trial)
            if halving is not None and trial.name in candidates.MUST_GAIN:
                halving.attempt_if_it_gains(monitor)
            else:
                attempt(trial, splits, monitor, halving)
            refit_seconds += trial.seconds_again(n_all)
            trial.release(0 if budget.limited or splits[0].known is not None else n_all)
        done.append(trial)
    if done[0].error is not None and not any(trial.n_rows for trial in done):
        raise done[0].error
    return done


def _warm_up(trial: MemberTrial, learned: TaggedRows, budget: Budget, rng: np.random.Generator) -> None:
    """Fit a few rows to compile kernels, and extend the budget by the time that it took."""
    rows = np.sort(rng.permutation(learned.X.shape[0])[:WARM_UP_ROWS])
    X = visible_columns(trial.model, trial.columns.of(learned.X[rows]), rows)
    began = now()
    with suppress(DivergedError, TooLargeError):  # the fit on all rows reports such errors
        clone(trial.model).fit(X, learned.Y[rows]).decision_function(X)
    budget.extend(now() - began)


class Probes:
    """Fits on an eighth of the images, which tell whether a candidate is worth a fit on all of them.

    It is not if it adds less than about a standard error to the sum of both MAPs of a mix of the earlier candidates,
    without those that were skipped, all fitted on that eighth. With few images, all candidates are worth it.
    """

    def __init__(self, splits: Sequence[Split], rng: np.random.Generator) -> None:
        self._splits, self._rng = splits, rng
        self._part: Split | None = None
        self._mix: Floats | None = None  # scores of the judged images
        self._title = ""  # of the best candidate in the mix

    def reason_to_skip(self, trial: MemberTrial, done: Sequence[MemberTrial]) -> str:
        """Explain why a candidate is not worth a fit on all images; return an empty text if it is."""
        fitted = [finished for finished in done if finished.scores is not None]
        split = self._splits[0]
        if len(self._splits) > 1 or split.learned.X.shape[0] < MIN_PROBED_IMAGES or not fitted:
            return ""
        part = self._part = self._part or an_eighth(split, self._rng)
        Y = part.judged.Y
        if self._mix is None:
            ranked = sorted(fitted, key=lambda finished: finished.promise, reverse=True)
            self._mix, self._title = _probe(ranked[0], part), ranked[0].title
            for finished in ranked[1:]:
                self._mix = best_pair(_probe(finished, part), self._mix, Y, both_maps)[0]
        try:
            mix, gain = best_pair(_probe(trial, part, candidates.PROBED.get(trial.name, {})), self._mix, Y, both_maps)
        except (DivergedError, TooLargeError) as error:
            trial.error = error
            return f"left out: {error}"
        if gain >= GAIN_ERROR / math.sqrt(Y.shape[0]):
            self._mix = mix
            return ""
        return f"left out: after an eighth of the images, it adds {gain:.3f} to the MAP of {self._title}"


def _too_long(trial: MemberTrial, split: Split, n_all: int, seconds_left: float, rng: np.random.Generator) -> str:
    """Explain why a candidate cannot be fitted in the remaining time; return an empty text if it can."""
    if seconds_left <= 0:
        return "left out: no time was left"
    n, part = split.learned.X.shape[0], an_eighth(split, rng)
    n_part = part.learned.X.shape[0]
    began = now()
    try:
        _probe(trial, part)
    except (DivergedError, TooLargeError) as error:
        trial.error = error
        return f"left out: {error}"

    spent = now() - began
    estimate = trial.seconds_for(spent, n_part, n)
    estimate += trial.seconds_for(estimate, n, n_all) if n_all > split.n_learned else 0.0
    seconds_left = max(seconds_left - spent, 0)
    if estimate <= seconds_left:
        return ""
    digits = 1 if seconds_left < 10 else 0
    return f"left out: about {estimate:.{digits}f} s, {seconds_left:.{digits}f} s were left"


def _probe(trial: MemberTrial, split: Split, settings: candidates.Settings | None = None) -> Floats:
    """Return the scaled scores of the judged images by a copy of the model that learns from the split.

    `settings` replace those that the model leaves at their defaults.
    """
    copy = clone(trial.model)
    copy.set_params(**{name: value for name, value in (settings or {}).items() if name not in trial.settings})
    return _scores_of(copy, trial.columns, split, SILENT)[0]


class Halving:
    """Ends the training of a candidate for images known by number that won't add to the best trial so far.

    Pass it to ``fit`` as `on_epoch`. After 4, 8, 16 and more epochs, training continues if the candidate adds to the
    MAP of the best trial, if its own MAP comes near with another gain like that since half of the epochs, or if its
    draws have cost little beside the inverse of the best trial (`Ease`). Products are counted, so no clock decides.
    """

    def __init__(self, trial: MemberTrial, split: Split, best: MemberTrial) -> None:
        self._trial, self._split, self._best, self._map, self._cost = trial, split, best, 0.0, 0.0
        self._small_cost = SMALL_COST * getattr(best.model, "inputs_", np.empty(0)).size ** 3

    @classmethod
    def beside(cls, done: Sequence[MemberTrial], split: Split, trial: MemberTrial) -> Self | None:
        """Compare a trial with the best one so far; None if there is none, or for images with features."""
        measured = [finished for finished in done if finished.scores is not None]
        if split.known is None or not measured:
            return None
        return cls(trial, split, max(measured, key=lambda finished: finished.map or 0.0))

    def __call__(self, record: EpochRecord) -> str | None:
        """Return "stop", and set the reason of the trial, if the candidate won't add to the best trial."""
        epoch, before = record["epoch"], self._map
        width = self._trial.model.tag_rows_.shape[1] if "draws" in record else math.inf
        self._cost += DRAW_COST * self._split.learned.Y.nnz * width * (1 + record.get("draws", 0))
        if record["map"] is None or epoch & (epoch - 1):
            return None
        self._map = record["map"]
        is_near = 2 * self._map - before >= NEAR_MAP * (self._best.map or 0.0)
        if epoch < FIRST_RUNG or is_near or self._cost <= self._small_cost:
            return None
        scores = _scaled_scores(self._trial.model, self._trial.columns.of(self._split.judged.X), self._split)[0]
        assert self._best.scores is not None
        gain = best_pair(scores, self._best.scores, self._split.judged.Y)[1]
        if gain >= MIN_RUNG_GAIN:
            return None
        self._trial.reason = f"left out: after {epoch} epochs, it adds {gain:.3f} to the MAP of {self._best.title}"
        return "stop"

    def attempt_if_it_gains(self, monitor: Progress) -> None:
        """Fit and measure a candidate of `MUST_GAIN` if four epochs of it add to the best trial.

        It is left out, with a reason, if these or the whole fit don't add: the whole fit must add surely.
        """
        trial, best, Y = self._trial, self._best, self._split.judged.Y
        assert best.scores is not None
        short = replace(trial, model=clone(trial.model).set_params(epochs=FIRST_RUNG))
        for tried in (short, trial):
            attempt(tried, [self._split], monitor)
            if tried.scores is None:
                trial.reason = tried.reason
                return
            mix, gain = best_pair(tried.scores, best.scores, Y)
            is_sure = gain >= MIN_RUNG_GAIN if tried is short else surely_gains(mix, best.scores, Y)
            if not is_sure:
                epochs = f"after {FIRST_RUNG} epochs, " if tried is short else ""
                trial.reason = f"left out: {epochs}it adds only {gain:.3f} to the MAP of {best.title}"
                trial.scores, trial.n_rows = None, 0
                return


def attempt(trial: MemberTrial, splits: Sequence[Split], monitor: Progress, on_epoch: OnEpoch | None = None) -> None:
    """Fit a candidate and measure it on the judged images, if there are any; set `reason` if the fit fails.

    With several splits, there is a fit for each of them; `model` is the last one, and mean and scale are averages. A
    candidate with a `reason` that `on_epoch` sets is not measured.
    """
    began = now()
    results: list[tuple[Floats, float, float]] = []
    try:
        for split in splits:
            trial.model = clone(trial.model) if results else trial.model
            results.append(_scores_of(trial.model, trial.columns, split, Titled(monitor, trial.title), on_epoch))
    except (DivergedError, TooLargeError) as error:
        trial.error, trial.reason = error, f"left out: {error}"

    trial.seconds = now() - began
    if trial.reason:
        return
    trial.n_rows = splits[0].n_learned
    trial.chosen, vectors = candidates.chosen_settings(trial.model), tag_vectors(trial.model)
    trial.explains, trial.has_vectors = explains(trial.model), vectors is not None and vectors.shape[1] > 1
    trial.n_bytes = sum(part.nbytes for _, part in learned_parts(trial.model, ""))
    if not splits[0].judged.X.shape[0]:
        return
    trial.scores = np.concatenate([scores for scores, _, _ in results])
    trial.mean, trial.scale = (float(np.mean(values)) for values in list(zip(*results, strict=True))[1:])
    Y = judged_tags(splits)
    trial.map, trial.word_map = image_map(trial.scores, Y), word_map(trial.scores, Y)


def _scores_of(
    model: Annotator, columns: candidates.ColumnSet, split: Split, monitor: Progress, on_epoch: OnEpoch | None = None
) -> tuple[Floats, float, float]:
    """Fit a model; return the scaled scores of the judged images, and their mean and deviation before that.

    The judged images are also those by which the model stops.
    """
    X, X_judged = (columns.of(rows.X) for rows in (split.learned, split.judged))
    X = X if model.reads_parts else copied(X)
    if split.rows is not None:
        X, X_judged = (visible_columns(model, features, split.rows) for features in (X, X_judged))
    if not X_judged.shape[0]:
        model.fit(X, split.learned.Y, side=split.learned.side, monitor=monitor)
        return np.empty((0, split.judged.Y.shape[1]), np.float32), 0.0, 1.0

    valid = X_judged, split.judged.Y
    model.fit(X, split.learned.Y, side=split.learned.side, valid=valid, monitor=monitor, on_epoch=on_epoch)
    return _scaled_scores(model, X_judged, split)


def _scaled_scores(model: Annotator, X: Matrix, split: Split) -> tuple[Floats, float, float]:
    """Return a model's scores, scaled to mean 0 and variance 1, with their mean and deviation before that.

    Tags that the judged images are known to have get the lowest score.
    """
    scores = model.decision_function(X)
    mean, scale = float(scores.mean(dtype=np.float64)), float(scores.std(dtype=np.float64)) or 1.0
    scores -= np.float32(mean)
    scores /= np.float32(scale)
    if split.known is not None:
        images, tags = (split.known > 0).nonzero()
        scores[images, tags] = scores.min()
    return scores, mean, scale


def in_turn(trials: Sequence[MemberTrial]) -> Iterator[MemberTrial]:
    """Yield the first candidate on each set of columns, then the other candidates on the sets where it was best.

    The others are sorted by kind of model, each on the best columns first; trials on poor columns come last, with a
    reason to skip them. Measure each trial before you request the next one, as the order depends on it.
    """
    first_trials = [trial for trial in trials if trial.position == 0]
    yield from first_trials
    ranked = sorted(first_trials, key=lambda trial: trial.promise, reverse=True)
    ranks = {trial.columns: rank for rank, trial in enumerate(ranked)}
    others = [(ranks.get(trial.columns, 0), trial.position, trial) for trial in trials if trial.position]
    for rank, _, trial in sorted(others, key=lambda other: (other[0] >= MAX_COLUMN_SETS, other[1], other[0])):
        if rank >= MAX_COLUMN_SETS:
            trial.reason = f"left out: {first_trials[0].name} did better on other columns"
        yield trial


def shortlist(fitted: Sequence[MemberTrial]) -> list[MemberTrial]:
    """Return the trials to find weights for, in their order: the best of each set of columns, then the best others."""
    ranked = sorted(fitted, key=lambda trial: trial.promise, reverse=True)
    leaders = {trial.columns: trial for trial in reversed(ranked)}.values()
    chosen = sorted(ranked, key=lambda trial: trial not in leaders)[:MAX_WEIGHTED_MODELS]
    return [trial for trial in fitted if trial in chosen]


def spares(
    used: list[MemberTrial], trials: list[MemberTrial], splits: Sequence[Split], n_jobs: int | None, monitor: Progress
) -> list[MemberTrial]:
    """Return trials to keep in addition to those that rank, to have one that explains and one with tag vectors.

    Of the fitted trials with an ability, the one with the smallest file is kept that ranks nearly as well as the best.
    If no trial has the ability, the cheapest model with both is fitted on a part of the images and added to `trials`:
    `ridge` with a fixed penalty, as choosing one takes longer than the fit. If its weights are too large to fit it, its
    reason tells so, and nothing is kept.
    """
    ranked = sorted((trial for trial in trials if trial.n_rows), key=lambda trial: trial.promise, reverse=True)
    kept: list[MemberTrial] = []
    for ability in ("explains", "has_vectors"):
        if any(getattr(trial, ability) for trial in [*used, *kept]):
            continue
        able = [trial for trial in ranked if getattr(trial, ability)]
        able = [trial for trial in able if trial.promise >= NEARLY_BEST * able[0].promise]
        able = sorted(able, key=lambda trial: trial.n_bytes)[:1]
        if not able and not trials[-1].reason.startswith(SPARE_REASON):
            trials.append(_fitted_spare(trials[0].columns, splits[0], n_jobs, monitor))
            able = [trial for trial in trials[-1:] if trial.n_rows]
        kept += able
    return kept


def _fitted_spare(columns: candidates.ColumnSet, split: Split, n_jobs: int | None, monitor: Progress) -> MemberTrial:
    model = candidates.make_member(("ridge", {"alpha": 1.0}), "auto", n_jobs, np.random.default_rng(0))
    trial = MemberTrial(MODELS.name_of(model), model, candidates.own_settings(model), -1, columns)
    n = split.learned.X.shape[0]
    rows = np.unique(np.linspace(0, n - 1, min(n, SPARE_ROWS)).astype(np.int64))
    attempt(trial, [split._replace(learned=split.learned.part(rows))], monitor)
    trial.reason = f"{SPARE_REASON}, but {trial.reason}" if trial.reason else SPARE_REASON
    return trial
