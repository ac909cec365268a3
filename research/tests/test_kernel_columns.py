"""Fits on some of the images, of models over kernel values made elsewhere: as with the kernel's name on features."""

from __future__ import annotations

import numpy as np
import pytest
from typer.testing import CliRunner

from planted import plant_corpus
from visterm.cli.command_line import app
from visterm.core.tables import MODELS
from visterm.core.vocabulary import Vocabulary
from visterm.features.training_rows import TrainingRows
from visterm.learning.calibrating import held_out_scores
from visterm.learning.fit_request import FitRequest
from visterm.learning.tune import tune
from visterm.models.blend import trials
from visterm.models.confidence.fit_calibration import fit_calibration
from visterm.models.stopping import visible_columns

NAMED, MADE = "intersection", "precomputed"
GRID = {"aggressiveness": [0.01, 0.1]}


@pytest.fixture(autouse=True)
def _wrapping_integers():
    with np.errstate(over="ignore"):  # 64-bit products wrap on purpose; NumPy warns of it where Numba is switched off
        yield


@pytest.fixture(scope="module")
def planted():
    return plant_corpus(n_train=120, n_tags=6, noise=0.5, random_state=4)


def intersections(A, B):
    return np.minimum(A[:, None], B[None]).sum(axis=2, dtype=np.float32)


def settings_of(name, kernel):
    pamir = ("kernel_pamir", {"kernel": kernel, "epochs": 5})
    other = ("kernel_pamir", {"kernel": kernel, "epochs": 5, "aggressiveness": 0.01})
    return {
        "kernel_pamir": pamir[1],
        "ensemble": {"members": [pamir, other], "valid_share": 0.45},
        "auto": {"candidates": [pamir, other], "valid_share": 0.45, "lift": 0.0},
        "auto, alone": {"candidates": [pamir], "valid_share": 0},
    }[name]


@pytest.mark.parametrize("name", ["kernel_pamir", "ensemble", "auto", "auto, alone"])
def test_confidences_are_those_of_the_kernel_by_name(name, planted):
    X, Y = planted.X_train, planted.Y_train
    vocabulary = Vocabulary([f"tag {i}" for i in range(6)])
    found = []
    for kernel, features in ((NAMED, X), (MADE, intersections(X, X))):
        model = MODELS.create(name.split(",")[0], **settings_of(name, kernel)).fit(features, Y)
        found.append(fit_calibration(*held_out_scores(model, TrainingRows(vocabulary, features, Y, None, []))))
    np.testing.assert_allclose(found[1].slope, found[0].slope, rtol=1e-3)
    np.testing.assert_allclose(found[1].offset, found[0].offset, rtol=1e-3, atol=1e-3)


def test_a_budget_that_is_spent_leaves_no_model_that_reads_some_of_the_columns_only(planted, monkeypatch):
    X, Y = planted.X_train, planted.Y_train
    seconds = iter(np.arange(0, 1000, 2.0))
    monkeypatch.setattr(trials, "now", lambda: float(next(seconds)))
    settings = settings_of("auto", MADE) | {"budget": 0.001}
    model = MODELS.create("auto", **settings).fit(intersections(X, X), Y)
    assert model.decision_function(intersections(planted.X_test[:3], X)).shape == (3, 6)


def test_candidates_of_kernel_values_are_tried_on_an_eighth_of_the_images_first(planted):
    X, Y = planted.X_train, planted.Y_train
    model = MODELS.create("auto", **settings_of("auto", MADE) | {"budget": 1000}).fit(intersections(X, X), Y)
    assert [entry["map"] is not None for entry in model.report_] == [True, True]


def test_features_of_other_models_keep_all_columns(planted):
    X, some = planted.X_train, np.arange(5)
    assert visible_columns(MODELS.create("pamir"), X, some) is X
    assert visible_columns(MODELS.create("ensemble"), X, some) is X
    np.testing.assert_array_equal(visible_columns(MODELS.create("kernel_pamir", kernel=MADE), X, some), X[:, :5])


@pytest.fixture(scope="module")
def library(tmp_path_factory, planted):
    """The features and their kernel in files, and tags; with splits in another file."""
    folder = tmp_path_factory.mktemp("kernel")
    X = planted.X_train
    names = [f"{i}.jpg" for i in range(len(X))]
    given = [";".join(f"t{tag}" for tag in np.flatnonzero(row)) for row in planted.Y_train.toarray()]
    rows = list(zip(names, given, strict=True))
    (folder / "tags.csv").write_text("image,tags\n" + "".join(f"{n},{t}\n" for n, t in rows))
    splits = ["train" if i < 90 else "valid" for i in range(len(X))]
    (folder / "splits.csv").write_text(
        "image,tags,split\n" + "".join(f"{n},{t},{s}\n" for (n, t), s in zip(rows, splits, strict=True))
    )
    for name, values in (("X", X), ("K", intersections(X, X)), ("K90", intersections(X, X[:90]))):
        np.save(folder / f"{name}.npy", values)
        (folder / f"{name}.names.txt").write_text("\n".join(names))
    return folder


def test_settings_are_tuned_over_a_kernel_and_the_best_learns_from_all(library, tmp_path):
    found = [
        tune(FitRequest(
            tags=library / "tags.csv", out=tmp_path / kernel, valid=0.3, model="kernel_pamir", n_jobs=1,
            encoder=f"precomputed:{library / features}.npy",
            model_params={"kernel": kernel, "epochs": 6, "patience": 2},
        ), grid=GRID)
        for kernel, features in ((NAMED, "X"), (MADE, "K"))
    ]  # fmt: skip
    named, made = ({str(trial.settings): trial.value for trial in tuned.trials} for tuned in found)
    assert made == pytest.approx(named, abs=1e-3)
    assert found[1].run.model.n_features_in_ == 120


def test_images_of_the_split_valid_have_no_columns_and_are_only_judged_by(library, tmp_path):
    request = FitRequest(
        tags=library / "splits.csv", out=tmp_path / "run", model="kernel_pamir", n_jobs=1,
        encoder=f"precomputed:{library / 'K90'}.npy", model_params={"kernel": MADE, "epochs": 6},
    )  # fmt: skip
    tuned = tune(request, grid=GRID)
    assert tuned.run.facts["tuning"]["validation rows"] == 30
    assert tuned.run.model.n_features_in_ == 90


def test_the_command_fits_over_a_kernel_with_confidences(library, tmp_path):
    call = ["fit", "--tags", str(library / "tags.csv"), "--encoder", f"precomputed:{library / 'K.npy'}", "-o"]
    done = CliRunner().invoke(app, [*call, str(tmp_path / "run"), "--model", "kernel_pamir", "--set", f"kernel={MADE}"])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "run" / "calibration.safetensors").exists()
