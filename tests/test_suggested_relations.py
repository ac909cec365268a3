"""Relations that tags like the whole suggest: shares written down here, and what they add to the scores of pairs."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from refusals import refused
from visterm.core.errors import ShapeError, TooLargeError
from visterm.models.parts import relations
from visterm.models.parts.objects_and_parts import ObjectsAndParts
from visterm.models.parts.relations import listed_and_suggested

CAR, BUS, TRAIN, WHEEL, DOOR, FUNNEL = range(6)
LISTED = np.array([(WHEEL, CAR), (DOOR, CAR), (WHEEL, BUS), (FUNNEL, TRAIN)])
NONE = np.empty((0, 2), np.int64)


def test_a_bus_has_a_door_as_far_as_what_shares_parts_with_it_does():
    believed = listed_and_suggested(np.concatenate([LISTED, [(WHEEL, TRAIN)]]), NONE, 6, 0.4).toarray()
    # The bus has a wheel alone, the car a door besides, and the train a funnel: both lists are as like the bus's.
    assert believed[BUS, DOOR] == pytest.approx(0.4 / 2)
    assert believed[BUS, FUNNEL] == pytest.approx(0.4 / 2)
    # The car is nearer to the bus, 1 / sqrt(2), than to the train, 1 / 2; only the latter has a funnel.
    assert believed[CAR, FUNNEL] == pytest.approx(0.4 * 0.5 / (0.5 + 1 / np.sqrt(2)))
    assert believed[CAR, WHEEL] == believed[TRAIN, FUNNEL] == 1


def test_beliefs_of_relations_that_are_not_listed_are_at_most_those_of_listed_ones():
    assert listed_and_suggested(LISTED, NONE, 6, 9.0).max() == 1


def test_only_siblings_count_where_some_have_known_parts():
    believed = listed_and_suggested(LISTED, np.array([(BUS, TRAIN), (CAR, WHEEL)]), 6, 0.5).toarray()
    assert believed[TRAIN, WHEEL] == pytest.approx(0.5)
    assert believed[BUS, FUNNEL] == pytest.approx(0.5)
    assert believed[BUS, DOOR] == 0  # the car has one, and shares wheels with the bus
    assert believed[CAR, WHEEL] == 1
    assert believed[WHEEL, DOOR] == pytest.approx(0.5)  # it has no part of its own, but its sibling has


def test_without_a_weight_only_listed_relations_are_believed_in():
    believed = listed_and_suggested(LISTED, NONE, 6, 0.0)
    assert sorted(zip(*believed.nonzero(), strict=True)) == sorted((whole, part) for part, whole in LISTED)


def test_pairs_of_wholes_that_would_not_fit_into_memory_are_refused(monkeypatch):
    monkeypatch.setattr(relations, "MAX_SIMILARITY_BYTES", 16)
    with pytest.raises(TooLargeError, match=r"up to 2 with the same.*set listed to 0"):
        listed_and_suggested(LISTED, NONE, 6, 1.0)


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(2)
    X, Y = rng.standard_normal((80, 5)), np.eye(6)[rng.integers(0, 6, 80)]
    settings = {"part_of": LISTED, "alpha": 0.5, "dim": 4, "epochs": 3}
    return X, [ObjectsAndParts(**settings, **more).fit(X, Y) for more in ({}, {"listed": 3.0, "suggested": 0.4})]


def test_listed_and_suggested_relations_raise_the_scores_of_their_pairs_alone(fitted):
    _, (plain, raised) = fitted
    np.testing.assert_array_equal(plain.tag_rows_, raised.tag_rows_)
    expected = 3 * listed_and_suggested(LISTED, NONE, 6, 0.4).toarray()
    np.testing.assert_allclose(
        raised.relation_scores(np.arange(6)) - plain.relation_scores(np.arange(6)), expected, atol=1e-6
    )
    np.testing.assert_allclose(raised.pair_scores() - plain.pair_scores(), 0.5 * expected, atol=1e-6)
    np.testing.assert_array_equal(raised.pair_scores(words=False), plain.pair_scores(words=False))


def test_a_new_tag_changes_nothing_of_the_others(fitted):
    X, (_, model) = fitted
    before = model.relation_scores([BUS])[0]
    grown = copy.deepcopy(model).add_tags(X[:4], np.ones((4, 1)))
    np.testing.assert_allclose(grown.relation_scores([BUS])[0, :6], before, atol=1e-6)


@pytest.mark.parametrize("setting", [{"listed": -1}, {"suggested": -0.5}])
def test_settings_that_cannot_be_are_refused(setting):
    [(name, value)] = setting.items()
    with refused(name, value=value):
        ObjectsAndParts(**setting).check_settings()


def test_siblings_that_are_no_tags_are_refused(fitted):
    X, _ = fitted
    with pytest.raises(ShapeError, match="tag column 9"):
        ObjectsAndParts(part_of=LISTED, siblings=[[0, 9]], dim=4).fit(X, np.eye(6)[np.arange(80) % 6])
