"""What all ranking models share: epochs until the validation measure stops rising, one more pass, and new tags."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Protocol, Self, TypeAlias, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from visterm.core.checks import all_finite, as_generator, check_count, check_number, check_tags
from visterm.core.errors import DataError, DivergedError, ShapeError
from visterm.core.learned import Array, Kind, Listed, Number, Record, Whole
from visterm.core.progress import SILENT, Progress
from visterm.core.threads import Team, one_blas_thread, resolve_jobs
from visterm.core.types import Matrix, RandomState
from visterm.kernels.vectors import mix_rows
from visterm.metrics.ranking import average_precisions
from visterm.models.base import Annotator
from visterm.models.ranking.feature_steps import Floats
from visterm.models.ranking.new_tags import learn_new_tags
from visterm.models.ranking.pair_training import EpochSums, block_for
from visterm.models.ranking.recipe import rate_factor
from visterm.models.stopping import BestWeights, HeldOutFit, OnEpoch, hold_out, says_stop

Validation = tuple[Matrix, sp.csr_array]
Weights = tuple[Floats, ...]
Measure: TypeAlias = Callable[[], float]
Images: TypeAlias = NDArray[np.int64]

Judged = TypeVar("Judged")

HISTORY = Listed(
    Record(
        {
            "epoch": Whole(least=1),
            "loss": Number(),
            "map": Number(or_none=True),
            "seconds": Number(least=0, or_none=True, required=False),
        }
    )
)
"""What the history of a training has of each epoch at least."""

MIX_ROWS = 4096
"""Rows of weights that one thread averages at a time."""


class Training(Protocol):
    """One training under way: it changes the weights that it was given, epoch by epoch."""

    def run_epoch(self, rate: float) -> EpochSums:
        """Visit every example once, with steps of this size."""


class Setup(NamedTuple):
    """What a training is given beside data and weights.

    Attributes
    ----------
    rng : Generator
    team : Team
    images : bool
        Whether weights on the image's side move too; else only those of tags.
    block : int
        Pairs that share one state of the weights, for models that train in blocks and were not told how large.
    """

    rng: np.random.Generator
    team: Team
    images: bool
    block: int


Begin: TypeAlias = Callable[[Weights, Team], Training]
"""Begins a training that changes the given weights."""


class RankingAnnotator(Annotator):
    """Learns by going over pairs of images and their tags; a new model writes the four hooks, or only a recipe.

    Attributes
    ----------
    tag_rows_ : ndarray of float32, shape (n_tags, width)
    n_epochs_ : int
        Epochs that the weights stem from, those of `partial_fit` included.
    n_held_out_ : int
        Images that `fit` held out by itself to choose the number of epochs; 0 where it was given validation rows, or
        where there were too few.
    history_ : list of dict
        For each epoch: ``epoch``, ``loss`` (mean over the pairs), ``map`` (over the validation images, None without),
        ``draws`` (mean number a pair), ``violated`` (share of the pairs that made a step) and ``seconds``.
    """

    epochs: int
    average: int
    patience: int
    valid_share: float
    schedule: str
    n_jobs: int | None
    random_state: RandomState

    tag_rows_: Floats
    n_epochs_: int
    n_held_out_: int
    history_: list[dict[str, Any]]

    learned: ClassVar[dict[str, Kind]] = {
        "tag_rows_": Array("float32", ("n_tags_", "width")),
        "n_epochs_": Whole(),
        "n_held_out_": Whole(required=False),
        "history_": HISTORY,
    }

    _held_out: HeldOutFit | None = None

    # -- what callers use beside the contract of every model ----------------------------------------------------------

    def partial_fit(self, X: Any, Y: Any, *, images: bool = True) -> Self:
        """Go once over more images and their tags, from the weights as they are (from start values, the first time).

        Parameters
        ----------
        X : array-like or sparse, shape (n_images, n_features)
        Y : array-like or sparse, shape (n_images, n_tags)
            The tags that the model knows; `add_tags` brings new ones.
        images : bool
            False moves the tags' rows only, so that image rows in a catalogue stay valid.

        Returns
        -------
        RankingAnnotator
            The model itself, with one more entry in its history.

        Raises
        ------
        ShapeError
            If `Y` has another number of tags than the model.
        DivergedError
            If a weight becomes infinite or NaN; the model then stays as it was.
        """
        self._check_settings()
        known = hasattr(self, "n_epochs_")
        X = self._check_features(X, reset=not known)
        Y = check_tags(Y, X.shape[0])
        if known and Y.shape[1] != self.n_tags_:
            raise ShapeError(
                f"Y has {Y.shape[1]} tags, but this model knows {self.n_tags_}. Bring new tags with add_tags(X, Y_new)."
            )
        own = own_tags(Y)
        n_before = self.n_epochs_ if known else 0
        rng = np.random.default_rng([int(as_generator(self.random_state).integers(2**63)), n_before])
        if not known:
            self.n_tags_ = Y.shape[1]
            self._scale_features(X)
            self.history_ = []
        weights = self._resume() if known else self._start(X, own.shape[1], rng)
        start = time.perf_counter()
        with one_blas_thread(), Team(resolve_jobs(self.n_jobs)) as team:
            setup = Setup(rng, team, images, block_for(own.nnz, own.shape[1]))
            sums = self._training(X, own, weights, setup).run_epoch(self._rate())
        if not all(all_finite(array) for array in weights):
            raise DivergedError(
                f"A weight of {type(self).__name__} became infinite or NaN; the model stays as it was. Lower the size "
                "of the steps, or scale the features to unit length."
            )
        self._publish(*weights)
        self.n_epochs_ = n_before + 1
        self.history_ = [*self.history_, epoch_entry(n_before + 1, sums, self._measured(None), start)]
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

        Returns
        -------
        RankingAnnotator
            The model itself, which now knows ``n_tags_ + n_new`` tags.
        """
        check_is_fitted(self)
        X = self._check_features(X)
        own = own_tags(check_tags(Y_new, X.shape[0]))
        rng = as_generator(self.random_state)
        with one_blas_thread(), Team(resolve_jobs(self.n_jobs)) as team:
            rows = learn_new_tags(self._image_rows(X), self.tag_rows_, own, rng, team)
        self.tag_rows_ = np.concatenate([self.tag_rows_, rows])
        self.n_tags_ += len(rows)
        return self

    def take_held_out(self) -> HeldOutFit | None:
        """Return how the last `fit` scored the images that it held out, before it learned from all; and forget it.

        None where it held out none, or was asked before.
        """
        taken = self._held_out
        self._held_out = None
        return taken

    # -- what a kind of scorer writes ---------------------------------------------------------------------------------

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
    def _publish(self, *weights: Floats) -> None:
        """Set the learned attributes from weights as training has them; the arrays may be kept."""

    @abstractmethod
    def _training(self, X: Matrix, own: sp.csr_array, weights: Weights, setup: Setup) -> Training:
        """Make the training that changes these weights."""

    @abstractmethod
    def _rate(self) -> float:
        """Return the size of the steps before any schedule."""

    # -- inside -------------------------------------------------------------------------------------------------------

    def _fit(self, X: Matrix, Y: sp.csr_array, rng: np.random.Generator) -> None:
        self._fit_monitored(X, Y, rng, None, SILENT, None)

    def _fit_monitored(
        self,
        X: Matrix,
        Y: sp.csr_array,
        rng: np.random.Generator,
        valid: Validation | None,
        monitor: Progress,
        on_epoch: OnEpoch | None,
    ) -> None:
        self._check_settings()
        own = own_tags(Y)
        if own.nnz == 0:
            raise DataError("No image has a tag (Y has no value above 0), so there is nothing to learn.")
        self._scale_features(X)

        def train(images: Images | None, judged: Validation | None, epochs: int) -> None:
            features, tags = (X, own) if images is None else (X[images], own[images])

            def begin(weights: Weights, team: Team) -> Training:
                setup = Setup(rng, team, True, block_for(tags.nnz, tags.shape[1]))
                return self._training(features, tags, weights, setup)

            self._train(self._start(X, own.shape[1], rng), begin, self._measure(judged), epochs, monitor, on_epoch)

        def keep(_: Images, held: Images) -> HeldOutFit:
            return HeldOutFit(held, self._image_rows(X[held]), self.tag_rows_)

        if valid is None:
            self._train_twice(X.shape[0], rng, lambda held: (X[held], Y[held]), train, keep)
        else:
            self.n_held_out_, self._held_out = 0, None
            train(None, valid, self.epochs)

    def _train_twice(
        self,
        n_images: int,
        rng: np.random.Generator,
        judge: Callable[[Images], Judged],
        train: Callable[[Images | None, Judged | None, int], None],
        keep: Callable[[Images, Images], HeldOutFit],
    ) -> None:
        """Train on some images and stop by those held out, then on all for as many epochs as were best.

        Parameters
        ----------
        n_images : int
        rng : Generator
            Of the choice of images.
        judge : callable
            Makes of the images held out what `train` stops by.
        train : callable
            Takes the images to learn from (None: all), what to stop by (None: nothing) and how many epochs at most.
        keep : callable
            Gives, of the images learned from and those held out, how the first training scores the latter.
        """
        self._held_out = None
        trained, held = hold_out(n_images, self.valid_share, rng)
        self.n_held_out_ = held.size
        if held.size == 0:
            train(None, None, self.epochs)
            return
        train(trained, judge(held), self.epochs)
        self._held_out = keep(trained, held)
        history = self.history_
        train(None, None, self.n_epochs_)
        self.history_ = history

    def _train(
        self,
        weights: Weights,
        begin: Begin,
        measure: Measure | None,
        epochs: int,
        monitor: Progress,
        on_epoch: OnEpoch | None,
    ) -> None:
        """Run epochs from these weights until the measure no longer improves or the callback says "stop".

        The best weights are kept.
        """
        means = tuple(array.copy() for array in weights)
        best = BestWeights(self.patience)
        self.history_ = []
        self._publish(*means)
        monitor.start("train", epochs)
        try:
            with one_blas_thread(), Team(resolve_jobs(self.n_jobs)) as team:
                training = begin(weights, team)
                for epoch in range(1, epochs + 1):
                    start = time.perf_counter()
                    sums = training.run_epoch(self._rate() * rate_factor(self.schedule, epoch, self.epochs))
                    finite = mix_means(means, weights, 1 / min(epoch, self.average), team)
                    self._publish(*means)
                    if not finite:
                        self._refuse_non_finite()
                    found = None if measure is None else measure()
                    entry = epoch_entry(epoch, sums, self._measured(found), start)
                    self.history_.append(entry)
                    note = f"loss {sums.loss:.3f}"
                    if found is not None:
                        best.offer(found, *means)
                        note = self._in_words(found, best.value, best.epoch)
                    monitor.advance(1, note)
                    if says_stop(on_epoch, entry) or (found is not None and best.exhausted):
                        break
        finally:
            monitor.finish()
        self.n_epochs_ = best.epoch or len(self.history_)
        if best.weights:
            self._publish(*best.weights)

    def _measure(self, judged: Validation | None) -> Measure | None:
        """Return what measures the weights as they are on validation images; None where none has a tag."""
        judged = None if judged is None else with_tags(*judged)
        if judged is None:
            return None
        X, Y = judged
        return lambda: float(np.nanmean(average_precisions(self.score_blocks(X), Y)))

    def _measured(self, found: float | None) -> dict[str, float | None]:
        """Return what the history says of a measured value."""
        return {"map": found}

    def _in_words(self, found: float, best: float, best_epoch: int) -> str:
        """Say a measured value, and the best one so far."""
        return f"MAP {found:.3f}, best {best:.3f} after {best_epoch}"

    def _check_settings(self) -> None:
        for name in ("epochs", "average", "patience"):
            check_count(getattr(self, name), name)
        check_number(self.valid_share, "valid_share", least=0, below=1)
        rate_factor(self.schedule, 1, self.epochs)


