"""The search of settings: points of a box, steps from the best, edges that are widened."""

from __future__ import annotations

import math

from visterm_research.comparison.methods import Method
from visterm_research.comparison.search import MOST_BEYOND, Axis, Settings, at_an_edge, draw_points, search, unordered

RATE, NORM = Axis((0.001, 0.01, 0.1)), Axis((1.0, 2.0, 4.0))
BOX = {"rate": RATE, "norm": NORM}


def tried_by(box, goodness, *, trials=16, points=None, start=None):
    """Search with a planted goodness; return all settings in their order, and where the box was widened."""
    tried: list[Settings] = []

    def fit(settings: Settings) -> list[float]:
        tried.append(settings)
        found = goodness(settings)
        return found if isinstance(found, list) else [found]

    drawn = draw_points(box, points or 10, start=start, seed=0)
    return tried, search(box, drawn, fit, trials=trials)


def best_of(tried, goodness):
    return max(tried, key=goodness)


def near(**best):
    """Return a goodness whose one top lies at some settings."""
    return lambda one: -sum(abs(math.log(one[name] / value)) for name, value in best.items())


def test_points_are_drawn_without_repeats_and_begin_with_the_start() -> None:
    points = draw_points(BOX, 6, start={"rate": 0.1}, seed=3)
    assert points[0] == {"rate": 0.1, "norm": 2.0}
    assert len(points) == 6 == len({tuple(one.items()) for one in points})
    assert draw_points(BOX, 6, start={"rate": 0.1}, seed=3) == points != draw_points(BOX, 6, seed=4)
    assert len(draw_points(BOX, 100)) == 9


def test_settings_that_are_good_only_together_are_found() -> None:
    box = {
        "alpha": Axis((0.03, 0.1, 0.3, 1.0, 3.0)),
        "rate": Axis((0.001, 0.01, 0.1)),
        "image_rate": Axis((0.01, 0.1, 1.0)),
    }

    def goodness(one: Settings) -> float:
        # Each alone is worse than the start: stages that change one setting after the other stay there.
        if (one["alpha"], one["rate"]) == (3.0, 0.01):
            return 1.0
        return -abs(math.log(one["alpha"] / 0.3)) - abs(math.log(one["rate"] / 0.1))

    tried, _ = tried_by(box, goodness, trials=24, points=15, start={"alpha": 0.3, "rate": 0.1, "image_rate": 0.1})
    assert goodness(best_of(tried, goodness)) == 1.0


def test_a_best_value_at_an_edge_widens_the_box_until_it_is_inside() -> None:
    goodness = near(rate=0.01, norm=30.0)
    tried, widened = tried_by(BOX, goodness)
    assert widened[:3] == ["norm to 8.0", "norm to 16.0", "norm to 32.0"]
    chosen = best_of(tried, goodness)
    assert chosen["norm"] in (30.0, 32.0)
    assert at_an_edge(BOX, tried, chosen) == []


def test_downwards_too_and_only_so_far() -> None:
    tried, widened = tried_by({"rate": RATE}, near(rate=1e-30))
    assert widened == [f"rate to {10.0**-power:g}" for power in range(4, 4 + MOST_BEYOND)]
    assert at_an_edge({"rate": RATE}, tried, {"rate": 10.0 ** -(3 + MOST_BEYOND)}) == ["rate"]


def test_nothing_lies_beyond_an_end_of_a_share_or_of_a_count() -> None:
    box = {"share": Axis((0.5, 0.75, 1.0), high=1.0), "power": Axis((0.0, 0.5, 1.0)), "rank": Axis((1, 2, 4), low=1)}
    tried, widened = tried_by(box, lambda one: one["share"] - one["power"] - one["rank"])
    chosen = best_of(tried, lambda one: one["share"] - one["power"] - one["rank"])
    assert chosen == {"share": 1.0, "power": 0.0, "rank": 1}
    assert not [one for one in widened if one.startswith(("share", "power to -", "rank to 0"))]
    assert at_an_edge(box, tried, chosen) == []


def test_every_search_tries_as_many_whatever_the_axes() -> None:
    for box in (BOX, {"rate": Axis((0.001, 0.003, 0.01, 0.03, 0.1))}, {"kind": unordered("a", "b"), "rate": RATE}):
        tried, widened = tried_by(box, near(rate=0.011))
        assert len(tried) == 16 + len(widened)
        assert len({tuple(one.items()) for one in tried}) == len(tried)


def test_values_between_are_tried_once_those_beside_are() -> None:
    goodness = near(rate=0.004)
    tried, _ = tried_by({"rate": RATE}, goodness, trials=10)
    assert abs(math.log(best_of(tried, goodness)["rate"] / 0.004)) < 0.2


def test_whole_numbers_stay_whole() -> None:
    tried, widened = tried_by({"dim": Axis((10, 20, 40), low=1)}, near(dim=50))
    assert widened == ["dim to 80"]
    assert all(isinstance(one["dim"], int) for one in tried)
    assert any(one["dim"] not in (10, 20, 40, 80) for one in tried)


def test_each_criterion_has_its_best_and_its_steps() -> None:
    def goodness(one: Settings) -> list[float]:
        return [near(rate=0.001, norm=2.0)(one), near(rate=0.1, norm=8.0)(one)]

    _, widened = tried_by(BOX, goodness, trials=14)
    assert "norm to 8.0" in widened
    assert "rate to 0.0001" in widened


def test_settings_that_diverge_are_never_the_best() -> None:
    def goodness(one: Settings) -> float:
        return -math.inf if one["rate"] > 0.05 else one["rate"]

    tried, widened = tried_by({"rate": RATE}, goodness)
    assert best_of(tried, goodness)["rate"] <= 0.05
    assert widened == []


def test_a_method_without_a_box_has_one_setting() -> None:
    method = Method("any", "ridge", {"alpha": 2.0})
    assert method.settings() == [{"alpha": 2.0}]
    tried: list[Settings] = []
    assert search(method.box, method.settings(), lambda one: tried.append(one) or [0.0]) == []  # type: ignore[func-returns-value]
    assert tried == [{"alpha": 2.0}]


def test_what_is_fixed_is_neither_drawn_nor_started_with() -> None:
    method = Method("any", "wsabie", {"epochs": 3}, BOX, start={"rate": 0.1, "norm": 1.0})
    fixed = method.with_fixed("other", norm=4.0)
    assert {one["norm"] for one in fixed.settings()} == {4.0}
    assert fixed.settings()[0] == {"epochs": 3, "norm": 4.0, "rate": 0.1}
    assert list(fixed.box) == ["rate"]
