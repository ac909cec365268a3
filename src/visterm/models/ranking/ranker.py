"""Base class of the ranking models: training in memory or from disk, and rows for new tags."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import ClassVar, Self, TypeAlias

import numpy as np
import scipy.sparse as sp

from visterm.core.checks import all_finite, as_generator, check_count, check_tags
from visterm.core.errors import DataError, DivergedError, ShapeError
from visterm.core.progress import SILENT, Progress
from visterm.core.threads import Team, one_blas_thread, resolve_jobs
from visterm.core.types import Floats, Ints, Matrix, MatrixLike
from visterm.data.tag_queries import hold_one_out
from visterm.kernels.row_moves import mix_rows
from visterm.models.base import Limit
from visterm.models.epochs import EpochAnnotator, EpochSums, Measure, Weights, epoch_record
from visterm.models.ranking.training import (
    MAX_TAG_BLOCK,
    FileCheckpoints,
    RankingState,
    Training,
    TrainingContext,
    Windows,
    block_for,
    fit_new_tags,
    positive_tags,
)
from visterm.models.stopping import MIN_HELD_OUT, HeldOutFit, Judged, OnEpoch, Watch, hold_out

Images: TypeAlias = Ints
Train: TypeAlias = Callable[[Matrix, sp.csr_array, RankingState, int, Measure | None], None]

MIX_ROWS = 4096  # Number of weight rows that a thread averages at a time

DOUBLING_EPOCHS = 30
"""Number of epochs in which `max_norm` doubles. With few tags per image, values a little above the start are best,
with many tags nearly twice the start. Many tags on images known only by number rank far worse if it is constant."""

FINISH_EPOCHS = 4  # Final epochs on all rows: a second training from the start would take many times as long
BEST_WEIGHTS_EPOCHS = 2  # The best weights count as this many epochs in the running mean of the final epochs
MAX_HELD_OUT_TAGS = 2000  # Tags of images known by number: enough to see a difference of 0.01 in MAP, and fast to rank


@dataclass(kw_only=True, eq=False, repr=False)
class PairRanker(EpochAnnotator):
    """Learns from pairs of an image and one of its tags; a new model implements the hooks, or only an objective.

    Attributes
    ----------
    tag_rows_ : ndarray of float32, shape (n_tags, width)
    n_epochs_ : int
        Number of epochs behind the weights, including those of `partial_fit`.
    history_ : list of dict
        For each epoch: ``epoch``, ``loss`` (mean over the pairs), ``map`` (over the validation images, None without),
        ``draws`` (mean number per pair), ``violated`` (share of the pairs that made a step) and ``seconds``.
    """

    average: int = 20

    limits: ClassVar[dict[str, Limit]] = {"average": check_count}

    def partial_fit(self, X: MatrixLike, Y: MatrixLike, *, images: bool = True) -> Self:
        """Train for one epoch on more images and their tags, from the current weights or, without any, start values.

        Parameters
        ----------
        X : array-like or sparse, shape (n_images, n_features)
        Y : array-like or sparse, shape (n_images, n_tags)
            Columns are the tags that the model knows; `add_tags` adds new tags.
        images : bool
            If False, only the tag rows change, and image rows in a catalogue stay valid.

        Raises ShapeError if `Y` and the model have different numbers of tags; DivergedError if a weight becomes
        infinite or NaN: the model is then unchanged.
        """
        self.check_settings()
        is_fitted = hasattr(self, "n_epochs_")
        X = self._check_features(X, reset=not is_fitted)
        Y = check_tags(Y, X.shape[0])
        if is_fitted and Y.shape[1] != self.n_tags_:
            raise ShapeError(
                f"Y has {Y.shape[1]} tags, but this model knows {self.n_tags_}. Add new tags with add_tags(X, Y_new)."
            )

        positives = self._positives(Y)
        n_epochs = self.n_epochs_ if is_fitted else 0
        rng = np.random.default_rng([int(as_generator(self.random_state).integers(2**63)), n_epochs])
        if not is_fitted:
            self.n_tags_ = Y.shape[1]
            self._scale_features(X)
            self.history_ = []
        weights = self._resume() if is_fitted else self._start(X, positives.shape[1], rng)
        began = time.perf_counter()

        with one_blas_thread(), Team(resolve_jobs(self.n_jobs)) as team:
            context = TrainingContext(rng, team, images, block_for(positives.nnz, positives.shape[1]))
            training = self._training(X, positives, weights, context)
            training.growth = self._norm_growth(weights)
            sums = training.run_epoch(self._rate())

        if not all(all_finite(array) for array in weights):
            raise DivergedError(
                f"A weight of {type(self).__name__} became infinite or NaN; the model stays as it was. Lower the size "
                "of the steps, or scale the features to unit length."
            )
        self._publish(*weights, images=images)
        self.n_epochs_ = n_epochs + 1
        self.history_ = [*self.history_, epoch_record(n_epochs + 1, sums._asdict(), self._measured(None)[0], began)]
        return self

    def fit_stream(
        self,
        windows: Windows,
        *,
        valid: tuple[MatrixLike, MatrixLike] | None = None,
        checkpoints: FileCheckpoints | None = None,
        monitor: Progress | None = None,
        on_epoch: OnEpoch | None = None,
    ) -> Self:
        """Learn from rows that come in windows, from the start each time it is called.

        Training visits the pairs of a window in random order, in blocks, as `fit` does with all rows. The weights, the
        sums of squares of "adagrad" and the methods of drawing are passed on to the next window. The bytes depend on
        the windows and on `random_state`, but not on `n_jobs` or on where training was interrupted and resumed. No rows
        of `windows` are held out: `valid` are separate rows for early stopping.

        Training resumes from ``checkpoints.last()``, a `Checkpoint` or None, and calls ``checkpoints.offer(make)``
        after each window, and after each epoch before `on_epoch`: ``make()`` returns a `Checkpoint`.

        Raises DataError if no image has a tag; DivergedError if training ends in infinity or NaN.
        """
        typical_row = np.zeros((1, windows.n_features), np.float32)
        typical_row[0, 0] = windows.mean_length
        no_tags = sp.csr_array((1, windows.n_tags), dtype=np.float32)
        monitor = monitor or SILENT
        with self._fitting(typical_row, no_tags, valid) as (X, _, rng, valid):
            self.check_settings()
            if windows.n_pairs == 0:
                raise DataError("No image has a tag (Y has no value above 0), so there is nothing to learn.")
            self._scale_features(X)
            self.n_held_out_ = 0
            seed = int(rng.integers(2**62))
            state = RankingState(weights=self._start(X, windows.n_tags, rng), seed=seed)
            checkpoint = None if checkpoints is None else checkpoints.last()
            if checkpoint is not None:
                state.resume(checkpoint)
                self._publish(*state.means)
            if valid is not None and self.chooses_epochs:
                state.doubling_epochs = DOUBLING_EPOCHS

            def offer_checkpoint() -> None:
                if checkpoints is not None:
                    checkpoints.offer(state.checkpoint)

            has_begun = state.epoch > 1 or state.window > 0
            task = f"train windows, from epoch {state.epoch} on" if has_begun else "train windows"
            with one_blas_thread(), Team(resolve_jobs(self.n_jobs)) as team:

                def run_epoch(rate: float) -> None:
                    self._visit_windows(windows, state, team, monitor, offer_checkpoint, rate)
                    self._publish_means(state, team)

                self._epochs(
                    state, self.epochs, self._measure_map(valid), run_epoch,
                    watch=Watch(monitor, on_epoch), task=task, steps=0, after_epoch=offer_checkpoint,
                )  # fmt: skip
        return self

    def add_tags(self, X: MatrixLike, Y_new: MatrixLike) -> Self:
        """Fit the rows of new tags in closed form (see `fit_new_tags`), and leave everything else unchanged.

        Parameters
        ----------
        X : array-like or sparse, shape (n_images, n_features)
        Y_new : array-like or sparse, shape (n_images, n_new)
            Above 0: the image has the new tag. New tags are appended to the model's tags.
        """
        X = self._check_features(X)
        positives = positive_tags(check_tags(Y_new, X.shape[0]))
        with one_blas_thread():
            rows = fit_new_tags(self._image_rows(X), self.tag_rows_, positives)
        self.tag_rows_ = np.concatenate([self.tag_rows_, rows])
        self.n_tags_ += len(rows)
        return self

    @abstractmethod
    def _scale_features(self, X: Matrix) -> None:
        """Set the learned attributes that depend on the scale of the training features."""

    @abstractmethod
    def _start(self, X: Matrix, n_tags: int, rng: np.random.Generator) -> Weights:
        """Return start values."""

    @abstractmethod
    def _resume(self) -> Weights:
        """Return copies of the learned weights, in the form that training needs."""

    @abstractmethod
    def _publish(self, *weights: Floats, images: bool = True) -> None:
        """Set the learned attributes; `images` is False if stored image rows must stay valid."""

    def _ridge_state(
        self, state: RankingState, X: Matrix, positives: sp.csr_array, fresh: Matrix, rng: np.random.Generator
    ) -> RankingState:
        """Return a state with start values from ridge regression; by default, `state`, which has random ones.

        `fresh` are features of other images, to scale the scores.
        """
        return state

    def _norm_growth(self, weights: Weights) -> float:
        """Return the factor of `max_norm` that training needs to continue from learned weights."""
        return 1.0

    @abstractmethod
    def _training(self, X: Matrix, positives: sp.csr_array, weights: Weights, context: TrainingContext) -> Training:
        """Make the training that changes `weights`."""

    def _fit_monitored(self, X: Matrix, Y: sp.csr_array, rng: np.random.Generator, valid: Judged, watch: Watch) -> None:
        self.check_settings()
        positives = self._positives(Y)
        if positives.nnz == 0:
            raise DataError("No image has a tag (Y has no value above 0), so there is nothing to learn.")
        self._scale_features(X)
        fit = self._fit_open if self.chooses_epochs else self._fit_fixed
        fit(X, positives, valid, rng, self._trainer(rng, watch))

    def finish(self, X: Matrix, Y: sp.csr_array, *, monitor: Progress) -> None:
        """Continue the last training from its best weights, on all images, see `FinishesFits`.

        With a fixed schedule, train from the start for the best number of epochs.
        """
        rng, positives = as_generator(self.random_state), self._positives(Y)
        train = self._trainer(rng, Watch(monitor))
        if self._unfinished is not None:
            self._finish(X, positives, self._unfinished, train)
        else:
            train(X, positives, RankingState(weights=self._start(X, positives.shape[1], rng)), self.n_epochs_, None)
        self._unfinished = None

    def _trainer(self, rng: np.random.Generator, watch: Watch) -> Train:
        """Return a function that trains on rows and tags, from a state."""

        def train(X: Matrix, tags: sp.csr_array, state: RankingState, epochs: int, measure: Measure | None) -> None:
            with one_blas_thread(), Team(resolve_jobs(self.n_jobs)) as team:
                context = TrainingContext(rng, team, True, block_for(tags.nnz, tags.shape[1]))
                training = self._training(X, tags, state.weights, context)
                if state.training_state:
                    training.load_state(state.training_state)
                self._train(training, state, epochs, measure, team, watch)

        return train

    def _train(
        self, training: Training, state: RankingState, epochs: int, measure: Measure | None, team: Team, watch: Watch
    ) -> None:
        def run_epoch(rate: float) -> None:
            training.growth = state.growth_in(state.epoch)
            state.means_of_epoch = training.run_epoch(rate * state.rate)._asdict()
            state.training_state = training.state()
            self._publish_means(state, team)

        self._epochs(state, epochs, measure, run_epoch, watch=watch)

    def _fit_fixed(self, X: Matrix, given: sp.csr_array, valid: Judged, rng: np.random.Generator, train: Train) -> None:
        """Train on a part of the images, which held-out images stop, then on all images from the start.

        With validation images there is one training, on all images.
        """
        for training_ids, held_out, epochs in self._trainings(X.shape[0], valid, rng):
            rows, tags = (X, given) if training_ids is None else (X[training_ids], given[training_ids])
            state = RankingState(weights=self._start(X, given.shape[1], rng))
            measure = self._measure_map(valid if held_out is None else (X[held_out], given[held_out]))
            train(rows, tags, state, epochs, measure)
            del state  # the next training needs its memory
            if held_out is not None:
                self._held_out = HeldOutFit(held_out, self._image_rows(X[held_out]), self.tag_rows_)

    def _trainings(
        self, n_images: int, valid: object | None, rng: np.random.Generator
    ) -> Iterator[tuple[Images | None, Images | None, int]]:
        """Yield the training images (None: all images), the held-out images and the maximum number of epochs.

        Without validation images there are two trainings: on a part of the images, until held-out images stop it, then
        on all images for the best number of epochs; `history_` is that of the first training.
        """
        training_ids, held_out = hold_out(n_images, self.share_to_hold_out if valid is None else 0.0, rng)
        self.n_held_out_ = held_out.size
        if not self.n_held_out_:
            yield None, None, self.epochs
            return
        yield training_ids, held_out, self.epochs
        history = self.history_
        yield None, None, self.n_epochs_
        self.history_ = history

    def _fit_open(self, X: Matrix, given: sp.csr_array, valid: Judged, rng: np.random.Generator, train: Train) -> None:
        """Fit, and choose the number of epochs.

        `Wsabie` describes the method and its defaults, which were chosen on held-out rows of photos (visterms, blobs
        and features of a network), of texts and of images known only by number.
        """
        X_train, tags, validation, held_out = X, given, valid, np.empty(0, np.int64)
        by_number = getattr(self, "by_number_", False)
        self.n_held_out_ = 0
        if valid is None and by_number:
            n_with_several = np.count_nonzero(np.diff(given.indptr) > 1)
            n_held_out = min(MAX_HELD_OUT_TAGS, round(self.share_to_hold_out * X.shape[0]), int(n_with_several))
            if n_held_out >= MIN_HELD_OUT:
                tags, images, held_out_tags, _ = hold_one_out(given, rng, at_most=n_held_out)
                validation, self.n_held_out_ = (X[images], held_out_tags), n_held_out
        elif valid is None:
            training_ids, held_out = hold_out(X.shape[0], self.share_to_hold_out, rng)
            if held_out.size:
                X_train, tags, self.n_held_out_ = X[training_ids], given[training_ids], held_out.size
                validation = X[held_out], given[held_out]

        known = sp.csr_array(validation[0] @ tags) if validation is not None and by_number else None
        state = RankingState(weights=self._start(X, given.shape[1], rng))
        measure = self._measure_map(validation, known=known)
        if measure is not None and validation is not None:
            if not by_number:
                state = self._ridge_state(state, X_train, tags, self._check_features(validation[0]), rng)
            state.doubling_epochs = DOUBLING_EPOCHS
        train(X_train, tags, state, self.epochs, measure)
        if held_out.size:
            self._finish(X_train, tags, state, train)
            self._held_out = HeldOutFit(held_out, self._image_rows(X[held_out]), self.tag_rows_)

        if self.n_held_out_:
            self._finish(X, given, state, train)
        elif measure is not None:
            self._unfinished = state

    def _finish(self, X: Matrix, positives: sp.csr_array, previous: RankingState, train: Train) -> None:
        """Continue from the best weights on the given rows; `history_` stays that of the previous training."""
        best_epoch = self.n_epochs_
        first_in_mean = max(1, best_epoch - self.average + 1)  # the earliest epoch in the mean of the best weights
        state = RankingState(
            weights=tuple(rows.copy() for rows in previous.best_weights or previous.means),
            growth=previous.growth_in(first_in_mean), rate=previous.rate, training_state=previous.training_state,
            slowing=FINISH_EPOCHS, mean_epochs=BEST_WEIGHTS_EPOCHS,
        )  # fmt: skip
        train(X, positives, state, FINISH_EPOCHS, None)
        self.n_epochs_, self.history_ = best_epoch, previous.history

    def _visit_windows(
        self,
        windows: Windows,
        state: RankingState,
        team: Team,
        monitor: Progress,
        offer_checkpoint: Callable[[], None],
        rate: float,
    ) -> None:
        """Train on the remaining windows of an epoch with the learning rate `rate`, and offer a checkpoint after each.

        Each window is a separate training, which continues from the state of the previous training.
        """
        # Blocks have the size for all windows together, but at most half a window's rows, which are copied at once.
        usual_block = block_for(windows.n_pairs, windows.n_tags)
        with closing(windows.epoch(state.epoch, state.window)) as epoch_windows:
            for X, Y in epoch_windows:
                positives = positive_tags(Y)
                if positives.nnz:
                    rng = np.random.default_rng([state.seed, state.epoch, state.window])
                    block = min(usual_block, max(MAX_TAG_BLOCK, X.shape[0] // 2))
                    training = self._training(X, positives, state.weights, TrainingContext(rng, team, True, block))
                    if state.training_state:
                        training.load_state(state.training_state)
                    training.growth = state.growth_in(state.epoch)
                    state.sums += np.array([*training.run_epoch(rate), 1.0]) * positives.nnz
                    state.training_state = training.state()
                state.window += 1
                monitor.advance(1, f"epoch {state.epoch}")
                offer_checkpoint()

        state.means_of_epoch = EpochSums(*(state.sums[:3] / max(1.0, state.sums[3])).tolist())._asdict()
        state.window, state.sums = 0, np.zeros(4)

    def _publish_means(self, state: RankingState, team: Team) -> None:
        """Update the running means of the weights and publish them; raise DivergedError if they are not finite."""
        share = 1 / min(state.mean_epochs + state.epoch, self.average)
        parts = [
            (mean, current, start, min(start + MIX_ROWS, len(mean)))
            for mean, current in zip(state.means, state.weights, strict=True)
            for start in range(0, len(mean), MIX_ROWS)
        ]

        def mix(number: int) -> bool:
            mean, current, start, stop = parts[number]
            return bool(mix_rows(mean, current, share, start, stop))

        is_finite = all(team.run(mix, len(parts)))
        self._publish(*state.means)
        state.published = state.means
        if not is_finite:
            self._refuse_non_finite()

    def _positives(self, Y: sp.csr_array) -> sp.csr_array:
        """Return a matrix with ones for the tags of images, and stored zeros for tags that may be right or wrong."""
        return positive_tags(Y)
