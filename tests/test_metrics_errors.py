"""What cannot be measured is refused, with what is wrong and what to do."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from refusals import refused
from visterm.core.errors import DataError, ShapeError, TooLargeError, UnknownNameError
from visterm.metrics import METRICS, check_metrics, evaluate, ranking

SCORES = np.array([[3, 2, 1], [1, 2, 3]], np.float32)
Y = np.array([[1, 0, 0], [0, 1, 0]])
HALVES = [(slice(0, 1), SCORES[:1]), (slice(1, 2), SCORES[1:])]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("p5", "p@5"), ("p10", "p@10"), ("mapp", "map"), ("nplus@3", "n_plus@3"), ("tag_f@5", "tag_f1@5")],
)
def test_an_unknown_metric_is_answered_with_the_nearest(typed, meant):
    with refused("metrics", value=typed, error=UnknownNameError) as info:
        check_metrics([typed])
    assert f"Did you mean '{meant}'?" in str(info.value)


@pytest.mark.parametrize(
    ("typed", "advice"),
    [("map@5", "Write 'map'"), ("p", "Write, for example, 'p@5'"), ("p@", "needs a k"), ("p@0", "1 or more"),
     ("p@-1", "1 or more"), ("p@x", "needs a k"), ("p@2.5", "needs a k"), ("auc@", "Write 'auc'")],
)  # fmt: skip
def test_a_k_that_cannot_be_used_is_answered_with_how_to_write_it(typed, advice):
    with refused("metrics", value=typed) as info:
        check_metrics([typed])
    assert advice in str(info.value)


def test_no_metric_at_all_is_an_error_that_lists_them():
    with refused("metrics", value=[]) as info:
        evaluate(SCORES, Y, [])
    assert "p@5, r@5" in info.value.expected


def test_capitals_and_a_single_name_are_understood():
    assert evaluate(SCORES, Y, "MAP") == {"MAP": 0.75}
    assert [wanted.k for wanted in check_metrics(["P@3", "auc"]).values()] == [3, 0]


def test_every_metric_of_the_table_is_computed_and_has_its_own_summary():
    examples = [metric.example for metric in METRICS]
    assert len(evaluate(SCORES, Y, examples, siblings=np.eye(3), tree=np.eye(3))) == len(METRICS)
    assert len({metric.summary for metric in METRICS}) == len({metric.name for metric in METRICS}) == len(METRICS)


@pytest.mark.parametrize("metric", [metric.example for metric in METRICS])
def test_a_metric_over_nothing_says_so(metric):
    with pytest.raises(DataError, match=f"{metric} has nothing to average: no image has a rel"):
        evaluate(SCORES, -Y, [metric], siblings=np.eye(3), tree=np.eye(3))


def test_auc_without_wrong_tags_says_so():
    with pytest.raises(DataError, match="no image has a relevant and an irrelevant tag"):
        evaluate(SCORES, np.ones((2, 3)), ["auc"])


def test_excluding_every_relevant_tag_says_so():
    with pytest.raises(DataError, match="no image has a relevant tag"):
        evaluate(SCORES, Y, ["map"], exclude=Y)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_scores_that_have_no_order_are_refused_with_the_image(bad):
    scores = SCORES.copy()
    scores[1, 2] = bad
    for given in (scores, [HALVES[0], (slice(1, 2), scores[1:])]):
        with pytest.raises(DataError, match="image 1 have NaN or infinity"):
            evaluate(given, Y, ["map"])


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (SCORES[:, :2], r"scores have the shape \(2, 2\), but the tags \(2, 3\)"),
        (HALVES[:1], "have 1 images, but the tags 2; the first without scores is 1"),
        ([HALVES[0], HALVES[0]], "Image 0 is in two score blocks"),
        ([(slice(0, 2), SCORES[:1])], r"images 0 to 2 has the shape \(1, 3\); expected \(2, 3\)"),
        ([(slice(0, 1), SCORES[0])], r"has the shape \(3,\)"),
    ],
)
def test_scores_of_other_images_or_tags_are_refused(scores, message):
    with pytest.raises(ShapeError, match=message):
        evaluate(scores, Y, ["map"])


@pytest.mark.parametrize("scores", [None, 3, SCORES.tolist(), [SCORES]])
def test_scores_of_another_kind_are_refused(scores):
    with refused("scores"):
        evaluate(scores, Y, ["map"])


def test_an_exclusion_of_another_shape_is_refused():
    with refused("exclude", value=(1, 3), error=ShapeError):
        evaluate(SCORES, Y, ["map"], exclude=[[1, 0, 0]])


def test_one_time_blocks_too_large_to_keep_are_refused_only_where_they_are_needed_twice(monkeypatch):
    monkeypatch.setattr(ranking, "MAX_CACHE_BYTES", 12)
    with pytest.raises(TooLargeError, match="Pass a callable"):
        evaluate(iter(HALVES), Y, ["word_map"])
    assert evaluate(iter(HALVES), Y, ["map"]) == evaluate(SCORES, Y, ["map"])


def test_a_callable_is_asked_again_where_its_blocks_are_too_large_to_keep(monkeypatch):
    calls = []

    def fresh():
        calls.append(1)
        return iter(HALVES)

    assert evaluate(fresh, Y, ["word_map"]) == evaluate(SCORES, Y, ["word_map"])
    assert len(calls) == 1
    monkeypatch.setattr(ranking, "MAX_CACHE_BYTES", 12)
    assert evaluate(fresh, Y, ["word_map"]) == evaluate(SCORES, Y, ["word_map"])
    assert len(calls) == 3


def test_listing_metrics_loads_neither_numba_nor_scikit_learn():
    code = "import sys; from visterm.metrics import check_metrics; check_metrics('p@5'); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "visterm.metrics.table" in loaded
    assert not {"numba", "sklearn"} & set(loaded)
