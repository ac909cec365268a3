"""Steps of images known by number: what the loops over features would do, without the loops."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from visterm.kernels.row_moves import make_rule
from visterm.models.ranking.image_sides import NumberedSteps, SparseSteps, feature_steps

N_IMAGES, N_ROWS, DIM = 12, 9, 5
NUMBERS = np.array([3, 3, 0, 8, 1, 2, 7, 7, 7, 5, 4, 6])


def one_hot():
    return sp.csr_array((np.ones(N_IMAGES, np.float32), NUMBERS, np.arange(N_IMAGES + 1)), shape=(N_IMAGES, N_ROWS))


@pytest.mark.parametrize("n_shares", [1, 2, 5])
@pytest.mark.parametrize("l2", [0.0, 0.4])
@pytest.mark.parametrize("adagrad", [False, True])
def test_numbered_rows_move_as_features_that_are_one_in_one_place(adagrad, l2, n_shares):
    rng = np.random.default_rng(0)
    images = rng.integers(N_IMAGES, size=30)
    active = rng.integers(-1, 2, size=30)
    steps = rng.standard_normal((30, DIM)).astype(np.float32)
    start = rng.standard_normal((N_ROWS, DIM)).astype(np.float32)
    rule = make_rule(0.5, l2, 1.5)
    moved = []
    for kind in (NumberedSteps, SparseSteps):
        side = kind(one_hot(), n_shares)
        weights, squares = start.copy(), np.ones(N_ROWS if adagrad else 0, np.float32)
        side.take(images)
        out = np.empty((30, DIM), np.float32)
        side.embed(slice(0, 30), weights, out)
        np.testing.assert_array_equal(out, start[NUMBERS[images]])
        for share in range(side.n_shares):
            side.move(share, active, steps, rule, squares, weights)
        moved.append((weights, squares))
    for numbered, by_features in zip(*moved, strict=True):
        np.testing.assert_allclose(numbered, by_features, rtol=1e-6)


def test_only_rows_that_are_one_in_one_place_are_numbered():
    assert isinstance(feature_steps(one_hot(), 4, 1), NumberedSteps)
    for other in (2 * one_hot(), sp.csr_array(np.array([[1, 1], [0, 0]], np.float32))):
        assert isinstance(feature_steps(sp.csr_array(other), 4, 1), SparseSteps)
