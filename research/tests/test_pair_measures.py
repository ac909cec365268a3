"""Measures of labelling with one right answer, by hand."""

import numpy as np
import pytest

from visterm.core.errors import DataError, ShapeError, UserError
from visterm.metrics.significance import paired_bootstrap
from visterm_research.parts.ranks import chance_measures, group_means, measure_answers


def test_p_at_k_is_hits_over_k_as_the_paper_has_it():
    found = measure_answers([1, 2, 10, 11])
    assert found["p@1"].tolist() == [1, 0, 0, 0]
    assert found["p@10"] == pytest.approx([0.1, 0.1, 0.1, 0])


def test_map_is_the_mean_reciprocal_rank_and_the_rank_is_its_own_measure():
    found = measure_answers(np.array([1, 2, 4], np.int32))
    assert found["MAP"].mean() == pytest.approx((1 + 1 / 2 + 1 / 4) / 3)
    assert found["mean rank"].mean() == pytest.approx(7 / 3)


def test_the_measures_of_a_table_are_named_in_order():
    assert list(measure_answers([3], ks=[1, 5])) == ["p@1", "p@5", "MAP", "mean rank"]


def test_chance_is_the_mean_over_all_places():
    found = chance_measures(1000)
    assert found["p@1"] == pytest.approx(1 / 1000)
    assert found["p@10"] == pytest.approx(1 / 1000)
    assert found["MAP"] == pytest.approx((np.log(1000) + 0.5772156649 + 1 / 2000) / 1000, rel=1e-6)
    assert found["mean rank"] == pytest.approx(500.5)


def test_chance_of_fewer_candidates_than_k_is_one_hit_over_k():
    assert chance_measures(4, ks=[10])["p@10"] == pytest.approx(0.1)


def test_two_models_are_compared_example_by_example():
    better, worse = measure_answers([1, 1, 2, 1, 3, 1, 2, 1]), measure_answers([9, 5, 7, 8, 9, 6, 9, 4])
    assert paired_bootstrap(better["MAP"], worse["MAP"]).low > 0
    assert paired_bootstrap(better["mean rank"], worse["mean rank"]).high < 0


def test_values_of_a_group_are_one_mean():
    assert group_means([1, 0, 0, 1, 1], [7, 7, 7, 3, 3]).tolist() == pytest.approx([1, 1 / 3])
    relations = [(0, 5), (0, 4), (0, 5), (1, 4)]
    assert group_means([1.0, 2.0, 3.0, 4.0], relations).tolist() == [2, 2, 4]


@pytest.mark.parametrize("wrong", [[0, 1], [-1], [1.0, 2.0]])
def test_ranks_that_are_none_are_refused(wrong):
    with pytest.raises(DataError, match="whole numbers of 1 or more"):
        measure_answers(wrong)


def test_shapes_and_ks_that_do_not_fit_are_refused():
    with pytest.raises(ShapeError, match="2 dimensions"):
        measure_answers([[1, 2]])
    with pytest.raises(UserError, match="k is 0"):
        measure_answers([1], ks=[0])
    with pytest.raises(ShapeError, match="a group for each"):
        group_means([1, 2], [1])


def test_no_examples_have_no_values():
    assert {name: values.size for name, values in measure_answers(np.empty(0, np.int64)).items()} == {
        "p@1": 0,
        "p@10": 0,
        "MAP": 0,
        "mean rank": 0,
    }
