"""`visterm models`, `encoders` and `metrics`: what there is to choose from, out of the tables."""

from __future__ import annotations

from visterm.cli import options
from visterm.cli.output import emit, table
from visterm.core.registry import Registry


def models(json: options.Json = False) -> None:
    """List the models that can be fitted."""
    from visterm.core.tables import MODELS

    _show(MODELS, json)


def encoders(json: options.Json = False) -> None:
    """List the encoders that turn images into features."""
    from visterm.core.tables import ENCODERS

    _show(ENCODERS, json)


def metrics(json: options.Json = False) -> None:
    """List the measures of `visterm evaluate`."""
    from visterm.metrics.table import METRICS

    rows = [[entry.example, entry.summary] for entry in METRICS]
    if json:
        for name, summary in rows:
            emit({"name": name, "summary": summary})
    else:
        table(rows, ["metric", "what it is"])


def _show(registry: Registry, json: bool) -> None:
    entries = list(registry)
    if json:
        for entry in entries:
            emit({"name": entry.name, "summary": entry.summary, "paper": entry.paper, "extra": entry.extra})
        return
    rows = [[e.name, e.summary, e.paper or "-", f"visterm[{e.extra}]" if e.extra else "-"] for e in entries]
    table(rows, [registry.kind, "what it is", "paper", "needs"])
