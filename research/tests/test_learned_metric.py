"""2PKNN's learned metric: slopes against differences of a slow twin, and noise that loses its weight."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from planted import plant_corpus
from reference.neighbours import distance, metric_loss
from visterm.core.errors import UserError
from visterm.metrics import average_precisions
from visterm_research.kernels.metric_slopes import metric_slopes
from visterm_research.models.neighbours.learned_metric import KINDS, Metric, Neighbourhoods
from visterm_research.models.neighbours.two_pass_knn import TwoPassKnn

WIDTH = 40
BLOCKS = (WIDTH,) * 4


@pytest.fixture(scope="module")
def noisy():
    """A planted corpus with three blocks of pure noise of the same make beside its features."""
    planted, *noise = (plant_corpus(n_train=400, n_test=200, random_state=seed) for seed in (3, 4, 5, 6))
    X = np.hstack([planted.X_train, *(other.X_train for other in noise)])
    X_test = np.hstack([planted.X_test, *(other.X_test for other in noise)])
    return X, planted.Y_train, X_test, planted.Y_test


def map_of(model, noisy):
    X, Y, X_test, Y_test = noisy
    return np.nanmean(average_precisions(model.fit(X, Y).decision_function(X_test), Y_test))


@pytest.fixture(scope="module")
def learned(noisy):
    models = {metric: TwoPassKnn(blocks=BLOCKS, metric=metric, n_jobs=1) for metric in ("equal", "blocks", "features")}
    return {metric: (model, map_of(model, noisy)) for metric, model in models.items()}


def test_a_block_of_noise_loses_its_weight_and_images_are_tagged_better(learned):
    _, before = learned["equal"]
    for metric in ("blocks", "features"):
        model, after = learned[metric]
        assert model.block_weights_.sum() == pytest.approx(4)
        assert model.block_weights_[0] > 3.5
        assert after > before + 0.1


def test_features_of_noise_lose_their_weight_within_one_block(noisy):
    equal, learned = (
        TwoPassKnn(distances="l1", metric=metric, n_jobs=1, n_neighbors=2) for metric in ("equal", "features")
    )
    before, after = map_of(equal, noisy), map_of(learned, noisy)
    assert learned.feature_factors_[WIDTH:].mean() < 0.3 * learned.feature_factors_[:WIDTH].mean()
    assert learned.block_weights_.tolist() == [1]
    assert after > before + 0.05


def test_scores_are_those_of_rows_that_are_multiplied_and_blocks_that_are_weighed(learned, noisy):
    X, _, X_test, _ = noisy
    model, _ = learned["features"]
    factors = model.feature_factors_
    np.testing.assert_allclose(model.rows_, X * factors, rtol=1e-6)
    plain = TwoPassKnn(blocks=BLOCKS, n_neighbors=model.n_neighbors_, bandwidth=model.bandwidth_).fit(
        X * factors, noisy[1]
    )
    weighed = model.scales_ / np.where(model.block_weights_ > 0, model.block_weights_, 1e-9)
    plain.scales_ = weighed.astype(np.float64)  # dividing by less counts as weighing more
    np.testing.assert_allclose(
        model.decision_function(X_test[:20]), plain.decision_function(X_test[:20] * factors), rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize("kind", list(KINDS))
def test_slopes_are_the_differences_of_the_loss_of_a_slow_twin(kind):
    rng = np.random.default_rng(5)
    x, rows = rng.standard_normal(7).astype(np.float32), rng.standard_normal((9, 7)).astype(np.float32)
    names, slices = [kind, "l1"], [slice(0, 4), slice(4, 7)]
    right = np.arange(9) < 3
    wrong = np.where(right, 0.0, rng.uniform(size=9))
    scales, v, w = np.array([2.0, 3.0]), rng.uniform(0.5, 2, 2), rng.uniform(0.5, 2, 7)
    slopes_v, slopes_w = np.zeros(2), np.zeros(7)
    columns = np.array([[0, 4], [4, 7]])
    kinds = np.array([KINDS[name] for name in names])
    loss = metric_slopes(x, rows, right, wrong, 1.5, kinds, columns, scales, v, w, slopes_v, slopes_w)

    def twin(v, w):
        return metric_loss(x, rows, right, wrong, 1.5, names, slices, scales, v, w)

    assert loss == pytest.approx(twin(v, w), rel=1e-6)
    for weights, slopes in ((v, slopes_v), (w, slopes_w)):
        for place in range(weights.size):
            step = np.zeros_like(weights)
            step[place] = 1e-5
            up, down = ((v + s * step, w) if weights is v else (v, w + s * step) for s in (1, -1))
            assert slopes[place] == pytest.approx((twin(*up) - twin(*down)) / 2e-5, rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("kind", ["l1", "l2", "chi2"])
def test_weighted_distances_are_plain_ones_of_multiplied_features(kind):
    rng = np.random.default_rng(6)
    x, y, w = *rng.standard_normal((2, 5)), rng.uniform(0.1, 2, 5)
    factors = Metric(np.ones(1), w).factors([slice(0, 5)], [kind])
    parts = {"l1": abs(x - y), "l2": (x - y) ** 2, "chi2": (x - y) ** 2 / (abs(x) + abs(y))}[kind]
    expected = np.sqrt(w @ parts) if kind == "l2" else w @ parts
    assert distance(kind, x * factors, y * factors) == pytest.approx(expected, rel=1e-5)


def test_a_metric_of_another_unit_ranks_as_before():
    metric = Metric(np.array([1.0, 3.0]), np.array([2.0, 4.0, 9.0, 9.0]))
    found = metric.normalised([slice(0, 2), slice(2, 4)], ["l1", "l2"])
    np.testing.assert_allclose(found.w, [2 / 3, 4 / 3, 1, 1])
    np.testing.assert_allclose(found.v, [3 / 6, 9 / 6])  # 1 · 3 and 3 · √9, of mean 1


def test_neighbours_of_own_tags_are_right_and_others_wrong_by_the_tags_that_they_lack():
    given = sp.csr_array(np.array([[1, 1, 0], [1, 0, 0], [0, 1, 1], [1, 0, 1], [0, 0, 1]], np.float32))
    near = Neighbourhoods(given, 1).of(0, np.array([0, 0.3, 0.2, 0.4, 0.1], np.float32))
    assert near.ids.tolist() == [1, 2, 4]  # nearest of the tags 0, 1 and 2, itself never
    assert near.right.tolist() == [True, True, False]
    assert near.wrong.tolist() == [0, 0, 1]
    near = Neighbourhoods(given, 1).of(0, np.array([0, 0.3, 0.5, 0.1, 0.2], np.float32))
    assert near.ids.tolist() == [3, 2]
    near = Neighbourhoods(given, 1).of(1, np.array([0.1, 0, 0.2, 0.4, 0.5], np.float32))
    assert (near.ids.tolist(), near.right.tolist(), near.wrong.tolist()) == ([0, 2], [True, False], [0, 1])


def test_too_few_tagged_images_teach_nothing():
    planted = plant_corpus(n_train=30, random_state=1)
    model = TwoPassKnn(metric="features").fit(planted.X_train, planted.Y_train)
    assert model.feature_factors_.tolist() == [1] * 40


def test_a_metric_needs_blocks_that_do_not_overlap_and_a_name_that_there_is(noisy):
    X, Y, _, _ = noisy
    with pytest.raises(UserError, match=r"blocks \(0, 50\) and \(40, 80\) overlap.*or metric='equal'"):
        TwoPassKnn(blocks=((0, 50), (40, 80)), metric="blocks").fit(X, Y)
    with pytest.raises(UserError, match=r"Unknown metric 'block'. Did you mean 'blocks'\?"):
        TwoPassKnn(metric="block").fit(X, Y)
