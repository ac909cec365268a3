"""Ranking models that learn from rows which do not fit in memory: window by window, to go on after a kill."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.errors import DataError, StorageError
from visterm.core.progress import SILENT, Progress
from visterm.core.threads import Team, one_blas_thread, resolve_jobs
from visterm.core.types import Matrix
from visterm.models.epochs import EpochSums, Floats, Validation, Weights
from visterm.models.ranking.base import RankingAnnotator, RankingCourse, Setup, positive_tags
from visterm.models.stopping import OnEpoch


class Windows(Protocol):
    """Rows to learn from in windows of bounded size: some go together, and each epoch has its own order of them."""

    n_features: int
    n_tags: int
    n_pairs: int  # Tags that all images have together
    mean_length: float  # Root of the mean squared length of the rows

    def epoch(self, epoch: int, first: int = 0) -> Generator[tuple[Matrix, sp.csr_array]]:
        """Yield features and tags of the windows of an epoch (counted from 1) in its order, from number `first` on.

        What is yielded may be written over by the next.
        """


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


class StreamedFit(RankingAnnotator):
    """Makes a ranking model learn from `Windows`, too: stands behind its kind of scorer among the bases."""

    def fit_stream(
        self,
        windows: Windows,
        *,
        valid: tuple[Any, Any] | None = None,
        checkpoints: Checkpoints | None = None,
        monitor: Progress | None = None,
        on_epoch: OnEpoch | None = None,
    ) -> Self:
        """Learn from rows that come in windows; a second call forgets the first.

        Each window is gone through as `fit` goes through all rows: its pairs in random order, in blocks. The weights,
        the sums of squares of "adagrad" and what is known of how many draws are needed go on from one window to the
        next. The bytes depend on the windows and on `random_state`, not on `n_jobs` or on where training was cut off
        and went on. No rows are held out of `windows`: `valid` are others, to stop by.

        Training goes on from the last of the checkpoints, and offers one after each window, and after each epoch before
        `on_epoch` is called (as in `fit`).

        Raises DataError if no image has a tag; DivergedError if training ends in infinity or NaN.
        """
        stands_for_all = np.zeros((1, windows.n_features), np.float32)
        stands_for_all[0, 0] = windows.mean_length
        no_tags = sp.csr_array((1, windows.n_tags), dtype=np.float32)
        with self._fitting(stands_for_all, no_tags, valid) as (X, _, rng, valid):
            self.check_settings()
            if windows.n_pairs == 0:
                raise DataError("No image has a tag (Y has no value above 0), so there is nothing to learn.")
            self._scale_features(X)
            self.n_held_out_, self._held_out = 0, None
            seed = int(rng.integers(2**62))
            course = _StreamedCourse(seed, self._start(X, windows.n_tags, rng), self.patience)
            last = None if checkpoints is None else checkpoints.last()
            if last is not None:
                course.go_on(last)
            if valid is not None:
                course.growth = self._growth
            self._train_streamed(course, windows, valid, checkpoints, monitor or SILENT, on_epoch)
        return self

    def _train_streamed(
        self,
        course: _StreamedCourse,
        windows: Windows,
        valid: Validation | None,
        checkpoints: Checkpoints | None,
        monitor: Progress,
        on_epoch: OnEpoch | None,
    ) -> None:
        """Run epochs over windows, from where the course is; see `_run_epochs`."""

        def keep() -> None:
            if checkpoints is not None:
                checkpoints.offer(course.checkpoint)

        def run_epoch(rate: float) -> EpochSums:
            """Go through the windows that are left of the epoch."""
            with closing(windows.epoch(course.epoch, course.window)) as parts:
                for X, Y in parts:
                    self._train_window(course, X, positive_tags(Y), rate, windows, team)
                    course.window += 1
                    monitor.advance(1, f"epoch {course.epoch}")
                    keep()
            return course.mean_sums()

        self._publish(*course.means)
        begun = course.epoch > 1 or course.window > 0
        task = f"train windows, from epoch {course.epoch} on" if begun else "train windows"
        with one_blas_thread(), Team(resolve_jobs(self.n_jobs)) as team:
            publish = self._publisher(course, team)
            self._run_epochs(
                course, self.epochs, run_epoch, publish, self._measure(valid),
                monitor=monitor, on_epoch=on_epoch, task=task, steps=0, keep=keep,
            )  # fmt: skip

    def _train_window(
        self, course: _StreamedCourse, X: Matrix, positives: sp.csr_array, rate: float, windows: Windows, team: Team
    ) -> None:
        """Go once over the pairs of a window; what the next one goes on with is left in the course."""
        if not positives.nnz:
            return
        rng = np.random.default_rng([course.seed, course.epoch, course.window])
        # Blocks as if all windows were one, but of no more than half a window's rows: they are copied together.
        from visterm.models.ranking.warp import LARGEST_TAG_BLOCK, block_for

        block = min(block_for(windows.n_pairs, windows.n_tags), max(LARGEST_TAG_BLOCK, X.shape[0] // 2))
        training: Any = self._training(X, positives, course.weights, Setup(rng, team, True, block))
        training.go_on(course.carried)
        training.growth = course.growth(course.epoch)
        course.add(training.run_epoch(rate), positives.nnz)
        course.carried = training.carried()


class _StreamedCourse(RankingCourse):
    """How far a streamed training has come: what a checkpoint keeps.

    `window` is the next one of the epoch; `carried` is what one window's training hands to the next.
    """

    def __init__(self, seed: int, weights: Weights, patience: int) -> None:
        super().__init__(weights, patience)
        self.seed, self.window = seed, 0
        self._sums = np.zeros(4)

    def add(self, sums: EpochSums, n_pairs: int) -> None:
        """Count what the training on one window did."""
        self._sums += [sums.loss * n_pairs, sums.draws * n_pairs, sums.violated * n_pairs, n_pairs]

    def mean_sums(self) -> EpochSums:
        """Return what the epoch did so far, as means over its pairs."""
        return EpochSums(*(float(value) for value in self._sums[:3] / max(1.0, self._sums[3])))

    def end_epoch(self) -> None:
        """Go on to the first window of the next epoch."""
        super().end_epoch()
        self.window, self._sums = 0, np.zeros(4)

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
