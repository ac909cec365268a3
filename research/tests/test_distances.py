"""Distances by blocks of features against their definitions, and what the settings may be."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from reference.neighbours import distance
from visterm.core.errors import UnknownNameError, UserError
from visterm_research.models.neighbours import distances as distances_module
from visterm_research.models.neighbours.distances import DISTANCES, BlockDistances, read_distances


def rows(n, *, signed, seed, density=0.5):
    rng = np.random.default_rng(seed)
    X = (rng.random((n, 9)) < density) * rng.uniform(-1 if signed else 0, 1, (n, 9))
    X[0] = 0
    return X.astype(np.float32)


@pytest.mark.parametrize("training_signed", [False, True], ids=["training not negative", "training signed"])
@pytest.mark.parametrize("density", [0.08, 0.6])
@pytest.mark.parametrize("name", DISTANCES)
def test_distances_are_those_of_the_definition_in_every_form(name, density, training_signed, monkeypatch):
    monkeypatch.setattr(distances_module, "TILE_ROWS", 4)
    train, X = rows(11, signed=training_signed, seed=1, density=density), rows(7, signed=True, seed=2)
    X[3] = train[5]
    expected = [[distance(name, x, y) for y in train] for x in X]
    for train_form in (np.asarray, sp.csr_array):
        measured = BlockDistances(train_form(train), [slice(0, 9)], [name])
        for form in (np.asarray, sp.csr_array):
            np.testing.assert_allclose(measured.to(form(X))[0], expected, atol=2e-6)


def test_each_block_is_compared_in_its_own_way():
    train, X = rows(6, signed=False, seed=3), rows(4, signed=False, seed=4)
    found = BlockDistances(train, [slice(0, 4), slice(2, 9)], ["l1", "chi2"]).to(X)
    expected = [[[distance("l1", x[:4], y[:4]) for y in train] for x in X]]
    expected.append([[distance("chi2", x[2:], y[2:]) for y in train] for x in X])
    np.testing.assert_allclose(found, expected, atol=2e-6)


def test_a_distance_is_named_once_or_for_each_block():
    assert read_distances("l2", [2, 4]) == ["l2", "l2"]
    assert read_distances(["l2", "chi2"], [2, 4]) == ["l2", "chi2"]
    with pytest.raises(UserError, match="expected one name, or a list of 2"):
        read_distances(["l2"], [2, 4])
    with pytest.raises(UnknownNameError, match=r"'l3'.*l1"):
        read_distances("l3", None)
