"""Line plots as PNG files, in colours and marks that colour-blind readers can distinguish."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from visterm.core.errors import MissingExtraError
from visterm.data import read_image

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D31")
"""Okabe and Ito's palette, from the easiest to the hardest to distinguish on white."""

MARKS = ("o", "s", "^", "D", "v", "P", "X", "*")
STYLES = ("-", "--", "-.", ":")
SHOWN_MARKS = 12

RIGHT, WRONG = "#009E73", "#bbbbbb"
"""Frames of pictures that are relevant and that are not."""

Line = tuple[Sequence[float], Sequence[float]]


def figure_class() -> Any:
    """Return matplotlib's `Figure`, imported only now. Raises MissingExtraError if matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError(
            f"Drawing needs the package '{error.name}'. Install it with: pip install 'visterm[plot]'"
        ) from error
    return Figure


def draw_lines(
    path: Path,
    panels: Sequence[tuple[str, Mapping[str, Line]]],
    *,
    x: str,
    y: str | Sequence[str],
    log_x: bool = False,
    log_y: bool = False,
) -> None:
    """Draw panels side by side, each with a title, named lines, and one legend beside them.

    Parameters
    ----------
    path : Path
        The PNG file.
    panels : sequence of (title, lines)
        A line is named, and is its x and its y; a name has the same colour in all panels.
    x : str
        What is on the x axis, with its unit.
    y : str or sequence of str
        What is on the y axis; one for all panels, or one for each.
    log_x, log_y : bool
        Logarithmic axes.
    """
    ys = [y] * len(panels) if isinstance(y, str) else list(y)
    names = list(dict.fromkeys(name for _, lines in panels for name in lines))
    looks = {name: _look(i) for i, name in enumerate(names)}
    figure = figure_class()(figsize=(2.4 + 4.4 * len(panels), 4.0), dpi=150, layout="constrained")
    drawn: dict[str, Any] = {}
    for number, (title, lines) in enumerate(panels, start=1):
        axes = figure.add_subplot(1, len(panels), number)
        for name, (xs, values) in lines.items():
            colour, mark, style = looks[name]
            (drawn[name],) = axes.plot(
                xs, values, color=colour, linestyle=style, marker=mark, markersize=5, linewidth=1.6, label=name,
                markevery=max(1, len(xs) // SHOWN_MARKS),
            )  # fmt: skip
        axes.set_title(title, fontsize=11, loc="left")
        axes.set_xlabel(x)
        axes.set_ylabel(ys[number - 1])
        if log_x:
            axes.set_xscale("log")
        if log_y:
            axes.set_yscale("log")
        else:
            highest = max(max(values, default=0.0) for _, values in lines.values())
            axes.set_ylim(0, 1.05 * highest or 1.0)
        axes.grid(color="#dddddd", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(handles=[drawn[name] for name in names], loc="outside right upper", frameon=False, fontsize=9)
    save(figure, path)


def framed(axes: Any, image: Any, *, right: bool, side: int, width: int = 3) -> None:
    """Draw a picture in a frame that says whether it is right.

    Parameters
    ----------
    side : int
        Longer side at which the picture is read, in pixels.
    width : int
        Of the frame of a right one.
    """
    axes.imshow(read_image(image, max_side=side))
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_color(RIGHT if right else WRONG)
    axes.spines[:].set_linewidth(width if right else 1)


def save(figure: Any, path: Path) -> None:
    """Write a figure; its folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Software": "visterm"})


def _look(number: int) -> tuple[str, str, str]:
    """Return a line its colour, mark and style; no two of the first 32 lines have all three in common."""
    turn = number // len(COLOURS)
    return COLOURS[number % len(COLOURS)], MARKS[(number + turn) % len(MARKS)], STYLES[(number + turn) % len(STYLES)]
