"""Steps of images known by number: what the loops over features would do, without the loops."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from visterm.models.ranking.image_sides import EmbeddedImages, StepSettings

N_IMAGES, N_ROWS, DIM = 12, 29, 5  # With fewer rows of the map the features would be taken as an array
NUMBERS = np.array([3, 3, 0, 8, 1, 2, 7, 7, 7, 5, 4, 6])


def one_hot():
    return sp.csr_array((np.ones(N_IMAGES, np.float32), NUMBERS, np.arange(N_IMAGES + 1)), shape=(N_IMAGES, N_ROWS))


def with_a_stored_zero():
    """Return the same rows with one more feature, a stored 0 in the last column: no images known by number."""
    zeros = sp.csr_array((np.zeros(N_IMAGES, np.float32), np.zeros(N_IMAGES, int), np.arange(N_IMAGES + 1)))
    return sp.csr_array(sp.hstack([one_hot(), zeros], format="csr"))


def embedded(X, image_map, *, l2=0.0, adagrad=False, n_jobs=1):
    return EmbeddedImages(X, image_map, StepSettings(30, 1.5, l2, adagrad), scale=1.0, n_jobs=n_jobs)


@pytest.mark.parametrize("n_shares", [1, 2, 5])
@pytest.mark.parametrize("l2", [0.0, 0.4])
@pytest.mark.parametrize("adagrad", [False, True])
def test_numbered_rows_move_as_features_that_are_one_in_one_place(adagrad, l2, n_shares):
    rng = np.random.default_rng(0)
    images = rng.integers(N_IMAGES, size=30)
    active = rng.integers(-1, 2, size=30)
    steps = rng.standard_normal((30, DIM)).astype(np.float32)
    start = rng.standard_normal((N_ROWS, DIM)).astype(np.float32)
    moved = []
    for X in (one_hot(), with_a_stored_zero()):
        weights = np.concatenate([start, start[:1]])[: X.shape[1]]
        side = embedded(X, weights, l2=l2, adagrad=adagrad, n_jobs=n_shares)
        side.set_rate(0.5)
        side.take(images)
        side.embed(slice(0, 30))
        np.testing.assert_array_equal(side.U, start[NUMBERS[images]])
        side.steps[:] = steps
        for share in range(side.n_shares):
            side.move(share, active)
        moved.append((weights[:N_ROWS], side.squares[:N_ROWS]))
    assert not np.array_equal(moved[0][0], start)
    for numbered, by_features in zip(*moved, strict=True):
        np.testing.assert_allclose(numbered, by_features, rtol=1e-6)


def test_only_rows_that_are_one_in_one_place_are_numbered():
    image_map = np.zeros((N_ROWS + 1, DIM), np.float32)
    assert embedded(one_hot(), image_map[:N_ROWS]).by_number
    for other in (2 * one_hot(), sp.csr_array(np.array([[1, 1], [0, 0]], np.float32)), with_a_stored_zero()):
        assert not embedded(sp.csr_array(other), image_map[: other.shape[1]]).by_number
