"""The history of a training: what `visterm info` says of it and draws."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from visterm import Tagger
from visterm.cli.command_line import app
from visterm.cli.output import in_minutes
from visterm.core.errors import UserError
from visterm.library.info import describe, training_history
from visterm.tagging.plot import history_panels

HISTORY = [
    {"epoch": 1, "loss": 2.0, "map": 0.2, "draws": 1.5, "violated": 0.9, "seconds": 0.1},
    {"epoch": 2, "loss": 1.0, "map": 0.4, "draws": 4.0, "violated": 0.6, "seconds": 0.1},
    {"epoch": 3, "loss": 0.5, "map": 0.3, "draws": 9.0, "violated": 0.3, "seconds": 0.2},
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run that has the history above, and one of a model that is not trained in epochs."""
    folder = tmp_path_factory.mktemp("history")
    names, tags = [str(i) for i in range(20)], [["a", "b"] if i % 2 else ["c", "d"] for i in range(20)]
    tagger = Tagger(encoder="ids", model="wsabie", model_params={"dim": 2, "epochs": 2}).fit(names, tags)
    tagger.model.history_, tagger.model.n_epochs_ = HISTORY, 2
    tagger.save(folder / "epochs")
    Tagger(encoder="ids", model="prior").fit(names, tags).save(folder / "at_once")
    return folder


def test_info_says_how_many_epochs_and_the_best_validation_map(runs):
    facts = describe(runs / "epochs")
    assert (facts["epochs"], facts["best validation MAP"]) == (2, 0.4)
    assert not {"epochs", "best validation MAP"} & set(describe(runs / "at_once"))
    said = CliRunner().invoke(app, ["info", str(runs / "epochs")]).stdout
    assert "best validation MAP: 0.4" in said


def test_info_speaks_of_photos_and_settings_as_they_are_typed(runs):
    said = CliRunner().invoke(app, ["info", str(runs / "epochs")]).stdout
    assert "photos: " in said
    assert "images" not in said
    assert "  epochs: 2\n" in said
    assert in_minutes("2026-11-23T00:13:01.084582Z index") == "2026-11-23 00:13 index"


def test_each_panel_has_its_epochs_and_values_known_ones_first():
    history = [{**entry, "own measure": None if entry["epoch"] == 1 else entry["epoch"] * 10} for entry in HISTORY]
    panels = history_panels([{**history[0], "word": "x", "flag": True}, *history[1:]])
    assert [panel.name for panel in panels] == ["loss", "map", "draws", "violated", "seconds", "own measure"]
    assert panels[2].values == [1.5, 4.0, 9.0]
    assert [panel.best for panel in panels] == [None, 2, None, None, None, None]
    assert (panels[5].epochs, panels[5].values) == ([2, 3], [20.0, 30.0])


def test_what_was_never_measured_has_no_panel():
    assert [panel.name for panel in history_panels([{"epoch": 1, "loss": 0.0, "map": None}])] == ["loss"]


def test_the_best_mean_rank_is_the_least():
    panels = history_panels(
        [{"epoch": epoch, "map": None, "mean_rank": rank} for epoch, rank in ((1, 9), (2, 4), (3, 6))]
    )
    assert [(panel.name, panel.best) for panel in panels] == [("mean_rank", 2)]


def test_a_model_that_learns_in_one_go_has_nothing_to_draw(runs, tmp_path):
    with pytest.raises(UserError, match="'prior' is not trained in epochs"):
        training_history(runs / "at_once")
