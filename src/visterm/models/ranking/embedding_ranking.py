"""Base class of ranking models in a joint space: settings, start values and steps; a model adds its objective."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp

from visterm.core.checks import check_choice, check_count, check_flag, check_number
from visterm.core.errors import DataError
from visterm.core.learned import Array, Kind, Number
from visterm.core.threads import one_blas_thread
from visterm.core.types import Doubles, Floats, Matrix
from visterm.encoders.onnx_graph import GraphSteps
from visterm.kernels.row_moves import limit_norms
from visterm.models.abilities import explain_linear
from visterm.models.base import Limit
from visterm.models.epochs import SCHEDULES, Weights, mean_length
from visterm.models.ranking.image_sides import EmbeddedImages, StepSettings
from visterm.models.ranking.ranker import PairRanker
from visterm.models.ranking.training import RankingState, Training, TrainingContext
from visterm.models.ranking.warp import Objective, PairTraining
from visterm.models.stopping import OPEN

PAIR_LIMITS: dict[str, Limit] = {
    "block": partial(check_count, otherwise="or None to have it chosen"),
    "learning_rate": partial(check_number, above=0),
    "max_norm": partial(check_number, above=0),
    "row_length": partial(check_number, above=0),
    "l2": partial(check_number, least=0),
    "step": partial(check_choice, choices=("sgd", "adagrad")),
    "schedule": partial(check_choice, choices=(*SCHEDULES, OPEN)),
}
"""Limits of the settings of training on pairs."""

DRAW_LIMITS: dict[str, Limit] = {
    "max_trials": partial(check_count, otherwise="or None for the number of candidates"),
    "truncate": check_count,
    "weight": partial(check_choice, choices=("harmonic", "constant", "top", "truncated")),
    "sampler": partial(check_choice, choices=("draws", "pool")),
}
"""Limits of the settings for drawing negatives and for the weight of the estimated rank."""

RIDGE_RATE = 0.1  # Factor of the learning rate with start values from ridge regression
RIDGE_GROWTH = 0.5  # Then vectors may first be half as long as the longest, which belong to rare features
START_ROWS = 16_384  # Number of start rows that are drawn at a time

USUAL_VARIANCE, USUAL_TAGS = 0.5, 100
"""An image's deviation is estimated as if 100 more tags had a variance of 0.5, as is usual with a margin of 1: few tags
give a poor estimate. With the plain deviation of a dozen tags, images were ranked worse than without any."""
ALPHA = 30.0  # Penalty, in units of the mean squared length of the centred rows; training undoes too much of it
SPREAD = 0.7  # Mean deviation of an image's scores, about that of a trained model with a margin of 1
MAX_WEIGHTS = 2**26  # With more weights than this, features times tags, ridge regression would take too much memory
POWER_ITERATIONS = 4


@dataclass(kw_only=True, eq=False, repr=False)
class EmbeddingRanker(PairRanker):
    """A joint embedding of images and tags that is trained on pairs in blocks; a new model writes `_objective`.

    A score is ``(x A) · v_t``: the image features ``x`` are mapped into a space of `dim` numbers and compared with the
    vector of tag t. A block uses the weights at its start to score its pairs and to draw for them. The seed of a draw
    depends on the model's seed, the epoch and the pair, so the weights have the same bytes for any `n_jobs`.

    Parameters
    ----------
    dim : int
        Size of the joint space. More separates rare tags and costs time and memory in proportion.
    learning_rate : float
        Size of the steps. A larger rate learns faster and with more noise, which `average` reduces.
    max_norm : float
        Maximum norm of the vector of a feature or a tag (C in the WSABIE paper). A larger norm allows larger scores
        and more influence of single features: it fits the training images better, and new images only up to a point.
    row_length : float
        One factor scales the features to this length of the training rows (root mean square), so their unit does not
        matter. With a larger length, the vectors of the features learn faster than those of the tags.
    epochs : int
        Maximum number of passes over all pairs.
    average : int
        The learned weights are a running mean over about this many of the last epochs (Polyak averaging), which stays
        within `max_norm`. 1 uses only the last weights, as in the paper.
    patience : int
        Training stops after this many epochs without a better validation MAP; the best weights are kept.
    valid_share : float
        Without validation rows, `fit` holds out this share of the images to find the best number of epochs, then trains
        on all images for that number. With 0, or if fewer than 50 images would be held out, it runs all `epochs`.
    step : str
        "sgd", or "adagrad": the steps of a vector shrink with the sum of its squared gradients.
    schedule : str
        How the learning rate changes over the epochs: "constant", "inverse", "cosine", or "open", see `Wsabie`.
    l2 : float
        Factor of the squared length of the vectors that a step moves (``½ l2 ‖v‖²``).
    init : str
        The start values: "random", as in the papers, or "ridge", the weights of ridge regression (`ridge_factors`), if
        the schedule is "open" and `fit` has features and held-out images; otherwise they are random. From ridge
        regression, the learning rate is a tenth, and `max_norm` grows from half of the longest vector.
    init_scale : float, optional
        Deviation of random start values; None: 1 / √n_features, as in the WSABIE paper.
    bias : float
        An additional coordinate that is the same for all images, which gives each tag a bias. With a larger value, tags
        learn faster how common they are. 0: no bias, as in the paper.
    standardize : bool
        Whether to make the scores of different images comparable, as training compares only tags of the same image: the
        mean over all tags is subtracted, and the result is divided by the deviation, which is estimated as if 100 more
        tags had the usual variance (`standardized`). It doesn't change the ranking of an image's tags, and makes
        searches much better. False: the scores of training, as in the paper.
    block : int, optional
        Number of pairs that use the same weights. More is faster, less is nearer to the paper's single steps. None: the
        number of tags, from 16 to 256, so that few steps of a block change the same tag; with many pairs, a 64th of
        them, up to 4,096.
    n_jobs : int, optional
        Number of threads; None or -1 for all cores.
    random_state : int, RandomState, Generator or None
        Start values, order of the pairs, draws, and held-out images.

    Attributes
    ----------
    image_map_ : ndarray of float32, shape (n_features, dim)
        A (V of the WSABIE paper, transposed): the vector of each feature, times `scale_`.
    tag_rows_ : ndarray of float32, shape (n_tags, dim), with a bias (n_tags, dim + 1)
        V (W of the WSABIE paper, transposed): the vector of each tag; with `standardize`, minus their mean.
    tag_spread_, damping_ : ndarray of float32, shape (width, width), and float
        With `standardize`, they define an image's deviation, see `standardized`: each image row ``u`` is divided by
        ``√(|u · tag_spread_|² + damping_)``. `add_tags`, and `partial_fit` with ``images=False``, don't change them.
    constant_ : float
        The value of the coordinate for `bias` in all image rows.
    scale_ : float
        The factor for `row_length`.
    n_epochs_, history_
        As in `PairRanker`.
    """

    uses_pair_weights: ClassVar[bool] = True

    learned: ClassVar[dict[str, Kind]] = {
        "image_map_": Array("float32", ("n_features_in_", "dim")),
        "tag_rows_": Array("float32", ("n_tags_", "width")),
        "constant_": Number(least=0, required=False),
        "tag_spread_": Array("float32", ("width", "width"), required=False),
        "damping_": Number(above=0, required=False),
        "scale_": Number(above=0),
    }

    limits: ClassVar[dict[str, Limit]] = {
        "dim": check_count,
        **PAIR_LIMITS,
        "bias": partial(check_number, least=0),
        "standardize": check_flag,
        "init": partial(check_choice, choices=("random", "ridge")),
        "init_scale": partial(check_number, least=0, otherwise="or None for the paper's"),
    }

    test_params: ClassVar[Mapping[str, object]] = {"dim": 16, "epochs": 30, "learning_rate": 0.005, "block": 128}

    dim: int = 100
    learning_rate: float = 0.0015
    max_norm: float = 0.7
    row_length: float = 6.0
    step: str = "sgd"
    l2: float = 0.0
    init: str = "random"
    init_scale: float | None = None
    bias: float = 0.0
    standardize: bool = True
    block: int | None = None

    image_map_: Floats = field(init=False)
    constant_: float = field(init=False, default=0.0)

    pair_training: ClassVar[type[PairTraining]] = PairTraining  # Trains on the pairs
    explain = explain_linear

    @abstractmethod
    def _objective(self, n_tags: int) -> Objective:
        """Return the cost of a pair, and how its other tag is drawn."""

    def _check_learned(self) -> None:
        dim, width = self.image_map_.shape[1], self.tag_rows_.shape[1]
        if width not in (dim, dim + 1):
            raise DataError(f"tag_rows_ has {width} columns and image_map_ {dim}; expected the same number or one more")
        if hasattr(self, "tag_spread_") != hasattr(self, "damping_"):
            raise DataError("Only one of tag_spread_ and damping_ exists; expected both or neither")

    def _image_rows(self, X: Matrix) -> Matrix:
        rows, divisors = self._rows_and_divisors(X)
        return (rows / divisors).astype(np.float32) if hasattr(self, "tag_spread_") else rows

    def _rows_and_divisors(self, X: Matrix) -> tuple[Floats, Doubles]:
        """Return the image rows of training, and their divisors for standardized scores, shape (n_images, 1)."""
        rows = np.asarray(X @ self.image_map_, np.float32)
        if self.tag_rows_.shape[1] > rows.shape[1]:
            rows = np.hstack([rows, np.full((len(rows), 1), self.constant_, np.float32)])
        if not hasattr(self, "tag_spread_"):
            return rows, np.ones((len(rows), 1))
        spread = rows @ self.tag_spread_
        squares: Doubles = np.einsum("ij,ij->i", spread, spread, dtype=np.float64)
        return rows, np.sqrt(self.damping_ + squares)[:, None]

    def write_steps(self, steps: GraphSteps, x: str) -> str:
        """Add the steps from features to scores, see `WritesSteps`."""
        V, dim = self.tag_rows_, self.image_map_.shape[1]
        rows = steps.affine(x, self.image_map_)
        scores = steps.affine(rows, V[:, :dim].T, self.constant_ * V[:, dim:].sum(axis=1))
        if hasattr(self, "tag_spread_"):
            constant = self.constant_ * self.tag_spread_[dim:].sum(axis=0)
            squares = steps.squares(steps.affine(rows, self.tag_spread_[:dim], constant), V.shape[1])
            scores = steps.add("Div", scores, steps.add("Sqrt", steps.add("Add", squares, self.damping_)))
        return str(scores)

    def _scorer(self, x: Matrix, tag: int) -> tuple[Doubles, float]:
        dim = self.image_map_.shape[1]
        row = self.tag_rows_[tag].astype(np.float64)
        row /= self._rows_and_divisors(x)[1].item()
        return self.image_map_.astype(np.float64) @ row[:dim], self.constant_ * float(row[dim:].sum())

    def _scale_features(self, X: Matrix) -> None:
        self.scale_ = self.row_length / (mean_length(X) or 1.0)
        self.constant_ = float(self.bias)

    def _start(self, X: Matrix, n_tags: int, rng: np.random.Generator) -> Weights:
        deviation = np.float32(1 / math.sqrt(X.shape[1]) if self.init_scale is None else self.init_scale)
        image_map = self._normal_rows(X.shape[1], deviation, rng)
        tag_rows = self._normal_rows(n_tags, deviation, rng)
        if self.constant_:
            tag_rows = np.hstack([tag_rows, np.zeros((n_tags, 1), np.float32)])
        image_map *= np.float32(self.scale_)
        return image_map, tag_rows

    def _ridge_state(
        self, state: RankingState, X: Matrix, positives: sp.csr_array, fresh: Matrix, rng: np.random.Generator
    ) -> RankingState:
        factors = ridge_factors(X, positives, fresh, self.dim, rng) if self.init == "ridge" else None
        if factors is None:
            return state
        image_map, tag_rows = state.weights  # further columns of few tags stay random
        rank = factors.tag_rows.shape[1]
        longest_feature, longest_tag = (
            math.sqrt(float(np.einsum("rc,rc->r", rows, rows).max())) or 1.0
            for rows in (factors.image_map, factors.tag_rows)
        )
        balance = np.float32(math.sqrt(longest_tag * self.scale_ / longest_feature))  # both reach their maximum norm
        image_map[:, :rank], tag_rows[:, :rank] = factors.image_map * balance, factors.tag_rows / balance
        if self.constant_:
            tag_rows[:, self.dim] = factors.intercepts / self.constant_
        growth = max(1.0, RIDGE_GROWTH * self._norm_growth(state.weights))
        return RankingState(weights=state.weights, growth=growth, rate=RIDGE_RATE)

    def _normal_rows(self, n_rows: int, deviation: np.float32, rng: np.random.Generator) -> Floats:
        """Draw rows within the maximum norm; many rows are drawn in parts, each with its own random generator."""
        rows = np.empty((n_rows, self.dim), np.float32)
        starts = range(0, n_rows, START_ROWS)
        for start in starts:
            part = rows[start : start + START_ROWS]
            generator = rng if len(starts) == 1 else np.random.default_rng(rng.integers(2**63))
            generator.standard_normal(out=part, dtype=np.float32)
            part *= deviation
            limit_norms(part, self.max_norm)
        return rows

    def _resume(self) -> Weights:
        return self.image_map_.copy(), self.tag_rows_.copy()

    def _norm_growth(self, weights: Weights) -> float:
        if not self.chooses_epochs:
            return 1.0
        squares = [float(np.einsum("rc,rc->r", rows, rows).max()) for rows in weights]
        longest = self.max_norm * self.scale_, self.max_norm
        factors = [math.sqrt(square) / float(limit) for square, limit in zip(squares, longest, strict=True)]
        return max(1.0, *factors)

    def _publish(self, *weights: Floats, images: bool = True) -> None:
        self.image_map_, self.tag_rows_ = weights
        if images and self.standardize:
            self.tag_rows_, self.tag_spread_, self.damping_ = standardized(self.tag_rows_)

    def _rate(self) -> float:
        return self.learning_rate

    def _positives(self, Y: sp.csr_array) -> sp.csr_array:
        positives, weights = super()._positives(Y), self._side.pair_weights
        return positives if weights is None else sp.csr_array(positives.multiply(weights), dtype=np.float32)

    def _training(self, X: Matrix, positives: sp.csr_array, weights: Weights, context: TrainingContext) -> Training:
        image_map, tag_rows = weights
        block = min(self.block or context.block, max(1, positives.nnz))
        steps = StepSettings(block, self.max_norm, self.l2, self.step == "adagrad")
        side = EmbeddedImages(
            X, image_map, steps,
            scale=self.scale_, constant=self.constant_, n_jobs=context.team.size, trainable=context.trains_images,
        )  # fmt: skip
        objective = self._objective(len(tag_rows))
        return self.pair_training(side, positives, tag_rows, objective, steps, rng=context.rng, team=context.team)


def standardized(rows: Floats) -> tuple[Floats, Floats, float]:
    """Return tag rows V minus their mean, and the `spread` and `damping` for the deviation of an image's scores.

    The deviation is ``√(|u · spread|² + damping)`` for an image row u: the root of ``(n σ² + m s²) / (n + m)``, where σ
    is the deviation of its n scores, and m = `USUAL_TAGS` more scores have the variance s² = `USUAL_VARIANCE`. The
    spread, (width, width), is the root of V's covariance times ``n / (n + m)``. Infinite or NaN values don't raise.
    """
    n, m = len(rows), USUAL_TAGS
    spread = np.zeros((rows.shape[1], rows.shape[1]))
    with one_blas_thread(), np.errstate(invalid="ignore", over="ignore"):
        rows = rows - rows.mean(axis=0, dtype=np.float64).astype(np.float32)
        for start in range(0, n, START_ROWS):
            part = rows[start : start + START_ROWS].astype(np.float64)
            spread += part.T @ part / (n + m)
        if np.isfinite(spread).all():
            values, axes = np.linalg.eigh(spread)
            spread = (axes * np.sqrt(np.maximum(values, 0))) @ axes.T
    return rows, spread.astype(np.float32), USUAL_VARIANCE * m / (n + m)


class RidgeFactors(NamedTuple):
    """Factors of scores: ``x · A · v_t + b_t`` for an image with the features x, float32."""

    image_map: Floats  # A, shape (n_features, rank)
    tag_rows: Floats  # rows v_t, shape (n_tags, rank)
    intercepts: Floats  # b_t, shape (n_tags,)


def ridge_factors(
    X: Matrix, positives: sp.csr_array, fresh: Matrix, rank: int, rng: np.random.Generator
) -> RidgeFactors | None:
    """Factorise the weights of ridge regression from features to tags, at most of the given rank.

    `positives`, (n_images, n_tags), has ones for tags. The scores of all tags of an image are centred, and have a mean
    deviation of `SPREAD` on the images with the features `fresh`. If there are more features and images than
    `DIRECT_SIZE`, a sample of as many images is used. Returns None if there are too many weights, or fewer than three
    images, features or tags.

    References
    ----------
    Halko, Martinsson, Tropp: Finding structure with randomness. SIAM Review 53, 2011; algorithm 4.4.
    """
    from sklearn.utils.extmath import randomized_svd

    from visterm.models.linear.normal_equations import DIRECT_SIZE, fit_ridge, mean_square_norm

    n, d = X.shape
    if d * positives.shape[1] > MAX_WEIGHTS or min(n, d, positives.shape[1]) < 3:
        return None
    if min(n, d) > DIRECT_SIZE:
        images = np.sort(rng.permutation(n)[:DIRECT_SIZE])
        X, positives = X[images], positives[images]
    fitted = fit_ridge(X, sp.csr_array(positives > 0, dtype=np.float32), ALPHA * mean_square_norm(X))
    weights = fitted.weights - fitted.weights.mean(axis=1, keepdims=True)
    intercepts = fitted.intercept - fitted.intercept.mean()
    scores = np.asarray(fresh @ weights) + intercepts
    factor = np.float32(SPREAD / (float(scores.std(axis=1).mean()) or 1.0))
    rank = min(rank, min(weights.shape) - 1)
    U, values, Vt = randomized_svd(weights * factor, rank, n_iter=POWER_ITERATIONS, random_state=0)
    roots = np.sqrt(np.maximum(values, 0))
    return RidgeFactors(np.asarray(U * roots, np.float32), np.asarray(Vt.T * roots, np.float32), intercepts * factor)
