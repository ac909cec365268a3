"""Small corpora with a known structure, drawn from a seed: for tests of models, and for benchmarks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import as_generator
from visterm.core.types import RandomState

TAG_WEIGHT_SHAPE = 0.7
"""How unequal the tags are: the one of rank r is given about r^-0.7 times as often as the first."""


@dataclass(frozen=True, slots=True)
class Planted:
    """Features and tags, in training and test rows.

    Attributes
    ----------
    X_train, X_test : ndarray of float32, shape (n_images, n_features)
        Not negative, of unit length, with many zeros.
    Y_train, Y_test : csr_array of float32, shape (n_images, n_tags)
        Ones where a tag is given.
    """

    X_train: NDArray[np.float32]
    Y_train: sp.csr_array
    X_test: NDArray[np.float32]
    Y_test: sp.csr_array


def plant_corpus(
    *,
    n_train: int = 240,
    n_test: int = 120,
    n_tags: int = 12,
    n_features: int = 40,
    tags_an_image: int = 3,
    noise: float = 0.3,
    random_state: RandomState = 0,
) -> Planted:
    """Draw images that have one to `tags_an_image` tags, each of which lights up its own features.

    Every tag has a few features of its own choice; an image's features are those of its tags, plus as many at random as
    `noise` says, and their values vary. Tags are of unequal frequency, so that the prior is not chance.

    Parameters
    ----------
    n_train, n_test, n_tags, n_features : int
    tags_an_image : int
        Tags of an image, at most; at least 1.
    noise : float
        Chance of a feature to be lit without cause.
    random_state : int, RandomState, Generator or None
    """
    rng = as_generator(random_state)
    n_images = n_train + n_test
    frequency = (1.0 + np.arange(n_tags)) ** -TAG_WEIGHT_SHAPE
    keys = rng.gumbel(size=(n_images, n_tags)) + np.log(frequency)
    given = np.zeros((n_images, n_tags), np.float32)
    order = np.argsort(-keys, axis=1)
    for i, count in enumerate(rng.integers(1, tags_an_image + 1, n_images)):
        given[i, order[i, :count]] = 1.0
    own = max(2, n_features // n_tags)
    signature = np.zeros((n_tags, n_features))
    for tag in range(n_tags):
        signature[tag, rng.permutation(n_features)[:own]] = 1.0
    lit = given @ signature
    X = lit * rng.uniform(0.5, 1.0, lit.shape) + (rng.random(lit.shape) < noise) * rng.uniform(0.0, 1.0, lit.shape)
    X = (X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-12)).astype(np.float32)
    Y = sp.csr_array(given)
    return Planted(X[:n_train], Y[:n_train], X[n_train:], Y[n_train:])
