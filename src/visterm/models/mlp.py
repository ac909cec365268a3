"""A network with one hidden layer, trained with binary cross-entropy on all tags at once."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import expit

from visterm.core.checks import check_count, check_number
from visterm.core.errors import DataError
from visterm.core.learned import Array, Kind
from visterm.core.products import column_means, dense
from visterm.core.progress import Progress
from visterm.core.threads import one_blas_thread
from visterm.core.types import Matrix
from visterm.models.base import Limit
from visterm.models.epochs import EpochAnnotator, EpochLoss, Floats, TrainingState, Validation, Weights
from visterm.models.linear.base import with_ones
from visterm.models.stopping import HeldOutFit, OnEpoch, hold_out

if TYPE_CHECKING:
    from visterm.encoders.onnx_graph import GraphSteps

BETA_1, BETA_2, EPSILON = np.float32(0.9), np.float32(0.999), np.float32(1e-8)  # Adam's defaults, from its paper
MIN_DEVIATION = 1e-3  # Features with less than this share of the mean deviation count as constant
BLOCK_ROWS = 4096  # Number of images whose hidden layer is computed at a time


@dataclass(kw_only=True, eq=False, repr=False)
class Mlp(EpochAnnotator):
    """Scores tags by a network: features, a hidden layer of rectified sums, and a logistic regression per tag.

    ``u(x) = [max(0, (x - mean) / scale · A + a), 1]`` and ``v(t) = [w_t, b_t]``. Training minimises the binary
    cross-entropy of all tags with Adam, in batches, with dropout of hidden units. Validation images, or some that are
    held out, choose when to stop; in the second case, the network is then trained again on all images for the best
    number of epochs. Explicit negatives count as not given.

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
    mean_ : ndarray of float32, shape (n_features,)
    scale_ : ndarray of float32, shape (n_features,)
        Standard deviations of the features.
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
        "mean_": Array("float32", ("n_features_in_",)),
        "scale_": Array("float32", ("n_features_in_",), above=0),
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

    hidden: int = 1024
    dropout: float = 0.5
    learning_rate: float = 0.0005
    weight_decay: float = 0.0
    batch_size: int = 128
    epochs: int = 60
    patience: int = 3
    schedule: str = "constant"

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
        given = sp.csr_array(Y > 0, dtype=np.float32)
        if given.nnz == 0:
            raise DataError("No image has a tag (Y has no value above 0), so there is nothing to learn.")
        self.mean_, self.scale_ = _moments(X)
        self._held_out = None
        seed = int(rng.integers(2**62))
        learned, held_out = np.arange(X.shape[0]), np.empty(0, np.int64)
        if valid is None:
            learned, held_out = hold_out(X.shape[0], self.share_to_hold_out, rng)
        self.n_held_out_ = held_out.size
        judged = (X[held_out], Y[held_out]) if held_out.size else valid
        self._train(X[learned], given[learned], judged, self.epochs, seed, monitor, on_epoch)

        if held_out.size:
            fit = HeldOutFit(held_out, self._image_rows(X[held_out]), self.tag_rows_)
            history = self.history_
            self._train(X, given, None, self.n_epochs_, seed, monitor, on_epoch)
            self.history_, self._held_out = history, fit

    def _train(
        self,
        X: Matrix,
        given: sp.csr_array,
        judged: Validation | None,
        epochs: int,
        seed: int,
        monitor: Progress,
        on_epoch: OnEpoch | None,
    ) -> None:
        """Train from start values, which `seed` draws, and publish the best weights, or the last ones."""
        training, state = NetworkTraining(self, X, given, seed), TrainingState()
        epoch_rates = self._epochs(state, epochs, self._measure_map(judged), monitor=monitor, on_epoch=on_epoch)
        with one_blas_thread(), closing(epoch_rates):
            for rate in epoch_rates:
                state.means_of_epoch = training.run_epoch(rate)
                state.published = training.weights
                self._publish(*training.weights)
                self._refuse_non_finite()

    def _publish(self, *weights: Floats) -> None:
        hidden_weights, hidden_offsets, tag_weights, tag_offsets = weights
        self.hidden_weights_, self.hidden_offsets_ = hidden_weights.copy(), hidden_offsets.copy()
        self.tag_rows_ = np.ascontiguousarray(np.vstack([tag_weights, tag_offsets]).T)

    def _image_rows(self, X: Matrix) -> Matrix:
        rows = np.empty((X.shape[0], self.hidden + 1), np.float32)
        with one_blas_thread():
            for start in range(0, X.shape[0], BLOCK_ROWS):
                part = slice(start, start + BLOCK_ROWS)
                sums = _scaled(X[part], self.mean_, self.scale_) @ self.hidden_weights_ + self.hidden_offsets_
                rows[part] = with_ones(np.maximum(sums, 0))
        return rows

    def write_steps(self, steps: GraphSteps, x: str) -> str:
        """Add the steps from features to scores, see `WritesSteps`."""
        A, V = self.hidden_weights_ / self.scale_[:, None], self.tag_rows_
        sums = steps.affine(x, A, self.hidden_offsets_ - self.mean_ @ A)
        return str(steps.affine(steps.add("Relu", sums), V[:, :-1].T, V[:, -1]))


