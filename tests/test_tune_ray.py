"""Settings tried by Ray's workers: the trials and the run of one process, whatever is lost in the middle."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager

import pytest
from typer.testing import CliRunner

from ray_trials import model_that, parts, trials_of
from visterm.cli.command_line import app
from visterm.cluster import RayExecutor
from visterm.core.errors import DataError, DivergedError, UserError
from visterm.core.progress import SILENT
from visterm.learning.fit_request import FitRequest
from visterm.learning.tune import Candidate, trials_file, try_settings, tune

pytest.importorskip("ray", reason="wants the package ray (extra ray)")

NAMES = [f"image {i}" for i in range(60)]
TAGS = [[f"{'ab'[i % 2]}{(i * step) % 5}" for step in (1, 2, 3)] for i in range(60)]
GRID = {"dim": [2, 4, 6], "learning_rate": [0.1]}
READ = "Read 10 tags; 0 on one photo only."
FEW = {"schedule": "constant", "epochs": 4, "patience": 2}


@pytest.fixture
def no_engine(monkeypatch):
    """Fails a test that starts or reaches an engine."""

    @contextmanager
    def refused(*_):
        pytest.fail("an engine was started")
        yield

    monkeypatch.setattr("visterm.cluster.running_cluster", refused)


HOW = ("grid", "n_random", "executor", "say", "progress")
"""What `tune` takes beside a request."""


def search(out, **changed):
    wanted = {"encoder": "ids", "grid": GRID, "model_params": FEW, "valid": 0.5, "n_jobs": 1, **changed}
    how = {name: wanted.pop(name) for name in HOW if name in wanted}
    return tune(FitRequest(images=NAMES, tags=TAGS, out=out, overwrite=True, **wanted), **how)


def without_times(trial):
    history = [{name: value for name, value in epoch.items() if name != "seconds"} for epoch in trial.history]
    return trial.settings, trial.value, trial.epochs, history


def test_trials_and_run_are_those_of_one_process_and_finished_trials_stay(ray_engine, tmp_path):
    alone = search(tmp_path / "alone")
    search(tmp_path / "shared", grid={"dim": [6], "learning_rate": [0.1]})
    kept = trials_file(tmp_path / "shared").read_text()
    said = []
    shared = search(tmp_path / "shared", executor=RayExecutor("local", 2), say=said.append)
    assert list(map(without_times, shared.trials)) == list(map(without_times, alone.trials))
    assert said[0] == READ
    assert sorted(line.split(":")[0] for line in said[1:]) == ["1 of 2", "2 of 2"]
    file = trials_file(tmp_path / "shared")
    assert file.read_text().startswith(kept)
    assert len(file.read_text().splitlines()) == 3
    assert (tmp_path / "shared/model.safetensors").read_bytes() == (tmp_path / "alone/model.safetensors").read_bytes()


@pytest.mark.slow
def test_a_worker_that_dies_has_its_trial_done_again_and_what_diverges_is_a_trial_too(ray_engine, tmp_path):
    def die_once():
        with open(tmp_path / "starts", "a") as file:
            file.write("x")
        if (tmp_path / "starts").stat().st_size == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    def diverge():
        raise DivergedError("W became infinite")

    whole = model_that(lambda: None)
    told = trials_of(
        [
            Candidate(model_that(die_once), {"a": 1}),
            Candidate(model_that(diverge), {"a": 2}),
            Candidate(whole, {"a": 3}),
        ]
    )
    expected = try_settings(whole, {}, parts(), SILENT).value
    assert (tmp_path / "starts").read_text() == "xx"
    assert {number: (trial.settings, trial.value, trial.error) for number, trial in told.items()} == {
        0: ({"a": 1}, expected, None),
        1: ({"a": 2}, None, "W became infinite"),
        2: ({"a": 3}, expected, None),
    }


@pytest.mark.slow
def test_an_error_of_one_trial_ends_the_search_and_is_not_tried_again(ray_engine, tmp_path):
    def fail():
        with open(tmp_path / "starts", "a") as file:
            file.write("x")
        raise DataError("a row too few")

    with pytest.raises(DataError, match="a row too few"):
        trials_of([Candidate(model_that(fail), {"a": 1})])
    assert (tmp_path / "starts").read_text() == "x"


def test_one_setting_left_starts_no_engine_and_is_reported(no_engine, tmp_path):
    search(tmp_path / "run", grid={"dim": [2]})
    said = []
    tuned = search(tmp_path / "run", grid={"dim": [2, 3]}, executor=RayExecutor("local"), say=said.append)
    assert said[:2] == [READ, "Other machines ignored: 1 setting to try, on this machine."]
    assert [line.split(":")[0] for line in said[2:]] == ["1 of 1"]
    assert len(tuned.trials) == 2


def test_without_the_package_it_is_refused_before_any_work(monkeypatch, tmp_path):
    monkeypatch.setattr("visterm.cluster.find_spec", lambda name: None)
    with pytest.raises(UserError, match="package 'ray'"):
        search(tmp_path / "run", executor=RayExecutor("local"))
    assert list(tmp_path.iterdir()) == []


def test_the_command_takes_the_address_and_says_what_it_did_without(no_engine, tmp_path):
    tags = tmp_path / "tags.csv"
    tags.write_text("image,tags\n" + "".join(f'{n},"{",".join(t)}"\n' for n, t in zip(NAMES, TAGS, strict=True)))
    arguments = [
        "tune", "--tags", tags, "--encoder", "ids", "-o", tmp_path / "run", "--grid", "dim=2", "--set", "epochs=1",
        "--ray", "local",
    ]  # fmt: skip
    done = CliRunner().invoke(app, [str(part) for part in arguments])
    assert done.exit_code == 0, done.stderr
    assert "Other machines ignored: 1 setting to try, on this machine." in done.stderr
