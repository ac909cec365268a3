"""How large and how tangled the house is: lines, files, commands, options, imports, circles, and three walks.

    python benchmarks/house.py                  # the table, with the walks of a search, an annotation and a fit
    python benchmarks/house.py --json PATH      # the same figures as JSON, too
    python benchmarks/house.py --list NAME      # what is counted under that name
    python benchmarks/house.py --traces         # the functions of the three walks, in the order of their first calls
    python benchmarks/house.py --check          # for `make lint`: no walks; exit code 1 if a limit doesn't hold

An importer is a module that imports another one, at the top, in a function or for types only, or that names it in a
string to import it later (``"visterm.models.neighbours.knn:Knn"``). A small file with one importer belongs in that
importer. The layers are those that import-linter has in pyproject.toml. The walks are warm: each command runs once
before it is traced, on the tiny run, features and catalogue of tests/data/tiny. Stacks are counted with all
of visterm's frames, those of comprehensions and lambdas too (as Python 3.11 has them); functions without these."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from harness import counts, offered
from harness.imports import Package, circles, imported_modules, read_package, upward, with_one_importer
from harness.runs import say
from harness.walks import Walk, walks

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "visterm"


class Limit(NamedTuple):
    """What a figure was before (at commit a66f7717), what it may be, and whether ``--check`` fails where it isn't."""

    before: float
    limit: float
    holds: bool = True


LIMITS = {
    "lines of Python in the wheel": Limit(84_105, 65_500, holds=False),
    "files in the wheel": Limit(527, 395),
    "statements in the wheel": Limit(52_499, 41_000, holds=False),
    "docstring lines a public function": Limit(2.49, 2.49),
    "blank lines a statement": Limit(0.274, 0.274),
    "commands": Limit(30, 27),
    "options": Limit(279, 150),
    "options of fit": Limit(40, 18),
    "settings": Limit(489, 250),
    "benchmark programs": Limit(60, 25),
    "lines of benchmarks": Limit(12_567, 5_000),
    "lines of Python in the repository": Limit(173_366, 173_366, holds=False),
    "words of README and docs": Limit(80_585, 45_000),
    "modules that research imports": Limit(52, 25),
    "small files with one importer": Limit(4, 8),
    "imports upwards": Limit(0, 0),
    "files in circles": Limit(0, 0),
    "heavy packages loaded": Limit(0, 0),
    "functions that are too complex": Limit(14, 0),
    "functions of more than 60 lines": Limit(2, 0),
    "classes with more than 5 ancestors": Limit(19, 0),
    "names of several classes": Limit(54, 0),
    "vague names of variables": Limit(1137, 50),
    "options named below the command line": Limit(225, 0),
    "Any": Limit(1945, 958),
    "imports inside functions": Limit(352, 241),
    "search: files": Limit(40, 25, holds=False),
    "search: functions": Limit(165, 100, holds=False),
    "search: deepest stack": Limit(15, 12, holds=False),
    "annotate: files": Limit(56, 35, holds=False),
    "annotate: functions": Limit(217, 140, holds=False),
    "annotate: deepest stack": Limit(14, 12, holds=False),
    "fit: files": Limit(92, 55, holds=False),
    "fit: functions": Limit(549, 300, holds=False),
    "fit: deepest stack": Limit(18, 12, holds=False),
}
"""To tighten a limit, lower it here; once a goal is reached, take away its ``holds=False``."""

AT_LEAST = {"docstring lines a public function", "blank lines a statement"}
"""Limits below which a figure must not be; the others are the most that a figure may be."""

SMALL_FILE = 60  # Lines below which a file with one importer counts as small
HEAVY = ("numba", "scipy", "sklearn", "torch")  # Packages that ``import visterm`` must not load


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="no walks; fail where a limit doesn't hold")
    parser.add_argument("--list", metavar="NAME", help="print what is counted under a name, and nothing else")
    parser.add_argument("--traces", action="store_true", help="print the functions of the walks and the deepest stacks")
    parser.add_argument("--json", type=Path, metavar="PATH", help="where the figures are written")
    chosen = parser.parse_args()
    package = read_package(PACKAGE)
    items = tangles(package, layers_of(ROOT / "pyproject.toml")) | extent(package)
    items |= {"heavy packages loaded": heavy_packages()}
    if chosen.list is not None:
        say("\n".join(items[chosen.list]))
        return
    figures = sizes(package) | {name: len(each) for name, each in items.items()}
    if not chosen.check:
        with tempfile.TemporaryDirectory() as folder:
            walked = dict(walks(PACKAGE, Path(folder)))
        figures |= {f"{name}: {what}": count for name, walk in walked.items() for what, count in passed(walk).items()}
        if chosen.traces:
            show_traces(walked)
    say(f"{'':40}{'before':>10}{'now':>10}")
    for name, figure in figures.items():
        say(line_of(name, figure))
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    failures = [name for name, figure in figures.items() if chosen.check and fails(name, figure)]
    for name in failures:
        title = f"{name}: {figures[name]:,}, but {allowed(name)} (benchmarks/house.py)"
        say("\n  ".join([title, *items.get(name, [])]))
    sys.exit(bool(failures))


