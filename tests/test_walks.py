"""The walks of docs/architecture.md are those that the commands really go."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "docs"), str(ROOT / "benchmarks")]

from harness.walks import Step  # noqa: E402
from make_walks import STATIONS, stations_of  # noqa: E402


def test_the_commands_pass_the_functions_that_the_page_lists_in_that_order():
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / "make_walks.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_station_that_a_walk_does_not_pass_is_named():
    steps = [Step("x.py", name) for name in STATIONS["search"] if name != "typed_query"]
    with pytest.raises(SystemExit, match=r"'search' does not pass typed_query after .*CatalogueReader\.search"):
        stations_of("search", steps)


def test_stations_in_another_order_are_refused():
    with pytest.raises(SystemExit, match=r"does not pass TaggerEstimator\.load"):
        stations_of("annotate", [Step("x.py", name) for name in reversed(STATIONS["annotate"])])
