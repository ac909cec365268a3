"""Least squares against NumPy's, dense and sparse, and where nothing can be learned."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from visterm_research.models.linear import least_squares
from visterm_research.models.linear.least_squares import LeastSquares

SHAPES = {"more images": (60, 25), "more features": (30, 70)}


def _problem(shape):
    rng = np.random.default_rng(2)
    n, d = SHAPES[shape]
    X = ((rng.random((n, d)) < 0.3) * rng.random((n, d)) + 0.2 * (rng.random(d) < 0.2)).astype(np.float32)
    return X, (rng.random((n, 5)) < 0.3).astype(np.float32)


@pytest.mark.parametrize("solver", ["direct", "conjugate gradients"])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("shape", SHAPES)
def test_least_squares_without_a_penalty_gives_the_shortest_of_the_best_weights(shape, form, solver, monkeypatch):
    if solver != "direct":
        monkeypatch.setattr(least_squares, "DIRECT_SIZE", 10)
    X, T = _problem(shape)
    centred, targets = X.astype(float) - X.mean(axis=0, dtype=float), T - T.mean(axis=0)
    expected = np.linalg.lstsq(centred, targets, rcond=1e-6)[0]
    model = LeastSquares().fit(form(X), T)
    scores = model.decision_function(form(X))
    np.testing.assert_allclose(scores, centred @ expected + T.mean(axis=0), atol=2e-3)
    if form is sp.csr_array or shape == "more images":
        weights = model.tag_rows_[:, :-1] if hasattr(model, "tag_rows_") else model.weights_.T
        np.testing.assert_allclose(weights.T, expected, atol=5e-3)


def test_features_that_never_vary_leave_least_squares_with_the_tag_frequencies():
    model = LeastSquares().fit(np.full((6, 3), 0.7), [[1, 0], [1, 0], [1, 1], [0, 0], [0, 0], [0, 0]])
    np.testing.assert_allclose(model.decision_function(np.full((1, 3), 0.7)), [[0.5, 1 / 6]], atol=1e-5)
