"""Options, machine, medians and JSON: how every benchmark is called and how it reports."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

FEWEST_RUNS = 5
"""A median of fewer runs says little."""

TEST_ROWS, LOOKS = "test rows", "looks.jsonl"
"""What figures are measured on, in their JSON, and the log of the programs that did so, which is never rewritten."""


def options(doc: str) -> argparse.ArgumentParser:
    """Make a parser with the options that every benchmark has."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=FEWEST_RUNS, help="interleaved runs of each side")
    parser.add_argument("--json", type=Path, metavar="PATH", help="where the figures are written")
    parser.add_argument("--quick", action="store_true", help="tiny data and one run: shows that it works, no figures")
    return parser


def parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Read the options; refuse fewer runs than a median needs."""
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.runs = 1
    elif chosen.runs < FEWEST_RUNS:
        parser.error(f"--runs is {chosen.runs}; expected {FEWEST_RUNS} or more (or --quick).")
    return chosen


def machine() -> dict[str, Any]:
    """Say what the figures were measured on, and how busy it was."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "python": platform.python_version(),
        **{name: version(name) for name in ("numpy", "scipy", "numba")},
    }


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Return the median of some runs, the least and the most."""
    if not values:
        return {"median": None, "least": None, "most": None, "runs": []}
    return {"median": statistics.median(values), "least": min(values), "most": max(values), "runs": list(values)}


def ratios(above: Sequence[float], below: Sequence[float]) -> dict[str, Any]:
    """Divide run by run, so that what slows the machine for a while slows both sides of a ratio."""
    return spread([a / b for a, b in zip(above, below, strict=True)])


def say(*words: object) -> None:
    """Print at once, also into a pipe."""
    sys.stdout.write(" ".join(str(word) for word in words) + "\n")
    sys.stdout.flush()


def write(result: dict[str, Any], path: Path | None) -> None:
    """Write the figures, with the load that was found at the end."""
    result["load_after"] = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        if result.get("measured on") == TEST_ROWS:
            log_look(path)


def log_look(figures: Path) -> None:
    """Write down beside the figures that a program used test rows: a line for each program and day."""
    log = figures.with_name(LOOKS)
    line = json.dumps({"date": datetime.now(UTC).date().isoformat(), "figures": figures.name}) + "\n"
    if not log.is_file() or line not in log.read_text(encoding="utf-8"):
        with log.open("a", encoding="utf-8") as file:
            file.write(line)


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
