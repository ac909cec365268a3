"""Line and bar charts as inline SVG, without scripts, in the colours of the page (light or dark).

matplotlib is not used: it is a 70 MB dependency, and its SVG cannot adapt to a light or dark page.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from visterm.evaluation.html_report import escape

WIDTH, LINES_HEIGHT = 480, 300
X_START, X_END, BOTTOM_MARGIN = 46, WIDTH - 14, 42  # Position of the x axis, in pixels
BAR_HEIGHT, GROUP_GAP, LABELS_WIDTH, VALUES_WIDTH = 11, 7, 150, 42
LEGEND_ROW_HEIGHT, HEADING_HEIGHT = 18, 24
MAX_LABEL_LENGTH, MAX_NAME_LENGTH = 22, 62
DASHES = ["", *(f' stroke-dasharray="{dash}"' for dash in ("7 3", "2 3", "9 3 2 3", "12 4", "4 2"))]
"""SVG attributes for the dashes of lines, for readers who cannot distinguish the colours."""

N_COLOURS = len(DASHES)
N_TICKS = 5


class Series(NamedTuple):
    """One line, or the bars of one colour."""

    name: str
    values: Sequence[float]


def line_chart(title: str, x_label: str, y_label: str, x: Sequence[Sequence[float]], lines: Sequence[Series]) -> str:
    """Return a line chart with points as SVG; both axes start at 0 and end at a round number.

    `x` has the x values of each line, and `lines` the y values.
    """
    legend, top = _legend(lines, dashed=True)
    x_ticks = _ticks(max((max(x_values, default=0.0) for x_values in x), default=1.0))
    y_ticks = _ticks(max((max(line.values, default=0.0) for line in lines), default=1.0))
    height = LINES_HEIGHT + top
    bottom = height - BOTTOM_MARGIN

    def x_at(value: float) -> float:
        return X_START + (X_END - X_START) * value / x_ticks[-1]

    def y_at(value: float) -> float:
        return bottom - (bottom - top - 12) * value / y_ticks[-1]

    parts = [legend]
    parts += [
        f'<line class=grid-line x1="{X_START}" x2="{X_END}" y1="{y_at(tick):.1f}" y2="{y_at(tick):.1f}"/>'
        f'<text class=soft x="{X_START - 6}" y="{y_at(tick) + 4:.1f}" text-anchor=end>{tick:g}</text>'
        for tick in y_ticks
    ]
    parts += [
        f'<text class=soft x="{x_at(tick):.1f}" y="{bottom + 16}" text-anchor=middle>{tick:g}</text>'
        for tick in x_ticks
    ]
    parts.append(f'<line class=axis x1="{X_START}" x2="{X_END}" y1="{bottom}" y2="{bottom}"/>')

    for number, (x_values, line) in enumerate(zip(x, lines, strict=True)):
        points = [(x_at(px), y_at(py)) for px, py in zip(x_values, line.values, strict=True)]
        path = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
        parts.append(f'<polyline class="line c{number % N_COLOURS}"{DASHES[number % N_COLOURS]} points="{path}"/>')
        for (px, py), x_value, value in zip(points, x_values, line.values, strict=True):
            point_title = escape(f"{line.name}: {y_label} {value:.3f} at {x_label} {x_value:.3g}")
            parts.append(
                f'<circle class="dot c{number % N_COLOURS}" cx="{px:.1f}" cy="{py:.1f}" r="3">'
                f"<title>{point_title}</title></circle>"
            )

    parts.append(
        f'<text x="{(X_START + X_END) / 2:.0f}" y="{height - 6}" text-anchor=middle>{escape(x_label)}</text>'
        f'<text x="12" y="{(top + bottom) / 2:.0f}" text-anchor=middle '
        f'transform="rotate(-90 12 {(top + bottom) / 2:.0f})">{escape(y_label)}</text>'
    )
    return _svg(title, height, parts)


def bar_chart(title: str, caption: str, labels: Sequence[tuple[str, str]], bars: Sequence[Series]) -> str:
    """Return a chart of horizontal bars as SVG, with a group of bars per label and one bar per series.

    `title` is for screen readers, and `caption` is shown above the bars. A label is the name of a group and a note
    after it. A series has a value from 0 to 1 (the full width) per label; NaN draws no bar.
    """
    legend, legend_height = _legend(bars, dashed=False)
    top = legend_height + HEADING_HEIGHT
    group_height = BAR_HEIGHT * len(bars) + GROUP_GAP
    full_width = WIDTH - LABELS_WIDTH - VALUES_WIDTH
    heading = f'<text x="{LABELS_WIDTH}" y="{top - 7}">{escape(caption)}</text>'
    parts = [legend, heading]

    for row, (label, note) in enumerate(labels):
        y = top + row * group_height
        middle = y + BAR_HEIGHT * len(bars) / 2 + 4
        parts.append(
            f'<text x="{LABELS_WIDTH - 8}" y="{middle:.1f}" text-anchor=end><title>{escape(label)}</title>'
            f"{escape(_short(label, MAX_LABEL_LENGTH - len(note)))} <tspan class=soft>{escape(note)}</tspan></text>"
        )
        for number, series in enumerate(bars):
            value = series.values[row]
            if math.isnan(value):
                continue
            bar_title = escape(f"{label}, {series.name}: {value:.3f}")
            length, bar_top = max(1.0, full_width * value), y + BAR_HEIGHT * number
            parts.append(
                f'<rect class="bar c{number % N_COLOURS}" x="{LABELS_WIDTH}" y="{bar_top}" width="{length:.1f}" '
                f'height="{BAR_HEIGHT - 2}"><title>{bar_title}</title></rect>'
                f'<text class=soft x="{LABELS_WIDTH + length + 5:.1f}" '
                f'y="{bar_top + BAR_HEIGHT - 2}">{value:.2f}</text>'
            )

    return _svg(title, top + len(labels) * group_height, parts)


def _svg(title: str, height: float, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role=img aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>{''.join(parts)}</svg>"
    )


def _legend(series: Sequence[Series], *, dashed: bool) -> tuple[str, int]:
    """Return a legend with one series per row as SVG, and its height; "" and 0 for a single series."""
    if len(series) < 2:
        return "", 0
    rows = []
    for number, item in enumerate(series):
        y, colour = LEGEND_ROW_HEIGHT * number + 9, number % N_COLOURS
        symbol = (
            f'<line class="line c{colour}"{DASHES[colour]} x1="{X_START}" x2="{X_START + 30}" y1="{y}" y2="{y}"/>'
            if dashed
            else f'<rect class="bar c{colour}" x="{X_START}" y="{y - 5}" width="30" height="{BAR_HEIGHT - 2}"/>'
        )
        rows.append(f'{symbol}<text x="{X_START + 38}" y="{y + 4}">{escape(_short(item.name, MAX_NAME_LENGTH))}</text>')
    return "".join(rows), LEGEND_ROW_HEIGHT * len(series)


def _short(text: str, max_length: int) -> str:
    """Shorten a text in the middle, so that names with different ends remain distinguishable."""
    if len(text) <= max_length:
        return text
    n_letters = max(1, (max_length - 1) // 2)
    return f"{text[:n_letters]}…{text[-n_letters:]}"


def _ticks(maximum: float) -> list[float]:
    """Return about five round numbers, from 0 to the first round number that is not below `maximum`."""
    if not maximum > 0:
        return [0.0, 1.0]
    min_step = maximum / N_TICKS
    power = 10.0 ** math.floor(math.log10(min_step))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= min_step * 0.999)
    return [step * number for number in range(math.ceil(maximum / step - 1e-9) + 1)]
