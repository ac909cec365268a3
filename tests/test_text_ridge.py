"""Ridge from text vectors: zero-shot without photos, plain ridge without vectors, and all photos at once or in turn."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp

from refusals import refused
from visterm.core.errors import ShapeError
from visterm.core.persist import load_estimator, save_estimator
from visterm.core.tables import MODELS
from visterm.metrics.ranking import average_precisions
from visterm.models.blend.auto import Auto
from visterm.models.linear.ridge import Ridge
from visterm.models.linear.text_ridge import TextRidge


def two_towers(n, n_tags=40, width=24, noise=0.6, seed=0):
    """Draw photos near the sum of their tags' directions, and text vectors that only roughly have these directions."""
    rng = np.random.default_rng(seed)
    own = rng.standard_normal((n_tags, width))
    Y = (rng.random((n, n_tags)) < 0.05).astype(np.float32)
    Y[np.arange(n), rng.integers(n_tags, size=n)] = 1
    X = Y @ own + noise * rng.standard_normal((n, width)) * np.sqrt(width) / 3
    T = own + 1.2 * rng.standard_normal((n_tags, width))
    return X.astype(np.float32), sp.csr_array(Y), T.astype(np.float32)


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_without_any_photo_of_a_tag_images_rank_by_the_cosine_with_its_text():
    X, Y, T = two_towers(60)
    model = TextRidge(word_vectors=T).fit(X, sp.csr_array(Y.shape, dtype=np.float32))
    order = np.argsort(-model.decision_function(X), axis=0)
    np.testing.assert_array_equal(order, np.argsort(-(unit(X) @ unit(T).T), axis=0))


def test_without_text_it_is_ridge_on_rows_of_unit_length():
    X, Y, _ = two_towers(80)
    found = TextRidge(alpha=0.5).fit(X, Y).decision_function(X)
    np.testing.assert_allclose(found, Ridge(alpha=0.5).fit(unit(X), Y).decision_function(unit(X)), atol=1e-4)


def test_a_tag_with_a_zero_vector_is_learned_from_photos_alone():
    X, Y, T = two_towers(80)
    T[3] = 0
    found = TextRidge(word_vectors=T, alpha=0.5, text_weight=0.1).fit(X, Y).decision_function(X)[:, 3]
    np.testing.assert_allclose(found, TextRidge(alpha=0.5).fit(X, Y).decision_function(X)[:, 3], atol=1e-5)


def test_with_few_photos_it_ranks_tags_better_than_text_alone_and_photos_alone():
    X, Y, T = two_towers(1100, seed=2)
    learned, judged = slice(0, 100), slice(100, 1100)

    def reached(scores):
        return float(np.nanmean(average_precisions(scores, Y[judged])))

    both = reached(TextRidge(word_vectors=T).fit(X[learned], Y[learned]).decision_function(X[judged]))
    photos = reached(Ridge().fit(unit(X[learned]), Y[learned]).decision_function(unit(X[judged])))
    assert both > photos + 0.01
    assert both > reached(unit(X[judged]) @ unit(T).T) + 0.01


def test_text_that_means_nothing_does_little_harm():
    X, Y, T = two_towers(1100, seed=2)
    noise = np.random.default_rng(9).standard_normal(T.shape)
    found = [
        float(np.nanmean(average_precisions(model.fit(X[:100], Y[:100]).decision_function(X[100:]), Y[100:])))
        for model in (TextRidge(word_vectors=noise), TextRidge())
    ]
    assert found[0] > found[1] - 0.02


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_photos_in_turn_teach_what_all_at_once_do(form):
    X, Y, T = two_towers(90)
    settings = {"word_vectors": T, "alpha": 0.3, "text_weight": 0.01}
    turns = TextRidge(**settings).fit(form(X[:50]), Y[:50]).set_params(word_vectors=None)
    turns.text_scale_ = (whole := TextRidge(**settings).fit(form(X), Y)).text_scale_  # by the spread over all photos
    turns.partial_fit(form(X[50:]), Y[50:])
    np.testing.assert_allclose(turns.tag_rows_, whole.tag_rows_, atol=1e-5)


