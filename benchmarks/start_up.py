"""What a command takes from its start to its end, beside the imports that it cannot do without.

    python benchmarks/start_up.py                       # on the tiny run and catalogue of tests/data/tiny
    python benchmarks/start_up.py --repeat 15 --json docs/figures/start_up.json

Each command runs beside its floor in turn, so that both meet the same load: `visterm annotate` and `visterm search`
beside the import of numpy, numba and Pillow, `visterm --help` beside that of typer. The ratio is the median of those
of the pairs. Processor time is that of the whole process.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from harness.runs import say, spread
from harness.walks import small_library

LIBRARIES, TYPER = "import numpy, numba, PIL.Image", "import typer"
COMMANDS: dict[str, tuple[list[str], str, float]] = {
    "visterm annotate, one image": (["annotate", "run", "images/46.jpg"], LIBRARIES, 3),
    "visterm search, two words": (["search", "catalogue", "sky tree"], LIBRARIES, 3),
    "visterm --help": (["--help"], TYPER, 1.3),
}
"""Arguments, the floor that the command is compared with, and how many times that it may take."""


class Cost(NamedTuple):
    """What a process took."""

    wall: float
    processor: float


def cost_of(command: list[str], folder: Path) -> Cost:
    """Run a command and return what it took."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")  # as an installed package has it, whoever measures
    began, before = time.perf_counter(), os.times()
    subprocess.run(
        command, check=True, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    after = os.times()
    spent = after.children_user - before.children_user + after.children_system - before.children_system
    return Cost(time.perf_counter() - began, spent)


def compared(arguments: list[str], floor: str, folder: Path, repeat: int) -> dict[str, Any]:
    """Return the medians and ranges of a command, its floor and their ratios; the first pair warms the caches."""
    pairs = []
    for _ in range(repeat + 1):
        low = cost_of([sys.executable, "-c", floor], folder)
        pairs.append((cost_of([sys.executable, "-m", "visterm", *arguments], folder), low))
    pairs = pairs[1:]
    figures: dict[str, Any] = {"floor": floor}
    for name in Cost._fields:
        own, low = ([getattr(pair[side], name) for pair in pairs] for side in (0, 1))
        ratios = [a / b for a, b in zip(own, low, strict=True)]
        for what, values in (("seconds", own), ("seconds of the floor", low), ("times the floor", ratios)):
            figures[f"{name}: {what}"] = spread(values)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=9, help="counted pairs of each")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    chosen = parser.parse_args()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = small_library(Path(temporary))
        for name, (arguments, floor, goal) in COMMANDS.items():
            figures = found[name] = compared(arguments, floor, folder, chosen.repeat) | {"goal": goal}
            for kind in Cost._fields:
                seconds, low, ratio = (
                    figures[f"{kind}: {what}"]["median"]
                    for what in ("seconds", "seconds of the floor", "times the floor")
                )
                say(f"{name:30}{kind:10}{seconds:7.3f} s, floor {low:.3f} s: {ratio:.2f} times (at most {goal:g})")
    if chosen.json:
        chosen.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
