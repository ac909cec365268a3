"""The simulation behind docs/scale.md, against cases that are computed by hand."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "research" / "experiments"), str(ROOT / "benchmarks")]

from lab.pages import written  # noqa: E402
from lab.played import Setting, play  # noqa: E402
from lab.stages import rates  # noqa: E402
from simulate_scale import predicted, staged  # noqa: E402


def test_workers_take_the_next_piece_when_they_are_free():
    assert play([3, 1, 1, 1], Setting(1)) == 6
    assert play([3, 1, 1, 1], Setting(2)) == 3  # 3 beside 1 + 1 + 1
    assert play([1, 1, 1, 3], Setting(2)) == 4  # 1 + 3 beside 1 + 1: the long piece came last
    assert play([2], Setting(5)) == 2
    assert play([], Setting(2)) == 0


def test_more_workers_than_cores_share_them():
    assert play([4, 4, 4, 4], Setting(4, cores=4)) == 4
    # a driver of 1 s a piece beside 2 workers on 2 cores: 2 s for the first two pieces; then three share two cores
    # until the driver's first second is done, after 1.5 s, when the second begins: two more pieces of 2 s have had
    # 1 s of 2 each; after another 1.5 s all three end
    assert play([2, 2, 2, 2], Setting(2, driver=1)) == pytest.approx(7)


def test_a_driver_apart_is_waited_for_only_if_it_is_the_slowest():
    assert play([2] * 4, Setting(2, driver=0.5, apart=True)) == pytest.approx(5)  # 2, 4, then the last two pieces
    assert play([1] * 4, Setting(4, cores=4, driver=2, apart=True)) == pytest.approx(9)  # 1, then four times 2


def test_cores_at_work_slow_each_other():
    # two pieces of 3 s at 1/1.5 of the speed: 2 done after 3 s of the shorter one, the rest alone
    assert play([3, 3], Setting(2, crowd=1.5)) == pytest.approx(4.5)
    assert play([2, 3], Setting(2, crowd=1.5)) == pytest.approx(4)  # 3 s together (2 done), then 1 s alone
    assert play([3], Setting(1, crowd=1.5)) == 3


def test_a_worker_that_is_sure_to_be_lost_does_its_piece_again():
    took = play([10], Setting(1, lost_an_hour=1e9, notice=5), seed=1)
    assert 15 <= took <= 25  # up to 10 s lost, 5 until it is seen, 10 again


def test_two_workers_are_predicted_from_one():
    one = {"pieces": [2.0] * 10, "units": 16, "cores": 2, "crowd": 1.25, "driver": 0.0}
    found = {"images a second": {"1": {"median": 8.0}, "2": {"median": 12.0}}, "simulate": one}
    # two pieces each 2.5 s: the first is through after 2.5, the last after 12.5; without the first two 8 pieces of 16
    assert predicted(found) == {"predicted": pytest.approx(12.8), "measured": 12.0, "off": pytest.approx(12.8 / 12 - 1)}


def test_the_page_has_the_tables_of_the_figures():
    page = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
    fresh = written(page, staged(rates()))
    assert fresh == page, (
        "docs/scale.md is stale; run: python research/experiments/simulate_scale.py --docs docs/scale.md"
    )