def test_added_tags_have_the_rows_of_a_fit_with_them_and_old_ones_stay_to_the_bit():
    X, Y, T = two_towers(90)
    settings = {"alpha": 0.3, "text_weight": 0.01}
    model = TextRidge(word_vectors=T[:30], **settings).fit(X, Y[:, :30])
    old = model.tag_rows_.copy()
    model.add_tags(X, Y[:, 30:], word_vectors=T[30:])
    np.testing.assert_array_equal(model.tag_rows_[:30], old)
    whole = TextRidge(word_vectors=T, **settings).fit(X, Y)
    whole.text_scale_ = model.text_scale_
    whole.partial_fit(X[:1], sp.csr_array((1, 40), dtype=np.float32))
    model.partial_fit(X[:1], sp.csr_array((1, 40), dtype=np.float32))
    np.testing.assert_allclose(model.tag_rows_, whole.tag_rows_, atol=1e-5)


def test_words_that_are_no_tags_get_the_rows_of_tags_without_photos(tmp_path):
    X, Y, T = two_towers(90)
    Y = Y.toarray()
    Y[:, 5] = 0
    save_estimator(TextRidge(word_vectors=T).fit(X, Y), MODELS, tmp_path, "model")
    model = load_estimator(MODELS, tmp_path, "model")
    np.testing.assert_allclose(model.tag_rows_from(T[5])[0], model.tag_rows_[5], atol=1e-6)


def test_a_rejected_photo_lowers_the_tag_where_an_unknown_one_does_less():
    X, Y, T = two_towers(90)
    Y = Y.toarray()
    Y[0] = 0
    settings = {"word_vectors": T, "alpha": 0.3, "text_weight": 0.01}
    unknown = TextRidge(**settings).fit(X, Y).decision_function(X[:1])[0, 7]
    Y[0, 7] = -1
    assert TextRidge(**settings).fit(X, Y).decision_function(X[:1])[0, 7] < unknown - 0.002


def test_shares_of_features_sum_to_the_score_whatever_the_length_of_the_row():
    X, Y, T = two_towers(90)
    model = TextRidge(word_vectors=T).fit(X, Y)
    shares = model.explain(X[3:4], 2)
    assert shares.shares.sum() + shares.constant == pytest.approx(
        float(model.decision_function(X[3:4])[0, 2]), abs=1e-5
    )


def test_auto_tries_it_where_text_vectors_are_as_wide_as_features(tmp_path):
    X, Y, T = two_towers(260, seed=3)
    blend = Auto(word_vectors=T, random_state=0, n_jobs=1).fit(X, Y)
    assert "text_ridge" in [entry["model"] for entry in blend.report_]
    assert "text_ridge" not in [entry["model"] for entry in Auto(random_state=0, n_jobs=1).fit(X, Y).report_]
    save_estimator(blend, MODELS, tmp_path, "model")
    loaded = load_estimator(MODELS, tmp_path, "model")
    np.testing.assert_array_equal(loaded.decision_function(X), blend.decision_function(X))
    with refused("word_vectors", value=(40, 20), error=ShapeError):
        Auto(word_vectors=T[:, :20]).fit(X, Y)


def test_vectors_of_another_width_and_settings_out_of_range_are_refused_with_advice():
    X, Y, T = two_towers(30)
    with refused("word_vectors", value=(40, 20), error=ShapeError):
        TextRidge(word_vectors=T[:, :20]).fit(X, Y)
    with refused("text_weight", value=-1):
        TextRidge(text_weight=-1).fit(X, Y)
    with pytest.raises(ShapeError, match="expected"):
        TextRidge(word_vectors=T).fit(X, Y).tag_rows_from(T[:2, :20])


def test_answers_that_are_mostly_no_leave_a_library_without_tags_better_than_its_words_alone():
    X, Y, T = two_towers(400)
    Y = Y.toarray() > 0
    best = np.argsort(-(X @ T.T), axis=1)[:, :8]
    answers = np.zeros(Y.shape)
    for photo in range(200):
        tag = best[photo, photo % 8]
        answers[photo, tag] = 1 if Y[photo, tag] else -1
    assert (answers < 0).sum() > (answers > 0).sum()
    judged = sp.csr_array(Y[200:].astype(np.float32))
    words = TextRidge(word_vectors=T).fit(X[:200], np.zeros(Y[:200].shape)).decision_function(X[200:])
    taught = TextRidge(word_vectors=T).fit(X[:200], answers[:200]).decision_function(X[200:])
    assert np.nanmean(average_precisions(taught, judged)) > np.nanmean(average_precisions(words, judged))


def test_a_model_without_tags_is_made_without_scikit_learn_which_takes_a_second_to_import():
    code = (
        "import sys\n"
        "from visterm.models.linear.text_ridge import TextRidge\n"
        "model = TextRidge.without_tags(3)\n"
        "assert (model.n_features_in_, model.n_tags_) == (3, 0)\n"
        "assert 'sklearn' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
