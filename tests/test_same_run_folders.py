"""A run has the same bytes for any number of threads, whatever the clock says; seconds are in a file of their own."""

from __future__ import annotations

import json
from importlib.util import find_spec

import numpy as np
import pytest

from planted import plant_corpus
from visterm.core.persist import MANIFEST, TIMES_SUFFIX
from visterm.core.registry import PACKAGE
from visterm.core.tables import MODELS
from visterm.library.info import describe
from visterm.tagging.tagger import Tagger

CALIBRATED = ["wsabie", "ridge"]
"""One calibrated by images that it held out, and one that is fitted again for that: the others do as these two."""

MODEL_TIMES = f"model{TIMES_SUFFIX}"
N_IMAGES = 100
"""Enough that models hold some out."""


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """A file of features, the names of its images and their tags."""
    folder = tmp_path_factory.mktemp("features")
    corpus = plant_corpus(n_train=N_IMAGES, n_test=1, n_tags=6, n_features=24, random_state=4)
    names = [f"{i}.jpg" for i in range(N_IMAGES)]
    np.save(folder / "features.npy", corpus.X_train)
    (folder / "features.names.txt").write_text("\n".join(names))
    return folder / "features.npy", names, [[f"tag {t}" for t in corpus.Y_train[[i]].indices] for i in range(N_IMAGES)]


def fit(planted, model, run, *, n_jobs=1, **params):
    features, names, tags = planted
    settings = {**MODELS.load(model).test_params, "epochs": 2, **params}
    known = MODELS.load(model)().get_params().keys() - {"random_state", "n_jobs"}
    settings = {name: value for name, value in settings.items() if name in known}
    tagger = Tagger(encoder=f"precomputed:{features}", model=model, model_params=settings, seed=3, n_jobs=n_jobs)
    tagger.fit(names, tags, calibrate=model in CALIBRATED).save(run)
    return run


def contents(run):
    return {file.name: file.read_bytes() for file in run.iterdir() if file.name != MODEL_TIMES}


def installed(package):
    """List models of a package without those whose extra (named as its main package) is missing."""
    entries = [entry for entry in MODELS if entry.package == package]
    return [entry.name for entry in entries if not entry.extra or find_spec(entry.extra)]


def check_bytes(model, planted, tmp_path):
    one, two = (contents(fit(planted, model, tmp_path / str(n), n_jobs=n)) for n in (1, 2))
    assert sorted(one) == sorted(two)
    assert [name for name, content in one.items() if two[name] != content] == []


@pytest.mark.parametrize("model", installed(PACKAGE))
def test_a_run_has_the_same_bytes_with_one_thread_and_two(model, planted, tmp_path):
    check_bytes(model, planted, tmp_path)


def test_seconds_stand_in_a_file_that_the_manifest_does_not_name_and_are_shown_as_before(planted, tmp_path):
    run = fit(planted, "wsabie", tmp_path / "run")
    seconds = json.loads((run / MODEL_TIMES).read_text())["history_"]
    assert all(value > 0 for value in seconds)
    assert [record["seconds"] for record in Tagger.load(run).model.history_] == seconds
    assert MODEL_TIMES not in json.loads((run / MANIFEST).read_text())["sha256"]
    Tagger.load(run).save(tmp_path / "again")
    assert (tmp_path / "again" / MODEL_TIMES).read_bytes() == (run / MODEL_TIMES).read_bytes()


def test_seconds_of_models_inside_others_are_kept_too(planted, tmp_path):
    members = [("wsabie", {"epochs": 2, "dim": 4}), ("vse_ens", {"epochs": 2, "dim": 4})]
    run = fit(planted, "auto", tmp_path / "run", candidates=members, valid_share=0.3)
    assert [entry["seconds"] > 0 for entry in describe(run)["models tried"]] == [True, True]
    first = Tagger.load(run).model.members_[0].history_
    assert [record["seconds"] for record in first] == json.loads((run / MODEL_TIMES).read_text())["members_.0.history_"]


def test_without_its_seconds_a_run_opens_and_shows_all_else(planted, tmp_path):
    run = fit(planted, "wsabie", tmp_path / "run")
    before = Tagger.load(run).model.history_
    (run / MODEL_TIMES).unlink()
    assert Tagger.load(run).model.history_ == [{**record, "seconds": None} for record in before]
    assert Tagger.load(run).facts["images"] == N_IMAGES


@pytest.mark.parametrize("times", ["[]", '{"history_": [1]}', '{"history_": ["a", "b"]}', '{"other_": [1, 2]}', "{"])
def test_a_run_works_without_seconds_that_cannot_be_read_and_says_so_in_one_line(times, planted, tmp_path, caplog):
    run = fit(planted, "wsabie", tmp_path / "run", epochs=2)
    (run / MODEL_TIMES).write_text(times)
    found = Tagger.load(run)
    assert [record["seconds"] for record in found.model.history_] == [None, None]
    assert describe(run)["epochs"] == 2
    for warning in caplog.messages:
        assert warning.startswith(f"{run / MODEL_TIMES} cannot be used: ")
        assert warning.endswith("can be removed.")
        assert "\n" not in warning
    assert len(caplog.messages) == 2


def test_a_run_of_an_earlier_version_has_its_seconds_in_the_model(planted, tmp_path):
    run = fit(planted, "wsabie", tmp_path / "run")
    times = json.loads((run / MODEL_TIMES).read_text())["history_"]
    model = json.loads((run / "model.json").read_text())
    for record, seconds in zip(model["values"]["history_"]["value"], times, strict=True):
        record["seconds"] = seconds
    old = json.dumps(model)
    (run / MODEL_TIMES).unlink()
    (run / "model.json").write_text(old)
    manifest = json.loads((run / MANIFEST).read_text())
    del manifest["sha256"]["model.json"]
    (run / MANIFEST).write_text(json.dumps(manifest))
    assert [record["seconds"] for record in Tagger.load(run).model.history_] == times
