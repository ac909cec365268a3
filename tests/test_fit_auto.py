"""`visterm fit --model auto --budget 2m`: spans of time as people type them, and a table of what was tried."""

from __future__ import annotations

import json

import pytest

from command_line import run_command
from visterm.cli.options import seconds_of
from visterm.core.errors import UserError


def visterm(*arguments):
    return run_command(arguments)


@pytest.fixture(scope="module")
def fitted(small_library, tmp_path_factory):
    run = tmp_path_factory.mktemp("auto") / "run"
    done = visterm(
        "fit", small_library.images, "--tags", small_library.tags_file, "-o", run, "--encoder-set", "codebook=200",
        "-v", "--model", "auto", "--budget", "10m", "--valid", "0.4",
        "--set", 'candidates=[("knn", {}), ("ridge", {}), ("prior", {})]',
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return run, done


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("2m", 120), ("1h", 3600), ("1.5 M", 90), (" 2m ", 120)]
)
def test_spans_of_time_are_read(text, seconds):
    assert seconds_of(text, "--budget") == seconds


@pytest.mark.parametrize("text", ["", "m", "0", "0s", "-2m", "2d", "2m30s", "soon"])
def test_what_is_no_span_of_time_is_refused_with_examples(text):
    with pytest.raises(UserError, match=r"--budget .* is not understood; .* 90s, 2m, 1h"):
        seconds_of(text, "--budget")


def test_fit_v_shows_each_step_and_what_was_tried_and_does_not_speak_of_epochs(fitted):
    _, done = fitted
    shown = [line.split() for line in done.stdout.splitlines()]
    assert shown[0][:3] == ["model", "seconds", "MAP"]
    assert [line[0] for line in shown[1:]] == ["knn", "ridge", "prior"]
    assert "epochs" not in done.stderr
    assert "learn colours: " in done.stderr
    assert ", chosen from 3 models. The run is in " in done.stderr


def test_info_shows_it_too_also_as_json(fitted):
    run, done = fitted
    assert done.stdout.splitlines()[0] in visterm("info", run).stdout
    facts = json.loads(visterm("info", run, "--json").stdout)
    assert facts["model settings"]["budget"] == 600
    tried = facts["models tried"]
    assert [entry["model"] for entry in tried] == ["knn", "ridge", "prior"]
    assert sum(entry["weight"] for entry in tried) == pytest.approx(1)
    assert {"seconds", "map", "word_map", "weight", "reason"} <= set(tried[0])
    assert facts["best validation MAP"] > 0


def test_models_of_one_encoder_of_a_chain_are_shown_with_its_name(small_library, tmp_path):
    run = tmp_path / "run"
    colours = '("histograms", {"colours": 6, "textons": 0, "levels": 2, "scales": [1.0]})'
    done = visterm(
        "fit", small_library.images, "--tags", small_library.tags_file, "-o", run, "--encoder", "chain",
        "--encoder-set", f'encoders=[("visterms", {{"codebook": 200}}), {colours}]', "--model", "auto",
        "--valid", "0.4", "--set", 'candidates=[("knn", {}), ("prior", {})]', "-v",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    shown = [line.split("  ") for line in done.stdout.splitlines()]
    assert [cell.strip() for cell in shown[0] if cell][:2] == ["model", "features"]
    tried = [(line.split()[0], " ".join(line.split()[1:3])) for line in done.stdout.splitlines()[1:]]
    assert tried[1:3] == [("knn", "visterms (1)"), ("knn", "histograms (2)")]
    assert tried[0][1].startswith("all")
    assert done.stdout.splitlines()[2] in visterm("info", run).stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--model", "wsabie", "--budget", "2m"],
            "The model 'wsabie' has no time budget. Leave --budget out, or fit --model auto.",
        ),
        (["--model", "auto", "--budget", "2m", "--set", "budget=3"], "given twice"),
        (["--model", "auto", "--budget", "soon"], "--budget soon is not understood"),
    ],
)
def test_a_budget_that_cannot_be_used_is_refused_before_any_work(arguments, message, tmp_path):
    done = visterm("fit", tmp_path, "-o", tmp_path / "run", *arguments)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())
