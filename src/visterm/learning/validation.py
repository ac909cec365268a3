"""Held-out rows to choose settings and epochs: separate images, or tags of images known by number."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from visterm.core.checks import as_generator, check_tags
from visterm.core.errors import DataError
from visterm.core.progress import Progress, Titled
from visterm.core.types import Ints, Matrix
from visterm.data.tag_queries import hold_one_out
from visterm.features.training_rows import TrainingRows
from visterm.metrics import evaluate
from visterm.models.base import Annotator, SideKnowledge
from visterm.models.stopping import MIN_HELD_OUT, learns_from_kernel, visible_columns

METRIC = "map"  # By which settings and epochs are chosen; higher is better


class Parts(NamedTuple):
    """Rows for training and rows for validation."""

    # For training
    X: Matrix
    Y: sp.csr_array
    # For validation
    X_valid: Matrix
    Y_valid: sp.csr_array
    known: sp.csr_array | None  # For images known by number: training tags of `X_valid`, left out of rankings
    side: SideKnowledge | None = None
    learned: Ints | None = None  # Rows of the training images in `X`, for kernel values; None: all


class JudgedFit(NamedTuple):
    """A fitted model, its MAP on the validation rows, and the history of its training."""

    model: Annotator  # The model after its best epoch
    value: float
    epochs: int | None  # Number of epochs of training of this model; None for models without epochs
    history: list[dict[str, Any]]  # The model's record after each epoch
    seconds: float


def part_rows(rows: TrainingRows, share: float, rng: np.random.Generator) -> Parts:
    """Hold out the split "valid" or, without it, a share of the images (for images known by number, one tag each).

    Raises DataError if there are too few images, or no image known by number has two tags.
    """
    if rows.valid is not None:
        X_valid, Y_valid = rows.valid
        known = sp.csr_array(X_valid @ rows.Y) if rows.by_number else None
        return Parts(rows.X, rows.Y, X_valid, Y_valid, known, rows.side)
    n_images = rows.X.shape[0]
    n_held_out = max(1, round(share * n_images))
    if rows.by_number:
        tag_split = hold_one_out(rows.Y, rng, at_most=n_held_out)
        return Parts(rows.X, tag_split.rest, rows.X[tag_split.images], tag_split.held, tag_split.known, rows.side)

    if n_images < 2:
        raise DataError(f"There is {n_images} image to learn from; at least 2 are needed to hold one out.")
    order = rng.permutation(n_images)
    held_out, train = np.sort(order[:n_held_out]), np.sort(order[n_held_out:])
    return Parts(rows.X[train], rows.Y[train], rows.X[held_out], rows.Y[held_out], None, rows.side, train)


def fit_judged(model: Annotator, parts: Parts, progress: Progress) -> JudgedFit:
    """Fit a model on the training rows, with early stopping if it can, and measure it on the validation rows.

    A model's own early stopping uses MAP. For images known by number, it would count an image's training tags as
    mistakes, so `EarlyStopping` replaces it, except in models that choose their number of epochs.
    """
    X, X_valid = (visible_columns(model, rows, parts.learned) for rows in (parts.X, parts.X_valid))
    parts = parts._replace(X=X, X_valid=X_valid)

    def measure(fitted: Annotator) -> float:
        scores = partial(fitted.score_blocks, parts.X_valid)
        return evaluate(scores, parts.Y_valid, [METRIC], exclude=parts.known)[METRIC]

    valid: tuple[Matrix, sp.csr_array] | None = None
    stopping: EarlyStopping | None = None
    start = time.perf_counter()
    if parts.known is None or model.chooses_epochs:
        valid = parts.X_valid, parts.Y_valid
    elif can_stop(model):
        stopping = EarlyStopping(model, measure, model.patience, progress)
    model.fit(parts.X, parts.Y, side=parts.side, valid=valid, monitor=progress, on_epoch=stopping)
    seconds, history = time.perf_counter() - start, getattr(model, "history_", [])
    if stopping is None:
        return JudgedFit(model, measure(model), getattr(model, "n_epochs_", None), history, seconds)
    values = [value for _, value in stopping.curve]
    history = [{**entry, METRIC: value} for entry, value in zip(history, values, strict=True)]
    stopping.best.n_epochs_, stopping.best.history_ = stopping.best_epoch, history
    return JudgedFit(stopping.best, max(values), stopping.best_epoch, history, seconds)


def all_rows(rows: TrainingRows, model: Annotator) -> TrainingRows:
    """Add the rows of the split "valid" to the training rows.

    If the model learns from kernel values, they are dropped: there are no kernel columns for them.
    """
    if rows.valid is None:
        return rows
    if learns_from_kernel(model):
        return rows._replace(valid=None)
    X_valid, Y_valid = rows.valid
    if rows.by_number:
        return rows._replace(Y=check_tags(rows.Y + X_valid.T @ Y_valid, rows.X.shape[0]), valid=None)
    matrices = (rows.X, X_valid)
    X = sp.vstack(matrices, format="csr") if sp.issparse(rows.X) else np.concatenate(matrices)
    return rows._replace(X=X, Y=sp.csr_array(sp.vstack((rows.Y, Y_valid), format="csr")), valid=None)


def fit_on_all(
    model: Annotator, rows: TrainingRows, epochs: int | None, history: list[dict[str, Any]], progress: Progress
) -> Annotator:
    """Fit a model on all rows for `epochs`, the best number on held-out rows, and set its history to `history`.

    A model that chooses its number of epochs chooses it again.
    """
    if epochs is None or (model.chooses_epochs and model.valid_share):
        return model.fit(rows.X, rows.Y, side=rows.side, monitor=progress)
    model.fit(
        rows.X, rows.Y, side=rows.side, hold_out=False, monitor=Titled(progress, "train", total=epochs),
        on_epoch=lambda record: "stop" if record["epoch"] >= epochs else None,
    )  # fmt: skip
    model.n_epochs_, model.history_ = epochs, history
    return model


def can_stop(model: Annotator) -> bool:
    """Return whether a model trains in epochs and has early stopping."""
    return hasattr(model, "epochs") and hasattr(model, "patience")


class EarlyStopping:
    """Measures a model after each epoch of its fit, keeps a copy of the best model, and stops `patience` epochs later.

    Pass it to ``fit`` as `on_epoch`. A model's own early stopping does not know which tags to leave out of validation
    rows, which is necessary for images known only by number. `measure` returns the current MAP of the model, which
    progress shows; the time to measure is not counted as training time. The model's learned
    arrays must be up to date after an epoch, as those of `Wsabie` are.

    Afterwards, `curve` has the seconds of training and the value after each epoch, `best` a copy of the best model (or
    None), and `best_epoch` its epoch.
    """

    def __init__(
        self, model: Annotator, measure: Callable[[Annotator], float], patience: int, progress: Progress
    ) -> None:
        self._model, self._measure, self._patience, self._progress = model, measure, patience, progress
        self._start = time.perf_counter()
        self._measure_seconds = 0.0
        self.curve: list[tuple[float, float]] = []
        self.best: Any = None
        self.best_epoch = 0

    def __call__(self, record: dict[str, Any]) -> str | None:
        """Measure the model after an epoch; return "stop" if the last `patience` epochs were not better."""
        now = time.perf_counter()
        value = self._measure(self._model)
        self.curve.append((now - self._start - self._measure_seconds, value))
        if self.best is None or value > self.curve[self.best_epoch - 1][1]:
            self.best, self.best_epoch = copy.deepcopy(self._model), len(self.curve)
        self._progress.advance(0, f"MAP {value:.3f}")
        self._measure_seconds += time.perf_counter() - now
        return "stop" if len(self.curve) - self.best_epoch >= self._patience else None


def learn_by_number(model: Annotator, rows: TrainingRows, progress: Progress) -> Annotator:
    """Fit a model on tags of images known by number: choose the epochs with held-out tags, then learn all tags.

    One tag is held out of a share `valid_share` of the images, among images with two or more tags. If that is less
    than 50 images, all epochs are run. With a split "valid", its tags are only used for validation.
    """
    if rows.valid is not None:
        rng = as_generator(0)  # not used: the split defines the held-out tags
        return fit_judged(model, part_rows(rows, 0, rng), progress).model
    if model.chooses_epochs or not can_stop(model):
        return fit_on_all(model, rows, None, [], progress)
    share = getattr(model, "valid_share", 0)
    n_valid = min(int((np.diff(sp.csr_array(rows.Y > 0).indptr) > 1).sum()), round(share * rows.X.shape[0]))
    if n_valid < MIN_HELD_OUT:
        return fit_on_all(model, rows, None, [], progress)
    result = fit_judged(model, part_rows(rows, share, as_generator(getattr(model, "random_state", None))), progress)
    return fit_on_all(model, rows, result.epochs, result.history, progress)
