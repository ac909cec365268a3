"""`visterm fit --model auto`: a table of what was tried; spans of time as people type them."""

from __future__ import annotations

import json

import pytest

from command_line import run_command
from visterm.cli.options import seconds_of
from visterm.core.errors import UserError

pytestmark = pytest.mark.usefixtures("plugin")


def visterm(*arguments):
    return run_command(arguments)


def tried_of(run):
    """Return the lines of the table of what `auto` tried, as `info` shows it."""
    shown = visterm("info", run).stdout.partition("models tried:\n")[2].splitlines()
    return shown[: next((n for n, line in enumerate(shown) if ": " in line and n), len(shown))]


@pytest.fixture(scope="module")
def fitted(small_library, tmp_path_factory):
    run = tmp_path_factory.mktemp("auto") / "run"
    done = visterm(
        "fit", small_library.images, "--tags", small_library.tags_file, "-o", run, "--encoder-set", "codebook=200",
        "--model", "auto", "--set", "budget=600", "--set", 'candidates=[("knn", {}), ("ridge", {}), ("prior", {})]',
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return run, done


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("2m", 120), ("1h", 3600), ("1.5 M", 90), (" 2m ", 120)]
)
def test_spans_of_time_are_read(text, seconds):
    assert seconds_of(text, "--every") == seconds


@pytest.mark.parametrize("text", ["", "m", "0", "0s", "-2m", "2d", "2m30s", "soon"])
def test_what_is_no_span_of_time_is_refused_with_examples(text):
    with pytest.raises(UserError, match=r"--every .* is not understood; .* 90s, 2m, 1h"):
        seconds_of(text, "--every")


def test_info_shows_what_was_tried_and_fit_does_not_speak_of_epochs(fitted):
    run, done = fitted
    shown = [line.split() for line in tried_of(run)]
    assert shown[0][:3] == ["model", "seconds", "MAP"]
    assert [line[0] for line in shown[1:]] == ["knn", "ridge", "prior"]
    assert "epochs" not in done.stderr
    assert ", chosen from 3 models. The run is in " in done.stderr


def test_info_shows_it_also_as_json(fitted):
    run, _ = fitted
    facts = json.loads(visterm("info", run, "--json").stdout)
    assert facts["model settings"]["budget"] == 600
    tried = facts["models tried"]
    assert [entry["model"] for entry in tried] == ["knn", "ridge", "prior"]
    assert sum(entry["weight"] for entry in tried) == pytest.approx(1)
    assert {"seconds", "map", "word_map", "weight", "reason"} <= set(tried[0])
    assert facts["best validation MAP"] > 0


def test_models_of_one_encoder_of_a_chain_are_shown_with_its_name(small_library, tmp_path):
    run = tmp_path / "run"
    colours = '("mean_colour", {})'
    done = visterm(
        "fit", small_library.images, "--tags", small_library.tags_file, "-o", run, "--encoder", "chain",
        "--encoder-set", f'encoders=[("visterms", {{"codebook": 200}}), {colours}]', "--model", "auto",
        "--set", 'candidates=[("knn", {}), ("prior", {})]',
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    shown = [line.split("  ") for line in tried_of(run)]
    assert [cell.strip() for cell in shown[0] if cell][:2] == ["model", "features"]
    tried = [(line.split()[0], " ".join(line.split()[1:3])) for line in tried_of(run)[1:]]
    assert tried[1:3] == [("knn", "visterms (1)"), ("knn", "mean_colour (2)")]
    assert tried[0][1].startswith("all")
