"""Layers of a network as plain arrays: what annotating needs of it, without the library that trained it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from visterm.core.types import Matrix
from visterm.models.epochs import Floats

BLOCK_ROWS = 1024
"""Images that go through the layers together, so that the hidden numbers of all of them are never held."""


class Layer(NamedTuple):
    """One layer."""

    weights: Floats  # shape (n_inputs, n_outputs)
    offsets: Floats  # shape (n_outputs,)


def through_layers(X: Matrix, scale: float, layers: list[Layer]) -> Floats:
    """Return what comes out of the last layer, with ReLU between layers, shape (n_images, n_outputs).

    `X` is (n_images, n_features), and multiplied by `scale`.
    """
    out: Floats = np.empty((X.shape[0], len(layers[-1].offsets)), np.float32)
    for start in range(0, X.shape[0], BLOCK_ROWS):
        rows = slice(start, start + BLOCK_ROWS)
        hidden = np.asarray(X[rows] @ layers[0].weights, np.float32) * np.float32(scale) + layers[0].offsets
        for layer in layers[1:]:
            hidden = np.maximum(hidden, 0, out=hidden) @ layer.weights + layer.offsets
        out[rows] = hidden
    return out
