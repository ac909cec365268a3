"""Measures of queries: by hand, against ir-measures, their kinds, and whether a difference is significant."""

from __future__ import annotations

import ir_measures
import numpy as np
import pytest
import scipy.sparse as sp
from ir_measures import AP, P, Qrel, Rprec, ScoredDoc
from scipy.stats import wilcoxon

from visterm.core.errors import DataError, ShapeError
from visterm.metrics import kinds_of_queries, measure_queries, rank_queries, signed_ranks


def test_images_are_ranked_by_the_weighted_sum_of_their_scores_for_the_words():
    scores = np.array([[3.0, 0.0], [0.0, 2.0], [2.0, 1.9], [1.0, 0.0]])
    Q = [[0.6, 0.8], [1.0, 0.0], [0.0, -1.0]]  # sums: 1.8, 1.6, 2.72, 0.6
    R = [[0, 1, 1, 0], [0, 0, 0, 1], [1, 0, 0, 0]]
    measured = measure_queries(rank_queries(scores, Q, R))
    np.testing.assert_allclose(measured["AvgP"], [(1 + 2 / 3) / 2, 1 / 3, 1])
    np.testing.assert_allclose(measured["BEP"], [0.5, 0, 1])
    np.testing.assert_allclose(measured["P10"], [0.2, 0.1, 0.1])


def test_a_tie_goes_to_the_image_that_comes_first():
    assert rank_queries(np.zeros((3, 1)), [[1.0]], [[0, 0, 1]]).ranks.tolist() == [3]


def test_measures_are_those_of_ir_measures():
    rng = np.random.default_rng(0)
    scores, Q = rng.normal(size=(60, 9)), rng.random((15, 9)) * (rng.random((15, 9)) < 0.3)
    R = (rng.random((15, 60)) < 0.1) | (np.arange(60) == 7)
    measured = measure_queries(rank_queries(scores, Q, R))
    F = Q.astype(np.float32) @ scores.T
    qrels = [Qrel(str(q), str(i), 1) for q, i in zip(*np.nonzero(R), strict=True)]
    run = [ScoredDoc(str(q), str(i), float(F[q, i])) for q in range(15) if Q[q].any() for i in range(60)]
    found = {(str(m.measure), int(m.query_id)): m.value for m in ir_measures.iter_calc([AP, Rprec, P @ 10], qrels, run)}
    for q in np.flatnonzero(Q.any(axis=1)):
        for ours, theirs in (("AvgP", "AP"), ("BEP", "RPrec"), ("P10", "P@10")):
            key = next(key for key in found if key[0].lower() == theirs.lower() and key[1] == q)
            assert measured[ours][q] == pytest.approx(found[key], abs=1e-6)


def test_ndcg_of_graded_images_by_hand_and_only_where_grades_differ():
    scores, Q, R = np.array([[4.0], [3.0], [2.0], [1.0]]), [[1.0], [1.0]], [[0, 3, 1, 0], [0, 0, 0, 2]]
    measured = measure_queries(rank_queries(scores, Q, R), R)
    by_hand = [(3 / np.log2(3) + 1 / 2) / (3 + 1 / np.log2(3)), 1 / np.log2(5)]
    np.testing.assert_allclose(measured["nDCG10"], by_hand)
    assert "nDCG10" not in measure_queries(rank_queries(scores, Q, R), np.array(R) > 0)
    assert "nDCG10" not in measure_queries(rank_queries(scores, Q, R))


def test_graded_ndcg_is_that_of_ir_measures_for_long_lists():
    rng = np.random.default_rng(2)
    scores = rng.normal(size=(50, 12))
    R = rng.integers(1, 5, (12, 50)) * (rng.random((12, 50)) < 0.4)
    measured = measure_queries(rank_queries(scores, np.eye(12), R), R)["nDCG10"]
    qrels = [Qrel(str(q), str(i), int(R[q, i])) for q, i in zip(*np.nonzero(R), strict=True)]
    run = [ScoredDoc(str(q), str(i), float(scores[i, q])) for q in range(12) for i in range(50)]
    found = {int(m.query_id): m.value for m in ir_measures.iter_calc([ir_measures.nDCG @ 10], qrels, run)}
    np.testing.assert_allclose(measured, [found[q] for q in range(12)], atol=1e-6)


