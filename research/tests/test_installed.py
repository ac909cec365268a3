"""With this package installed its models and encoders are there by name; without it their names say what to install."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from visterm import Tagger
from visterm.cli.command_line import app
from visterm.core.errors import MissingExtraError, UnknownNameError
from visterm.core.registry import RESEARCH
from visterm.core.tables import ENCODERS, MODELS
from visterm.encoders.named import make_encoder

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"
FEW_COLOURS = {"colours": 6, "textons": 0, "levels": 1, "scales": (1.0,)}


@pytest.fixture
def run(tmp_path):
    """A run of an encoder and a model of this package."""
    photos = list(np.random.default_rng(0).integers(0, 256, (12, 16, 16, 3), np.uint8))
    tagger = Tagger(encoder="histograms", encoder_params=FEW_COLOURS, model="least_squares", n_jobs=1)
    tagger.fit(photos, [["sea"], ["tree"]] * 6, calibrate=False).save(tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def not_installed(monkeypatch):
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: ())


@pytest.mark.parametrize("table", [MODELS, ENCODERS], ids=["models", "encoders"])
def test_visterm_describes_what_this_package_offers_and_nothing_else(table):
    offered = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]["entry-points"][f"visterm.{table.kind}s"]
    ours = {entry.name: entry for entry in table if entry.package == RESEARCH}
    assert {name: entry.target for name, entry in ours.items()} == offered
    assert all(entry.summary and not entry.summary.startswith("from ") for entry in ours.values())
    assert table.not_installed() == []


def test_the_lists_say_which_package_brings_what():
    shown = CliRunner().invoke(app, ["models"]).output
    assert "visterm-research" in next(line for line in shown.splitlines() if line.startswith("tagprop"))
    assert "visterm-research" not in next(line for line in shown.splitlines() if line.startswith("wsabie"))


def test_a_run_opens_again(run):
    assert Tagger.load(run).annotate([np.zeros((16, 16, 3), np.uint8)], 1).images[0].tags


def test_without_the_package_its_names_are_errors_that_say_what_to_install(not_installed):
    advice = r"in the package visterm-research, which is not installed.*pip install ./research"
    with pytest.raises(MissingExtraError, match=rf"The model 'tagprop' is {advice}"):
        MODELS.create("tagprop")
    with pytest.raises(MissingExtraError, match=rf"The encoder 'timm' is {advice}"):
        make_encoder("timm:resnet18", {}, {})
    with pytest.raises(UnknownNameError, match="Unknown model 'tagpro'"):
        MODELS.create("tagpro")
    shown = CliRunner().invoke(app, ["models"]).output
    assert "tagprop" not in shown
    assert "22 more are in visterm-research: pip install visterm-research" in shown


def test_without_the_package_a_run_made_with_it_says_what_to_install(run, not_installed):
    with pytest.raises(MissingExtraError, match=r"'least_squares' is in the package visterm-research"):
        Tagger.load(run).annotate([np.zeros((16, 16, 3), np.uint8)], 1)
    shown = CliRunner().invoke(app, ["annotate", str(run), "photo.jpg"])
    assert shown.exit_code
    assert "visterm-research" in str(shown.exception)


def test_settings_of_an_encoder_over_another_are_refused_before_any_image_is_looked_for(tmp_path):
    call = ["fit", str(tmp_path / "nowhere"), "-o", str(tmp_path / "out"), "--encoder", "kernel_pca:histograms"]
    done = CliRunner().invoke(app, [*call, "--encoder-set", "dim=0"])
    assert str(done.exception).startswith("--encoder-set dim is 0; expected a whole number")
    assert list(tmp_path.iterdir()) == []
