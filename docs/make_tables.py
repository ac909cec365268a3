"""Write the tables of docs/models.md from the registry, and those of docs/benchmarks.md, docs/methods.md, its families
and docs/which_method.md from JSON of figures; `--check` says if they are stale."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from method_costs import cost_tables
from rivals import tables as rival_tables

from visterm.core.registry import Registry
from visterm.core.tables import ENCODERS, MODELS
from visterm.metrics.table import METRICS

DOCS = Path(__file__).resolve().parent
FIGURES = DOCS / "figures" / "methods.json"  # of research/experiments/methods.py
RIVALS = DOCS / "figures" / "rivals.json"  # of benchmarks/rivals.py
FAMILIES = {
    "ranking": ("ranking",), "pamir": ("pamir",), "parts": ("parts",), "deep": ("deep", "mlp"),
    "linear": ("linear",), "neighbours": ("neighbours",), "generative": ("generative",),
    "blend": ("blend",),
}  # fmt: skip
"""The page of each family, and the folders of visterm.models and visterm_research.models that it is about."""
OTHERS = 1  # Models of other families in a family's table, at most: the best
MARKS = {
    "tables": ("<!-- tables: made by `make docs` -->\n", "<!-- end of tables -->"),
    "figures": ("<!-- figures: made by `make docs` -->\n", "<!-- end of figures -->"),
}


def registry_table(registry: Registry) -> str:
    missing = ", ".join(entry.name for entry in registry.not_installed())
    assert not missing, f"{missing}: install visterm-research, whose lines the table has, too"
    rows = [
        f"| `{e.name}` | {e.summary} | {e.paper or '-'} | {e.package} | {f'`{e.extra}`' if e.extra else '-'} |"
        for e in registry
    ]
    head = [f"| {registry.kind} | what it is | described in | package | extra |", "| --- | --- | --- | --- | --- |"]
    return "\n".join([*head, *rows])


def tables() -> str:
    metrics = ["| metric | what it is |", "| --- | --- |", *[f"| `{m.example}` | {m.summary} |" for m in METRICS]]
    return "\n\n".join([registry_table(MODELS), registry_table(ENCODERS), "\n".join(metrics)]) + "\n"


def models_of(family: str) -> list[str]:
    """Return the models that a family's page is about."""
    parts = {part for entry in MODELS for part in entry.target.replace(":", ".").split(".")}
    assert parts.issuperset(FAMILIES[family]), f"{family}: no such folder of models"
    return [e.name for e in MODELS if set(FAMILIES[family]) & set(e.target.replace(":", ".").split("."))]


def figures(family: str | None) -> str:
    """Return MAP over photos on each data set: a family's models in bold and the best other; without one, all."""
    sets = json.loads(FIGURES.read_text(encoding="utf-8"))["data"]
    found = {name: [each["models"].get(name, {}) for each in sets.values()] for name in MODELS.names()}
    measured = {name: row for name, row in found.items() if any("map" in each for each in row)}
    ranked = sorted(measured, key=lambda name: -sum(each.get("map", 0) for each in measured[name]))
    own = models_of(family) if family else []
    others = [name for name in ranked if name not in own][: OTHERS if own else None]
    shown = [*(name for name in ranked if name in own), *others]
    return "\n".join(figure_lines(list(sets), measured, shown, own)) + "\n"


def figure_lines(sets: list[str], measured: dict[str, list[Any]], shown: list[str], own: list[str]) -> Iterator[str]:
    if missing := [f"`{name}`" for name in own if name not in measured]:
        yield f"Without figures on these data sets: {', '.join(missing)} ([why](../which_method.md#figures)).\n"
    yield f"| model | {' | '.join(sets)} |\n|{' --- |' * (len(sets) + 1)}"
    for name in shown:
        cells = (
            f"{each['map']:.3f}" + ("" if own else f" · {each['word_map']:.3f}")
            if "map" in each
            else "stopped"
            if "over" in each
            else "-"
            for each in measured[name]
        )
        mark = "**" if name in own else ""
        yield f"| {mark}`{name}`{mark} | {' | '.join(cells)} |"
    if own:
        yield "\nMAP over photos ([searches](../methods.md#figures), [time and memory](../which_method.md))."


def pages() -> Iterator[tuple[Path, str, str]]:
    """Yield each page, which of its blocks is made, and the text of that."""
    yield DOCS / "models.md", "tables", tables()
    rivals = json.loads(RIVALS.read_text(encoding="utf-8"))
    yield DOCS / "benchmarks.md", "figures", "\n".join(rival_tables(rivals)) + "\n"
    yield DOCS / "methods.md", "figures", figures(None)
    yield DOCS / "which_method.md", "figures", cost_tables(json.loads(FIGURES.read_text(encoding="utf-8")))
    for family in FAMILIES:
        yield DOCS / "methods" / f"{family}.md", "figures", figures(family)


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
