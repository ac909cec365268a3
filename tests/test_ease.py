"""EASE against ten plain lines of NumPy, its choice of a penalty, and tags that do not predict."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from refusals import refused
from visterm.core.errors import TooLargeError
from visterm.models.linear import ease
from visterm.models.linear.ease import ALPHAS, Ease, choose_alpha
from visterm.models.linear.ridge import Ridge


def drawn_tags(n_images=300, n_tags=40, seed=0):
    """Draw tags of six kinds: an image has tags of one kind, and few others."""
    rng = np.random.default_rng(seed)
    kinds, of_image = rng.integers(0, 6, n_tags), rng.integers(0, 6, n_images)
    chance = np.where(of_image[:, None] == kinds, 0.5, 0.03)
    Y = (rng.random((n_images, n_tags)) < chance).astype(np.float32)
    Y[np.arange(n_images), rng.integers(0, n_tags, n_images)] = 1
    return Y


def plain_ease(Y, alpha):
    """Return B of Steck's paper, equation 8, as its program computes it."""
    gram = Y.T.astype(np.float64) @ Y
    P = np.linalg.inv(gram + alpha * np.eye(len(gram)))
    B = P / -np.diag(P)
    B[np.diag_indices(len(B))] = 0
    return B


@pytest.mark.parametrize("alpha", [0.5, 30, 1000])
def test_scores_are_those_of_the_plain_program(alpha):
    Y = drawn_tags()
    model = Ease(alpha=alpha).fit(None, Y)
    np.testing.assert_allclose(model.decision_function(None), Y @ plain_ease(Y, alpha), atol=1e-5)


def test_the_penalty_is_the_one_that_ranks_held_out_tags_best():
    given = sp.csr_array(drawn_tags())
    chosen = choose_alpha(given, np.random.default_rng(0))
    rng = np.random.default_rng(0)
    counts = np.diff(given.indptr)
    images = np.sort(rng.permutation(np.flatnonzero(counts >= 2)))
    entries = given.indptr[images] + rng.integers(0, counts[images])
    known = given.toarray()
    known[images, given.indices[entries]] = 0
    value = {}
    for alpha in ALPHAS:
        scores = np.where(known > 0, -np.inf, known @ plain_ease(known, alpha))[images]
        hidden = scores[np.arange(images.size), given.indices[entries]]
        value[alpha] = float(np.mean(1 / (scores >= hidden[:, None]).sum(axis=1)))
    assert value[chosen] == pytest.approx(max(value.values()), abs=1e-3)


def test_the_most_frequent_tags_predict_the_others_by_least_squares():
    Y = drawn_tags()
    model = Ease(alpha=5, max_inputs=10).fit(None, Y)
    frequent = np.sort(np.argsort(-Y.sum(axis=0), kind="stable")[:10])
    np.testing.assert_array_equal(model.inputs_, frequent)
    inputs, others = Y[:, frequent].astype(np.float64), np.setdiff1d(np.arange(40), frequent)
    scores = model.decision_function(None)
    np.testing.assert_allclose(scores[:, frequent], inputs @ plain_ease(inputs, 5), atol=1e-5)
    weights = np.linalg.solve(inputs.T @ inputs + 5 * np.eye(10), inputs.T @ Y[:, others])
    np.testing.assert_allclose(scores[:, others], inputs @ weights, atol=1e-5)


def test_a_new_tag_is_predicted_by_the_old_tags_whose_rows_stay():
    Y = drawn_tags()
    model = Ease(alpha=5).fit(None, Y[:, :30])
    before = model.tag_rows_.copy()
    model.add_tags(None, Y[:, 30:])
    np.testing.assert_array_equal(model.tag_rows_[:30], before)
    old = Y[:, :30].astype(np.float64)
    weights = np.linalg.solve(old.T @ old + 5 * np.eye(30), old.T @ Y[:, 30:])
    np.testing.assert_allclose(model.tag_rows_[30:].T, weights, atol=1e-5)


def test_with_features_it_is_ridge():
    X, Y = np.random.default_rng(0).standard_normal((60, 5)), drawn_tags(60, 8)
    ridge, model = Ridge().fit(X, Y), Ease().fit(X, Y)
    np.testing.assert_allclose(model.decision_function(X), ridge.decision_function(X), atol=1e-5)


def test_weights_beyond_the_memory_and_wrong_settings_are_refused(monkeypatch):
    Y = drawn_tags()
    for name, value in (("alpha", 0), ("max_inputs", 0)):
        with refused(name, value=value):
            Ease(**{name: value}).fit(None, Y)
    monkeypatch.setattr(ease, "MAX_WEIGHT_BYTES", 1000)
    with pytest.raises(TooLargeError, match="max_inputs"):
        Ease().fit(None, Y)


def test_an_image_has_the_same_scores_alone_and_among_many():
    Y = drawn_tags()
    Y[7] = 0  # no tags: nothing to predict from
    model = Ease(alpha=5).fit(None, Y)
    all_scores = model.decision_function(None)
    np.testing.assert_array_equal(all_scores[7], 0)
    np.testing.assert_array_equal(np.concatenate([block for _, block in model.score_blocks(None)]), all_scores)
    eye = sp.eye_array(len(Y), format="csr", dtype=np.float32)
    for image in (0, 7):
        np.testing.assert_array_equal(model.decision_function(eye[[image]])[0], all_scores[image])
        np.testing.assert_array_equal(model.annotate(eye[[image]], 5).ids[0], model.annotate(None, 5).ids[image])
