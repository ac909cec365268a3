"""A network with one hidden layer, trained with binary cross-entropy on all tags at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import qr, svd
from scipy.special import expit

from visterm.core.checks import all_finite, check_count, check_number
from visterm.core.errors import DataError
from visterm.core.learned import Array, Kind
from visterm.core.products import column_means, dense, product
from visterm.core.progress import Progress
from visterm.core.selected_rows import copied
from visterm.core.threads import one_blas_thread
from visterm.core.types import Floats, Matrix
from visterm.encoders.onnx_graph import GraphSteps
from visterm.metrics.ranking import average_precisions
from visterm.models.base import Limit
from visterm.models.epochs import EpochAnnotator, Measure, TrainingState, Weights
from visterm.models.linear.base import with_ones
from visterm.models.stopping import HeldOutFit, Judged, OnEpoch, Watch, hold_out

BETA_1, BETA_2, EPSILON = np.float32(0.9), np.float32(0.999), np.float32(1e-8)  # Adam's defaults, from its paper
MAX_AXES = 512
"""With more features, the network sees the images along this number of principal axes: two to three times as fast, and
better than standardized features, with features of a network."""

OVERSAMPLES = 10  # Further directions of the random projections (scikit-learn's default)
MIN_DEVIATION = 1e-3  # Features with less than this share of the mean deviation count as constant
FINISH_EPOCHS = 4  # Final epochs on all images: a second training from the start would take as long as the first


@dataclass(kw_only=True, eq=False, repr=False)
class Mlp(EpochAnnotator):
    """Scores tags by a network: features, a hidden layer of rectified sums, and a logistic regression per tag.

    ``u(x) = [max(0, x · A + a), 1]`` and ``v(t) = [w_t, b_t]``. Training minimises the binary cross-entropy of all tags
    with Adam, in batches, with dropout of hidden units, on standardized features or, if there are many, on the images'
    coordinates along principal axes. Validation images, or some that are held out, choose when to stop; in the second
    case, the network then continues on all images for four epochs. Explicit negatives count as not given.

    Parameters
    ----------
    hidden : int
        Number of hidden units. More can follow more complex features, and takes time in proportion.
    dropout : float
        Share of the hidden units to leave out of each batch, 0 to below 1. More is smoother.
    learning_rate : float
        Size of Adam's steps.
    weight_decay : float
        Share by which the weights shrink in a step of size 1.
    batch_size : int
        Number of images per step.
    epochs, patience, valid_share, schedule, random_state
        As in `EpochAnnotator`.

    Attributes
    ----------
    hidden_weights_ : ndarray of float32, shape (n_features, hidden)
        A.
    hidden_offsets_ : ndarray of float32, shape (hidden,)
        a.
    tag_rows_ : ndarray of float32, shape (n_tags, hidden + 1)
    n_epochs_, n_held_out_, history_
        As in `EpochAnnotator`.

    References
    ----------
    Kingma, Ba 2015. Adam: a method for stochastic optimization. ICLR. Algorithm 1.
    """

    learned: ClassVar[dict[str, Kind]] = {
        "tag_rows_": Array("float32", ("n_tags_", "hidden + 1")),
        "hidden_weights_": Array("float32", ("n_features_in_", "hidden")),
        "hidden_offsets_": Array("float32", ("hidden",)),
    }

    test_params: ClassVar[Mapping[str, object]] = {"hidden": 32, "epochs": 30, "batch_size": 16, "dropout": 0.2}

    limits: ClassVar[dict[str, Limit]] = {
        "hidden": check_count,
        "batch_size": check_count,
        "dropout": partial(check_number, least=0, below=1),
        "learning_rate": partial(check_number, above=0),
        "weight_decay": partial(check_number, least=0, below=1),
    }

    reads_parts: ClassVar[bool] = True

    hidden: int = 1024
    dropout: float = 0.5
    learning_rate: float = 0.001
    weight_decay: float = 0.0
    batch_size: int = 128
    epochs: int = 60
    patience: int = 3
    schedule: str = "constant"

    def _fit_monitored(self, X: Matrix, Y: sp.csr_array, rng: np.random.Generator, valid: Judged, watch: Watch) -> None:
        self.check_settings()
        if not (Y.data > 0).any():
            raise DataError("No image has a tag (Y has no value above 0), so there is nothing to learn.")
        training_ids, held_out = hold_out(X.shape[0], self.share_to_hold_out if valid is None else 0.0, rng)
        self.n_held_out_ = held_out.size
        valid = (X[held_out], Y[held_out]) if held_out.size else valid
        with one_blas_thread():
            axes = PrincipalAxes.of(X)
            parts = (X[training_ids], Y[training_ids]) if held_out.size else (X, Y)
            training = self._unfinished = NetworkTraining(self, axes, *parts, rng)
            self._train(training, TrainingState(), self.epochs, training.measure_map(valid), watch)
            training.drop_rows()

        if held_out.size:
            self._held_out = HeldOutFit(held_out, self._image_rows(X[held_out]), self.tag_rows_)
            self.finish(X, Y, monitor=watch.monitor, on_epoch=watch.on_epoch)

    def finish(self, X: Matrix, Y: sp.csr_array, *, monitor: Progress, on_epoch: OnEpoch | None = None) -> None:
        """Continue the last training from its best weights, on all images, see `FinishesFits`."""
        n_epochs, history, training = self.n_epochs_, self.history_, self._unfinished
        with one_blas_thread():
            training = training.on(X, Y)
            self._train(training, TrainingState(slowing=FINISH_EPOCHS), FINISH_EPOCHS, None, Watch(monitor, on_epoch))
        self.n_epochs_, self.history_ = n_epochs, history
        self._unfinished = None

    def _train(
        self, training: NetworkTraining, state: TrainingState, epochs: int, measure: Measure | None, watch: Watch
    ) -> None:
        """Train, and publish the best weights, or the last ones."""

        def run_epoch(rate: float) -> None:
            state.means_of_epoch = {"loss": training.run_epoch(rate)}
            state.published = training.weights
            if not all(all_finite(weight) for weight in training.weights):
                self._publish(*training.weights)
                self._refuse_non_finite()

        self._epochs(state, epochs, measure, run_epoch, watch=watch)
        training.weights = state.best_weights or training.weights
        self._publish(*training.weights)

    def _rate(self) -> float:
        return self.learning_rate

    def _publish(self, *weights: Floats) -> None:
        A, a, W, b = weights
        axes = self._unfinished.axes
        self.hidden_weights_ = axes.axes @ A
        self.hidden_offsets_ = a - axes.mean @ self.hidden_weights_
        self.tag_rows_ = np.ascontiguousarray(np.vstack([W, b]).T)

    def _image_rows(self, X: Matrix) -> Matrix:
        with one_blas_thread():
            sums = np.asarray(product(X, self.hidden_weights_) + self.hidden_offsets_, np.float32)
        return with_ones(np.maximum(sums, 0))

    def write_steps(self, steps: GraphSteps, x: str) -> str:
        """Add the steps from features to scores, see `WritesSteps`."""
        hidden = steps.add("Relu", steps.affine(x, self.hidden_weights_, self.hidden_offsets_))
        return str(steps.affine(hidden, self.tag_rows_[:, :-1].T, self.tag_rows_[:, -1]))


class PrincipalAxes(NamedTuple):
    """The coordinates in which a network sees images: ``(x - mean) · axes``; `axes` includes the scale."""

    mean: Floats  # shape (n_features,)
    axes: Floats  # shape (n_features, n_axes)

    @classmethod
    def of(cls, X: Matrix) -> PrincipalAxes:
        """Standardize up to `MAX_AXES` features; rotate more to their principal axes, with a common scale."""
        X = X if X.shape[1] > MAX_AXES else copied(X)
        mean = column_means(copied(X))
        if X.shape[1] > MAX_AXES:
            rows = principal_rows(X, MAX_AXES)
            coordinates = product(copied(X), rows.T) - mean @ rows.T
            coordinates -= coordinates.mean()  # NumPy's `std` would copy them
            deviation = float(np.sqrt(np.square(coordinates, out=coordinates).mean())) or 1.0
            return cls(mean.astype(np.float32), np.asarray(rows.T / deviation, np.float32))

        squares: Any = sp.csr_array(X).power(2).mean(0) if sp.issparse(X) else np.square(X, dtype=np.float64).mean(0)
        deviations = np.sqrt(np.maximum(np.asarray(squares, np.float64) - mean**2, 0))
        usual = float(deviations.mean()) or 1.0
        deviations = np.where(deviations > MIN_DEVIATION * usual, deviations, usual)
        return cls(mean.astype(np.float32), np.diag(1 / deviations).astype(np.float32))

    def rows(self, X: Matrix) -> Floats:
        """Return the coordinates of images, shape (n_images, n_axes)."""
        return np.asarray(product(copied(X), self.axes) - self.mean @ self.axes, np.float32)


def principal_rows(X: Matrix, n_axes: int) -> Floats:
    """Return the first right singular vectors of rows, shape (n_axes, n_features), by random projections.

    They are those of scikit-learn's ``randomized_svd(X, n_axes, n_iter=2, random_state=0)``, which holds two more
    arrays of the size of the projections, and a copy of `SelectedRows` all the time.
    """
    if X.shape[0] < X.shape[1] or sp.issparse(X):
        from sklearn.utils.extmath import randomized_svd

        return np.asarray(randomized_svd(copied(X), n_axes, n_iter=2, random_state=0)[2])
    Q: Any = np.random.RandomState(0).normal(size=(X.shape[1], n_axes + OVERSAMPLES)).astype(np.float32)
    for _ in range(2):
        Q = copied(X) @ Q
        Q = copied(X).T @ Q
    Q = copied(X) @ Q
    Q = qr(Q, mode="economic", check_finite=False, overwrite_a=True)[0]
    left, _, rows = svd(Q.T @ copied(X), full_matrices=False)
    Q = Q @ left
    signs = np.where(Q.max(axis=0) >= -Q.min(axis=0), 1, -1)  # so that the largest coordinate of images is positive
    return np.asarray((rows * signs[:, None])[:n_axes], np.float32)


class NetworkTraining:
    """Trains the network of an `Mlp`; `weights` are A, a, W (hidden, n_tags) and b, which change in place."""

    def __init__(self, model: Mlp, axes: PrincipalAxes, X: Matrix, Y: sp.csr_array, rng: np.random.Generator) -> None:
        self.axes, self._model, self._rng = axes, model, np.random.default_rng(rng.integers(2**62))
        self._rows, self._given = axes.rows(X), sp.csr_array(Y > 0, dtype=np.float32)
        width, n_tags = self._rows.shape[1], Y.shape[1]
        share = (np.asarray(self._given.sum(axis=0)) + 0.5) / (Y.shape[0] + 1)
        A = self._rng.standard_normal((width, model.hidden), np.float32) * np.float32(np.sqrt(2 / width))
        W = self._rng.standard_normal((model.hidden, n_tags), np.float32) * np.float32(np.sqrt(1 / model.hidden))
        b = np.log(share / (1 - share)).astype(np.float32)
        self.weights: Weights = (A, np.zeros(model.hidden, np.float32), W, b)
        self._means = tuple(np.zeros_like(weight) for weight in self.weights)
        self._squares = tuple(np.zeros_like(weight) for weight in self.weights)
        self._steps = 0

    def on(self, X: Matrix, Y: sp.csr_array) -> NetworkTraining:
        """Return this training, on other images from now on."""
        self._rows, self._given = self.axes.rows(X), sp.csr_array(Y > 0, dtype=np.float32)
        return self

    def drop_rows(self) -> None:
        """Free the memory of the images; a finished training continues `on` others."""
        self._rows = self._rows[:0].copy()

    def measure_map(self, valid: Judged) -> Measure | None:
        """Return a function that measures the MAP of the weights on validation images with tags, or None without any.

        The images are seen along the axes once: weights for all features would take as long as a part of an epoch.
        """
        tagged = np.empty(0, np.int64) if valid is None else np.flatnonzero(np.diff(sp.csr_array(valid[1] > 0).indptr))
        if valid is None or tagged.size == 0:
            return None
        rows, given = self.axes.rows(valid[0][tagged]), valid[1][tagged]

        def measure() -> float:
            A, a, W, b = self.weights
            return float(np.nanmean(average_precisions(np.maximum(rows @ A + a, 0) @ W + b, given)))

        return measure

    def run_epoch(self, rate: float) -> float:
        """Train on all images once, in random order, with steps of size `rate`; return the mean loss."""
        n = len(self._rows)
        order, total = self._rng.permutation(n), 0.0
        for start in range(0, n, self._model.batch_size):
            batch = order[start : start + self._model.batch_size]
            total += self._step(self._rows[batch], dense(self._given[batch]), rate)
        return total / n

    def _step(self, rows: Floats, given: Floats, rate: float) -> float:
        """Change the weights by one batch, and return the sum of its losses."""
        kept = None
        if self._model.dropout:
            kept = self._rng.random((len(rows), self._model.hidden), np.float32) >= self._model.dropout
        loss, gradients = self.gradients(rows, given, kept)
        self._move(gradients, rate)
        return loss * len(rows)

    def gradients(self, rows: Floats, given: Floats, kept: NDArray[np.bool_] | None = None) -> tuple[float, Weights]:
        """Return the mean loss of a batch, and its gradients by the weights.

        `kept`, (n_images, hidden), says which hidden units are not left out, or None for all of them.
        """
        A, a, W, b = self.weights
        sums = rows @ A + a
        passed = sums > 0 if kept is None else (sums > 0) & kept
        factor = np.float32(1 if kept is None else 1 / (1 - self._model.dropout))
        hidden = np.where(passed, sums, np.float32(0)) * factor
        scores = hidden @ W + b
        loss = float(np.logaddexp(0, scores).sum(dtype=np.float64) - (scores * given).sum(dtype=np.float64))

        errors = (expit(scores) - given) / np.float32(len(scores))
        back = np.where(passed, errors @ W.T, np.float32(0)) * factor
        return loss / len(scores), (rows.T @ back, back.sum(axis=0), hidden.T @ errors, errors.sum(axis=0))

    def _move(self, gradients: Weights, rate: float) -> None:
        """Make a step of Adam."""
        self._steps += 1
        size = np.float32(rate * np.sqrt(1 - BETA_2**self._steps) / (1 - BETA_1**self._steps))
        shrunk = np.float32(1 - rate * self._model.weight_decay)
        for weight, mean, square, gradient in zip(self.weights, self._means, self._squares, gradients, strict=True):
            mean *= BETA_1
            mean += (1 - BETA_1) * gradient
            square *= BETA_2
            square += (1 - BETA_2) * np.square(gradient)
            if weight.ndim == 2 and self._model.weight_decay:
                weight *= shrunk
            weight -= size * mean / (np.sqrt(square) + EPSILON)
