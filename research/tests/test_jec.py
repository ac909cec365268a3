"""Label transfer of JEC beside the paper's rules followed by hand."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from planted import plant_corpus
from reference.neighbours import distance, transferred_order
from visterm.core.errors import UserError
from visterm_research.models.neighbours.jec import Jec

PAIRS = [("l1", (0, 15)), ("chi2", (15, 40))]
"""Distances, and the columns of their blocks."""


@pytest.fixture(scope="module")
def planted():
    return plant_corpus(n_tags=12, random_state=6)


@pytest.fixture(scope="module")
def largest(planted):
    """The largest distance between two training images in each block, of all pairs."""
    X = planted.X_train
    return [max(distance(name, x[a:b], y[a:b]) for x in X for y in X) for name, (a, b) in PAIRS]


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("n_neighbors", [1, 5])
def test_tags_are_transferred_in_the_order_of_the_paper(n_neighbors, form, planted, largest):
    X, given = planted.X_train, planted.Y_train.toarray()
    names, blocks = zip(*PAIRS, strict=True)
    model = Jec(blocks=blocks, distances=names, n_neighbors=n_neighbors).fit(form(X), planted.Y_train)
    np.testing.assert_allclose(model.scales_, largest, rtol=1e-5)
    ranking = model.annotate(form(planted.X_test[:25]), 0)
    for x, ids, scores in zip(planted.X_test, ranking.ids, ranking.scores, strict=False):
        apart = np.zeros(len(X))
        for (name, (a, b)), scale in zip(PAIRS, largest, strict=True):
            apart += [distance(name, x[a:b], y[a:b]) / scale for y in X]
        assert ids[scores > 0].tolist() == transferred_order(apart, given, n_neighbors)


def test_scores_of_an_image_among_the_training_images_by_hand():
    X = np.array([[0.0], [1.0], [2.0], [10.0]])
    Y = np.array([[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 0], [1, 0, 0, 1]])
    scores = Jec(n_neighbors=3).fit(X, Y).decision_function([[0.0], [0.4]])
    first = [1 + 1, 1 + 1]  # both tags of image 0 are the most frequent ones
    third = (2 / 2) * (1.001 / 4.001)  # both others have it; one image has it with a tag of image 0, which count 4
    np.testing.assert_allclose(scores[0], [*first, third, 0], rtol=1e-5)
    np.testing.assert_allclose(scores[1], scores[0] / (1 + 0.04), rtol=1e-5)


def test_neighbours_fill_up_by_frequency_where_the_nearest_image_has_no_tags():
    X = np.array([[0.0], [1.0], [2.0]])
    Y = np.array([[0, 0, 0], [0, 1, 1], [0, 0, 1]])
    np.testing.assert_allclose(Jec(n_neighbors=3).fit(X, Y).decision_function([[0.0]]), [[0, 0.5, 1]], rtol=1e-6)


def test_an_image_nearer_to_its_neighbour_comes_first_in_a_search(planted):
    model = Jec().fit(planted.X_train, planted.Y_train)
    tag = planted.Y_train[[0]].indices[0]
    moved = planted.X_train[0] + np.linspace(0.01, 0, 40, dtype=np.float32)
    near, far = model.decision_function(np.stack([planted.X_train[0], moved]))[:, tag]
    assert near > far > 0


def test_rows_are_as_sparse_as_the_tags_of_the_neighbours(planted):
    U = Jec(n_neighbors=2).fit(planted.X_train, planted.Y_train).image_rows(planted.X_test)
    assert sp.issparse(U)
    assert np.diff(U.indptr).max() <= 6  # two neighbours of at most three tags


def test_no_neighbours_are_refused(planted):
    with pytest.raises(UserError, match="n_neighbors is 0; expected a whole number of 1 or more"):
        Jec(n_neighbors=0).fit(planted.X_train, planted.Y_train)
