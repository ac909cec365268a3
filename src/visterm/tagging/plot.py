"""The history of a training as lines to draw: loss, validation measure, draws a step and seconds, epoch by epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

TITLES = {
    "loss": "Loss",
    "map": "MAP over the validation images",
    "mean_rank": "Mean rank of the true pair of tags of validation images",
    "draws": "Draws a step",
    "violated": "Share of pairs that made a step",
    "seconds": "Seconds an epoch",
}
"""What models keep of each epoch, in the order of the panels."""

BEST = {"map": max, "mean_rank": min}  # Measures on validation images, and which of their values is the best


class Panel(NamedTuple):
    """One line of a picture."""

    # In the history, and for people
    name: str
    title: str
    epochs: list[int]
    values: list[float]
    best: int | None  # The epoch of the best value, for measures on validation rows


def history_panels(history: Sequence[Mapping[str, Any]]) -> list[Panel]:
    """Return the lines of a history: what is known first, whatever else a model keeps after it."""
    kept = [name for name in dict.fromkeys(key for entry in history for key in entry) if name != "epoch"]
    order = [name for name in TITLES if name in kept] + [name for name in kept if name not in TITLES]
    panels = []
    for name in order:
        points = [
            (int(entry["epoch"]), float(entry[name]))
            for entry in history
            if isinstance(entry.get(name), int | float) and not isinstance(entry[name], bool)
        ]
        if points:
            epochs, values = (list(column) for column in zip(*points, strict=True))
            best = epochs[values.index(BEST[name](values))] if name in BEST else None
            panels.append(Panel(name, TITLES.get(name, name), epochs, values, best))
    return panels
