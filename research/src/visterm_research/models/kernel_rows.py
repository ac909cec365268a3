"""Represent images by their kernel values with the training images, for models that are linear in these values.

Such a model has the settings `kernel`, `gamma` and `n_jobs`, and learns `gamma_`. With a kernel of `KEPT_KERNELS`, it
also learns `landmarks_`, the training images that other images are compared with.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visterm.core.checks import check_choice, check_number, check_size
from visterm.core.errors import DataError, ShapeError, UserError
from visterm.core.learned import DenseOrCsr, Kind, Number
from visterm.core.products import dense
from visterm.core.types import Matrix
from visterm_research.kernels.landmarks import KERNELS, Landmarks, landmark_columns

KEPT_KERNELS = tuple(name for name in KERNELS if name != "linear")  # Kernels for which the model keeps training images
MAX_KERNEL_BYTES = 2**33

MAX_ASYMMETRY = 1e-3  # Maximum difference of a kernel and its transpose, as a share of the largest value: rounding
KERNEL_LEARNED: dict[str, Kind] = {
    "gamma_": Number(least=0, required=False),
    "landmarks_": DenseOrCsr("float32", ("n_features_in_", "n_inputs"), empty=True, required=False),
}
"""``γ`` of the kernel, 0 for kernels without γ; and the support vectors, prepared for the kernel."""


def kernel_with(model: Any, X: Matrix) -> Callable[[Matrix], Matrix]:
    """Return a function from features to the inputs of scores: features, or kernel values with `X`; set `gamma_`."""
    n = X.shape[0]
    model.gamma_ = 0.0
    if model.kernel == "linear":
        return lambda rows: rows
    check_size(24 * n * n, MAX_KERNEL_BYTES, f"The kernel of {n} training images", 'Use kernel="linear".')
    if model.kernel == "precomputed":
        if n != X.shape[1]:
            raise ShapeError(
                f'X is {n} × {X.shape[1]}; with kernel="precomputed" expected the square kernel of the training images '
                "with each other."
            )
        asymmetry, largest_value = float(abs(X - X.T).max()), float(abs(X).max())
        if asymmetry > MAX_ASYMMETRY * largest_value:
            raise DataError(
                f"X and its transpose differ by {asymmetry:.3g}, and the largest value is {largest_value:.3g}; with "
                'kernel="precomputed" expected the kernel of the training images, rows and columns in the same order.'
            )
        return dense
    landmarks = Landmarks(model.kernel, landmark_columns(model.kernel, X))
    if KERNELS[model.kernel].common:
        model.gamma_ = float(model.gamma or landmarks.usual_gamma(X, model.n_jobs))
    return lambda rows: landmarks.values(rows, model.gamma_, model.n_jobs)


def keep_support(model: Any, X: Matrix) -> None:
    """Store the features of the training images that a model compares images with."""
    model.landmarks_ = landmark_columns(model.kernel, X)
    model._cached_landmarks, model._cached_columns = Landmarks(model.kernel, model.landmarks_), model.landmarks_


def kernel_values(model: Any, X: Matrix) -> NDArray[np.float32]:
    """Return the kernel values of checked features with the support vectors of a model, whose index is cached."""
    if getattr(model, "_cached_columns", None) is not model.landmarks_:
        model._cached_landmarks, model._cached_columns = Landmarks(model.kernel, model.landmarks_), model.landmarks_
    return np.asarray(model._cached_landmarks.values(X, model.gamma_, model.n_jobs), np.float32)


def check_kernel(model: Any) -> None:
    """Raise UserError if the settings `kernel` and `gamma` are invalid."""
    check_choice(model.kernel, "kernel", ["linear", *KEPT_KERNELS, "precomputed"])
    check_number(model.gamma, "gamma", above=0, otherwise="or None")


def check_support(model: Any, n_inputs: int) -> None:
    """Raise DataError if learned attributes don't match the kernel, for weights of `n_inputs` features or values."""
    keeps_images = model.kernel in KEPT_KERNELS
    if hasattr(model, "landmarks_") != keeps_images or (keeps_images and not hasattr(model, "gamma_")):
        raise DataError(f"landmarks_ and gamma_ do not match kernel={model.kernel!r}")
    if not keeps_images and n_inputs != model.n_features_in_:
        raise DataError(f"There are weights of {n_inputs} features; expected {model.n_features_in_}")


def refuse_kernel(model: Any, *allowed_kernels: str) -> None:
    """Raise UserError if the kernel is not one of `allowed_kernels`, with which scores are sums over features."""
    if model.kernel not in allowed_kernels:
        raise UserError(
            f"With the kernel {model.kernel!r} scores are not sums over features.",
            setting="kernel",
            value=model.kernel,
            expected="linear",
        )
