"""Sibling precision gives credit for a tag that shares a parent with a right one, as WSABIE's section 4 defines it."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from refusals import refused
from visterm.core.errors import ShapeError
from visterm.core.vocabulary import Vocabulary
from visterm.data.relations import sibling_sets
from visterm.metrics import check_metrics, evaluate, measure

TAGS = Vocabulary(["tuna", "salmon", "motorcar", "lorry", "sky"])
IS_A = [("tuna", "fish"), ("salmon", "fish"), ("motorcar", "vehicle"), ("lorry", "vehicle")]
SIBLINGS = sibling_sets(IS_A, TAGS)


def sibling_precisions(scores, Y, siblings, k, **excluded):
    return measure(scores, Y, f"psib@{k}", siblings=siblings, **excluded)[f"psib@{k}"]


SCORES = np.array([[5, 4, 3, 2, 1], [1, 2, 5, 4, 3]], np.float32)
"""Ranked: tuna, salmon, motorcar, lorry, sky; and motorcar, lorry, sky, salmon, tuna."""


def test_a_sibling_of_the_right_tag_counts_as_the_tag_itself():
    salmon = [[0, 1, 0, 0, 0], [0, 1, 0, 0, 0]]
    np.testing.assert_allclose(sibling_precisions(SCORES, salmon, SIBLINGS, 1), [1, 0])
    np.testing.assert_allclose(sibling_precisions(SCORES, salmon, SIBLINGS, 2), [1, 0])
    np.testing.assert_allclose(sibling_precisions(SCORES, salmon, SIBLINGS, 4), [0.5, 0.25])


def test_with_several_right_tags_a_tag_counts_once_if_it_is_sibling_of_any():
    fish_and_lorry = [[1, 1, 0, 1, 0], [0, 0, 0, 0, 1]]
    np.testing.assert_allclose(sibling_precisions(SCORES, fish_and_lorry, SIBLINGS, 5), [0.8, 0.2])


def test_without_siblings_it_is_precision():
    rng = np.random.default_rng(0)
    scores, Y = rng.standard_normal((30, 20)), rng.random((30, 20)) < 0.2
    for none in (np.zeros((20, 20)), np.eye(20)):
        ours = measure(scores, Y, ["psib@5", "p@5"], siblings=none)
        np.testing.assert_allclose(ours["psib@5"], ours["p@5"])


def test_an_image_without_right_tags_has_no_value_and_excluded_tags_are_not_given():
    Y = [[0, 1, 0, 0, 0], [0, 0, 0, 0, 0]]
    np.testing.assert_allclose(sibling_precisions(SCORES, Y, SIBLINGS, 2), [1, np.nan])
    known = [[1, 0, 0, 0, 0], [0, 0, 0, 0, 0]]
    np.testing.assert_allclose(sibling_precisions(SCORES, Y, SIBLINGS, 2, exclude=known), [0.5, np.nan])
    assert sibling_precisions(SCORES, Y, SIBLINGS, 50)[0] == 2 / 50


def test_evaluate_takes_siblings_in_blocks_beside_other_metrics():
    Y = np.array([[0, 1, 0, 0, 0], [0, 0, 0, 1, 0]])
    blocks = [(slice(1, 2), SCORES[1:]), (slice(0, 1), SCORES[:1])]
    values = evaluate(blocks, Y, ["psib@1", "PSIB@2", "p@1"], siblings=sp.coo_array(SIBLINGS))
    assert values == {"psib@1": 1.0, "PSIB@2": 1.0, "p@1": 0.0}


def test_to_ask_for_it_without_siblings_says_to_pass_relations():
    with refused("metrics", value="psib@5"):
        evaluate(SCORES, np.eye(2, 5), ["map", "psib@5"])
    assert check_metrics("psib@5")["psib@5"].k == 5


def test_siblings_of_another_number_of_tags_and_a_k_of_none_are_refused():
    with refused("siblings", value=(4, 4), error=ShapeError):
        evaluate(SCORES, np.eye(2, 5), ["psib@5"], siblings=np.eye(4))
    for k in (0, 1.5, True):
        with refused("metrics"):
            sibling_precisions(SCORES, np.eye(2, 5), SIBLINGS, k)
