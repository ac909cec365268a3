"""What all ranking models share: training on pairs, in memory or from disk, and rows for new tags."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import all_finite, as_generator, check_count, check_tags
from visterm.core.errors import DataError, DivergedError, ShapeError
from visterm.core.estimator import check_fitted
from visterm.core.progress import SILENT, Progress
from visterm.core.threads import Team, one_blas_thread, resolve_jobs
from visterm.core.types import Matrix
from visterm.models.base import Limit
from visterm.models.epochs import EpochAnnotator, Floats, Measure, Validation, Weights, epoch_record
from visterm.models.ranking.schedules import FixedSchedule, OpenSchedule
from visterm.models.ranking.sources import (
    RankingState,
    Source,
    Training,
    TrainingContext,
    Windows,
    block_for,
    from_memory,
    from_windows,
    positive_tags,
)
from visterm.models.stopping import OnEpoch, finds_length, hold_out

Images: TypeAlias = NDArray[np.int64]

MIX_ROWS = 4096  # Rows of weights that one thread averages at a time


@dataclass(kw_only=True, eq=False, repr=False)
class PairRanker(EpochAnnotator):
    """Learns by going over pairs of images and their tags; a new model writes the hooks, or only an objective.

    Attributes
    ----------
    tag_rows_ : ndarray of float32, shape (n_tags, width)
    n_epochs_ : int
        Epochs that the weights stem from, those of `partial_fit` included.
    history_ : list of dict
        For each epoch: ``epoch``, ``loss`` (mean over the pairs), ``map`` (over the validation images, None without),
        ``draws`` (mean number a pair), ``violated`` (share of the pairs that made a step) and ``seconds``.
    """

    average: int = 20

    limits: ClassVar[dict[str, Limit]] = {"average": check_count}

    def partial_fit(self, X: Any, Y: Any, *, images: bool = True) -> Self:
        """Go once over more images and their tags, from the weights as they are (from start values, the first time).

        Parameters
        ----------
        X : array-like or sparse, shape (n_images, n_features)
        Y : array-like or sparse, shape (n_images, n_tags)
            The tags that the model knows; `add_tags` brings new ones.
        images : bool
            False moves the tags' rows only, so that image rows in a catalogue stay valid.

        Raises ShapeError if `Y` has another number of tags than the model; DivergedError if a weight becomes infinite
        or NaN, and the model then stays as it was.
        """
        self.check_settings()
        known = hasattr(self, "n_epochs_")
        X = self._check_features(X, reset=not known)
        Y = check_tags(Y, X.shape[0])
        if known and Y.shape[1] != self.n_tags_:
            raise ShapeError(
                f"Y has {Y.shape[1]} tags, but this model knows {self.n_tags_}. Bring new tags with add_tags(X, Y_new)."
            )
        positives = self._positives(Y)
        n_before = self.n_epochs_ if known else 0
        rng = np.random.default_rng([int(as_generator(self.random_state).integers(2**63)), n_before])
        if not known:
            self.n_tags_ = Y.shape[1]
            self._scale_features(X)
            self.history_ = []
        weights = self._resume() if known else self._start(X, positives.shape[1], rng)
        start = time.perf_counter()

        with one_blas_thread(), Team(resolve_jobs(self.n_jobs)) as team:
            context = TrainingContext(rng, team, images, block_for(positives.nnz, positives.shape[1]))
            training = self._training(X, positives, weights, context)
            training.growth = self._schedule.reached(self, weights)
            sums = training.run_epoch(self._rate())
        if not all(all_finite(array) for array in weights):
            raise DivergedError(
                f"A weight of {type(self).__name__} became infinite or NaN; the model stays as it was. Lower the size "
                "of the steps, or scale the features to unit length."
            )
        self._publish(*weights, images=images)
        self.n_epochs_ = n_before + 1
        self.history_ = [*self.history_, epoch_record(n_before + 1, sums._asdict(), self._measured(None), start)]
        return self

    def fit_stream(
        self,
        windows: Windows,
        *,
        valid: tuple[Any, Any] | None = None,
        checkpoints: Any = None,
        monitor: Progress | None = None,
        on_epoch: OnEpoch | None = None,
    ) -> Self:
        """Learn from rows that come in windows; a second call forgets the first.

        Each window is gone through as `fit` goes through all rows: its pairs in random order, in blocks. The weights,
        the sums of squares of "adagrad" and what is known of how many draws are needed go on from one window to the
        next. The bytes depend on the windows and on `random_state`, not on `n_jobs` or on where training was cut off
        and went on. No rows are held out of `windows`: `valid` are others, to stop by.

        Training goes on from ``checkpoints.last()``, a `Checkpoint` or None, and calls ``checkpoints.offer(make)``
        after each window, and after each epoch before `on_epoch` is called (as in `fit`): ``make()`` returns one.

        Raises DataError if no image has a tag; DivergedError if training ends in infinity or NaN.
        """
        stands_for_all = np.zeros((1, windows.n_features), np.float32)
        stands_for_all[0, 0] = windows.mean_length
        no_tags = sp.csr_array((1, windows.n_tags), dtype=np.float32)
        monitor = monitor or SILENT
        with self._fitting(stands_for_all, no_tags, valid) as (X, _, rng, valid):
            self.check_settings()
            if windows.n_pairs == 0:
                raise DataError("No image has a tag (Y has no value above 0), so there is nothing to learn.")
            self._scale_features(X)
            self.n_held_out_, self._held_out = 0, None
            seed = int(rng.integers(2**62))
            state = RankingState(self._start(X, windows.n_tags, rng), self.patience, seed)
            last = None if checkpoints is None else checkpoints.last()
            if last is not None:
                state.resume(last)
            if valid is not None:
                state.growth = self._schedule.growth

            def keep() -> None:
                if checkpoints is not None:
                    checkpoints.offer(state.checkpoint)

            begun = state.epoch > 1 or state.window > 0
            task = f"train windows, from epoch {state.epoch} on" if begun else "train windows"
            source = from_windows(self, windows, state, monitor, keep)
            self._train(
                state, self.epochs, source, self._measure_map(valid),
                monitor=monitor, on_epoch=on_epoch, task=task, steps=0, keep=keep,
            )  # fmt: skip
        return self

    def add_tags(self, X: Any, Y_new: Any) -> Self:
        """Learn the rows of new tags, and leave all else as it is, to the bit.

        Each new tag is taught to score a margin above the place of a good tag (see `learn_new_tags`) on the images that
        have it, and a margin below on others, drawn among those that have not.

        Parameters
        ----------
        X : array-like or sparse, shape (n_images, n_features)
        Y_new : array-like or sparse, shape (n_images, n_new)
            Above 0: the image has the new tag. New tags follow the old ones.
        """
        from visterm.models.ranking.new_tags import learn_new_tags

        check_fitted(self)
        X = self._check_features(X)
        positives = positive_tags(check_tags(Y_new, X.shape[0]))
        rng = as_generator(self.random_state)
        with one_blas_thread(), Team(resolve_jobs(self.n_jobs)) as team:
            rows = learn_new_tags(self._image_rows(X), self.tag_rows_, positives, rng, team)
        self.tag_rows_ = np.concatenate([self.tag_rows_, rows])
        self.n_tags_ += len(rows)
        return self

    @abstractmethod
    def _scale_features(self, X: Matrix) -> None:
        """Set what depends on the size of the training features."""

    @abstractmethod
    def _start(self, X: Matrix, n_tags: int, rng: np.random.Generator) -> Weights:
        """Return start values."""

    @abstractmethod
    def _resume(self) -> Weights:
        """Return copies of the learned weights, as training takes them."""

    @abstractmethod
    def _publish(self, *weights: Floats, images: bool = True) -> None:
        """Set the learned attributes; `images` is False where stored image rows must stay valid."""

    @abstractmethod
    def _training(self, X: Matrix, positives: sp.csr_array, weights: Weights, context: TrainingContext) -> Training:
        """Make the training that changes these weights."""

    def _fit_monitored(
        self,
        X: Matrix,
        Y: sp.csr_array,
        rng: np.random.Generator,
        valid: Validation | None,
        monitor: Progress,
        on_epoch: OnEpoch | None,
    ) -> None:
        self.check_settings()
        positives = self._positives(Y)
        if positives.nnz == 0:
            raise DataError("No image has a tag (Y has no value above 0), so there is nothing to learn.")
        self._scale_features(X)
        for each in self._schedule.passes(self, X, positives, valid, rng):
            source = from_memory(self, each, rng)
            self._train(each.state, each.epochs, source, each.measure, monitor=monitor, on_epoch=on_epoch)
            del each, source  # the next training needs their memory

    def _train(self, state: RankingState, epochs: int, source: Source, measure: Measure | None, **how: Any) -> None:
        """Run epochs over a source of pairs, and publish the running means of the weights; see `_run_epochs`."""
        self._publish(*state.means)
        with one_blas_thread(), Team(resolve_jobs(self.n_jobs)) as team:

            def publish() -> Weights:
                share = 1 / min(state.mixed + state.epoch, self.average)
                finite = mix_means(state.means, state.weights, share, team)
                self._publish(*state.means)
                if not finite:
                    self._refuse_non_finite()
                return state.means

            self._run_epochs(state, epochs, source(team), publish, measure, **how)

    @property
    def _schedule(self) -> FixedSchedule | OpenSchedule:
        return OpenSchedule() if finds_length(self) else FixedSchedule()

    def _positives(self, Y: sp.csr_array) -> sp.csr_array:
        """Return the tags that images have as ones, and as stored zeros those that are neither right nor wrong."""
        return positive_tags(Y)

    def _trainings(
        self, n_images: int, valid: object | None, rng: np.random.Generator
    ) -> Iterator[tuple[Images | None, Images | None, int]]:
        """Yield what to learn from (None: all images), what was held out to stop by, and how many epochs at most.

        Without validation images that is two trainings: on some images, stopped by the others, then on all for as many
        epochs as were best, of which the history says nothing.
        """
        self.n_held_out_, self._held_out = 0, None
        if valid is None:
            some, held_out = hold_out(n_images, self.share_to_hold_out, rng)
            self.n_held_out_ = held_out.size
        if not self.n_held_out_:
            yield None, None, self.epochs
            return
        yield some, held_out, self.epochs
        history = self.history_
        yield None, None, self.n_epochs_
        self.history_ = history


def mix_means(means: Weights, weights: Weights, share: float, team: Team) -> bool:
    """Move running means towards the weights; say whether they are finite."""
    from visterm.kernels.row_moves import mix_rows

    finite = True
    for mean, current in zip(means, weights, strict=True):
        n_parts = -(-len(mean) // MIX_ROWS)

        def part(number: int, mean: Floats = mean, current: Floats = current) -> bool:
            first = number * MIX_ROWS
            return bool(mix_rows(mean, current, share, first, min(first + MIX_ROWS, len(mean))))

        finite &= all(team.run(part, n_parts))
    return finite
