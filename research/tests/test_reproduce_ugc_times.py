"""Times and draws of the sampled tagging comparison: Table 1, what a step costs, and Figure 2, on small shapes."""

# ruff: noqa: E402 (what follows the skip needs torch)
from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")
pytest.importorskip("matplotlib", reason="the extra 'plot' is not installed")


from planted import plant_corpus
from visterm.core.tables import MODELS
from visterm.metrics import evaluate
from visterm_research.comparison.problem import Problem, Rows
from visterm_research.comparison.run import Comparison, Options
from visterm_research.comparison.trials import OutOfTimeError, Trials
from visterm_research.ugc.times import Network, Shape, drawn_tags, epoch_time, times_part
from visterm_research.ugc.times_costs import COST, CROSS_ENTROPY, LAYER, RANKS, Grid, costs_part, growth, step_times
from visterm_research.ugc.times_draws import curve, draws_part

SMALL = Network("8", (8,), (20, 40))


class Clock:
    """A clock that counts what is begun, and may say that the time is over."""

    def __init__(self) -> None:
        self.begun, self.over = 0, False

    def check(self) -> None:
        self.begun += 1
        if self.over:
            raise OutOfTimeError


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def trials(tmp_path: Path, clock: Clock) -> Trials:
    trials = Trials(tmp_path / "results", n_jobs=1)
    trials.check_time = clock.check  # type: ignore[method-assign]
    return trials


@pytest.fixture
def comparison(tmp_path: Path, trials: Trials) -> Comparison:
    return Comparison(tmp_path, trials, options=Options(quick=True))


def planted_problem() -> Problem:
    planted = plant_corpus(n_train=60, n_test=30, n_features=20, n_tags=10, random_state=0)
    rows = Rows(planted.X_test, planted.Y_test)
    tags = [str(tag) for tag in range(10)]
    return Problem("planted", "planted rows", tags, Rows(planted.X_train, planted.Y_train), rows, rows)


def test_drawn_photos_have_five_tags_at_most_every_tag_once_and_the_first_ones_often():
    Y = drawn_tags(1000, 50)
    counts = np.diff(Y.indptr)
    assert Y.shape == (1000, 50)
    assert set(Y.data) == {1.0}
    assert counts.max() == 5
    often = np.asarray(Y.sum(axis=0)).ravel()
    assert often.min() >= 1
    assert often[0] > 5 * often[40:].mean()


def test_an_epoch_is_told_from_the_seconds_of_an_image_and_looked_up_the_second_time(trials, clock, monkeypatch):
    shape = Shape("drawn", 30, 1000)
    told = {20: 0.5, 40: 0.7}  # 0.3 s an epoch and 0.01 s an image
    monkeypatch.setattr("visterm_research.ugc.times._fastest", lambda trials, n_images, *rest: told[n_images])
    record = epoch_time(trials, shape, SMALL, "sampled_tagger", {}, 2)
    assert record["image"] == pytest.approx(0.01)
    assert record["epoch"] == pytest.approx(0.3 + 1000 * 0.01)
    told[40] = 9.0
    assert epoch_time(trials, shape, SMALL, "sampled_tagger", {}, 2) == record
    assert clock.begun == 1
    told[40] = 0.4  # slowed while it timed the few
    assert epoch_time(trials, shape, SMALL, "sampled_tagger", {"power": 0.5}, 2)["epoch"] == pytest.approx(10)


def test_steps_that_do_not_fit_are_reported_in_the_words_of_the_model(trials, monkeypatch):
    monkeypatch.setattr("visterm_research.models.deep.fast0tag.MAX_STEP_BYTES", 1000)
    record = epoch_time(trials, Shape("drawn", 30, 1000), SMALL, "fast0tag", {}, 1)
    assert "30 tags" in record["refused"]
    assert "epoch" not in record


