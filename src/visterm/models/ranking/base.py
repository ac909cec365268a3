"""What all ranking models share: training on pairs, one more pass over further images, and rows for new tags."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, Self, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import all_finite, as_csr, as_generator, check_count, check_tags
from visterm.core.errors import DataError, DivergedError, ShapeError
from visterm.core.estimator import check_fitted
from visterm.core.progress import Progress
from visterm.core.threads import Team, one_blas_thread, resolve_jobs
from visterm.core.types import Matrix
from visterm.models.base import Limit
from visterm.models.epochs import (
    Course,
    EpochAnnotator,
    EpochSettings,
    EpochSums,
    Floats,
    Measure,
    Validation,
    Weights,
    epoch_record,
)
from visterm.models.stopping import HeldOutFit, OnEpoch, hold_out

Images: TypeAlias = NDArray[np.int64]

MIX_ROWS = 4096  # Rows of weights that one thread averages at a time


class Training(Protocol):
    """One training under way: it changes the weights that it was given, epoch by epoch."""

    def run_epoch(self, rate: float) -> EpochSums:
        """Visit every example once, with steps of this size."""


class Setup(NamedTuple):
    """What a training is given beside data and weights."""

    rng: np.random.Generator
    team: Team
    images: bool  # Whether weights on the image's side move too; else only those of tags
    block: int  # Pairs that share one state of the weights, for models whose `block` is None


class RankingCourse(Course):
    """A course with the weights as training has them, and the running means over the last epochs that are published.

    `growth` is the factor of the longest vectors in an epoch, `mixed` how many epochs the means stand for at the start,
    and `carried` what the training before left.
    """

    def __init__(
        self,
        weights: Weights,
        patience: int,
        *,
        growth: Callable[[int], float] = lambda epoch: 1.0,
        slowing: Callable[[int], float] = lambda epoch: 1.0,
        mixed: int = 0,
    ) -> None:
        super().__init__(patience, slowing)
        self.growth, self.mixed = growth, mixed
        self.carried: dict[str, NDArray[Any]] = {}
        self.weights = weights
        self.means: Weights = tuple(array.copy() for array in weights)


class Stage(NamedTuple):
    """One training of a fit: rows and their tags, how far it has come, how many epochs at most, what it stops by."""

    X: Matrix
    positives: sp.csr_array
    course: RankingCourse
    epochs: int
    measure: Measure | None


@dataclass(kw_only=True, eq=False, repr=False)
class RankingSettings(EpochSettings):
    """The settings of all ranking models; `EmbeddingRanker` describes them."""

    average: int = 20


class RankingAnnotator(RankingSettings, EpochAnnotator):
    """Learns by going over pairs of images and their tags; a new model writes the hooks, or only a recipe.

    Attributes
    ----------
    tag_rows_ : ndarray of float32, shape (n_tags, width)
    n_epochs_ : int
        Epochs that the weights stem from, those of `partial_fit` included.
    n_held_out_ : int
        As in `EpochAnnotator`.
    history_ : list of dict
        For each epoch: ``epoch``, ``loss`` (mean over the pairs), ``map`` (over the validation images, None without),
        ``draws`` (mean number a pair), ``violated`` (share of the pairs that made a step) and ``seconds``.
    """

    scale_: float  # The factor of the features, by `row_length`
    limits: ClassVar[dict[str, Limit]] = {"average": check_count}

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
        from visterm.models.ranking.warp import block_for

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
            setup = Setup(rng, team, images, block_for(positives.nnz, positives.shape[1]))
            training: Any = self._training(X, positives, weights, setup)
            training.growth = self._grown(weights)
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
        from visterm.models.ranking.separate_training import learn_new_tags

        check_fitted(self)
        X = self._check_features(X)
        positives = positive_tags(check_tags(Y_new, X.shape[0]))
        rng = as_generator(self.random_state)
        with one_blas_thread(), Team(resolve_jobs(self.n_jobs)) as team:
            rows = learn_new_tags(self._image_rows(X), self.tag_rows_, positives, rng, team)
        self.tag_rows_ = np.concatenate([self.tag_rows_, rows])
        self.n_tags_ += len(rows)
        return self

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
    def _publish(self, *weights: Floats, images: bool = True) -> None:
        """Set the learned attributes; `images` is False where stored image rows must stay valid."""

    @abstractmethod
    def _training(self, X: Matrix, positives: sp.csr_array, weights: Weights, setup: Setup) -> Training:
        """Make the training that changes these weights."""

    # -- inside -------------------------------------------------------------------------------------------------------

    def _fit_monitored(
        self,
        X: Matrix,
        Y: sp.csr_array,
        rng: np.random.Generator,
        valid: Validation | None,
        monitor: Progress,
        on_epoch: OnEpoch | None,
    ) -> None:
        from visterm.models.ranking.warp import block_for

        self.check_settings()
        positives = self._positives(Y)
        if positives.nnz == 0:
            raise DataError("No image has a tag (Y has no value above 0), so there is nothing to learn.")
        self._scale_features(X)
        for rows, tags, course, epochs, measure in self._stages(X, positives, valid, rng):
            self._publish(*course.means)
            with one_blas_thread(), Team(resolve_jobs(self.n_jobs)) as team:
                setup = Setup(rng, team, True, block_for(tags.nnz, tags.shape[1]))
                training: Any = self._training(rows, tags, course.weights, setup)
                training.go_on(course.carried)

                def grow(training: Any = training, course: RankingCourse = course) -> None:
                    training.growth = course.growth(course.epoch)

                grow()
                self._run_epochs(
                    course, epochs, training.run_epoch, self._publisher(course, team), measure,
                    monitor=monitor, on_epoch=on_epoch, keep=grow,
                )  # fmt: skip
                course.carried = training.carried()
            del course, training, grow  # the next training needs their memory

    def _positives(self, Y: sp.csr_array) -> sp.csr_array:
        """Return the tags that images have as ones, and as stored zeros those that are neither right nor wrong."""
        return positive_tags(Y)

    def _stages(
        self, X: Matrix, positives: sp.csr_array, valid: Validation | None, rng: np.random.Generator
    ) -> Iterator[Stage]:
        """Train on some images, stopped by the others, then on all; with validation images once."""
        for some, held, epochs in self._trainings(X.shape[0], valid, rng):
            features, tags = (X, positives) if some is None else (X[some], positives[some])
            course = RankingCourse(self._start(X, positives.shape[1], rng), self.patience)
            measure = self._measure(valid if held is None else (X[held], positives[held]))
            yield Stage(features, tags, course, epochs, measure)
            del course
            if held is not None:
                self._held_out = HeldOutFit(held, self._image_rows(X[held]), self.tag_rows_)

    def _trainings(
        self, n_images: int, valid: object | None, rng: np.random.Generator
    ) -> Iterator[tuple[Images | None, Images | None, int]]:
        """Yield what to learn from (None: all images), what was held out to stop by, and how many epochs at most.

        Without validation images that is two trainings: on some images, stopped by the others, then on all for as many
        epochs as were best, of which the history says nothing.
        """
        self.n_held_out_, self._held_out = 0, None
        if valid is None:
            some, held = hold_out(n_images, self.share_to_hold_out, rng)
            self.n_held_out_ = held.size
        if not self.n_held_out_:
            yield None, None, self.epochs
            return
        yield some, held, self.epochs
        history = self.history_
        yield None, None, self.n_epochs_
        self.history_ = history

    def _publisher(self, course: RankingCourse, team: Team) -> Callable[[], Weights]:
        """Return what mixes the weights into the running means, and publishes these, after each epoch."""

        def publish() -> Weights:
            finite = mix_means(course.means, course.weights, 1 / min(course.mixed + course.epoch, self.average), team)
            self._publish(*course.means)
            if not finite:
                self._refuse_non_finite()
            return course.means

        return publish

    def _measure(self, judged: Validation | None) -> Measure | None:
        """Return what measures the weights as they are on validation images; None where none has a tag."""
        return self._measure_map(judged)

    def _grown(self, weights: Weights) -> float:
        """Return the factor of the longest vectors that learned weights need."""
        return 1.0

    def _growth(self, epoch: int) -> float:
        """Return the factor of the longest vectors in an epoch of a training that held-out images can stop."""
        return 1.0


def positive_tags(Y: sp.csr_array) -> sp.csr_array:
    """Return the tags that images have, as ones."""
    return sp.csr_array(Y > 0, dtype=np.float32)


def pass_over_children(positives: sp.csr_array, Y: sp.csr_array, tree: NDArray[np.int64]) -> sp.csr_array:
    """Store a zero where an image has a tag and none of those under it: each of these may be right, or wrong.

    `positives` and `Y`, (n_images, n_tags), are ones, and signed as `fit` takes them; what is explicitly not there
    stays wrong. `tree`, (n_pairs, 2), has each tag with each one above it, directly or not.
    """
    n_tags = positives.shape[1]
    ones = np.ones(len(tree), np.float32)
    under = sp.csr_array((ones, (tree[:, 1], tree[:, 0])), shape=(n_tags, n_tags))
    alone = as_csr(positives - positives.multiply(positives @ under.T > 0))
    images, tags = (as_csr(alone @ under > 0) - as_csr(alone @ under > 0).multiply(Y != 0)).nonzero()
    own = positives.tocoo().coords
    values = np.concatenate([np.ones(positives.nnz, np.float32), np.zeros(len(images), np.float32)])
    places = np.concatenate([own[0], images]), np.concatenate([own[1], tags])
    found = sp.csr_array((values, places), shape=positives.shape)
    found.sort_indices()
    return found


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
