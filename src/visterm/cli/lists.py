"""Commands that need no run: the lists of models, encoders and metrics, and the demo."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from visterm.cli import options
from visterm.cli.output import emit, say, table
from visterm.cli.progress import Bars
from visterm.core.registry import Registry


def models(json: options.Json = False) -> None:
    """List the models."""
    from visterm.core.tables import MODELS

    _list(MODELS, json)


def encoders(json: options.Json = False) -> None:
    """List the encoders, which turn photos into features."""
    from visterm.core.tables import ENCODERS

    _list(ENCODERS, json)


def metrics(json: options.Json = False) -> None:
    """List the metrics of `visterm evaluate`."""
    from visterm.metrics.table import METRICS

    rows = [[entry.example, entry.summary] for entry in METRICS]
    if json:
        for name, summary in rows:
            emit({"name": name, "summary": summary})
    else:
        table(rows, ["metric", "what it is"])
        say("k is the number after @: p@5 is of the first 5 tags, p@10 of the first 10.")


def _list(registry: Registry, json: bool) -> None:
    entries = list(registry)
    if json:
        for entry in entries:
            emit({"name": entry.name, "summary": entry.summary, "paper": entry.paper, "extra": entry.extra})
        return
    rows = [[e.name, e.summary, e.paper or "-", f"visterm[{e.extra}]" if e.extra else "-"] for e in entries]
    table(rows, [registry.kind, "what it is", "described in", "needs"])


DEMO_EXAMPLES = (("visterm demo -o demo", "then open demo/report.html"),)


def demo(
    out: Annotated[Path, typer.Option("-o", "--out", help="The folder to write.")] = Path("demo"),
    scenes: Annotated[int, typer.Option(min=100, help="Scenes to draw.")] = 2000,
    seed: Annotated[int, typer.Option(min=0, help="The same seed draws the same library.")] = 0,
    jobs: options.Jobs = None,
) -> None:
    """Draw a small photo library, and try everything on it.

    Learns the drawn library's tags, tags and searches new pictures, and writes a report to look at.
    """
    from visterm.demo.run import run_demo

    result = run_demo(out, n_scenes=scenes, seed=seed, n_jobs=jobs, progress=Bars())
    table(result.rows, result.header)
    say(f"The report with pictures is {result.report}")
