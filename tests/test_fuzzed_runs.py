"""Whoever wrote the files of a run, it is refused with one line or it answers: no crash, no gigabyte, no traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import fuzzed_runs
from fuzzed_runs import make_runs
from visterm.core.tables import MODELS

SOME = 2_000
MANY = 2_000
"""Of each model."""

HANGS = 3_000.0
"""Seconds after which a process that opens cases hangs, however slow the machine is."""


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    make_runs(folder)
    return folder


def check(folder: Path, name: str, n_cases: int) -> None:
    """Open cases in a process of its own, so that one that kills it can be named."""
    child = subprocess.run(
        [sys.executable, fuzzed_runs.__file__, str(folder), name, "0", str(n_cases)],
        capture_output=True,
        text=True,
        timeout=HANGS,
    )
    lines = child.stdout.splitlines()
    case = lines[-1] if len(lines) % 2 else "none"
    assert child.returncode == 0, f"the process ended with {child.returncode} at case {case}: {child.stderr}"
    became = {case: json.loads(line) for case, line in zip(lines[::2], lines[1::2], strict=True)}
    assert len(became) == n_cases
    for case, outcome in became.items():
        assert not outcome.startswith("failed"), f"case {case} {outcome}"
        assert "\n" not in outcome, f"case {case}: {outcome}"
    counts = Counter(outcome.partition(":")[0] for outcome in became.values())
    assert counts["refused"] > n_cases / 3  # most damage matters
    assert counts["same"] > n_cases / 100  # and some does not


def test_any_damage_to_a_run_is_refused_in_one_line_or_leaves_it_answering(runs):
    check(runs, "all", SOME)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS.names())
def test_any_of_many_damages_to_a_model_is_refused_in_one_line_or_leaves_it_answering(name, runs):
    check(runs, name, MANY)
