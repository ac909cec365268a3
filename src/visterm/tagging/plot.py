"""Prepare the history of a training for line plots: loss, validation measure, draws and seconds per epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

TITLES = {
    "loss": "Loss",
    "map": "MAP over the validation images",
    "mean_rank": "Mean rank of the true pair of tags of validation images",
    "draws": "Draws per step",
    "violated": "Share of pairs that led to a step",
    "seconds": "Seconds per epoch",
}
"""Titles of the fields of a history, in the order of the panels."""

BEST_OF = {"map": max, "mean_rank": min}  # Measure on validation images -> function that returns the best value


class Panel(NamedTuple):
    """A line plot of one field of a history."""

    # The name and the title of the field
    name: str
    title: str
    epochs: list[int]
    values: list[float]
    best: int | None  # The epoch of the best value, for measures on validation rows


def history_panels(history: Sequence[Mapping[str, Any]]) -> list[Panel]:
    """Return the panels of a history: fields with titles first, then other numeric fields."""
    names = [name for name in dict.fromkeys(key for entry in history for key in entry) if name != "epoch"]
    order = [name for name in TITLES if name in names] + [name for name in names if name not in TITLES]
    panels = []
    for name in order:
        points = [
            (int(entry["epoch"]), float(entry[name]))
            for entry in history
            if isinstance(entry.get(name), int | float) and not isinstance(entry[name], bool)
        ]
        if points:
            epochs, values = (list(column) for column in zip(*points, strict=True))
            best = epochs[values.index(BEST_OF[name](values))] if name in BEST_OF else None
            panels.append(Panel(name, TITLES.get(name, name), epochs, values, best))
    return panels
