"""How large and how tangled the house is: lines, files, imports, circles, and what three commands pass.

    python benchmarks/house.py                  # the table, with the walks of a search, an annotation and a fit
    python benchmarks/house.py --json PATH      # the same figures as JSON, too
    python benchmarks/house.py --traces         # the functions of the three walks, in the order of their first calls
    python benchmarks/house.py --check          # for `make lint`: no walks; exit code 1 above a limit

An importer is a module that imports another one, at the top, in a function or for types only, or that names it in a
string to import it later (``"visterm.models.neighbours.knn:Knn"``). A small file with one importer belongs in that
importer. The layers are those that import-linter has in pyproject.toml. The walks are warm: each command runs once
before it is traced, on the tiny run, features and catalogue of tests/data/tiny. Stacks are counted with all
of visterm's frames, those of comprehensions and lambdas too (as Python 3.11 has them); functions are counted without
these."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from harness.imports import Package, circles, read_package, upward, with_one_importer
from harness.runs import say
from harness.walks import Walk, walks

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "visterm"

SMALL_FILE = 60
"""Lines below which a file with one importer counts as small."""

LIMITS = {
    "small files with one importer": 8, "imports upwards": 0, "files in circles": 0, "heavy packages loaded": 0,
    "commands": 26, "options": 145, "options of fit": 18,
}  # fmt: skip
"""What ``--check`` allows."""

HEAVY = ("numba", "scipy", "sklearn", "torch")
"""Packages that ``import visterm`` must not load."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only what is read from the source; fail above a limit")
    parser.add_argument("--traces", action="store_true", help="print the functions of the walks and the deepest stacks")
    parser.add_argument("--json", type=Path, metavar="PATH", help="where the figures are written")
    chosen = parser.parse_args()
    package = read_package(PACKAGE)
    found = tangles(package, layers_of(ROOT / "pyproject.toml")) | {"heavy packages loaded": heavy_packages()}
    found |= command_line()
    figures: dict[str, Any] = sizes(package) | {name: len(items) for name, items in found.items()}
    if not chosen.check:
        with tempfile.TemporaryDirectory() as folder:
            walked = dict(walks(PACKAGE, Path(folder)))
        figures |= {f"{name}: {what}": count for name, walk in walked.items() for what, count in passed(walk).items()}
        if chosen.traces:
            show_traces(walked)
    for name, figure in figures.items():
        say(f"{name:40}{figure:8,}" + (f"   at most {LIMITS[name]}" if name in LIMITS else ""))
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    failures = above(found, LIMITS) if chosen.check else []
    for line in failures:
        say(line)
    sys.exit(bool(failures))


def sizes(package: Package) -> dict[str, int]:
    """Count what the wheel brings."""
    return {"lines of Python in the wheel": sum(package.lines.values()), "files in the wheel": len(package.files)}


def tangles(package: Package, layers: Sequence[str]) -> dict[str, list[str]]:
    """List what has a limit and is read from the source."""
    small = [module for module in with_one_importer(package) if package.lines[module] < SMALL_FILE]
    return {
        "files with one importer": with_one_importer(package),
        "small files with one importer": small,
        "imports upwards": [f"{module} imports {target}" for module, target in upward(package, layers)],
        "files in circles": [module for group in circles(package.imports) for module in group],
    }


def above(found: dict[str, list[str]], limits: dict[str, int]) -> list[str]:
    """Return a line for each limit that is passed, with what is counted."""
    return [
        f"{name}: {len(found[name])}, but at most {limit} are allowed (benchmarks/house.py):\n  "
        + "\n  ".join(found[name])
        for name, limit in limits.items()
        if len(found[name]) > limit
    ]


def layers_of(pyproject: Path) -> list[str]:
    """Read the layers that import-linter holds, the uppermost first."""
    contracts = tomllib.loads(pyproject.read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    return next(contract["layers"] for contract in contracts if contract["type"] == "layers")


def command_line() -> dict[str, list[str]]:
    """List the commands but `demo`, and the options of each, `--help` aside, with the keys of a file of tag rules."""
    from typer.main import get_command

    from visterm.cli.command_line import COMMANDS, app
    from visterm.data.tag_rules import TagRules

    group: Any = get_command(app)
    commands = [name for name in COMMANDS if name != "demo"]
    options = [
        f"{name} {max(param.opts, key=len)}"
        for name in commands
        for param in group.resolve_command(None, [name])[1].params
        if param.param_type_name == "option" and param.name != "help"
    ]
    keys = [f"tag rule {rule.name}" for rule in fields(TagRules)]
    of_fit = [option for option in options if option.startswith("fit ")]
    return {"commands": commands, "options": [*options, *keys], "options of fit": of_fit}


def heavy_packages() -> list[str]:
    """Return the heavy packages that ``import visterm`` loads in a fresh interpreter."""
    command = [sys.executable, "-X", "importtime", "-c", "import visterm"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stderr.splitlines()
    loaded = {line.rpartition("|")[2].strip() for line in lines}
    return [name for name in HEAVY if name in loaded]


def passed(walk: Walk) -> dict[str, int]:
    """Count what a walk passed."""
    return {
        "files": len(walk.files),
        "functions": len(walk.functions),
        "deepest stack": len(walk.deepest),
        "returns to a file left before": walk.returns,
    }


def show_traces(walked: dict[str, Walk]) -> None:
    for name, walk in walked.items():
        for title, steps in (("functions", walk.functions), ("deepest stack", walk.deepest)):
            say(f"{name}: {title}")
            for step in steps:
                say(f"  {step}")
            say()


if __name__ == "__main__":
    main()
