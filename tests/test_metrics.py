"""Metrics have the values of their definitions, of ir-measures, of scikit-learn and of a sheet of paper."""

from __future__ import annotations

import ir_measures
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import label_ranking_average_precision_score, roc_auc_score

from reference import metrics as reference
from visterm.metrics import METRICS, average_precisions, evaluate, measure
from visterm.metrics.ranking import rank_tags
from visterm.metrics.retrieval import rank_images

EVERY = [metric.example for metric in METRICS if metric.kind not in ("sibling", "tree")]


def drawn(seed, n=40, m=25, density=0.15):
    """Scores without ties, and tags of which every image has at least one and lacks at least one."""
    rng = np.random.default_rng(seed)
    Y = (rng.random((n, m)) < density).astype(np.float32)
    Y[:, 0], Y[:, 1] = rng.permutation(np.arange(n) % 2), 0
    Y[np.arange(n), rng.integers(2, m, n)] = 1
    scores = rng.permutation(n * m).reshape(n, m).astype(np.float32)
    return scores, Y


def in_blocks(scores, step=7):
    for start in range(0, len(scores), step):
        yield slice(start, start + step), scores[start : start + step]


def trec(scores, Y, *measures):
    """Values by ir-measures, each row a query."""
    qrels = [ir_measures.Qrel(str(i), str(j), 1) for i, j in np.argwhere(Y > 0)]
    run = [ir_measures.ScoredDoc(str(i), str(j), float(s)) for (i, j), s in np.ndenumerate(scores)]
    return ir_measures.calc_aggregate(measures, qrels, run)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("k", [1, 5, 40])
def test_rankings_of_tags_have_the_values_of_ir_measures(seed, k):
    scores, Y = drawn(seed)
    theirs = trec(scores, Y, P := ir_measures.P @ k, R := ir_measures.R @ k, G := ir_measures.nDCG @ k, ir_measures.AP,
                  ir_measures.RR)  # fmt: skip
    ours = evaluate(scores, Y, [f"p@{k}", f"r@{k}", f"ndcg@{k}", "map", "mrr"])
    expected = [theirs[P], theirs[R], theirs[G], theirs[ir_measures.AP], theirs[ir_measures.RR]]
    np.testing.assert_allclose(list(ours.values()), expected, rtol=1e-9)


@pytest.mark.parametrize("seed", [0, 1])
def test_rankings_of_images_by_a_word_have_the_values_of_ir_measures(seed):
    scores, Y = drawn(seed)
    theirs = trec(scores.T, Y.T, ir_measures.AP, ir_measures.P @ 5)
    ours = evaluate(scores, Y, ["word_map", "word_p@5"])
    np.testing.assert_allclose(ours["word_map"], theirs[ir_measures.AP], rtol=1e-9)
    np.testing.assert_allclose(ours["word_p@5"], theirs[ir_measures.P @ 5], rtol=1e-9)


def test_map_and_auc_have_the_values_of_scikit_learn():
    scores, Y = drawn(2)
    np.testing.assert_allclose(evaluate(scores, Y, ["map"])["map"], label_ranking_average_precision_score(Y, scores))
    tied = np.round(scores / 100)
    expected = np.mean([roc_auc_score(y, s) for y, s in zip(Y, tied, strict=True)])
    np.testing.assert_allclose(evaluate(tied, Y, ["auc"])["auc"], expected)


@given(st.integers(0, 10**6), st.integers(1, 8), st.integers(1, 8), st.integers(0, 4), st.integers(1, 10))
@settings(deadline=None, max_examples=150)
def test_every_metric_is_that_of_full_sorts_whatever_the_ties_the_exclusions_and_the_blocks(seed, n, m, levels, k):
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, levels + 1, size=(n, m)).astype(rng.choice(["f4", "f8"]))
    Y = rng.integers(-1, 2, size=(n, m))
    excluded = rng.random((n, m)) < rng.choice([0.0, 0.3])
    siblings = rng.random((m, m)) < 0.2
    tree = np.hstack([np.eye(m, dtype=bool) | (rng.random((m, m)) < 0.2), rng.random((m, 2)) < 0.5])
    expected = reference.evaluate(scores, Y > 0, excluded, k, siblings, tree)
    more = {"siblings": siblings, "tree": tree}
    names = {(f"{metric.name}@{k}" if metric.takes_k else metric.name): metric.name for metric in METRICS}
    defined = [name for name, base in names.items() if not np.isnan(expected[base])]
    for given_scores in (scores, in_blocks(scores, step=3), lambda: in_blocks(scores, step=2)):
        if defined:
            ours = evaluate(given_scores, sp.csr_array(Y), defined, exclude=sp.csr_array(excluded), **more)
            np.testing.assert_allclose(list(ours.values()), [expected[names[name]] for name in defined], rtol=1e-12)
    for name in names.keys() - set(defined):
        with pytest.raises(ValueError, match="nothing to average"):
            evaluate(scores, Y, [name], exclude=excluded, **more)


