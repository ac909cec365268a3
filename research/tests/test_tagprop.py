"""TagProp: weights and sigmoids against what they seek, and votes against the definition."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize

from planted import plant_corpus
from reference.neighbours import distance
from visterm.core.errors import UnknownNameError, UserError
from visterm_research.models.neighbours.tag_sigmoids import Costs, fit_sigmoids
from visterm_research.models.neighbours.tagprop import MIN_PROBABILITY, TagProp, interleaved


@pytest.fixture(scope="module")
def planted():
    return plant_corpus(n_tags=12, random_state=7)


def test_each_tags_sigmoid_is_the_one_that_a_general_optimiser_finds():
    rng = np.random.default_rng(3)
    votes = sp.csr_array((rng.random((60, 4)) < 0.4) * rng.random((60, 4)))
    tags = sp.csr_array((rng.random((60, 4)) < 0.1 + 0.6 * votes.toarray()).astype(np.float32))
    costs = Costs.balanced(tags)
    found = fit_sigmoids(votes, tags, costs, 0.01)

    def fit(columns, centre, prior):
        v, y = votes.toarray()[:, columns].ravel(), tags.toarray()[:, columns].ravel() > 0
        cost = np.where(y, costs.given, costs.absent)

        def loss(curve):
            margins = np.where(y, 1, -1) * (curve[0] * v + curve[1])
            return (cost * np.logaddexp(0, -margins)).sum() + prior / 2 * np.square(curve - centre).sum()

        return minimize(loss, centre, method="BFGS", options={"gtol": 1e-8}).x

    common = fit(slice(None), np.zeros(2), 1e-6)
    for tag in range(4):
        expected = fit([tag], common, 0.01)
        np.testing.assert_allclose([found.scale[tag], found.offset[tag]], expected, rtol=1e-3, atol=1e-3)


def test_sigmoids_stay_finite_where_votes_tell_tags_without_exception_and_where_there_are_none():
    votes = sp.csr_array(np.array([[0.9, 0.2, 0.0], [0.8, 0.0, 0.0], [0.0, 0.0, 0.3]]))
    tags = sp.csr_array(np.array([[1, 0, 0], [1, 0, 0], [0, 0, 0]], np.float32))
    found = fit_sigmoids(votes, tags, Costs.balanced(tags), 0.01)
    assert np.isfinite(found.scale).all()
    assert np.isfinite(found.offset).all()
    assert found.scale[0] > 0


def test_neighbours_are_taken_from_the_lists_in_turn_each_once():
    first, second = np.array([[4, 1, 2, 3], [0, 1, 2, 3]]), np.array([[1, 4, 5, 6], [7, 8, 9, 0]])
    assert interleaved([first, second], 4).tolist() == [[4, 1, 2, 5], [0, 7, 1, 8]]
    assert interleaved([first], 3).tolist() == [[4, 1, 2], [0, 1, 2]]


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_votes_by_distance_weigh_as_the_learned_metric_says(form, planted):
    X, given = planted.X_train, planted.Y_train.toarray()
    blocks, names = [(0, 20), (10, 40)], ["l2", "l1"]
    settings = {"blocks": blocks, "distances": names, "n_neighbors": 30, "sigmoid": False}
    model = TagProp(**settings).fit(form(X), planted.Y_train)
    scores = model.decision_function(form(planted.X_test[:8]))
    for x, row in zip(planted.X_test, scores, strict=False):
        apart = np.array(
            [[distance(n, x[a:b], y[a:b]) for n, (a, b) in zip(names, blocks, strict=True)] for y in X]
        ) / np.asarray(model.scales_)
        near = [int(i) for i in interleaved([np.argsort(apart[:, [b]].T, axis=1) for b in (0, 1)], 30)[0]]
        weights = np.exp(-apart[near] @ model.distance_weights_)
        np.testing.assert_allclose(row, (weights / weights.sum()) @ given[near], atol=1e-5)


def held_out_loss(model, X, given, weights_of):
    """The negative log-likelihood of all training images, each left out, for votes without sigmoids."""
    apart = np.array([[distance("l2", x, y) for y in X] for x in X]) / model.scales_[0]
    np.fill_diagonal(apart, np.inf)
    costs = Costs.balanced(sp.csr_array(given))
    total = 0.0
    for i in range(len(X)):
        near = np.argsort(apart[i], kind="stable")[: model.n_neighbors_]
        votes = MIN_PROBABILITY + (1 - 2 * MIN_PROBABILITY) * weights_of(apart[i, near]) @ given[near]
        total -= costs.given * np.log(np.clip(votes[given[i] > 0], MIN_PROBABILITY, 1)).sum()
        total -= costs.absent * np.log(np.clip(1 - votes[given[i] == 0], MIN_PROBABILITY, 1)).sum()
    return total


def by_distance(weight):
    def weights_of(apart):
        shares = np.exp(-weight * (apart - apart[0]))
        return shares / shares.sum()

    return weights_of


def test_the_weight_of_a_distance_makes_left_out_tags_most_likely(planted):
    X, Y = planted.X_train[:120], planted.Y_train[:120]
    model = TagProp(n_neighbors=25, sigmoid=False).fit(X, Y)
    weight = model.distance_weights_[0]
    best = held_out_loss(model, X, Y.toarray(), by_distance(weight))
    for other in (0.0, 0.9 * weight, 1.1 * weight, 3 * weight):
        assert best < held_out_loss(model, X, Y.toarray(), by_distance(other))


def test_rank_weights_sum_to_one_fall_and_make_left_out_tags_most_likely(planted):
    X, Y = planted.X_train[:120], planted.Y_train[:120]
    model = TagProp(weights="rank", n_neighbors=8, sigmoid=False).fit(X, Y)
    learned = model.rank_weights_
    assert learned.sum() == pytest.approx(1)
    assert learned[:2].mean() > learned[-2:].mean()
    best = held_out_loss(model, X, Y.toarray(), lambda _: learned)
    rng = np.random.default_rng(0)
    for _ in range(5):
        other = learned * rng.uniform(0.8, 1.2, 8)
        other /= other.sum()
        assert best <= held_out_loss(model, X, Y.toarray(), lambda _, w=other: w) + 1e-6


def test_rank_weights_of_several_blocks_have_their_own_places_and_weigh_by_them(planted):
    noise = np.random.default_rng(1).random((240, 10)).astype(np.float32)
    X, given = np.hstack([planted.X_train, noise]), planted.Y_train.toarray()
    model = TagProp(weights="rank", blocks=[40, 10], n_neighbors=6, sigmoid=False).fit(X, planted.Y_train)
    assert model.rank_weights_.shape == (12,)
    assert model.rank_weights_[:6].sum() > 0.9
    for x, row in zip(X[:5], model.decision_function(X[:5]), strict=True):
        near = [np.argsort([distance("l2", x[b], y[b]) for y in X])[:6] for b in (slice(0, 40), slice(40, 50))]
        np.testing.assert_allclose(row, model.rank_weights_ @ given[np.concatenate(near)], atol=1e-5)


def test_a_block_of_noise_gets_the_smaller_weight(planted):
    noise = np.random.default_rng(1).random((240, 10)).astype(np.float32)
    model = TagProp(blocks=[40, 10], n_neighbors=40).fit(np.hstack([planted.X_train, noise]), planted.Y_train)
    assert model.distance_weights_[0] > 3 * model.distance_weights_[1] >= 0


def test_sigmoids_lift_rare_tags_and_rows_stay_as_sparse_as_the_votes(planted):
    plain, lifted = (TagProp(sigmoid=s, n_neighbors=40).fit(planted.X_train, planted.Y_train) for s in (False, True))
    rare = np.argsort(planted.Y_train.sum(axis=0))[:6]
    found = [np.isin(model.annotate(planted.X_test, 3).ids, rare).mean() for model in (plain, lifted)]
    assert found[1] > found[0]
    U = lifted.image_rows(planted.X_test)
    assert U.shape == (120, 13)
    assert U.nnz < U.shape[0] * U.shape[1]


@pytest.mark.parametrize("Y", [np.zeros((5, 2)), np.ones((5, 2))])
def test_tags_of_no_image_or_of_all_give_finite_scores(Y):
    model = TagProp().fit(np.arange(5.0)[:, None], Y)
    assert np.isfinite(model.decision_function([[1.5]])).all()


def test_settings_that_cannot_be_used_are_refused(planted):
    with pytest.raises(UserError, match="n_neighbors is 0; expected a whole number"):
        TagProp(n_neighbors=0).fit(planted.X_train, planted.Y_train)
    with pytest.raises(UnknownNameError, match=r"'distances'.*Did you mean 'distance'"):
        TagProp(weights="distances").check_settings()
