"""The kernels of TagProp and 2PKNN beside their slow twins."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from reference.neighbours import two_pass_shares, vote_loss
from visterm_research.kernels.neighbour_votes import two_pass_votes, vote_slopes


def drawn(seed=0, n=6, m=15, k=5, n_tags=8):
    rng = np.random.default_rng(seed)
    given = (rng.random((m, n_tags)) < 0.3).astype(np.float32)
    ids = np.argsort(rng.random((n, m)), axis=1)[:, :k]
    ids[0, 3:] = -1
    ids[1, 1] = ids[1, 0]
    weights = rng.dirichlet(np.ones(k), n)
    own = (rng.random((n, n_tags)) < 0.3).astype(np.float32)
    return ids, weights, given, own, rng.uniform(-1, 5, n_tags), rng.uniform(-3, 1, n_tags)


def loss_and_slopes(ids, weights, given, own, scale, offset, squash):
    Y, own = sp.csr_array(given), sp.csr_array(own)
    losses, slopes = np.full(len(ids), np.nan), np.full(weights.shape, np.nan)
    for first, last in ((0, 2), (2, len(ids))):
        vote_slopes(
            first, last, ids, weights, Y.indptr, Y.indices, own.indptr, own.indices, (1.0, 0.25), 0.01, scale, offset,
            squash, losses, slopes,
        )  # fmt: skip
    return losses, slopes


@pytest.mark.parametrize("squash", [False, True])
def test_the_loss_of_votes_is_that_of_the_slow_twin(squash):
    ids, weights, given, own, scale, offset = drawn()
    found, _ = loss_and_slopes(ids, weights, given, own, scale, offset, squash)
    rows = zip(ids, weights, own, strict=True)
    expected = [vote_loss(i, w, given, o, (1.0, 0.25), 0.01, scale, offset, squash) for i, w, o in rows]
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("squash", [False, True])
def test_slopes_are_how_the_loss_changes_with_each_weight(squash):
    ids, weights, given, own, scale, offset = drawn(seed=1)
    _, slopes = loss_and_slopes(ids, weights, given, own, scale, offset, squash)
    step = 1e-6
    for i, k in np.ndindex(weights.shape):
        values = []
        for change in (-step, step):
            moved = weights.copy()
            moved[i, k] += change
            values.append(loss_and_slopes(ids, moved, given, own, scale, offset, squash)[0][i])
        assert slopes[i, k] == pytest.approx((values[1] - values[0]) / (2 * step), rel=1e-4, abs=1e-5)


@pytest.mark.parametrize(("n_neighbors", "bandwidth"), [(1, 0.0), (2, 3.0), (15, 50.0)])
def test_votes_are_those_of_the_slow_twin_without_the_image_itself(n_neighbors, bandwidth):
    rng = np.random.default_rng(4)
    given = sp.csr_array((rng.random((15, 5)) < 0.4).astype(np.float32))
    distances = rng.random((6, 15)).astype(np.float32).round(1)
    own = np.array([3, -1, 0, 7, -1, 14])
    distances[np.flatnonzero(own >= 0), own[own >= 0]] = np.inf
    members = sp.csr_array(given.T)
    found = np.full((6, 5), np.nan, np.float32)
    two_pass_votes(
        distances, own, members.indptr, members.indices, given.indptr, given.indices, n_neighbors, bandwidth, found
    )
    expected = [
        two_pass_shares(d, given.toarray(), o, n_neighbors, bandwidth) for d, o in zip(distances, own, strict=True)
    ]
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_an_image_without_any_other_to_vote_gets_no_votes():
    given = sp.csr_array(np.array([[1.0, 0.0]], np.float32))
    members = sp.csr_array(given.T)
    found = np.full((1, 2), np.nan, np.float32)
    two_pass_votes(
        np.zeros((1, 1), np.float32), np.array([0]), members.indptr, members.indices, given.indptr, given.indices, 3,
        1.0, found,
    )  # fmt: skip
    assert found.tolist() == [[0, 0]]
