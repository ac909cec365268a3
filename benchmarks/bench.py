"""Run the benchmarks of a release, one after the other, and write one table of their figures: `make bench`.

    make bench                                  # all parts, two hours at most
    make bench PARTS="search warp"              # these parts
    python benchmarks/bench.py search --quick   # tiny data and one run: shows that a part works, no figures
    python benchmarks/bench.py --list           # the parts
    python benchmarks/bench.py serve --before ../old    # the same program with the packages of another checkout, too

Each part is a program of this folder. Its JSON and what it prints go into the folder ``--out``. The table of medians
and ratios is printed, and written there as table.md. A part whose data or packages are missing says so in the table; so
does one that fails, and then the exit code is 1. What doesn't fit into ``--minutes`` is not run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from harness.runs import machine, say

HERE = Path(__file__).resolve().parent


class Part(NamedTuple):
    """A program, what it measures, and what it takes."""

    about: str
    arguments: tuple[str, ...] = ()  # "SHARED" is the folder of data and networks, "CACHE" the one of encoded photos
    shown: tuple[str, ...] = ()  # Patterns of the figures in the table, as paths in the JSON; without any, all medians
    packages: tuple[str, ...] = ()
    has_quick: bool = True  # Whether the program has --quick


PAGE = ("fastapi", "jinja2", "playwright")
PARTS = {
    "start_up": Part("from the start of a command to its end, and of a service to its first page"),
    "search": Part("a query of words in a small catalogue"),
    "catalogue": Part("opening and searching a catalogue of many rows, exactly and through faiss", packages=("faiss",)),
    "said_at_once": Part("searches of a million rows", shown=("*/over never/*", "*/over floor", "*/recall/*")),
    "lance": Part("a catalogue whose rows are in a Lance table", packages=("lancedb",)),
    "top_tags": Part("the best of 109,444 tags", shown=("*/medians/*",), has_quick=False),
    "warp": Part("pairs a second of WSABIE", shown=("cases/*/pairs*", "cases/*/ratio"), has_quick=False),
    "pamir": Part("steps of PAMIR, beside NumPy", shown=("seconds", "times_as_fast_as_numpy")),
    "larger_than_memory": Part(
        "fit and annotate features larger than memory",
        ("--gigabytes", "2", "--memory", "512M"),
        ("speed/*", "*/images_per_second", "*/peak_anonymous"),
    ),
    "encode": Part("encoding pixels, beside other libraries", packages=("onnxruntime", "skimage")),
    "rivals": Part(
        "quality and time of `auto`, its candidates, and short programs with other libraries",
        ("SHARED", "--cache", "CACHE", "--seed", "1"),
        ("data/*/methods/*/map", "data/*/methods/*/word_map", "data/*/methods/*/processor"),
    ),
    "calibration": Part(
        "whether confidences hold", ("SHARED", "--cache", "CACHE"), ("data/*/error", "data/*/brier", "data/*/wanted/*")
    ),
    "mistakes": Part(
        "planted mistakes found", ("SHARED", "--cache", "CACHE"), ("data/*/ours", "data/*/by chance"), (), False
    ),
    "serve": Part(
        "the service at its limit, below and beyond it, and the floor: the server without an application",
        shown=("*/requests_a_second", "*/processor_milliseconds*", "*/milliseconds/*/p50", "*/milliseconds/*/p99"),
        packages=PAGE[:2],
    ),
    "page": Part("steps on the page", packages=PAGE),
    "photographers_hour": Part("an hour on the page", (), ("steps/*/median ms", "steps/*/longest ms"), PAGE, False),
    "connected_story": Part("connect, sync and undo with Immich and PhotoPrism", ("SHARED",), ("*/right", "*/undo")),
    "sync": Part("`visterm sync` with 10,000 photos", packages=("fastapi",)),
    "folder": Part("a folder of photos to its first search, and indexing what is known", packages=("onnxruntime",)),
    "memory": Part(
        "peaks of a fit and of indexing, and what the service holds, beside floors",
        (),
        ("*/peak_anonymous", "*/floor", "*/floor_a_name", "*/bytes_a_name", "*/later", "*/ratio"),
        PAGE[:2],
    ),
}
"""In this order. house.py and same_answers.py check the code and have limits of their own."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help="run these [default: all]")
    parser.add_argument("--list", action="store_true", help="list the parts")
    parser.add_argument("--shared", type=Path, default=Path("../shared"), help="the folder of data and networks")
    parser.add_argument("--out", type=Path, default=Path("build/bench"), help="where figures and the table are written")
    parser.add_argument("--minutes", type=float, default=120, help="for all parts")
    parser.add_argument("--quick", action="store_true", help="tiny data, one run")
    parser.add_argument("--before", type=Path, help="a checkout of an older version, measured after each part")
    chosen = parser.parse_args()
    if chosen.list:
        say("\n".join(f"{name:20}{part.about}" for name, part in PARTS.items()))
        return
    if unknown := sorted(set(chosen.parts) - PARTS.keys()):
        parser.error(f"No such part: {', '.join(unknown)}. Parts: {', '.join(PARTS)}")
    chosen.out.mkdir(parents=True, exist_ok=True)
    ends = time.monotonic() + 60 * chosen.minutes
    columns = ["part", "figure", "median", "least - most"] + ["before"] * bool(chosen.before)
    lines = [f"{machine()}", "", row(columns), row(["---"] * len(columns))]
    failed = False
    for name in chosen.parts or PARTS:
        outcome, found = run(name, chosen, ends - time.monotonic())
        failed |= outcome.startswith("failed")
        cells = [[name, *figure] for figure in found] or [[name, outcome or "no figures", "", ""]]
        if chosen.before:
            why, before = run(name, chosen, ends - time.monotonic(), chosen.before)
            medians = {figure: median for figure, median, _ in before}
            cells = [[*each, medians.get(each[1], why)] for each in cells]
        new = [row(each) for each in cells]
        say("\n".join(new))
        lines += new
        (chosen.out / "table.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    say(f"The table is in {chosen.out / 'table.md'}.")
    sys.exit(failed)


def row(cells: list[str]) -> str:
    """Return a row of a table in Markdown."""
    return f"| {' | '.join(cells)} |"


Figures = list[tuple[str, str, str]]  # Name, median and range of each


def run(name: str, chosen: argparse.Namespace, seconds: float, checkout: Path | None = None) -> tuple[str, Figures]:
    """Run a part, with the packages of a checkout; return why it has no figures, or an empty text, and its figures."""
    part = PARTS[name]
    if missing := [package for package in part.packages if find_spec(package) is None]:
        return f"missing: {', '.join(missing)}", []
    if "SHARED" in part.arguments and not chosen.shared.is_dir():
        return f"missing: the data ({chosen.shared})", []
    if seconds <= 0 or (chosen.quick and not part.has_quick):
        return "not run: the time was over" if seconds <= 0 else "not run: it has no quick form", []
    folders = {"SHARED": str(chosen.shared), "CACHE": str(chosen.out / "encoded")}
    arguments = [folders.get(argument, argument) for argument in part.arguments] + ["--quick"] * chosen.quick
    out, environment = chosen.out, dict(os.environ)
    if checkout is not None:
        out = out / "before"
        out.mkdir(exist_ok=True)
        environment["PYTHONPATH"] = os.pathsep.join(str(checkout.resolve() / src) for src in ("src", "research/src"))
    path, log = out / f"{name}.json", out / f"{name}.log"
    path.unlink(missing_ok=True)
    command = [sys.executable, HERE / f"{name}.py", *arguments, "--json", path]
    say(f"{name}: {part.about}")
    try:
        with log.open("w", encoding="utf-8") as output:
            subprocess.run(
                command, stdout=output, stderr=subprocess.STDOUT, timeout=seconds, check=True, env=environment
            )
    except subprocess.TimeoutExpired:
        return "stopped: the time was over", []
    except subprocess.CalledProcessError as error:
        return f"failed with exit code {error.returncode}: see {log}", []
    if not path.exists():
        return f"failed: it wrote no figures, see {log}", []
    return "", list(figures(json.loads(path.read_text(encoding="utf-8")), part.shown))


def figures(result: Any, shown: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
    """Yield the name, the median and the range of each figure to show."""
    for name, value in leaves(result):
        if isinstance(value, dict) and (not shown or matches(name, shown)):
            yield name, f"{value['median']:.4g}", f"{value['least']:.4g} - {value['most']:.4g}"
        elif not isinstance(value, dict) and matches(name, shown):
            yield name, f"{value:.4g}", ""


def matches(name: str, patterns: tuple[str, ...]) -> bool:
    """Return whether a name has the form of one of the patterns."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the numbers of a JSON and its medians with their range, each with the names that lead there."""
    if isinstance(value, dict) and value.get("median") is not None and "least" in value:
        yield name, value
    elif isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(inner, f"{name}/{key}" if name else str(key))
    elif isinstance(value, int | float):
        yield name, value


if __name__ == "__main__":
    main()