def test_scores_in_blocks_of_images_give_the_same_as_all_at_once():
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(40, 6)).astype(np.float32)
    Q, R = rng.random((5, 6)), rng.random((5, 40)) < 0.2

    def blocks():
        return ((slice(start, start + 7), scores[start : start + 7]) for start in range(0, 40, 7))

    np.testing.assert_array_equal(rank_queries(blocks, Q, R).ranks, rank_queries(scores, Q, R).ranks)


def test_excluded_images_are_left_out_of_the_ranking_of_that_query_alone():
    scores = np.array([[3.0], [2.0], [1.0]])
    ranks = rank_queries(scores, [[1.0], [1.0]], [[0, 1, 0], [0, 1, 0]], exclude=[[1, 0, 0], [0, 0, 0]])
    assert ranks.ranks.tolist() == [1, 2]


def test_queries_that_do_not_fit_are_refused():
    scores = np.zeros((3, 2))
    with pytest.raises(ShapeError, match="Q has 2 queries, but R 1"):
        rank_queries(scores, np.ones((2, 2)), np.ones((1, 3)))
    with pytest.raises(ShapeError, match="scores are those of 2 tags, but Q has 5 columns"):
        rank_queries(scores, np.ones((1, 5)), np.ones((1, 3)))
    with pytest.raises(DataError, match="There are no queries"):
        rank_queries(scores, sp.csr_array((0, 2)), sp.csr_array((0, 3)))


def test_kinds_of_queries_are_those_of_the_papers_tables():
    n_words, n_relevant = np.array([1, 2, 3, 1]), np.array([2, 3, 1, 9])
    kinds = kinds_of_queries(n_words, n_relevant, np.array([True, True, False, True]))
    assert {kind: np.flatnonzero(mask).tolist() for kind, mask in kinds.items()} == {
        "all": [0, 1, 2, 3],
        "easy": [1, 3],
        "difficult": [0, 2],
        "one word": [0, 3],
        "several words": [1, 2],
        "seen": [0, 1, 3],
        "test only": [2],
    }
    assert "seen" not in kinds_of_queries(n_words, n_relevant)


def test_signed_ranks_are_summed_by_hand_and_the_chance_is_that_of_scipy():
    first, second = [0.9, 0.8, 0.7, 0.4, 0.6, 0.5, np.nan], [0.1, 0.2, 0.4, 0.6, 0.5, 0.5, np.nan]
    ranks = signed_ranks(first, second)  # differences 0.8, 0.6, 0.3, -0.2, 0.1, 0, none: ranks 5, 4, 3, 2, 1
    assert (ranks.first_better, ranks.second_better, ranks.n) == (13, 2, 5)
    assert ranks.p_value == pytest.approx(wilcoxon([0.8, 0.6, 0.3, -0.2, 0.1]).pvalue) == pytest.approx(6 / 32)
    assert ranks.better() == 0


def test_the_better_model_is_named_whichever_comes_first_and_equal_ones_are_not_told_apart():
    rng = np.random.default_rng(0)
    second = rng.random(200)
    first = second + rng.normal(0.05, 0.1, 200)
    assert signed_ranks(first, second).better() == 1
    assert signed_ranks(second, first).better() == -1
    assert signed_ranks(second, second) == (0.0, 0.0, 1.0, 0)
    assert signed_ranks(second, second).better() == 0
    with pytest.raises(ShapeError, match="first has 200 values, second 3"):
        signed_ranks(first, second[:3])
