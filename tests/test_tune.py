"""Choosing settings on validation rows: what is tried, what a kill loses, and what the run is learned from."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from planted import plant_corpus
from refusals import refused
from tiny_catalogues import draw_photos, write_tags
from visterm import Tagger
from visterm.cli.command_line import app
from visterm.cli.options import choices
from visterm.core.errors import CorruptFileError, DivergedError, StorageError, UserError
from visterm.core.progress import SILENT
from visterm.core.vocabulary import Vocabulary
from visterm.features.training_rows import TrainingRows
from visterm.learning import tune as trying
from visterm.learning.fit_request import FitRequest
from visterm.learning.part_settings import make_model
from visterm.learning.tune import Range, settings_to_try, trials_file, tune
from visterm.learning.validation import fit_on_all
from visterm.models.pamir.pamir import Pamir

NAMES = [f"image {i}" for i in range(60)]
GRID = {"dim": [2, 6], "learning_rate": [0.05, 0.1]}
FEW = {"schedule": "constant", "epochs": 4, "patience": 2}


def tags_of(i):
    """Three of the five tags of one of two kinds."""
    order = np.random.default_rng(i).permutation(5)[:3]
    return [f"{'ab'[i % 2]}{j}" for j in order]


TAGS = [tags_of(i) for i in range(60)]


@pytest.fixture
def fits(monkeypatch):
    """The settings of the trials that were fitted, in order; `stop` interrupts the trial of that number."""

    class Fits(list):
        stop = None

    seen = Fits()
    judge = trying.fit_judged

    def counted(model, parts, progress):
        if len(seen) == seen.stop:
            raise KeyboardInterrupt
        seen.append({name: getattr(model, name) for name in GRID if hasattr(model, name)})
        return judge(model, parts, progress)

    monkeypatch.setattr(trying, "fit_judged", counted)
    return seen


HOW = ("grid", "n_random", "executor", "say", "progress")
"""What `tune` takes beside a request."""


def search(out, **changed):
    wanted = {"encoder": "ids", "grid": GRID, "model_params": FEW, "valid": 0.5, "n_jobs": 1, **changed}
    how = {name: wanted.pop(name) for name in HOW if name in wanted}
    return tune(FitRequest(images=NAMES, tags=TAGS, out=out, overwrite=True, **wanted), **how)


def test_all_combinations_are_tried_and_the_best_is_learned_from_all_rows(tmp_path, fits):
    tuned = search(tmp_path / "run")
    assert fits == [{"dim": d, "learning_rate": r} for d in (2, 6) for r in (0.05, 0.1)]
    values = [trial.value for trial in tuned.trials]
    assert values == sorted(values, reverse=True)
    assert values[0] > values[-1]
    best = tuned.trials[0]
    run = Tagger.load(tmp_path / "run")
    assert {name: getattr(run.model, name) for name in GRID} == best.settings
    assert run.model.n_epochs_ == best.epochs
    assert (run.model.epochs, run.model.valid_share) == (4, 0.1)
    assert run.given.sum() == 180
    assert max(entry["map"] for entry in run.model.history_) == pytest.approx(best.value)
    assert [trial["settings"] for trial in run.facts["trials"]] == [trial.settings for trial in tuned.trials]
    assert run.facts["tuning"]["validation by"] == "held-out tags"
    settings = {**best.settings, **FEW, "valid_share": 0.0, "epochs": best.epochs}
    expected = make_model("wsabie", settings, {"n_jobs": 1})
    np.testing.assert_array_equal(expected.fit(None, run.given).tag_rows_, run.model.tag_rows_)


def test_a_kill_loses_the_trial_in_work_and_a_second_start_goes_on(tmp_path, fits):
    fits.stop = 2
    with pytest.raises(KeyboardInterrupt):
        search(tmp_path / "run")
    assert len(trials_file(tmp_path / "run").read_text().splitlines()) == 2
    assert not (tmp_path / "run").exists()
    fits.stop = None
    tuned = search(tmp_path / "run")
    assert len(fits) == 4
    whole = search(tmp_path / "other")
    assert [(t.settings, t.value) for t in tuned.trials] == [(t.settings, t.value) for t in whole.trials]
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == (tmp_path / "other/model.safetensors").read_bytes()


def test_a_value_that_is_listed_twice_is_fitted_once(tmp_path, fits):
    tuned = search(tmp_path / "run", grid={"dim": [2, 2, 6]})
    assert [fitted["dim"] for fitted in fits] == [2, 6]
    assert sorted(trial.settings["dim"] for trial in tuned.trials) == [2, 2, 6]


def test_trials_have_the_threads_that_the_model_is_given(tmp_path, monkeypatch):
    judge, threads = trying.fit_judged, []

    def noted(model, *how):
        threads.append(model.n_jobs)
        return judge(model, *how)

    monkeypatch.setattr(trying, "fit_judged", noted)
    search(tmp_path / "run", grid={"dim": [2]}, n_jobs=2)
    search(tmp_path / "other", grid={"dim": [2]}, n_jobs=2, model_params=FEW | {"n_jobs": 1})
    assert threads == [2, 1]


def test_only_what_a_trial_depends_on_makes_it_anew(tmp_path, fits):
    one = {"dim": [2]}
    search(tmp_path / "run", grid=one)
    search(tmp_path / "run", grid=one, n_jobs=2)
    assert len(fits) == 1
    search(tmp_path / "run", grid={"dim": [2, 3]})
    assert len(fits) == 2
    for changed in ({"seed": 1}, {"model_params": {"epochs": 3}}, {"valid": 0.3}, {"min_count": 20}):
        before = len(fits)
        search(tmp_path / "run", grid=one, **changed)
        assert len(fits) == before + 1, changed


def test_a_file_of_something_else_beside_the_run_is_left_alone(tmp_path, fits):
    trials_file(tmp_path / "run").write_text("my notes\n")
    with pytest.raises(CorruptFileError, match=r"run\.tune\.jsonl, line 1, is not a trial"):
        search(tmp_path / "run")
    assert fits == []


def test_settings_that_diverge_come_last_and_if_all_do_it_is_an_error(tmp_path, monkeypatch):
    judge = trying.fit_judged

    def diverging(model, parts, progress):
        if model.dim > 2:
            raise DivergedError("tag_rows_ became infinite")
        return judge(model, parts, progress)

    monkeypatch.setattr(trying, "fit_judged", diverging)
    tuned = search(tmp_path / "run", grid={"dim": [4, 2, 3]})
    assert [trial.settings["dim"] for trial in tuned.trials] == [2, 4, 3]
    assert tuned.trials[1].error == "tag_rows_ became infinite"
    with pytest.raises(DivergedError, match="Each of the 2 settings diverged"):
        search(tmp_path / "other", grid={"dim": [4, 3]})
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"grid": {"dmi": [2]}}, "Did you mean 'dim'"),
        ({"grid": {"dim": [2, 0]}}, "dim is 0"),
        ({"valid": 1.0}, "valid is 1;"),
    ],
)
def test_what_cannot_be_used_is_refused_before_any_work(changed, message, tmp_path, fits):
    with pytest.raises(UserError, match=message):
        search(tmp_path / "run", **changed)
    assert fits == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("grid", "setting"),
    [
        ({"epochs": [2]}, "model.epochs"),
        ({}, "grid"),
        ({"dim": []}, "grid"),
        ({"dim": "2,3"}, "grid"),
        ({"dim": Range(2, 9)}, "grid"),
    ],
)
def test_grids_that_cannot_be_searched_are_refused_before_any_work(grid, setting, tmp_path, fits):
    with refused(setting):
        search(tmp_path / "run", grid=grid)
    assert fits == []
    assert list(tmp_path.iterdir()) == []


def test_something_else_is_not_replaced(tmp_path, fits):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "letter.txt").touch()
    with pytest.raises(StorageError, match="not a run"):
        search(tmp_path / "run")
    assert fits == []


def test_random_settings_differ_lie_within_their_ranges_and_repeat_with_the_seed():
    space = {"rate": Range(0.001, 1.0, log=True), "dim": Range(1, 3), "loss": ["a", "b"]}
    drawn = settings_to_try(space, 200, seed=3)
    assert drawn == settings_to_try(space, 200, seed=3)
    assert drawn != settings_to_try(space, 200, seed=4)
    assert len({tuple(setting.values()) for setting in drawn}) == 200
    rates = np.array([setting["rate"] for setting in drawn])
    assert ((rates >= 0.001) & (rates <= 1)).all()
    assert 0.4 < np.mean(rates < 0.0316) < 0.6
    dims = [setting["dim"] for setting in drawn]
    assert np.bincount(dims, minlength=4)[1:].min() > 40
    assert all(isinstance(dim, int) for dim in dims)
    assert len(settings_to_try({"dim": Range(1, 3), "loss": ["a", "b"]}, 50, seed=0)) == 6


def test_whole_numbers_are_drawn_by_their_logarithm_too():
    dims = [s["dim"] for s in settings_to_try({"dim": Range(1, 1000, log=True)}, 40, seed=0)]
    assert min(dims) <= 2
    assert max(dims) > 500
    assert 10 < np.median(dims) < 100


def test_choices_are_read_as_typed():
    assert choices(["dim=50,100", "rate=1e-4:0.1:log", "n=20:200", "loss=a, b", "max_trials=None,10"]) == {
        "dim": [50, 100],
        "rate": Range(0.0001, 0.1, log=True),
        "n": Range(20, 200),
        "loss": ["a", "b"],
        "max_trials": [None, 10],
    }


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (["dim"], "NAME=VALUE,VALUE"),
        (["dim="], "empty value"),
        (["dim=1,,2"], "empty value"),
        (["dim=1", "dim=2"], "given twice"),
        (["dim=9:1"], "LOW below HIGH"),
        (["dim=a:b"], "is not a range"),
        (["dim=1:2:lin"], "is not a range"),
        (["dim=0:2:log"], "above 0"),
    ],
)
def test_choices_that_cannot_be_understood_are_refused(pairs, message):
    with pytest.raises(UserError, match=message):
        choices(pairs)


def test_the_command_prints_the_trials_best_first_and_writes_the_run(tmp_path):
    tags = write_tags(tmp_path / "tags.csv", draw_photos(tmp_path / "photos", 150))  # from 100 on with confidences
    arguments = [
        "tune", tmp_path / "photos", "--tags", tags, "-o", tmp_path / "run", "--model", "knn",
        "--grid", "n_neighbors=1,20",
    ]  # fmt: skip
    done = CliRunner().invoke(app, [str(part) for part in arguments])
    assert done.exit_code == 0, done.stderr
    header, first, second = (line.split() for line in done.stdout.splitlines())
    assert header == ["n_neighbors", "map", "epochs", "seconds"]
    assert float(first[1]) >= float(second[1])
    assert first[2] == "-"
    again = CliRunner().invoke(app, [*map(str, arguments)])
    assert "is a run already" in str(again.exception)
    trials = [json.loads(line) for line in (tmp_path / "run.tune.jsonl").read_text().splitlines()]
    assert sorted(trial["settings"]["n_neighbors"] for trial in trials) == [1, 20]
    assert Tagger.load(tmp_path / "run").model.n_neighbors == int(first[0])
    assert Tagger.load(tmp_path / "run").calibration is not None


def test_a_model_fitted_on_all_rows_for_the_best_epochs_is_finished_as_one_of_so_many_epochs_is():
    corpus = plant_corpus(n_tags=8, random_state=2)
    tags = Vocabulary([f"t{n}" for n in range(8)])
    rows = TrainingRows(tags, corpus.X_train, corpus.Y_train, None, [], by_number=False)
    model = fit_on_all(Pamir(epochs=5), rows, 2, [{"epoch": 1}, {"epoch": 2}], SILENT)
    other = Pamir(epochs=2, valid_share=0).fit(corpus.X_train, corpus.Y_train)
    np.testing.assert_array_equal(model.tag_rows_, other.tag_rows_)
    assert model.n_epochs_ == 2
    assert model.valid_share == Pamir().valid_share
