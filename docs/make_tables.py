"""Write the tables of docs/models.md from the registry; `--check` says if they are stale."""

import sys
from pathlib import Path

from visterm.core.registry import Registry
from visterm.core.tables import ENCODERS, MODELS
from visterm.metrics.table import METRICS

PAGE = Path(__file__).resolve().with_name("models.md")
BEGIN, END = "<!-- tables: made by `make docs` -->\n", "<!-- end of tables -->"


def registry_table(registry: Registry) -> str:
    rows = [f"| `{e.name}` | {e.summary} | {e.paper or '-'} | {f'`{e.extra}`' if e.extra else '-'} |" for e in registry]
    return "\n".join([f"| {registry.kind} | what it is | described in | extra |", "| --- | --- | --- | --- |", *rows])


def tables() -> str:
    metrics = ["| metric | what it is |", "| --- | --- |", *[f"| `{m.example}` | {m.summary} |" for m in METRICS]]
    return "\n\n".join([registry_table(MODELS), registry_table(ENCODERS), "\n".join(metrics)]) + "\n"


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    fresh = f"{head}{BEGIN}{tables()}{END}{tail}"
    if "--check" in sys.argv:
        sys.exit("docs/models.md has stale tables. Run: make docs" if fresh != text else 0)
    PAGE.write_text(fresh, encoding="utf-8")


main()
