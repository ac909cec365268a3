"""The kernels of random-projection trees against their slow twin, and NumPy."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp

from planted import plant_corpus
from reference.rp_tree import direction, slow_leaf, slow_leaves
from visterm.kernels.rows import dense_rows, sparse_rows
from visterm_research.kernels.rp_tree import find_leaves, grow_tree, products_within, project

pytestmark = pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")  # hashes wrap on purpose; NumPy warns of it


@pytest.fixture(scope="module")
def planted():
    return plant_corpus(random_state=1)


def rows_of(X, form):
    if form == "dense":
        return dense_rows(X)
    csr = sp.csr_array(X)
    return sparse_rows(csr.data, csr.indices, csr.indptr)


def grown(rows, n, seed, levels):
    order, bounds = np.empty(n, np.int64), np.empty(2**levels + 1, np.int64)
    thresholds = np.empty(2**levels)
    grow_tree(rows, seed, order, bounds, thresholds)
    return order, bounds, thresholds


forms = pytest.mark.parametrize("form", ["dense", "sparse"])


@forms
@pytest.mark.parametrize("levels", [0, 1, 3])
def test_a_tree_is_that_of_the_slow_twin(form, levels, planted):
    X = planted.X_train[:61]
    order, bounds, thresholds = grown(rows_of(X, form), len(X), 7, levels)
    leaves, expected = slow_leaves(X, 7, levels)
    assert [order[a:b].tolist() for a, b in pairwise(bounds)] == leaves
    np.testing.assert_allclose(thresholds[1:], [expected[node] for node in range(1, 2**levels)], rtol=1e-12)
    found = np.empty(20, np.int64)
    find_leaves(rows_of(planted.X_test[:20], form), 7, thresholds, found)
    assert found.tolist() == [slow_leaf(x, 7, levels, expected) for x in planted.X_test[:20]]


def test_a_tree_of_equal_rows_is_balanced_too():
    order, bounds, _ = grown(dense_rows(np.ones((11, 3), np.float32)), 11, 0, 3)
    assert np.diff(bounds).tolist() == [1, 1, 1, 2, 1, 2, 1, 2]
    assert order.tolist() == list(range(11))


def test_a_tree_of_more_leaves_than_rows_is_refused():
    with pytest.raises(IndexError, match="at least one row per leaf"):
        grown(dense_rows(np.ones((3, 2), np.float32)), 3, 0, 2)


def test_components_of_the_directions_are_uniform_and_differ_between_nodes_and_seeds():
    one, other, reseeded = (direction(seed, node, 4000) for seed, node in ((3, 1), (3, 2), (4, 1)))
    assert abs(one.mean()) < 0.03
    assert np.var(one) == pytest.approx(1 / 3, abs=0.02)
    assert np.abs(np.corrcoef([one, other, reseeded]) - np.eye(3)).max() < 0.06


@forms
def test_projections_and_products_are_those_of_numpy(form, planted):
    X, Z = planted.X_train[:9], planted.X_test[:5]
    rows = rows_of(X, form)
    np.testing.assert_allclose(
        [project(rows, i, 5, 3) for i in range(9)], X.astype(float) @ direction(5, 3, X.shape[1]), atol=1e-12
    )
    out = np.empty((2, 4), np.float32)
    products_within(rows_of(X.T.copy(), form), 3, 7, rows_of(Z, form), np.array([1, 3]), out)
    np.testing.assert_allclose(out, Z[[1, 3]] @ X[3:7].T, rtol=1e-5, atol=1e-6)
    with pytest.raises(IndexError, match="fewer entries"):
        products_within(rows_of(X.T.copy(), form), 3, 9, rows_of(Z, form), np.array([1, 3]), out)
