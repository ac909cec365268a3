"""Line and bar charts as inline SVG, without scripts, in the colours of the page (light or dark).

matplotlib is not used: it is a 70 MB dependency, and its SVG cannot adapt to a light or dark page.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from visterm.evaluation.html_report import MACROS

LINES_HEIGHT, BOTTOM_MARGIN, GROUP_GAP, VALUES_WIDTH, HEADING_HEIGHT, N_TICKS = 300, 42, 7, 42, 24, 5


class Size(NamedTuple):
    """Sizes of charts in pixels, and maximum lengths of texts."""

    width: int = 480
    left: int = 46  # Ends of the x axis
    right: int = 466
    bar: int = 11
    labels: int = 150
    legend_row: int = 18
    max_label: int = 22
    max_name: int = 62
    colours: int = 6


SIZE = Size()


class Series(NamedTuple):
    """One line, or the bars of one colour."""

    name: str
    values: Sequence[float]


def line_chart(title: str, x_label: str, y_label: str, x: Sequence[Sequence[float]], lines: Sequence[Series]) -> str:
    """Return a line chart with points as SVG; both axes start at 0 and end at a round number.

    `x` has the x values of each line, and `lines` the y values.
    """
    x_ticks = _ticks(max((max(x_values, default=0.0) for x_values in x), default=1.0))
    y_ticks = _ticks(max((max(line.values, default=0.0) for line in lines), default=1.0))
    top = _legend_height(lines)
    height = LINES_HEIGHT + top
    bottom = height - BOTTOM_MARGIN

    def x_at(value: float) -> float:
        return SIZE.left + (SIZE.right - SIZE.left) * value / x_ticks[-1]

    def y_at(value: float) -> float:
        return bottom - (bottom - top - 12) * value / y_ticks[-1]

    points = [
        [(x_at(a), y_at(b), f"{line.name}: {y_label} {b:.3f} at {x_label} {a:.3g}") for a, b in zip(*pair, strict=True)]
        for line, pair in ((line, (x_values, line.values)) for x_values, line in zip(x, lines, strict=True))
    ]
    ticks = [(x_at(tick), tick) for tick in x_ticks], [(y_at(tick), tick) for tick in y_ticks]
    return str(MACROS.line_chart(title, x_label, y_label, lines, points, *ticks, SIZE, top, bottom, height))


def bar_chart(title: str, caption: str, labels: Sequence[tuple[str, str]], bars: Sequence[Series]) -> str:
    """Return a chart of horizontal bars as SVG, with a group of bars per label and one bar per series.

    `title` is for screen readers, and `caption` is shown above the bars. A label is the name of a group and a note
    after it. A series has a value from 0 to 1 (the full width) per label; NaN draws no bar.
    """
    top = _legend_height(bars) + HEADING_HEIGHT
    group_height = SIZE.bar * len(bars) + GROUP_GAP
    full_width = SIZE.width - SIZE.labels - VALUES_WIDTH
    height = top + len(labels) * group_height
    return str(MACROS.bar_chart(title, caption, labels, bars, SIZE, top, group_height, full_width, height))


def _legend_height(series: Sequence[Series]) -> int:
    """Return the height of a legend with one series per row; a single series has none."""
    return SIZE.legend_row * len(series) if len(series) > 1 else 0


def _ticks(maximum: float) -> list[float]:
    """Return about five round numbers, from 0 to the first round number that is not below `maximum`."""
    if not maximum > 0:
        return [0.0, 1.0]
    min_step = maximum / N_TICKS
    power = 10.0 ** math.floor(math.log10(min_step))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= min_step * 0.999)
    return [step * number for number in range(math.ceil(maximum / step - 1e-9) + 1)]
