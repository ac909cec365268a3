"""Kills (SIGKILL) between what people say and what is learned from it: nothing acknowledged is lost.

Those of `test_catalogue_kills.py` take seconds, and are tried each time.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from feedback_kills import Kills

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def kills(tmp_path_factory):
    return Kills(tmp_path_factory.mktemp("kills"))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 110))
def test_after_kills_all_that_was_acknowledged_is_there_and_is_learned(kills, seed):
    kills.seed(seed)
    assert kills.acknowledged > 0


def test_the_page_has_the_figures_of_the_program():
    found = json.loads((DOCS / "figures" / "feedback_kills.json").read_text(encoding="utf-8"))
    page = " ".join((DOCS / "catalogue.md").read_text(encoding="utf-8").split())
    late = sum(n for kind, n in found["kills"].items() if kind.endswith("had ended"))
    of = {
        begin: sum(n for kind, n in found["kills"].items() if kind.startswith(begin) and not kind.endswith("had ended"))
        for begin in ("the service", "a job", "visterm")
    }
    assert (found["seeds"], found["failed"]) == (50, {})
    assert (
        f"{of['the service']} kills of the service, {of['a job']} of its jobs, {of['visterm']} of commands "
        f"({late} more came too late). All {found['acknowledged']:,} acknowledged corrections"
    ) in page
