"""Relations left out to be found again, and images split so that every split shows every relation."""

from itertools import product

import numpy as np
import pytest

from visterm.core.errors import UserError
from visterm.data.quadruplets import Quadruplets
from visterm_research.data.quadruplet_splits import leave_out, split_images

# Tags: 0 wheel, 1 car, 2 window, 3 house, 4 door. Images 0-2 are of cars, 3-4 of wheels, 5 of a window, 6-7 of houses.
SINGLE = np.eye(5)[[1, 1, 1, 0, 0, 2, 3, 3]]
RELATIONS = [(0, 1), (2, 1), (2, 3), (4, 3)]


def test_every_split_shows_every_relation_where_tags_have_an_image_for_each():
    rng = np.random.default_rng(5)
    tag = np.repeat(np.arange(30), rng.integers(3, 12, size=30))
    relations = [(i, (i + 7) % 30) for i in range(30)]
    Y = np.eye(30)[rng.permutation(tag)]
    found = split_images(Y, relations, shares={"train": 0.7, "valid": 0.1, "test": 0.2}, random_state=1)
    assert sorted(np.concatenate(list(found.images.values()))) == list(range(len(tag)))
    assert list(found.images) == ["train", "valid", "test"]
    for name, images in found.images.items():
        assert found.missing[name].size == 0
        assert len(Quadruplets(Y, relations, images=images).relations) == 30


def test_images_of_several_tags_are_split_so_too_and_what_cannot_be_is_told():
    rng = np.random.default_rng(6)
    Y = (rng.random((400, 40)) < 0.08).astype(float)
    Y[:, 0] = np.arange(400) < 2
    relations = [(i, i + 1) for i in range(0, 40, 2)]
    found = split_images(Y, relations)
    shown = [{tuple(r) for r in Quadruplets(Y, relations, images=rows).relations} for rows in found.images.values()]
    assert [len(relations) - len(some) for some in shown] == [len(found.missing[name]) for name in found.images]
    assert found.missing["train"].size == 0
    assert sum(len(some) for some in found.missing.values()) == 1
    sizes = [images.size for images in found.images.values()]
    assert sizes == pytest.approx([320, 40, 40], abs=1)


def test_an_image_with_both_tags_does_not_show_their_relation_alone():
    Y = np.array([[1, 1], [1, 1], [1, 0], [0, 1]])
    found = split_images(Y, [(0, 1)], shares={"one": 0.5, "two": 0.5})
    assert all(Quadruplets(Y, [(0, 1)], images=rows).count for rows in found.images.values())
    assert found.missing["one"].size == found.missing["two"].size == 0


def test_rare_tags_go_to_the_larger_splits_first():
    Y = np.eye(2)[[0, 0, 1, 1, 1, 1]]
    found = split_images(Y, [(0, 1)], shares={"valid": 0.1, "test": 0.2, "train": 0.7})
    assert {name: len(some) for name, some in found.missing.items()} == {"valid": 1, "test": 0, "train": 0}


def test_the_seed_decides_the_splits():
    Y = np.eye(4)[np.arange(60) % 4]
    first, again, other = (split_images(Y, [(0, 1)], random_state=seed).images["valid"] for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("shares", [{}, {"train": 0.5}, {"train": 1.5, "test": -0.5}, {"train": 1.0, "test": 0.0}])
def test_shares_that_are_not_of_one_whole_are_refused(shares):
    with pytest.raises(UserError, match=r"share|in total"):
        split_images(SINGLE, RELATIONS, shares=shares)


def test_tags_of_left_out_relations_keep_another_relation_in_the_same_role():
    relations = list(product(range(6), range(6, 14)))
    found = leave_out(relations, 0.5, 2)
    assert len(found.left_out) == 24
    assert {*map(tuple, found.kept), *map(tuple, found.left_out)} == set(relations)
    assert set(found.left_out[:, 0]) <= set(found.kept[:, 0])
    assert set(found.left_out[:, 1]) <= set(found.kept[:, 1])
    assert found.unreachable.size == 0


def test_a_relation_whose_tags_have_no_other_is_left_out_last():
    """Wheel of car, of lorry, door of car, of lorry; and basket of balloon alone."""
    relations = [(0, 1), (0, 2), (3, 1), (3, 2), (4, 5)]
    for seed in range(8):
        assert [4, 5] in leave_out(relations, 0.4, seed).kept.tolist()
    found = leave_out(relations, 0.8, 0)
    assert len(found.left_out) == 4
    assert len(found.unreachable) > 0


def test_the_other_role_counts_where_the_same_cannot_be_had():
    """In a ring each tag is a part once and a whole once; the relation beside it has its tags to itself."""
    for seed in range(8):
        found = leave_out([(0, 1), (1, 2), (2, 0), (3, 4)], 0.25, seed)
        assert len(found.left_out) == 1
        assert [3, 4] in found.kept.tolist()
        assert found.unreachable.size == 0


def test_leaving_out_is_decided_by_the_seed_and_may_be_of_none():
    relations = list(product(range(4), range(4, 8)))
    assert np.array_equal(leave_out(relations, 0.5, 1).left_out, leave_out(relations, 0.5, 1).left_out)
    assert not np.array_equal(leave_out(relations, 0.5, 1).left_out, leave_out(relations, 0.5, 2).left_out)
    assert leave_out(relations, 0).left_out.shape == (0, 2)
    with pytest.raises(UserError, match="share is 1"):
        leave_out(relations, 1)
