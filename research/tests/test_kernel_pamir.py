"""PAMIR over kernels: linear PAMIR's scores where the kernel is X Xᵀ, a slow twin where it is not, and no peeking."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.utils.estimator_checks import check_estimator

from planted import plant_corpus
from reference import pamir as reference
from refusals import refused
from visterm.core.errors import DataError, ShapeError
from visterm.core.persist import load_estimator, save_estimator
from visterm.core.tables import MODELS
from visterm.data.tag_queries import queries_of_tags
from visterm.metrics.retrieval import rank_queries
from visterm.models.abilities import LearnsOn
from visterm.models.pamir.pamir import Pamir
from visterm_research.models.pamir.kernel_pamir import KernelPamir, KernelTripletTraining


@pytest.fixture(autouse=True)
def _wrapping_integers():
    with np.errstate(over="ignore"):  # 64-bit products wrap on purpose; NumPy warns of it where Numba is switched off
        yield


@pytest.fixture(scope="module")
def planted():
    return plant_corpus(n_train=300, random_state=4)


def csr(rows):
    return sp.csr_array(np.asarray(rows, np.float32))


@pytest.mark.parametrize(
    "settings",
    [
        {"epochs": 1, "average": 1, "valid_share": 0.0},
        {"epochs": 12, "average": 5, "valid_share": 0.0, "schedule": "inverse", "row_length": 2.0},
        {"epochs": 15, "average": 4, "valid_share": 0.25, "patience": 3},
    ],
    ids=["one epoch", "averaged", "held out"],
)
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_with_the_products_of_features_for_a_kernel_it_is_linear_pamir(form, settings, planted):
    X, X_test = planted.X_train, planted.X_test
    linear = Pamir(**settings).fit(X, planted.Y_train)
    dual = KernelPamir(kernel="precomputed", **settings).fit(form(X @ X.T), planted.Y_train)
    assert dual.n_held_out_ == linear.n_held_out_ == 300 * settings["valid_share"]
    assert dual.n_epochs_ == linear.n_epochs_
    assert [e["map"] for e in dual.history_] == pytest.approx([e["map"] for e in linear.history_], abs=2e-3)
    np.testing.assert_allclose(
        dual.decision_function(form(X_test @ X.T)), linear.decision_function(X_test), rtol=2e-3, atol=2e-3
    )


def test_given_queries_and_validation_images_are_taken_as_by_linear_pamir(planted):
    X, made, test = planted.X_train, queries_of_tags(planted.Y_train), queries_of_tags(planted.Y_test)
    linear, dual = Pamir(epochs=8), KernelPamir(epochs=8, kernel="precomputed")
    linear.fit_queries(X, made.words, made.relevant, valid=(planted.X_test, test.words, test.relevant))
    dual.fit_queries(X @ X.T, made.words, made.relevant, valid=(planted.X_test @ X.T, test.words, test.relevant))
    assert [e["map"] for e in dual.history_] == pytest.approx([e["map"] for e in linear.history_], abs=2e-3)
    assert dual.n_epochs_ == linear.n_epochs_


@pytest.mark.parametrize("scale", [1.0, 0.3])
@pytest.mark.parametrize("c", [0.05, 5.0])
def test_training_is_that_of_the_slow_twin(scale, c):
    rng = np.random.default_rng(0)
    points = rng.normal(size=(30, 4))
    K = rbf_kernel(points, gamma=0.2).astype(np.float32)
    images = np.sort(rng.permutation(30)[:24])
    Q = (rng.random((12, 7)) * (rng.random((12, 7)) < 0.3)).astype(np.float32)
    Q[np.arange(12), np.arange(12) % 7] = 1
    Q, R = csr(Q), csr(rng.random((12, 24)) < 0.2)
    R = csr(np.maximum(R.toarray(), np.eye(12, 24)))
    A = np.zeros((7, 31), np.float32)
    training = KernelTripletTraining(K, images, Q, R, A, scale=scale, rng=np.random.default_rng(1))
    loss, n_moved = training.run(500, c)
    relevant = [chosen for chosen, _ in reference.slices(R)]
    triplets = reference.drawn_triplets(relevant, 24, 500, training._seed, 0)
    expected = np.zeros((7, 24))
    few = scale * K.astype(float)[np.ix_(images, images)]
    losses = reference.train_by_kernel(triplets, reference.slices(Q), few, c, expected)
    np.testing.assert_allclose(A[:, images], expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())
    assert loss == pytest.approx(sum(losses), rel=1e-4)
    assert n_moved == np.count_nonzero(losses)
    assert not A[:, np.setdiff1d(np.arange(31), images)].any()
    np.testing.assert_allclose(training._F, scale * A[:, :30] @ K, rtol=1e-3, atol=1e-4)


def test_what_held_out_images_have_in_common_with_each_other_changes_nothing_that_they_measure(planted):
    settings = {"kernel": "precomputed", "epochs": 6, "valid_share": 0.25, "patience": 10}
    K = rbf_kernel(planted.X_train, gamma=2.0)
    plain = KernelPamir(**settings).fit(K, planted.Y_train)
    rows = np.flatnonzero(np.arange(300) % 2)
    other = K.copy()
    other[np.ix_(rows, rows)] = np.where(np.eye(150, dtype=bool), 1, 0.5)
    # Some of the rows changed are trained on: the history must differ. Those held out alone must not count.
    assert [e["map"] for e in KernelPamir(**settings).fit(other, planted.Y_train).history_] != [
        e["map"] for e in plain.history_
    ]
    held = held_out_rows(settings, K, planted.Y_train)
    assert len(held) == 75
    other = K.copy()
    other[np.ix_(held, held)] = np.where(np.eye(75, dtype=bool), 1, 0.5)
    changed = KernelPamir(**settings).fit(other, planted.Y_train)
    assert [e["map"] for e in changed.history_] == [e["map"] for e in plain.history_]


def held_out_rows(settings, K, Y):
    """Find the images without a weight while those held out say when to stop."""
    weights = []

    class Watched(KernelPamir):
        def _publish(self, *arrays):
            weights.append(arrays[0].copy())
            super()._publish(*arrays)

    n_epochs = len(Watched(**settings).fit(K, Y).history_)
    moved = np.any([w[:, :-1].any(axis=0) for w in weights[: n_epochs + 1]], axis=0)
    return np.flatnonzero(~moved)


@pytest.mark.parametrize("kernel", ["chi2", "intersection", "hellinger", "rbf"])
def test_kernels_by_name_are_those_made_elsewhere_and_keep_only_what_has_a_weight(kernel, planted, tmp_path):
    model = KernelPamir(kernel=kernel, epochs=15, valid_share=0.0).fit(planted.X_train, planted.Y_train)
    scores = model.decision_function(planted.X_test)
    assert model.landmarks_.shape[1] == model.tag_rows_.shape[1] - 1 <= 300
    save_estimator(model, MODELS, tmp_path, "model")
    np.testing.assert_array_equal(load_estimator(MODELS, tmp_path, "model").decision_function(planted.X_test), scores)
    test = queries_of_tags(planted.Y_test)
    assert rank_queries(scores, test.words, test.relevant).average_precision().mean() > 0.45


def test_the_rbf_kernel_by_name_scores_as_made_by_scikit_learn(planted):
    X, X_test = planted.X_train, planted.X_test
    named = KernelPamir(kernel="rbf", gamma=2.0, epochs=5).fit(X, planted.Y_train, valid=(X_test, planted.Y_test))
    made = KernelPamir(kernel="precomputed", epochs=5)
    made.fit(rbf_kernel(X, gamma=2.0), planted.Y_train, valid=(rbf_kernel(X_test, X, 2.0), planted.Y_test))
    np.testing.assert_allclose(
        named.decision_function(X_test), made.decision_function(rbf_kernel(X_test, X, 2.0)), atol=2e-3
    )
    assert [e["map"] for e in named.history_] == pytest.approx([e["map"] for e in made.history_], abs=2e-3)


def test_a_kernel_that_is_none_of_mercers_gives_finite_scores(planted):
    rng = np.random.default_rng(3)
    noise = rng.normal(size=(300, 300))
    K = planted.X_train @ planted.X_train.T + 0.3 * (noise + noise.T)
    assert np.linalg.eigvalsh(K)[0] < -1
    model = KernelPamir(kernel="precomputed", epochs=5).fit(K, planted.Y_train)
    assert np.isfinite(model.decision_function(K)).all()


def test_images_that_are_alike_get_no_weight():
    K = np.ones((4, 4))
    model = KernelPamir(kernel="precomputed", epochs=3).fit(K, np.eye(4, 2))
    assert not model.tag_rows_[:, :-1].any()


def test_new_tags_are_learned_over_the_same_images(planted):
    K, K_test = rbf_kernel(planted.X_train, gamma=2.0), rbf_kernel(planted.X_test, planted.X_train, 2.0)
    model = KernelPamir(kernel="precomputed", epochs=10).fit(K, planted.Y_train[:, :11])
    before = model.decision_function(K_test)
    model.add_tags(K, planted.Y_train[:, [11]])
    scores = model.decision_function(K_test)
    np.testing.assert_array_equal(scores[:, :11], before)
    relevant = planted.Y_test.toarray()[:, 11] > 0
    assert scores[relevant, 11].mean() > scores[~relevant, 11].mean() + 0.3


def test_what_cannot_be_is_refused_with_what_is_accepted(planted):
    X, Y = planted.X_train, planted.Y_train
    K = rbf_kernel(X)
    with refused("loss", value="ndcg"):
        KernelPamir(loss="ndcg").fit(X, Y)
    with refused("kernel", value="linar"):
        KernelPamir(kernel="linar").fit(X, Y)
    with pytest.raises(ShapeError, match=r"X is 300 × 40; with kernel=.precomputed. expected the square kernel"):
        KernelPamir(kernel="precomputed").fit(X, Y)
    with pytest.raises(DataError, match=r"X and its transpose differ by .* rows and columns in the same order"):
        KernelPamir(kernel="precomputed").fit(K[::-1], Y)
    with pytest.raises(DataError, match="is -1 on average; expected squared lengths"):
        KernelPamir(kernel="precomputed").fit(-K, Y)
    with refused("kernel"):
        KernelPamir(kernel="rbf", epochs=1).fit(X, Y).explain(X[:1], 0)


def test_more_images_need_a_new_fit():
    assert isinstance(Pamir(), LearnsOn)
    assert not isinstance(KernelPamir(), LearnsOn)


def test_kernels_by_name_keep_the_rules_of_scikit_learn():
    no_partial_fit = {"check_n_features_in_after_fitting": "it calls partial_fit, which is None"}
    check_estimator(KernelPamir(kernel="rbf", epochs=3), on_skip=None, expected_failed_checks=no_partial_fit)


def test_a_kernel_cannot_become_a_graph(planted):
    model = KernelPamir(epochs=1).fit(planted.X_train, planted.Y_train)
    with refused("kernel", value="rbf"):
        model.write_steps(None, "x")


def test_a_score_is_the_sum_of_the_shares_of_training_images(planted):
    K = rbf_kernel(planted.X_train, gamma=2.0)
    model = KernelPamir(kernel="precomputed", epochs=2).fit(K, planted.Y_train)
    row, bias = model._scorer(K[:1], 3)
    assert K[0] @ row + bias == pytest.approx(model.decision_function(K[:1])[0, 3], abs=1e-3)
