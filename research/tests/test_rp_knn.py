"""What neighbours within leaves are found, and how many, beside exact ones."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from planted import plant_corpus
from reference.rp_tree import slow_leaf, slow_leaves
from visterm.core.errors import UserError
from visterm.models.neighbours.knn import Knn
from visterm_research.models.neighbours.rp_knn import RpKnn


@pytest.fixture(scope="module")
def planted():
    return plant_corpus(random_state=1)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_without_levels_the_neighbours_are_exact(form, planted):
    exact = Knn().fit(form(planted.X_train), planted.Y_train)
    model = RpKnn(levels=0).fit(form(planted.X_train), planted.Y_train)
    assert (model.n_neighbors_, model.power_) == (exact.n_neighbors_, exact.power_)
    X = form(planted.X_test)
    np.testing.assert_allclose(model.decision_function(X), exact.decision_function(X), atol=1e-6)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("trees", [1, 3])
def test_the_neighbours_are_the_nearest_of_the_leaves_each_once(trees, form, planted):
    model = RpKnn(levels=3, trees=trees, n_neighbors=40, power=1).fit(form(planted.X_train), planted.Y_train)
    (found,) = model._neighbors(form(planted.X_test[:10]), 40)
    rows = model.rows_.toarray() if sp.issparse(model.rows_) else model.rows_
    for x, ids, near in zip(planted.X_test[:10], *found, strict=True):
        held = set()
        for seed in model.seeds_:
            leaves, thresholds = slow_leaves(rows, seed, 3)
            held |= set(leaves[slow_leaf(x, seed, 3, thresholds)])
        expected = sorted(held, key=lambda i: -float(rows[i] @ x))[:40]
        assert ids.tolist() == expected + [-1] * (40 - len(expected))
        np.testing.assert_allclose(near[: len(expected)], rows[expected] @ x, atol=1e-6)
        assert not near[len(expected) :].any()


def test_deeper_trees_find_fewer_of_the_true_neighbours_and_more_trees_more(planted):
    (exact,) = Knn(n_neighbors=5, power=1).fit(planted.X_train, planted.Y_train)._neighbors(planted.X_test, 5)

    def recall(**settings):
        model = RpKnn(n_neighbors=5, power=1, **settings).fit(planted.X_train, planted.Y_train)
        (found,) = model._neighbors(planted.X_test, 5)
        return np.mean([len(set(a) & set(b)) / 5 for a, b in zip(found[0], exact[0], strict=True)])

    assert recall(levels=0) == 1
    assert 1 > recall(levels=1) > recall(levels=3) > recall(levels=5) > 0
    assert recall(levels=3, trees=4) > recall(levels=3) + 0.1


def test_no_more_levels_are_used_than_leave_an_image_in_each_leaf(planted):
    model = RpKnn(levels=20).fit(planted.X_train[:9], planted.Y_train[:9])
    assert np.diff(model.bounds_[0]).tolist() == [1, 1, 1, 1, 1, 1, 1, 2]


@pytest.mark.parametrize("settings", [{"levels": -1}, {"levels": 1.5}, {"levels": True}, {"trees": 0}])
def test_settings_that_cannot_be_used_are_refused(settings, planted):
    with pytest.raises(UserError, match=r"is .*; expected a whole number of"):
        RpKnn(**settings).fit(planted.X_train, planted.Y_train)
