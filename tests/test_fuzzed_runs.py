"""Whoever wrote the files of a run, it is refused with one line or it answers: no crash, no gigabyte, no traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

import fuzzed_encoders
import fuzzed_models
from fuzzed_runs import DAMAGES
from visterm.core.registry import PACKAGE, Registry
from visterm.core.tables import ENCODERS, MODELS

MANY = 2_000
"""Damages to each model, and to each encoder, before a release; else every kind of damage is done to every run once."""

HANGS = 3_000.0
"""Seconds after which a process that opens cases hangs, however slow the machine is."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Make the runs of models, or of encoders, where they are first asked for."""
    made: dict[ModuleType, Path] = {}

    def of(cases: ModuleType, package: str) -> Path:
        if cases not in made:
            made[cases] = tmp_path_factory.mktemp(cases.__name__)
            cases.make_runs(made[cases], package)
        return made[cases]

    return of


def check(cases: ModuleType, folder: Path, name: str, n_cases: int | None = None) -> None:
    """Open cases in a process of its own, so that one that kills it can be named; None: each damage to each run."""
    if n_cases is None:
        n_cases = len(DAMAGES) * sum(run.is_dir() for run in folder.iterdir())
    child = subprocess.run(
        [sys.executable, cases.__file__, str(folder), name, "0", str(n_cases)],
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


def names_of(table: Registry, package: str) -> list[str]:
    return [entry.name for entry in table if entry.package == package]


@pytest.mark.parametrize("cases", [fuzzed_models, fuzzed_encoders], ids=lambda cases: cases.__name__)
def test_any_damage_to_a_run_is_refused_in_one_line_or_leaves_it_answering(cases, runs):
    check(cases, runs(cases, PACKAGE), "all")


@pytest.mark.slow
@pytest.mark.parametrize("name", names_of(MODELS, PACKAGE))
def test_any_of_many_damages_to_a_model_is_refused_in_one_line_or_leaves_it_answering(name, runs):
    check(fuzzed_models, runs(fuzzed_models, PACKAGE), name, MANY)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*names_of(ENCODERS, PACKAGE), "files"])
def test_any_of_many_damages_to_an_encoder_is_refused_in_one_line_or_leaves_it_answering(name, runs):
    check(fuzzed_encoders, runs(fuzzed_encoders, PACKAGE), name, MANY)
