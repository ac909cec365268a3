"""Several features folders at once: learned from, measured on and annotated as if their images were in one."""

from __future__ import annotations

import json

import numpy as np
import pytest

from command_line import run_command
from planted import plant_corpus
from planted_features import N_TAGS, N, fitted_encoder, name_of, plant, write
from visterm import Tagger
from visterm.core.errors import DataError, EncoderMismatchError
from visterm.features.streaming.memory import Plan
from visterm.learning.fit_request import FitRequest
from visterm.learning.streamed_fit import fit_streamed

CUT = 250
"""The first folder has so many of the images."""

METRICS = ["map", "tag_r@2", "word_map"]


@pytest.fixture(scope="module")
def encoder():
    return fitted_encoder()


@pytest.fixture(scope="module")
def drawn(tmp_path_factory, encoder):
    """All planted images in one folder, and the same in two: shards and their order are equal."""
    folder = plant(tmp_path_factory.mktemp("drawn"), encoder)
    X = plant_corpus(n_train=N, n_test=1, n_tags=N_TAGS, random_state=5).X_train
    write(folder / "first", X[:CUT], encoder)
    write(folder / "second", X[CUT:], encoder, first=CUT)
    return folder


def visterm(tmp_path, *arguments):
    done = run_command(arguments, tmp_path)
    return done.returncode, done.stdout, " ".join(done.stderr.split())


def test_two_folders_are_learned_from_measured_on_and_annotated_as_one_of_all(tmp_path, drawn):
    fitted = ["--tags", drawn / "tags.jsonl", "--model", "wsabie", "--set", "epochs=2", "--set", "dim=4"]
    runs, several = [], [drawn / "first", drawn / "second"]
    for name, features in (("one", [drawn / "features"]), ("two", several)):
        code, _, told = visterm(tmp_path, "fit", *features, *fitted, "--memory", "1M", "-o", name)
        assert code == 0, told
        assert "Learned 12 tags from 540 photos" in told
        runs.append(Tagger.load(tmp_path / name))
    np.testing.assert_array_equal(runs[0].model.tag_rows_, runs[1].model.tag_rows_, strict=True)
    assert runs[0].learned_images.count([name_of(i) for i in range(N)]) == N
    results = []
    for features in ([drawn / "features"], several):
        given = ["--tags", drawn / "tags.jsonl", "--json"]
        code, out, told = visterm(
            tmp_path, "evaluate", "two", *features, *given, *(f"--metric={name}" for name in METRICS)
        )
        assert code == 0, told
        code, tagged, told = visterm(tmp_path, "annotate", "two", *features, "--json", "-k", 2)
        assert code == 0, told
        results.append((json.loads(out), tagged))
    assert results[0] == results[1]
    assert len(results[0][1].splitlines()) == N


def test_several_folders_are_streamed_even_if_they_fit(tmp_path, drawn):
    several = [drawn / "first", drawn / "second"]
    code, _, told = visterm(
        tmp_path, "fit", *several, "--tags", drawn / "tags.jsonl", "--model", "wsabie", "--set", "epochs=1", "-o", "run"
    )
    assert code == 0, told
    assert "The features are in 2 folders: streamed from disk." in told
    code, _, told = visterm(tmp_path, "fit", *several, "--tags", drawn / "tags.jsonl", "--model", "knn", "-o", "other")
    assert code == 2
    assert "The features are in 2 folders, which are streamed, and the model 'knn' needs all in memory." in told


def test_an_image_in_two_folders_is_refused_whatever_is_asked(tmp_path, drawn, encoder):
    write(tmp_path / "third", np.ones((2, 160), np.float32), encoder, first=CUT - 1)
    both = [drawn / "first", tmp_path / "third"]
    twice = f"The image '{name_of(CUT - 1)}' is in .*first and in .*third; expected one row per image"
    tagger = Tagger(model="wsabie", model_params={"epochs": 1, "dim": 4})
    request = FitRequest(images=both, tags=drawn / "tags.jsonl", work=tmp_path / "work")
    with pytest.raises(DataError, match=twice):
        fit_streamed(tagger.parts, request, Plan(2, 2**20), any_encoder=True)
    tagger = Tagger(model="prior").fit(drawn / "features", drawn / "tags.jsonl")
    with pytest.raises(DataError, match=twice):
        next(iter(tagger.annotate_each(both)))


def test_features_of_two_encoders_do_not_go_together(tmp_path, drawn):
    other = fitted_encoder().set_params(softness=0.5)
    other.fit(list(np.random.default_rng(1).integers(0, 256, (6, 32, 32, 3), np.uint8)))
    write(tmp_path / "other", np.ones((2, 160), np.float32), other, first=N)
    tagger = Tagger(model="wsabie")
    both = [drawn / "first", tmp_path / "other"]
    request = FitRequest(images=both, tags=drawn / "tags.jsonl", work=tmp_path / "work")
    with pytest.raises(EncoderMismatchError, match=r"first and .*other have features of different.*Encode all"):
        fit_streamed(tagger.parts, request, Plan(2, 2**20), any_encoder=True)


@pytest.mark.parametrize("command", ["fit", "evaluate", "annotate"])
def test_features_do_not_go_with_a_folder_of_images(tmp_path, drawn, command):
    Tagger(model="prior").fit(drawn / "features", drawn / "tags.jsonl").save(tmp_path / "run")
    (tmp_path / "photos").mkdir()
    given = {"fit": ["-o", "new"], "evaluate": [], "annotate": []}[command]
    run = [] if command == "fit" else ["run"]
    code, _, told = visterm(tmp_path, command, *run, drawn / "first", "photos", *given)
    assert code == 2
    assert (
        "photos is not a features folder" if command != "annotate" else "is a features folder, which cannot be combined"
    ) in told
