"""Networks that sampled tagging is compared with: what they predict, how they start, what they refuse."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

pytest.importorskip("torch", reason="the extra 'torch' is not installed")

from planted import plant_corpus
from visterm.core.errors import DataError
from visterm.core.tables import MODELS
from visterm_research.models.deep.averaged_word_vectors import correlation_weights, share_rows
from visterm_research.models.deep.cross_entropy_tagger import CrossEntropyTagger
from visterm_research.models.deep.fast0tag import Fast0Tag

SMALL = {"hidden": [24], "epochs": 4, "batch_size": 40, "learning_rate": 0.005, "device": "cpu"}


@pytest.fixture(scope="module")
def planted():
    return plant_corpus(n_tags=12, random_state=3)


@pytest.fixture(scope="module")
def words():
    return np.random.default_rng(0).standard_normal((12, 10)).astype(np.float32) * 5


@pytest.mark.parametrize("name", ["cross_entropy_tagger", "fast0tag"])
def test_fixed_vectors_stay_at_one_length_and_moving_ones_move(name, planted, words):
    fixed, moving = (
        MODELS.create(name, **SMALL, word_vectors=words, fixed_vectors=fixed).fit(planted.X_train, planted.Y_train)
        for fixed in (True, False)
    )
    factor = np.sqrt(len(words) / np.square(words).sum())
    np.testing.assert_allclose(fixed.tag_rows_, words * factor, rtol=1e-5)
    assert fixed.vector_scale_ == pytest.approx(factor, rel=1e-5)
    assert (moving.tag_rows_ != fixed.tag_rows_).any(axis=1).all()


STILL = {"hidden": [], "epochs": 1, "batch_size": 40, "learning_rate": 1e-9, "tag_learning_rate": 1e-9, "device": "cpu"}


def test_the_targets_are_means_of_given_less_means_of_denied_tags():
    Y = sp.csr_array(np.array([[1, 1, -1], [0, 0, 1], [0, 0, 0]], np.float32))
    ones = sp.csr_array((np.ones(4, np.float32), Y.indices, Y.indptr), shape=Y.shape)
    assert share_rows(Y, ones).toarray().tolist() == [[0.5, 0.5, -1], [0, 0, 1], [0, 0, 0]]


def test_correlated_tags_weigh_by_how_often_they_come_with_the_images_others():
    # Tags 0 and 1 together on images 0 and 1, tags 0 and 2 on image 2 alone, tag 2 alone on image 3, and 3 denied.
    given = np.array([[1, 1, 0, 0], [1, 1, 0, -1], [1, 0, 1, 0], [0, 0, 1, 0]], np.float32)
    weights = correlation_weights(sp.csr_array(given)).toarray()
    both, lone = 2 / np.sqrt(3 * 2), 1 / np.sqrt(3 * 2)
    expected = [[1 + both, 1 + both, 0, 0], [1 + both, 1 + both, 0, 1], [1 + lone, 0, 1 + lone, 0], [0, 0, 1, 0]]
    np.testing.assert_allclose(weights, expected, rtol=1e-6)
    three = sp.csr_array(np.array([[1, 1, 1], [1, 1, 0], [0, 0, 1]], np.float32))
    shares = share_rows(three, correlation_weights(three)).toarray()[0]
    of_pair, of_third = 1 + 1 + 0.5, 1 + 0.5 + 0.5
    np.testing.assert_allclose(shares, np.array([of_pair, of_pair, of_third]) / (2 * of_pair + of_third), rtol=1e-6)


def test_costs_of_all_tags_refuse_what_would_not_fit_in_memory(planted):
    Y = sp.csr_array((planted.Y_train.data, planted.Y_train.indices, planted.Y_train.indptr), shape=(240, 3_000_000))
    for model, advice in ((CrossEntropyTagger(**SMALL), "Use sampled_tagger"), (Fast0Tag(**SMALL), "all_pairs=False")):
        with pytest.raises(DataError, match=f"{advice}.*batch_size"):
            model._objective(Y)


@pytest.mark.parametrize("name", ["cross_entropy_tagger", "fast0tag", "average_word_vector", "correlated_word_vectors"])
def test_images_without_tags_are_passed_over_and_no_tags_at_all_refused(name, planted):
    empty = sp.csr_array((30, 12))
    X = np.vstack([planted.X_train, np.ones((30, 40), np.float32)])
    model = MODELS.create(name, **SMALL, dim=8).fit(X, sp.vstack([planted.Y_train, empty]))
    assert np.isfinite(model.history_[-1]["loss"])
    with pytest.raises(DataError, match="No image has a tag"):
        MODELS.create(name, **SMALL, dim=8).fit(X, sp.csr_array((270, 12)))


@pytest.mark.parametrize("dim", [20, None])
def test_scores_of_all_tags_that_start_low_start_at_the_log_odds_of_a_given_tag(planted, dim):
    X, Y = planted.X_train, planted.Y_train
    given = (Y > 0).sum() / (np.diff(Y.indptr) > 0).sum()
    full = CrossEntropyTagger(**STILL, dim=dim, start_low=True).fit(X, Y)
    scores = np.concatenate([block for _, block in full.score_blocks(X)])
    assert scores.mean() == pytest.approx(np.log(given / (12 - given)), abs=0.1)
    assert np.linalg.norm(full.tag_rows_, axis=1).mean() == pytest.approx(1, abs=0.1)