def line_of(name: str, figure: float) -> str:
    """Return a line of the table."""
    if name not in LIMITS:
        return f"{name:40}{'':10}{figure:10,}"
    state = allowed(name) if LIMITS[name].holds or within(name, figure) else f"not yet {allowed(name)}"
    return f"{name:40}{LIMITS[name].before:10,}{figure:10,}   {state}"


def allowed(name: str) -> str:
    """Say what a figure may be."""
    return f"at {'least' if name in AT_LEAST else 'most'} {LIMITS[name].limit:,}"


def within(name: str, figure: float) -> bool:
    """Return whether a figure is what it may be."""
    limit = LIMITS[name].limit
    return figure >= limit if name in AT_LEAST else figure <= limit


def fails(name: str, figure: float) -> bool:
    """Return whether a figure passes a limit that holds."""
    return name in LIMITS and LIMITS[name].holds and not within(name, figure)


def sizes(package: Package) -> dict[str, float]:
    """Count what the wheel brings, and the Python of benchmarks and of the whole repository."""
    docstrings = counts.docstring_lines(package.sources)
    n_statements = counts.statements(package.sources)
    return {
        "lines of Python in the wheel": sum(package.lines.values()),
        "files in the wheel": len(package.sources),
        "statements in the wheel": n_statements,
        "docstring lines a public function": round(sum(docstrings) / len(docstrings), 2),
        "blank lines a statement": round(counts.blank_lines(package.sources) / n_statements, 3),
        "lines of benchmarks": lines((ROOT / "benchmarks").rglob("*.py")),
        "lines of Python in the repository": lines(tracked("*.py")),
        "words of README and docs": sum(len(page.read_bytes().split()) for page in tracked("README.md", "docs/*.md")),
    }


def tracked(*patterns: str) -> list[Path]:
    """Return the files that git knows and that are there."""
    names = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for name in names.splitlines() if (path := ROOT / name).exists()]


def lines(paths: Iterable[Path]) -> int:
    """Count the lines of files."""
    return sum(path.read_bytes().count(b"\n") for path in paths)


def extent(package: Package) -> dict[str, list[str]]:
    """List what users and maintainers meet: commands, options, settings, benchmarks, and what research builds on."""
    options = offered.options()
    research = counts.read_sources(ROOT / "research" / "src")
    imported = {module for source in research for module in imported_modules(source.tree, package.files)}
    below_cli = [source for source in package.sources if PACKAGE / "cli" not in source.path.parents]
    typed = {name for _, command in offered.commands() for param in command.params for name in param.opts}
    return {
        "commands": [name for name, _ in offered.commands()],
        "options": options,
        "options of fit": [option for option in options if option.startswith("fit ")],
        "options named below the command line": counts.options_named(below_cli, typed),
        "settings": offered.settings(),
        "benchmark programs": [path.name for path in sorted((ROOT / "benchmarks").glob("*.py"))],
        "modules that research imports": sorted(imported),
    }


def tangles(package: Package, layers: Sequence[str]) -> dict[str, list[str]]:
    """List what makes the source hard to follow."""
    small = [module for module in with_one_importer(package) if package.lines[module] < SMALL_FILE]
    return {
        "files with one importer": with_one_importer(package),
        "small files with one importer": small,
        "imports upwards": [f"{module} imports {target}" for module, target in upward(package, layers)],
        "files in circles": [module for group in circles(package.imports) for module in group],
        "functions that are too complex": counts.complex_functions(package.sources[0].path.parent),
        "functions of more than 60 lines": counts.long_functions(package.sources),
        "classes with more than 5 ancestors": counts.deep_classes(package.sources),
        "names of several classes": counts.names_of_several_classes(package.sources),
        "vague names of variables": counts.vague_names(package.sources),
        "Any": counts.words_any(package.sources),
        "imports inside functions": counts.inner_imports(package.sources),
    }


def layers_of(pyproject: Path) -> list[str]:
    """Read the layers that import-linter holds, the uppermost first."""
    contracts = tomllib.loads(pyproject.read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    return next(contract["layers"] for contract in contracts if contract["type"] == "layers")


def heavy_packages() -> list[str]:
    """Return the heavy packages that ``import visterm`` loads in a fresh interpreter."""
    command = [sys.executable, "-X", "importtime", "-c", "import visterm"]
    loading = subprocess.run(command, capture_output=True, text=True, check=True).stderr.splitlines()
    loaded = {line.rpartition("|")[2].strip() for line in loading}
    return [name for name in HEAVY if name in loaded]


def passed(walk: Walk) -> dict[str, int]:
    """Count what a walk passed."""
    counted = {"files": len(walk.files), "functions": len(walk.functions), "deepest stack": len(walk.deepest)}
    return counted | {"returns to a file left before": walk.returns}


def show_traces(walked: dict[str, Walk]) -> None:
    for name, walk in walked.items():
        for title, steps in (("functions", walk.functions), ("deepest stack", walk.deepest)):
            say(f"{name}: {title}")
            for step in steps:
                say(f"  {step}")
            say()


if __name__ == "__main__":
    main()