def test_a_small_case_by_hand():
    scores = np.array([[9, 8, 7, 6], [9, 6, 7, 8], [1, 2, 3, 4]], np.float32)
    Y = [[1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
    ours = evaluate(
        scores, Y, ["p@2", "r@2", "f1@2", "map", "mrr", "auc", "tag_p@2", "tag_r@2", "tag_f1@2", "n_plus@2"]
    )
    # image 0: right, wrong, right, wrong; image 1: wrong, wrong, wrong, right; image 2 has no tag
    assert ours["p@2"] == pytest.approx((1 / 2 + 0) / 2)
    assert ours["r@2"] == pytest.approx((1 / 2 + 0) / 2)
    assert ours["f1@2"] == pytest.approx((1 / 2 + 0) / 2)
    assert ours["map"] == pytest.approx(((1 / 1 + 2 / 3) / 2 + 1 / 4) / 2)
    assert ours["mrr"] == pytest.approx((1 + 1 / 4) / 2)
    assert ours["auc"] == pytest.approx((3 / 4 + 0) / 2)
    # given: image 0 tags 0 and 1, image 1 tags 0 and 3, image 2 tags 3 and 2. Right: tag 0 once of twice.
    assert ours["tag_p@2"] == pytest.approx((1 / 2 + 0 + 0) / 3)
    assert ours["tag_r@2"] == pytest.approx((1 + 0 + 0) / 3)
    assert ours["tag_f1@2"] == pytest.approx(2 * (1 / 6) * (1 / 3) / (1 / 6 + 1 / 3))
    assert ours["n_plus@2"] == 1
    words = evaluate(scores, Y, ["word_map", "word_p@2"])
    # word 0 finds image 0 first (a tie with image 1); word 1: 0, 1, 2; word 2: a tie of images 0 and 1
    assert words["word_map"] == pytest.approx((1 + 1 / 2 + 1) / 3)
    assert words["word_p@2"] == pytest.approx(1 / 2)


def test_equal_scores_rank_by_the_smaller_id():
    np.testing.assert_array_equal(rank_tags(np.zeros((1, 4), "f4"), [[0, 1, 0, 1]]).ranks, [2, 4])
    np.testing.assert_array_equal(rank_images(np.zeros((4, 1), "f4"), [[0], [1], [0], [1]]).ranks, [2, 4])


def test_an_image_without_relevant_tags_has_no_average_precision():
    values = average_precisions(np.array([[3, 2, 1], [3, 2, 1]], "f4"), sp.csr_array([[0, 1, 0], [0, 0, 0]]))
    np.testing.assert_array_equal(values, [0.5, np.nan])


def test_explicit_negatives_are_not_relevant():
    scores, Y = drawn(3)
    signed = np.where(Y > 0, 1, np.random.default_rng(3).integers(-1, 1, Y.shape))
    assert evaluate(scores, signed, EVERY) == evaluate(scores, Y, EVERY)


def test_excluded_entries_do_not_take_a_place():
    scores, Y = np.array([[9.0, 8.0, 7.0]]), [[1, 0, 1]]
    assert evaluate(scores, Y, ["p@1", "map"], exclude=[[1, 1, 0]]) == {"p@1": 1.0, "map": 1.0}
    assert evaluate(scores, Y, ["word_map"], exclude=[[1, 0, 0]])["word_map"] == 1.0


def test_precision_divides_by_k_also_where_fewer_tags_are_ranked():
    assert evaluate(np.array([[2.0, 1.0]]), [[1, 0]], ["p@10"])["p@10"] == pytest.approx(0.1)


def test_float64_scores_keep_differences_that_float32_would_lose():
    scores = np.array([[1.0, 1.0 + 1e-12]])
    assert evaluate(scores, [[0, 1]], ["map", "tag_r@1"]) == {"map": 1.0, "tag_r@1": 1.0}


def test_results_do_not_depend_on_how_the_scores_arrive():
    scores, Y = drawn(4)
    whole = evaluate(scores, Y, EVERY)
    backwards = list(in_blocks(scores))[::-1]
    for arriving in (in_blocks(scores), lambda: in_blocks(scores), backwards, np.asfortranarray(scores)):
        assert evaluate(arriving, Y, EVERY) == whole


def test_a_buffer_that_is_used_again_for_every_block_does_no_harm():
    scores, Y = drawn(5)
    buffer = np.empty((5, scores.shape[1]), np.float32)

    def reusing():
        for rows, block in in_blocks(scores, step=5):
            buffer[:] = block
            yield rows, buffer

    assert evaluate(reusing(), Y, EVERY) == evaluate(scores, Y, EVERY)


def test_values_image_by_image_average_to_the_metric():
    scores, Y = drawn(6)
    Y[3] = 0
    values = measure(scores, Y, ["map", "p@5"])
    assert values["map"].shape == (40,)
    assert np.isnan(values["map"][3])
    assert np.nanmean(values["map"]) == pytest.approx(evaluate(scores, Y, "map")["map"])