class NetworkTraining:
    """Trains the network of an `Mlp`; `weights` are A, a, W (hidden, n_tags) and b, which change in place."""

    def __init__(self, model: Mlp, X: Matrix, given: sp.csr_array, seed: int) -> None:
        self._model, self._X, self._given = model, X, given
        self._rng = np.random.default_rng(seed)
        width, n_tags = X.shape[1], given.shape[1]
        share = (np.asarray(given.sum(axis=0)) + 0.5) / (given.shape[0] + 1)
        A = self._rng.standard_normal((width, model.hidden), np.float32) * np.float32(np.sqrt(2 / width))
        W = self._rng.standard_normal((model.hidden, n_tags), np.float32) * np.float32(np.sqrt(1 / model.hidden))
        b = np.log(share / (1 - share)).astype(np.float32)
        self.weights: Weights = (A, np.zeros(model.hidden, np.float32), W, b)
        self._means = tuple(np.zeros_like(weight) for weight in self.weights)
        self._squares = tuple(np.zeros_like(weight) for weight in self.weights)
        self._steps = 0

    def run_epoch(self, rate: float) -> EpochLoss:
        """Train on all images once, in random order; `rate` is a factor of the learning rate."""
        n = self._X.shape[0]
        order, total = self._rng.permutation(n), 0.0
        for start in range(0, n, self._model.batch_size):
            batch = order[start : start + self._model.batch_size]
            total += self._step(self._X[batch], dense(self._given[batch]), self._model.learning_rate * rate)
        return EpochLoss(total / n)

    def _step(self, X: Matrix, given: NDArray[np.float32], rate: float) -> float:
        """Change the weights by one batch, and return the sum of its losses."""
        kept = None
        if self._model.dropout:
            kept = self._rng.random((X.shape[0], self._model.hidden), np.float32) >= self._model.dropout
        loss, gradients = self.gradients(X, given, kept)
        self._move(gradients, rate)
        return float(loss * X.shape[0])

    def gradients(
        self, X: Matrix, given: NDArray[np.float32], kept: NDArray[np.bool_] | None = None
    ) -> tuple[float, Weights]:
        """Return the mean loss of a batch, and its gradients by the weights.

        `kept`, (n_images, hidden), says which hidden units are not left out, or None for all of them.
        """
        A, a, W, b = self.weights
        rows = _scaled(X, self._model.mean_, self._model.scale_)
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


def _moments(X: Matrix) -> tuple[Floats, Floats]:
    """Return the means and deviations of features; constant features get the mean deviation."""
    mean = column_means(X)
    squares: Any = sp.csr_array(X).power(2).mean(axis=0) if sp.issparse(X) else np.square(X, dtype=np.float64).mean(0)
    deviation = np.sqrt(np.maximum(np.asarray(squares, np.float64) - mean**2, 0))
    usual = float(deviation.mean()) or 1.0
    return mean.astype(np.float32), np.where(deviation > MIN_DEVIATION * usual, deviation, usual).astype(np.float32)


def _scaled(X: Matrix, mean: Floats, scale: Floats) -> Floats:
    """Return features minus their means, divided by their deviations, as an array."""
    return np.asarray((dense(X) - mean) / scale, np.float32)
