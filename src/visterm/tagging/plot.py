"""The history of a training as a picture: loss, validation measure, draws a step and seconds, epoch by epoch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from visterm.core.errors import MissingExtraError, UserError
from visterm.core.writing import whole_file

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
OF_THE_EPOCH = ("epoch",)
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D31")
"""Okabe and Ito's palette, from the easiest to the hardest to distinguish on white."""

COLUMNS = 2
PANEL_SIZE = (5.2, 3.1)


class Panel(NamedTuple):
    """One line of a picture."""

    # In the history, and for people
    name: str
    title: str
    epochs: list[int]
    values: list[float]
    best: int | None  # The epoch of the best value, for measures on validation rows


def plot_history(history: Sequence[dict[str, Any]], path: str | os.PathLike[str], *, title: str = "") -> None:
    """Draw what a model kept of each epoch (its `history_`), a panel each, in the format of the file's ending.

    The draws needed as training goes on are Figure 1 of the VSE-ens paper. Raises UserError if the file ends in none of
    ``.png``, ``.jpg``, ``.jpeg`` and ``.webp``; MissingExtraError if matplotlib is not installed.
    """
    kind = format_of(path)
    figure_type = figure_class()
    from matplotlib.ticker import MaxNLocator

    panels = history_panels(history)
    n_rows = -(-len(panels) // COLUMNS)
    size = (PANEL_SIZE[0] * min(COLUMNS, len(panels)), PANEL_SIZE[1] * n_rows + 0.4)
    figure = figure_type(figsize=size, dpi=150, layout="constrained")
    for number, panel in enumerate(panels):
        axes = figure.add_subplot(n_rows, min(COLUMNS, len(panels)), number + 1)
        few = len(panel.epochs) <= 40
        axes.plot(
            panel.epochs, panel.values, color=COLOURS[number], linewidth=1.6, marker="o" if few else "", markersize=3
        )
        if panel.best is not None:
            value = panel.values[panel.epochs.index(panel.best)]
            axes.plot([panel.best], [value], "o", color="black", markersize=6, fillstyle="none")
            axes.annotate(
                f"best: {value:.3f}, epoch {panel.best}",
                (panel.best, value), (0, -16), textcoords="offset points", ha="center", va="top", fontsize=9,
            )  # fmt: skip
        axes.set_title(panel.title, fontsize=11, loc="left")
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_ylim(0, 1.08 * max(panel.values) or 1.0)
        axes.grid(color="#dddddd", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title, fontsize=12)
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    options: dict[str, Any] = {"metadata": {"Software": "visterm"}} if kind == "PNG" else {}
    with whole_file(file) as temporary:
        figure.savefig(temporary, format=kind.lower(), pil_kwargs={"quality": QUALITY}, **options)


def history_panels(history: Sequence[dict[str, Any]]) -> list[Panel]:
    """Return the lines of a history: what is known first, whatever else a model keeps after it."""
    kept = [name for name in dict.fromkeys(key for entry in history for key in entry) if name not in OF_THE_EPOCH]
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
        said = f"ends in {suffix}" if suffix else "has no ending"
        raise UserError(f"{os.fspath(path)} {said}; expected the name of a picture that ends in {', '.join(FORMATS)}.")
    return FORMATS[suffix.lower()]