def with_tags(X: Matrix, Y: sp.csr_array) -> Validation | None:
    """Return the images that have a tag; None where none has."""
    rows = np.flatnonzero(np.diff(sp.csr_array(Y > 0).indptr))
    return (X[rows], Y[rows]) if rows.size else None


def own_tags(Y: sp.csr_array) -> sp.csr_array:
    """Return the tags that images have, as ones."""
    return sp.csr_array(Y > 0, dtype=np.float32)


def mix_means(means: Weights, weights: Weights, share: float, team: Team) -> bool:
    """Move running means towards the weights; say whether they are finite."""
    finite = True
    for mean, current in zip(means, weights, strict=True):
        n_parts = -(-len(mean) // MIX_ROWS)

        def part(number: int, mean: Floats = mean, current: Floats = current) -> bool:
            first = number * MIX_ROWS
            return bool(mix_rows(mean, current, share, first, min(first + MIX_ROWS, len(mean))))

        finite &= all(team.run(part, n_parts))
    return finite


def epoch_entry(epoch: int, sums: EpochSums, measured: dict[str, float | None], start: float) -> dict[str, Any]:
    """Return what the history says of an epoch that began at `start`."""
    return {
        "epoch": epoch,
        "loss": sums.loss,
        **measured,
        "draws": sums.draws,
        "violated": sums.violated,
        "seconds": time.perf_counter() - start,
    }