def test_table_1_has_a_line_for_each_method_and_size_and_the_papers_seconds_beside(comparison, monkeypatch):
    seconds = {"fast0tag": 9.0, "cross_entropy_tagger": 6.0, "sampled_tagger": 2.0}

    def timed(trials, shape, network, model, settings, epochs):
        if model == "fast0tag" and settings:
            return {"refused": "A step needs 9 GB."}
        return {"image": seconds[model] / 1000, "epoch": seconds[model], "timed": [1, 2]}

    monkeypatch.setattr("visterm_research.ugc.times.QUICK_SHAPES", (Shape("IAPR TC-12", 291, 17_665),))
    monkeypatch.setattr("visterm_research.ugc.times.epoch_time", timed)
    times_part(comparison)
    (table,) = comparison.document.tables
    assert table["rows"] == [
        ["291", "17,665", "Fast0Tag", "9", "does not fit", "–", "2.12", "0.39", "5.4"],
        ["291", "17,665", "Fixed WV", "6", "2", "3", "1.21", "0.32", "3.8"],
        ["291", "17,665", "Proposed Approach", "6", "2", "3", "1.3", "0.43", "3"],
    ]
    assert "Does not fit: A step needs 9 GB." in comparison.document.render()
    assert [claim.verdict for claim in comparison.claims] == ["yes", "yes", "yes"]


def test_what_there_is_no_time_for_is_noted_and_later_runs_do_it(comparison, clock):
    clock.over = True
    costs_part(comparison)
    assert len(comparison.unfinished) == 4
    assert not comparison.document.tables
    clock.over = False
    costs_part(comparison)
    assert len(comparison.unfinished) == 4
    assert [row[:2] for row in comparison.document.tables[0]["rows"]] == [
        ["2", "2"],
        ["2", "8"],
        ["4", "4"],
        ["8", "8"],
    ]
    assert (comparison.out / "figures/costs-of-a-step.png").stat().st_size > 1000


def test_growth_is_the_power_over_the_largest_sizes():
    seconds = {1: 50.0, 4: 16.0, 8: 64.0, 16: 256.0}  # size squared, but for the first
    found = {(size, size): {COST: {RANKS: value}} for size, value in seconds.items()}
    assert growth(found, (1, 4, 8, 16, 32), COST, RANKS) == pytest.approx(2.0)
    assert growth(found, (1,), COST, RANKS) is None


def test_the_cost_of_pairs_takes_longer_than_that_of_single_draws_where_there_are_many(trials):
    record = step_times(trials, Grid((64,), (), 100, 8, 64, 5), 64, 64)
    assert record[COST][RANKS] > 2 * record[COST][CROSS_ENTROPY]
    assert record[LAYER][RANKS] > 0


def test_a_curve_ends_where_the_same_fit_without_a_judge_ends(trials):
    problem = planted_problem()
    settings = {"hidden": [8], "dim": 6, "epochs": 3, "batch_size": 16, "valid_share": 0.0, "device": "cpu"}
    record = curve(trials, problem, "sampled_tagger", settings)
    assert [len(record[name]) for name in ("map", "f1", "tag_f1", "loss")] == [3, 3, 3, 3]
    model = MODELS.create("sampled_tagger", **settings, random_state=0, n_jobs=1)
    model.fit(problem.train.X, problem.train.Y)
    found = evaluate(lambda: model.score_blocks(problem.valid.X), problem.valid.Y, ["map", "p@5", "r@5"])
    assert record["map"][-1] == pytest.approx(found["map"])
    assert record["f1"][-1] == pytest.approx(2 * found["p@5"] * found["r@5"] / (found["p@5"] + found["r@5"]))


def test_figure_2_changes_p_then_n_beside_all_tags(comparison):
    problem = planted_problem()
    draws_part(comparison, problem)
    (table,) = comparison.document.tables
    changed = [row[:2] for row in table["rows"]]
    assert changed == [
        ["N = 10", "P = 1"], ["N = 10", "P = 2"], ["N = 10", "all tags"],
        ["P = 5", "N = 1"], ["P = 5", "N = 2"], ["P = 5", "all tags"],
    ]  # fmt: skip
    assert table["rows"][2][2:] == table["rows"][5][2:]
    assert (comparison.out / "figures/draws-planted.png").stat().st_size > 1000
    assert sp.issparse(problem.valid.Y)
