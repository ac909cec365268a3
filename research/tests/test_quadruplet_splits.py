"""Relations left out to be found again."""

from itertools import product

import numpy as np
import pytest

from visterm.core.errors import UserError
from visterm_research.parts.problem import leave_out


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
