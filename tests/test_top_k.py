"""Exact selection of the k best, and the blocks in which `annotate` asks for it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planted import plant_corpus
from visterm.core.errors import TooLargeError
from visterm.kernels.topk import top_k
from visterm.models import base
from visterm.models.linear.ridge import Ridge


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 40), st.data())
def test_the_k_best_are_those_of_a_stable_sort(seed, n, m, data):
    k = data.draw(st.integers(0, m))
    scores = np.random.default_rng(seed).integers(-4, 4, (n, m)).astype(np.float32)  # few values: many ties
    ids, values = top_k(scores, k)
    expected = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(ids, expected)
    np.testing.assert_array_equal(values, np.take_along_axis(scores, expected, axis=1))


def test_equal_scores_stand_in_the_order_of_their_ids():
    ids, values = top_k(np.array([[1, 3, 3, 0, 3]], np.float32), 4)
    assert ids.tolist() == [[1, 2, 4, 0]]
    assert values.tolist() == [[3, 3, 3, 1]]


def test_no_images_give_an_empty_ranking():
    ids, values = top_k(np.empty((0, 5), np.float32), 3)
    assert ids.shape == values.shape == (0, 3)


@pytest.fixture
def fitted():
    planted = plant_corpus()
    return Ridge().fit(planted.X_train, planted.Y_train), planted.X_test


def test_annotate_gives_the_same_in_blocks_of_few_images(fitted, monkeypatch):
    model, X = fitted
    whole = model.annotate(X, 4)
    monkeypatch.setattr(base, "BLOCK_BYTES", 7 * 4 * model.n_tags_)
    in_blocks = model.annotate(X, 4)
    np.testing.assert_array_equal(in_blocks.ids, whole.ids)
    np.testing.assert_allclose(in_blocks.scores, whole.scores, rtol=1e-5)


def test_scores_that_would_not_fit_are_refused_with_advice_and_can_still_be_annotated(fitted, monkeypatch):
    model, X = fitted
    monkeypatch.setattr(base, "MAX_SCORE_BYTES", 1000)
    with pytest.raises(TooLargeError, match=r"All scores of 120 images × 12 tags.*Use annotate"):
        model.decision_function(X)
    assert model.annotate(X, 2).ids.shape == (120, 2)
