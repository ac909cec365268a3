"""How benchmarks/same_answers.py compares a recording with what it finds: exactly on one machine, else roughly."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from same_answers import compare

RANKING = {"ids": ["a", "b", "c", "d"], "scores": [2.0, 1.0, 0.5, 0.25], "confidences": [0.9, 0.8, None, None]}
ARRAY = {"type": "float32", "shape": [3], "norm": 4.0, "sha256": "00"}


def found(before, now, *, exact):
    return list(compare(before, now, "here", exact=exact))


def test_equal_answers_do_not_differ():
    for exact in (True, False):
        assert found({"search": RANKING, "arrays": [ARRAY]}, {"search": RANKING, "arrays": [ARRAY]}, exact=exact) == []


def test_the_last_bit_of_a_score_differs_on_the_same_machine_only():
    now = RANKING | {"scores": [2.0, 1.0, 0.5, 0.25000000000000006]}
    assert found(RANKING, now, exact=True) == ["here, scores, 3: 0.25 recorded, now 0.25000000000000006"]
    assert found(RANKING, now, exact=False) == []


def test_another_machine_may_exchange_one_answer_but_not_two_of_four():
    assert found(RANKING, RANKING | {"ids": ["a", "c", "b", "e"]}, exact=False) == []
    assert len(found(RANKING, RANKING | {"ids": ["a", "x", "y", "d"]}, exact=False)) == 1
    assert len(found(RANKING, RANKING | {"scores": [3.0, 1.0, 0.5, 0.25]}, exact=False)) == 1
    assert len(found(RANKING, RANKING | {"ids": ["a"], "scores": [2.0]}, exact=False)) == 1


def test_hashes_count_on_the_same_machine_and_types_and_norms_everywhere():
    assert len(found(ARRAY, ARRAY | {"sha256": "11"}, exact=True)) == 1
    assert found(ARRAY, ARRAY | {"sha256": "11", "norm": 4.01}, exact=False) == []
    assert len(found(ARRAY, ARRAY | {"type": "float64"}, exact=False)) == 1
    assert len(found(ARRAY, ARRAY | {"norm": 5.0}, exact=False)) == 1


def test_an_answer_that_is_gone_or_new_differs():
    assert found({"a": 1}, {"b": 1}, exact=False) == ["here, a: only recorded", "here, b: not recorded"]
