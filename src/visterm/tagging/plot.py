"""The history of a training as a picture: loss, validation measure, draws a step and seconds, epoch by epoch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from visterm.core.errors import MissingExtraError, UserError

FORMATS: Final = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".webp": "WEBP"}
"""Pillow's name of each format, by the endings of its files."""

QUALITY: Final = 95  # Of formats that lose some of a picture: thin lines and small letters stay clean

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
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D31")
"""Okabe and Ito's palette, from the easiest to the hardest to distinguish on white."""


class Panel(NamedTuple):
    """One line of a picture."""

    # In the history, and for people
    name: str
    title: str
    epochs: list[int]
    values: list[float]
    best: int | None  # The epoch of the best value, for measures on validation rows


def history_panels(history: Sequence[dict[str, Any]]) -> list[Panel]:
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


def figure_class() -> Any:
    """Return matplotlib's `Figure`, imported only now. Raises MissingExtraError if matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError(
            f"Drawing needs the package '{error.name}'. Install it with: pip install 'visterm[plot]'"
        ) from error
    return Figure


def format_of(path: str | os.PathLike[str]) -> str:
    """Return Pillow's name of the format that the ending of a picture file says, in capitals or not.

    Raises UserError if the ending says none that can be written.
    """
    suffix = Path(path).suffix
    if suffix.lower() not in FORMATS:
        ending = f"ends in {suffix}" if suffix else "has no ending"
        raise UserError(
            f"{os.fspath(path)} {ending}",
            setting="out", value=path, expected=f"the name of a picture that ends in {', '.join(FORMATS)}",
        )  # fmt: skip
    return FORMATS[suffix.lower()]
