"""Several models compared: corrected p-values, intervals of one value, curves of precision, and best images."""

from __future__ import annotations

import ir_measures
import numpy as np
import pytest
from ir_measures import IPrec, Qrel, ScoredDoc
from scipy.stats import wilcoxon

from visterm.core.errors import DataError
from visterm.core.queries import MIN_PROBABILITY
from visterm.metrics import compare_pairs, paired_bootstrap, rank_queries
from visterm.metrics.retrieval import best_images
from visterm.metrics.significance import holm, interval_of


def test_holms_p_values_are_those_worked_out_by_hand():
    assert holm([0.01, 0.04, 0.03]).tolist() == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]).tolist() == [1.0, 1.0]
    assert holm([0.02]).tolist() == [0.02]
    assert holm([]).tolist() == []


def test_every_two_models_are_compared_and_a_close_call_falls_to_the_correction():
    first = np.random.default_rng(0).random(40)
    near = first - np.where(np.arange(40) % 3 == 1, -1, 1) * np.arange(1, 41) / 1000
    far = first - 0.5
    values = [np.append(v, np.nan) for v in (first, near, far)]
    alone = wilcoxon(first - near).pvalue
    assert 0.05 / 3 < alone < 0.05  # significant as the only pair, though not as the first of three
    pairs = compare_pairs(values)
    assert [(pair.first, pair.second) for pair in pairs] == [(0, 1), (0, 2), (1, 2)]
    assert [pair.better() for pair in pairs] == [1, 1, 1]
    assert pairs[0].holm_p == pytest.approx(alone)  # the largest of the three is left as it is
    assert pairs[1].holm_p == pytest.approx(2 * wilcoxon(first - far).pvalue, rel=1e-6)
    assert pairs[2].holm_p == pytest.approx(3 * wilcoxon(near - far).pvalue, rel=1e-6)
    close = compare_pairs([values[0], values[1], np.append(first, np.nan)])
    assert close[0].holm_p == pytest.approx(3 * alone)
    assert close[0].better() == 0
    assert close[0].ranks.better() == 1


def test_one_model_has_nothing_to_be_compared_with():
    assert compare_pairs([[0.1, 0.2]]) == []


def test_one_value_has_an_interval_of_no_width():
    assert interval_of(np.array([np.nan, 0.25])) == (0.25, 0.25, 0.25)
    difference = paired_bootstrap(np.array([0.5, np.nan]), np.array([0.2, np.nan]))
    assert difference[:4] == pytest.approx((0.3, 0.3, 0.3, 1.0))
    with pytest.raises(DataError, match="of one model only"):
        paired_bootstrap(np.array([0.5, np.nan]), np.array([np.nan, np.nan]))


def test_interpolated_precision_is_that_of_ir_measures():
    rng = np.random.default_rng(0)
    scores, R = rng.normal(size=(60, 8)), rng.random((8, 60)) < 0.15
    recalls = [step / 10 for step in range(11)]
    ours = rank_queries(scores, np.eye(8), R).interpolated_precision(recalls)
    qrels = [Qrel(str(q), str(i), 1) for q, i in np.argwhere(R)]
    run = [ScoredDoc(str(q), str(i), float(scores[i, q])) for q in range(8) for i in range(60)]
    for metric in ir_measures.iter_calc([IPrec @ recall for recall in recalls], qrels, run):
        level = metric.measure.params["recall"]
        assert ours[int(metric.query_id), round(10 * level)] == pytest.approx(metric.value, abs=1e-6), level


def test_interpolated_precision_of_a_list_by_hand():
    scores = np.array([[5.0], [4.0], [3.0], [2.0], [1.0]])
    ranks = rank_queries(scores, [[1.0], [1.0]], [[0, 1, 1, 0, 0], [0, 0, 0, 0, 0]])  # right at 2 and 3
    points = ranks.interpolated_precision([0.0, 0.5, 0.6, 1.0])
    np.testing.assert_allclose(points[0], [2 / 3, 2 / 3, 2 / 3, 2 / 3])
    assert np.isnan(points[1]).all()


def test_a_product_ranks_by_all_words_where_a_sum_is_carried_by_one():
    P = np.array([[0.9, 0.01], [0.3, 0.4], [0.0, 0.9]])
    Q, R = [[1.0, 1.0]], [[0, 1, 0]]
    assert rank_queries(P, Q, R).ranks.tolist() == [3]
    assert rank_queries(P, Q, R, combine="product").ranks.tolist() == [1]
    [found] = best_images(P, Q, 3, combine="product")
    assert found.ids.tolist() == [1, 0, 2]
    np.testing.assert_allclose(found.scores, np.log([0.3 * 0.4, 0.9 * 0.01, MIN_PROBABILITY * 0.9]), rtol=1e-5)
    [without] = best_images(P, [[1.0, -1.0]], 1, combine="product")
    assert without.ids.tolist() == [0]
    np.testing.assert_allclose(without.scores, np.log([0.9 * 0.99]), rtol=1e-4)


def test_a_function_of_a_querys_own_words_may_say_what_to_rank_by():
    scores = np.array([[0.1, 5.0, 0.4], [0.2, 9.0, 0.3], [0.3, 0.0, 0.1]])
    Q, R = [[1.0, 0.0, 2.0], [0.0, -1.0, 0.0]], [[0, 1, 0], [0, 0, 1]]

    def least(own, tags, weights):
        assert (tags.tolist(), weights.tolist()) in (([0, 2], [1, 2]), ([1], [-1]))
        return (own * np.sign(weights)).min(axis=1)

    found = best_images(scores, Q, 3, combine=least)
    assert [ranking.ids.tolist() for ranking in found] == [[1, 0, 2], [2, 0, 1]]
    assert rank_queries(scores, Q, R, combine=least).ranks.tolist() == [1, 1]


def test_the_best_images_are_in_order_without_the_excluded_whatever_the_blocks():
    scores = np.array([[1.0], [4.0], [2.0], [4.0]])

    def blocks():
        yield slice(2, 4), scores[2:]
        yield slice(0, 2), scores[:2]

    plain, hidden = best_images(blocks, [[1.0], [1.0]], 3, exclude=[[0, 0, 0, 0], [1, 1, 0, 0]])
    assert plain.ids.tolist() == [1, 3, 2]
    assert (hidden.ids.tolist(), hidden.scores.tolist()) == ([3, 2], [4.0, 2.0])
