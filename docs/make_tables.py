"""Write the tables of docs/models.md from the registry, and those of README.md, docs/benchmarks.md, docs/methods.md,
docs/recommenders.md and docs/which_method.md from JSON of figures; `--check` says if they are stale."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from method_costs import cost_tables
from rivals import tables as rival_tables
from rivals import through_table

from visterm.core.registry import Registry
from visterm.core.tables import ENCODERS, MODELS
from visterm.metrics.table import METRICS

DOCS = Path(__file__).resolve().parent
FIGURES = DOCS / "figures" / "methods.json"  # of research/experiments/methods.py
RIVALS = DOCS / "figures" / "rivals.json"  # of benchmarks/rivals.py
THROUGH = DOCS / "figures" / "recommenders.json"  # of benchmarks/rivals.py --through
IN_SHORT = {
    "Corel5k, network": (
        "4,500 photos, 371 tags (Corel5k)",
        ("auto", "ridge", "scikit-learn MLPClassifier", "scikit-learn LogisticRegression"),
    ),
    "Delicious, by number": ("12,920 web pages, 983 tags (Delicious)", ("auto", "EASE in NumPy", "implicit ALS")),
}
"""The lines of README's table: of each data set what it is, and the programs."""
DRAWN = ("drawn, first", "drawn, second", "drawn pairs, by number", "scenes, visterms")
"""Data sets of rivals.json without a table in docs/benchmarks.md."""
MARKS = {
    "tables": ("<!-- tables: made by `make docs` -->\n", "<!-- end of tables -->"),
    "figures": ("<!-- figures: made by `make docs` -->\n", "<!-- end of figures -->"),
}


def registry_lines(registry: Registry) -> str:
    """Return a line of a list for each entry, those of each package together."""
    missing = ", ".join(entry.name for entry in registry.not_installed())
    assert not missing, f"{missing}: install visterm-research, whose lines the list has, too"
    lines = []
    for package in dict.fromkeys(entry.package for entry in registry):
        lines.append(f"\n{registry.kind.capitalize()}s of {package}:\n")
        for entry in (entry for entry in registry if entry.package == package):
            notes = "; ".join(filter(None, [entry.paper, f"extra `{entry.extra}`" if entry.extra else ""]))
            lines.append(f"- `{entry.name}`: {entry.summary}" + (f" ({notes})" if notes else ""))
    return "\n".join(lines).lstrip()


def tables() -> str:
    metrics = "\n".join(["Metrics:\n", *(f"- `{m.example}`: {m.summary}" for m in METRICS)])
    return "\n\n".join([registry_lines(MODELS), registry_lines(ENCODERS), metrics]) + "\n"


def figures() -> str:
    """Return MAP over photos of each model on each data set, the best models first."""
    sets = json.loads(FIGURES.read_text(encoding="utf-8"))["data"]
    results = {name: [each["models"].get(name, {}) for each in sets.values()] for name in MODELS.names()}
    measured = {name: row for name, row in results.items() if any("map" in each for each in row)}
    lines = [f"| model | {' | '.join(sets)} |\n|{' --- |' * (len(sets) + 1)}"]
    for name in sorted(measured, key=lambda name: -sum(each.get("map", 0) for each in measured[name])):
        cells = (
            f"{each['map']:.3f}" if "map" in each else "stopped" if "over" in each else "-" for each in measured[name]
        )
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def rivals_in_short() -> str:
    """Return a few lines of the rivals' figures: what people would use instead, its quality and its time."""
    sets = json.loads(RIVALS.read_text(encoding="utf-8"))["data"]
    lines = ["| learns from | program | MAP | seconds to learn |", "| --- | --- | --- | --- |"]
    for name, (what, methods) in IN_SHORT.items():
        for method in methods:
            each = sets[name]["methods"][method]
            program = f"**visterm** (`{method}`)" if method in MODELS.names() else method
            lines.append(f"| {what} | {program} | {each['map']:.3f} | {each['processor']['median']:.1f} |")
            what = ""
    return "\n".join(lines) + "\n"


def real(rivals: dict[str, Any]) -> dict[str, Any]:
    """Return the rivals' figures without the data sets that are drawn."""
    return rivals | {"data": {name: each for name, each in rivals["data"].items() if name not in DRAWN}}


def pages() -> Iterator[tuple[Path, str, str]]:
    """Yield each page, which of its blocks is made, and the text of that."""
    yield DOCS / "models.md", "tables", tables()
    rivals = json.loads(RIVALS.read_text(encoding="utf-8"))
    yield DOCS.parent / "README.md", "figures", rivals_in_short()
    yield DOCS / "benchmarks.md", "figures", "\n".join(rival_tables(real(rivals))) + "\n"
    through = through_table(json.loads(THROUGH.read_text(encoding="utf-8")))
    yield DOCS / "recommenders.md", "figures", "\n".join(through) + "\n"
    yield DOCS / "methods.md", "figures", figures()
    yield DOCS / "which_method.md", "figures", cost_tables(json.loads(FIGURES.read_text(encoding="utf-8")))


def main() -> None:
    stale = []
    for page, block, made in pages():
        begin, end = MARKS[block]
        text = page.read_text(encoding="utf-8")
        head, _, rest = text.partition(begin)
        fresh = f"{head}{begin}{made}{end}{rest.partition(end)[2]}"
        if fresh != text:
            stale.append(page.relative_to(DOCS.parent).as_posix())
            if "--check" not in sys.argv:
                page.write_text(fresh, encoding="utf-8")
    if "--check" in sys.argv and stale:
        sys.exit(f"Stale tables: {', '.join(stale)}. Run: make docs")


if __name__ == "__main__":
    main()
