"""The two steps of PLSA and its folding in against slow EM, and that captions alone make the aspects."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from planted import plant_corpus
from reference.generative import em_step, log_likelihood
from visterm.core.errors import DataError, UserError
from visterm_research.models.generative import plsa
from visterm_research.models.generative.plsa import Plsa, refit_images, refit_words


@pytest.fixture(scope="module")
def planted():
    return plant_corpus(random_state=1)


@pytest.fixture(scope="module")
def problem():
    """Counts, P(z|p) and P(w|z): an image without words, and one and a word that no aspect explains."""
    rng = np.random.default_rng(3)
    counts = rng.poisson(0.6, (7, 9)).astype(float)
    images, words = rng.random((7, 4)), rng.random((9, 4))
    counts[2], words[5], images[:, 1] = 0, 0, 0
    counts[4] = 0
    counts[4, 5] = 2
    return counts, images / images.sum(axis=1, keepdims=True), words / words.sum(axis=0)


@pytest.mark.parametrize("dense_from", [0.0, 2.0], ids=["all products", "stored places"])
@pytest.mark.parametrize("block", [2**22, 20], ids=["one block", "blocks"])
def test_steps_of_em_are_those_of_posteriors_one_by_one(dense_from, block, monkeypatch, problem):
    monkeypatch.setattr(plsa, "MIN_DENSE_SHARE", dense_from)
    monkeypatch.setattr(plsa, "BLOCK_FLOATS", block)
    counts, images, words = problem
    new_images, new_words = em_step(counts, images, words)
    np.testing.assert_allclose(refit_images(sp.csr_array(counts), images, words), new_images, atol=1e-12)
    np.testing.assert_allclose(refit_words(sp.csr_array(counts), images, words), new_words, atol=1e-12)


def test_what_no_word_explains_stays_as_it_was(problem):
    counts, images, words = problem
    moved = refit_images(sp.csr_array(counts), images, words)
    np.testing.assert_array_equal(moved[[2, 4]], images[[2, 4]])
    np.testing.assert_array_equal(refit_words(sp.csr_array(counts), images, words)[:, 1], words[:, 1])


def test_training_and_folding_in_are_the_papers_steps(planted):
    X, Y = planted.X_train[:40], planted.Y_train[:40].toarray()
    model = Plsa(aspects=5, epochs=4, visterm_epochs=3, fold_epochs=2, random_state=8).fit(X, Y)
    images = np.full((40, 5), 1 / 5)
    tags = np.random.default_rng(8).random((12, 5)) + 0.5
    tags /= tags.sum(axis=0)
    for _ in range(4):
        images, tags = em_step(Y, images, tags)
    visterms = np.full((40, 5), 1 / 40)
    for _ in range(3):
        visterms = em_step(X, images, visterms)[1]
    np.testing.assert_allclose(model.tag_rows_, tags, atol=1e-6)
    np.testing.assert_allclose(model.visterms_, visterms, atol=1e-6)
    new = np.tile(images.mean(axis=0), (6, 1))
    for _ in range(2):
        new = em_step(planted.X_test[:6], new, visterms)[0]
    np.testing.assert_allclose(model.image_rows(planted.X_test[:6]), new, atol=1e-5)
    np.testing.assert_allclose(model.decision_function(planted.X_test[:6]), new @ tags.T, atol=1e-5)


def test_more_rounds_make_captions_and_pictures_no_less_likely(problem):
    counts, images, words = problem
    words = words + 0.1
    words /= words.sum(axis=0)
    images = images + 0.1
    images /= images.sum(axis=1, keepdims=True)
    csr, found = sp.csr_array(counts), []
    for step in range(12):
        found.append(log_likelihood(counts, images, words))
        if step % 3 == 0:
            images = refit_images(csr, images, words)
        elif step % 3 == 1:
            words = refit_words(csr, images, words)
        else:
            images, words = refit_images(csr, images, words), refit_words(csr, images, words)
    assert (np.diff(found) > -1e-9).all()
    assert found[-1] > found[0] + 1


def test_aspects_are_about_tags_whatever_the_pictures_show(planted):
    model, other = (
        Plsa(aspects=6).fit(X, planted.Y_train) for X in (planted.X_train, planted.X_train[::-1, ::-1].copy())
    )
    np.testing.assert_array_equal(model.tag_rows_, other.tag_rows_)
    np.testing.assert_array_equal(model.average_, other.average_)
    assert (model.visterms_ != other.visterms_).any()


def test_scores_are_probabilities_and_an_image_without_visterms_is_an_average_one(planted):
    model = Plsa(aspects=6).fit(planted.X_train, planted.Y_train)
    X = np.vstack([planted.X_test[:5], np.zeros((1, 40))])
    np.testing.assert_allclose(model.decision_function(X).sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(model.image_rows(X)[-1], model.average_, rtol=1e-6)


def test_visterms_of_no_training_image_say_nothing(planted):
    X = planted.X_train.copy()
    X[:, 7] = 0
    model = Plsa(aspects=6).fit(X, planted.Y_train)
    new, without = planted.X_test[:5].copy(), planted.X_test[:5].copy()
    new[:, 7], without[:, 7] = 3, 0
    np.testing.assert_allclose(model.decision_function(new), model.decision_function(without), atol=1e-6)


def test_progress_tells_of_both_steps(planted):
    class Heard:
        def __init__(self):
            self.tasks, self.steps = [], 0

        def start(self, task, total=None):
            self.tasks.append((task, total))

        def advance(self, steps=1, note=""):
            self.steps += steps

        def finish(self):
            pass

    heard = Heard()
    Plsa(aspects=3, epochs=5, visterm_epochs=2).fit(planted.X_train, planted.Y_train, monitor=heard)
    assert heard.tasks == [("fit aspects to captions", 5), ("fit visterms to aspects", 2)]
    assert heard.steps == 7


@pytest.mark.parametrize("name", ["aspects", "epochs", "visterm_epochs", "fold_epochs"])
def test_settings_that_cannot_be_used_are_refused(name, planted):
    with pytest.raises(UserError, match=f"{name} is 0; expected a whole number of 1 or more"):
        Plsa(**{name: 0}).fit(planted.X_train, planted.Y_train)


def test_counts_below_0_are_refused(planted):
    with pytest.raises(DataError, match="the lowest is -1"):
        Plsa().fit(np.full((240, 2), -1.0), planted.Y_train)
