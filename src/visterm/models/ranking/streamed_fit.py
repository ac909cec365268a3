"""Ranking models that learn from rows which do not fit in memory: window by window, to go on after a kill."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator
from contextlib import closing
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.errors import DataError, StorageError
from visterm.core.progress import SILENT, Progress
from visterm.core.threads import Team, one_blas_thread, resolve_jobs
from visterm.core.types import Matrix
from visterm.metrics.ranking import average_precisions
from visterm.models.ranking.base import (
    Measure,
    RankingAnnotator,
    Setup,
    Validation,
    Weights,
    epoch_entry,
    mix_means,
    own_tags,
    with_tags,
)
from visterm.models.ranking.feature_steps import Floats
from visterm.models.ranking.meetings import Exchange
from visterm.models.ranking.pair_training import LARGEST_TAG_BLOCK, EpochSums, block_for
from visterm.models.ranking.recipe import rate_factor
from visterm.models.ranking.training_together import Together, meetings_a_window
from visterm.models.stopping import BestWeights, OnEpoch, says_stop


class Windows(Protocol):
    """Rows to learn from in windows of bounded size: some go together, and each epoch has its own order of them.

    Attributes
    ----------
    n_features, n_tags : int
    n_pairs : int
        Tags that all images have together.
    mean_length : float
        Root of the mean squared length of the rows.
    """

    n_features: int
    n_tags: int
    n_pairs: int
    mean_length: float

    def epoch(self, epoch: int, first: int = 0) -> Generator[tuple[Matrix, sp.csr_array]]:
        """Yield features and tags of the windows of an epoch (counted from 1) in its order, from number `first` on.

        What is yielded may be written over when the next is asked for.
        """

    def n_windows(self, epoch: int) -> int:
        """Return how many windows `epoch` yields: to each of several workers as many, the last of them maybe empty."""


class Checkpoint(NamedTuple):
    """All that training needs to go on to the same bytes: small facts for JSON, and arrays."""

    facts: dict[str, Any]
    arrays: dict[str, NDArray[Any]]


class Checkpoints(Protocol):
    """Where checkpoints are kept."""

    def last(self) -> Checkpoint | None:
        """Return the one to go on from; None at the start."""

    def offer(self, make: Callable[[], Checkpoint]) -> None:
        """Make one and keep it, if it is time to."""

    def keep(self, make: Callable[[], Checkpoint]) -> None:
        """Make one and keep it."""


class StreamedFit(RankingAnnotator):
    """Makes a ranking model learn from `Windows`, too: stands behind its kind of scorer among the bases.

    Attributes
    ----------
    learns_together : bool
        Whether several workers may share a training (`exchange` of `fit_stream`).
    """

    learns_together: ClassVar[bool] = True

    def fit_stream(
        self,
        windows: Windows,
        *,
        valid: tuple[Any, Any] | None = None,
        checkpoints: Checkpoints | None = None,
        monitor: Progress | None = None,
        on_epoch: OnEpoch | None = None,
        exchange: Exchange | None = None,
    ) -> Self:
        """Learn from rows that come in windows; a second call forgets the first.

        Each window is gone through as `fit` goes through all rows: its pairs in random order, in blocks. The weights,
        the sums of squares of "adagrad" and what is known of how many draws are needed go on from one window to the
        next. The bytes depend on the windows and on `random_state`, not on `n_jobs` or on where training was cut off
        and went on. No rows are held out of `windows`: `valid` are others.

        Parameters
        ----------
        windows : Windows
        valid : tuple (X, Y), optional
            Rows to stop by.
        checkpoints : Checkpoints, optional
            Goes on from the last, and offers one after each window.
        monitor : Progress, optional
            Draws each window.
        on_epoch : callable, optional
            As in `fit`; the checkpoint of an epoch is offered before. All workers have to give the same answer.
        exchange : Exchange, optional
            The way to other workers that train the same model on windows of their own: see `Together`. All end with the
            same bytes, which depend on how many they are, too. `windows.n_pairs` and `windows.mean_length` are those of
            all together; the validation images are shared out.

        Returns
        -------
        StreamedFit
            The model itself.

        Raises
        ------
        DataError
            If no image has a tag.
        DivergedError
            If training ends in infinity or NaN.
        UserError
            If the workers' seeds differ.
        """
        stands_for_all = np.zeros((1, windows.n_features), np.float32)
        stands_for_all[0, 0] = windows.mean_length
        no_tags = sp.csr_array((1, windows.n_tags), dtype=np.float32)

        def learn(X: Matrix, _: Any, rng: np.random.Generator, valid: Validation | None) -> None:
            self._check_settings()
            if windows.n_pairs == 0:
                raise DataError("No image has a tag (Y has no value above 0), so there is nothing to learn.")
            self._scale_features(X)
            self.n_held_out_, self._held_out = 0, None
            seed = int(rng.integers(2**62))
            course = _Course(seed, self._start(X, windows.n_tags, rng), self.patience)
            last = None if checkpoints is None else checkpoints.last()
            if last is not None:
                course.go_on(last)
            together = None
            if exchange is not None:
                together = Together(exchange, course.weights, self._longest_rows(len(course.weights)))
                together.check_seed(course.seed)
            self._run_course(course, windows, valid, checkpoints, monitor or SILENT, on_epoch, together)

        return self._fit_by(stands_for_all, no_tags, valid, learn)

    def _run_course(
        self,
        course: _Course,
        windows: Windows,
        valid: Validation | None,
        checkpoints: Checkpoints | None,
        monitor: Progress,
        on_epoch: OnEpoch | None,
        together: Together | None,
    ) -> None:
        measure = self._measure(valid) if together is None else self._measure_together(valid, together.exchange)
        self._publish(*course.means)
        begun = course.epoch > 1 or course.window > 0
        monitor.start(f"train windows, from epoch {course.epoch} on" if begun else "train windows", None)
        try:
            with one_blas_thread(), Team(resolve_jobs(self.n_jobs)) as team:
                while course.epoch <= self.epochs and not course.best.exhausted:
                    self._run_epoch(course, windows, team, checkpoints, monitor, together)
                    self._publish(*course.means)
                    found = None if measure is None else measure()
                    entry = epoch_entry(course.epoch, course.mean_sums(), self._measured(found), course.epoch_began)
                    course.end_epoch(entry, found)
                    note = f"loss {entry['loss']:.3f}"
                    if found is not None:
                        note = self._in_words(found, course.best.value, course.best.epoch)
                    monitor.advance(0, note)
                    if checkpoints is not None:
                        checkpoints.offer(course.checkpoint)
                    if says_stop(on_epoch, entry):
                        break
            if checkpoints is not None and together is not None:
                checkpoints.keep(course.checkpoint)
        finally:
            monitor.finish()
        self.history_ = course.history
        self.n_epochs_ = course.best.epoch or len(course.history)
        if course.best.weights:
            self._publish(*course.best.weights)

    def _run_epoch(
        self,
        course: _Course,
        windows: Windows,
        team: Team,
        checkpoints: Checkpoints | None,
        monitor: Progress,
        together: Together | None,
    ) -> None:
        """Go through the windows that are left of an epoch, and mix the weights into the running means."""
        course.epoch_began = time.perf_counter()
        rate = self._rate() * rate_factor(self.schedule, course.epoch, self.epochs)
        key = [course.seed] if together is None else [course.seed, together.exchange.rank]
        n_meetings = 0 if together is None else meetings_a_window(windows.n_pairs, windows.n_windows(course.epoch))
        with closing(windows.epoch(course.epoch, course.window)) as parts:
            for X, Y in parts:
                own = own_tags(Y)
                if own.nnz or together is not None:
                    rng = np.random.default_rng([*key, course.epoch, course.window])
                    setup = Setup(rng, team, True, _block(windows, X.shape[0]))
                    training: Any = self._training(X, own, course.weights, setup)
                    training.go_on(course.carried)
                    if together is None:
                        course.add(training.run_epoch(rate), own.nnz)
                        course.carried = training.carried()
                    else:
                        sums, n_pairs, course.carried = together.run_window(training, rate, own.nnz, n_meetings)
                        course.add(sums, n_pairs)
                course.window += 1
                monitor.advance(1, f"epoch {course.epoch}")
                if checkpoints is not None:
                    checkpoints.offer(course.checkpoint)
        if not mix_means(course.means, course.weights, 1 / min(course.epoch, self.average), team):
            self._publish(*course.means)
            self._refuse_non_finite()

    def _longest_rows(self, n_weights: int) -> tuple[float, ...]:
        """Return the longest row that each of the weights may have in training."""
        return (math.inf,) * n_weights

    def _measure_together(self, valid: Validation | None, exchange: Exchange) -> Measure | None:
        """Share the validation images out over the workers: all come to know the MAP over all of them."""
        judged = None if valid is None else with_tags(*valid)
        if judged is None:
            return None
        X, Y = judged
        own = np.array_split(np.arange(X.shape[0]), exchange.n_workers)[exchange.rank]
        X, Y = X[own], Y[own]

        def measure() -> float:
            found = average_precisions(self.score_blocks(X), Y) if own.size else np.empty(0)
            return float(np.nanmean(np.concatenate(exchange.gather(found))))

        return measure


def _block(windows: Windows, n_rows: int) -> int:
    """Choose blocks as if all windows were one, but of no more than half a window's rows: they are copied together."""
    return min(block_for(windows.n_pairs, windows.n_tags), max(LARGEST_TAG_BLOCK, n_rows // 2))


class _Course:
    """How far training has come: what a checkpoint keeps.

    Attributes
    ----------
    epoch, window : int
        The next window to train on, and the epoch (from 1) that it belongs to.
    weights, means : tuple of ndarray
        As training has them, and their running means over the last epochs.
    carried : dict of str to ndarray
        What one window's training hands to the next.
    """

    def __init__(self, seed: int, weights: Weights, patience: int) -> None:
        self.seed, self.weights = seed, weights
        self.means: Weights = tuple(array.copy() for array in weights)
        self.best = BestWeights(patience)
        self.epoch, self.window = 1, 0
        self.carried: dict[str, NDArray[Any]] = {}
        self.history: list[dict[str, Any]] = []
        self.epoch_began = 0.0
        self._sums = np.zeros(4)

    def add(self, sums: EpochSums, n_pairs: int) -> None:
        """Count what the training on one window did."""
        self._sums += [sums.loss * n_pairs, sums.draws * n_pairs, sums.violated * n_pairs, n_pairs]

    def mean_sums(self) -> EpochSums:
        """Return what the epoch did so far, as means over its pairs."""
        return EpochSums(*(float(value) for value in self._sums[:3] / max(1.0, self._sums[3])))

    def end_epoch(self, entry: dict[str, Any], found: float | None) -> None:
        """Take the measure of an epoch, and go on to the next."""
        self.history.append(entry)
        if found is not None:
            self.best.offer(found, *self.means)
        self.epoch, self.window, self._sums = self.epoch + 1, 0, np.zeros(4)

    def checkpoint(self) -> Checkpoint:
        """Return all of it; the arrays are not copies."""
        facts = {
            "seed": self.seed,
            "epoch": self.epoch,
            "window": self.window,
            "sums": self._sums.tolist(),
            "history": self.history,
            "best_epoch": self.best.epoch,
            "best_value": self.best.value if self.best.epoch else None,
        }
        kinds = {"weights": self.weights, "means": self.means, "best": self.best.weights}
        arrays: dict[str, NDArray[Any]] = {
            f"{kind}.{number}": array for kind, some in kinds.items() for number, array in enumerate(some)
        }
        return Checkpoint(facts, arrays | {f"carried.{name}": array for name, array in self.carried.items()})

    def go_on(self, last: Checkpoint) -> None:
        """Take everything back from a checkpoint."""
        facts = last.facts

        def those(kind: str) -> dict[str, NDArray[Any]]:
            start = f"{kind}."
            return {name.removeprefix(start): array for name, array in last.arrays.items() if name.startswith(start)}

        def in_order(kind: str) -> tuple[Floats, ...]:
            found = those(kind)
            return tuple(found[str(number)] for number in range(len(found)))

        weights = in_order("weights")
        if [array.shape for array in weights] != [array.shape for array in self.weights]:
            raise StorageError("The checkpoint is of another model: its weights have other shapes. Remove it.")
        self.seed, self.epoch, self.window = facts["seed"], facts["epoch"], facts["window"]
        self.weights, self.means, self.carried = weights, in_order("means"), those("carried")
        self._sums, self.history = np.array(facts["sums"], np.float64), list(facts["history"])
        measured = len(self.history) if facts["best_epoch"] else 0
        self.best.resume(facts["best_epoch"], facts["best_value"] or 0.0, measured, in_order("best"))
