"""Lines and bars as inline SVG, without a script; colours are those of the page, light or dark.

Not by matplotlib: it is 70 MB of the extra ``plot``, reports need no extra, and its SVG has the colours of one page.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from visterm.evaluation.html_report import escape

WIDTH, LINES_HEIGHT = 480, 300
LEFT, RIGHT, BOTTOM = 46, 14, 42
BAR, BETWEEN_GROUPS, LABELS_WIDTH, VALUES_WIDTH = 11, 7, 150, 42
LEGEND_ROW, HEADING = 18, 24
LONGEST_LABEL, LONGEST_NAME = 22, 62
DASHES = ["", *(f' stroke-dasharray="{dash}"' for dash in ("7 3", "2 3", "9 3 2 3", "12 4", "4 2"))]
"""Of the lines, beside their colours, for those who do not tell the colours apart."""

N_COLOURS = len(DASHES)
N_TICKS = 5


class Series(NamedTuple):
    """One line, or the bars of one colour."""

    name: str
    values: Sequence[float]


def line_chart(title: str, x_label: str, y_label: str, x: Sequence[Sequence[float]], lines: Sequence[Series]) -> str:
    """Draw lines with their points; both axes begin at 0 and end at a round number.

    `x` is given for each line; the series have the heights of its points.
    """
    legend, top = _legend(lines, dashed=True)
    x_ticks = _ticks(max((max(x_values, default=0.0) for x_values in x), default=1.0))
    y_ticks = _ticks(max((max(line.values, default=0.0) for line in lines), default=1.0))
    height = LINES_HEIGHT + top
    bottom = height - BOTTOM

    def across(value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * value / x_ticks[-1]

    def up(value: float) -> float:
        return bottom - (bottom - top - 12) * value / y_ticks[-1]

    parts = [legend]
    parts += [
        f'<line class=grid-line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{up(tick):.1f}" y2="{up(tick):.1f}"/>'
        f'<text class=soft x="{LEFT - 6}" y="{up(tick) + 4:.1f}" text-anchor=end>{tick:g}</text>'
        for tick in y_ticks
    ]
    parts += [
        f'<text class=soft x="{across(tick):.1f}" y="{bottom + 16}" text-anchor=middle>{tick:g}</text>'
        for tick in x_ticks
    ]
    parts.append(f'<line class=axis x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{bottom}" y2="{bottom}"/>')

    for number, (x_values, line) in enumerate(zip(x, lines, strict=True)):
        points = [(across(a), up(b)) for a, b in zip(x_values, line.values, strict=True)]
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
        parts.append(f'<polyline class="line c{number % N_COLOURS}"{DASHES[number % N_COLOURS]} points="{path}"/>')
        for (a, b), x_value, value in zip(points, x_values, line.values, strict=True):
            spoken = escape(f"{line.name}: {y_label} {value:.3f} at {x_label} {x_value:.3g}")
            parts.append(
                f'<circle class="dot c{number % N_COLOURS}" cx="{a:.1f}" cy="{b:.1f}" r="3">'
                f"<title>{spoken}</title></circle>"
            )

    parts.append(
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{height - 6}" text-anchor=middle>{escape(x_label)}</text>'
        f'<text x="12" y="{(top + bottom) / 2:.0f}" text-anchor=middle '
        f'transform="rotate(-90 12 {(top + bottom) / 2:.0f})">{escape(y_label)}</text>'
    )
    return _svg(title, height, parts)


def bar_chart(title: str, caption: str, labels: Sequence[tuple[str, str]], bars: Sequence[Series]) -> str:
    """Draw a group of lying bars for each label, one bar a series; a full bar is 1.

    The title is for those who do not see the chart; `caption`, above the bars, says what they are. A label is a group's
    name and a note after it. A series has a value for each label, from 0 to 1; NaN draws none.
    """
    legend, legend_height = _legend(bars, dashed=False)
    top = legend_height + HEADING
    group = BAR * len(bars) + BETWEEN_GROUPS
    full = WIDTH - LABELS_WIDTH - VALUES_WIDTH
    heading = f'<text x="{LABELS_WIDTH}" y="{top - 7}">{escape(caption)}</text>'
    parts = [legend, heading]

    for row, (label, note) in enumerate(labels):
        y = top + row * group
        middle = y + BAR * len(bars) / 2 + 4
        parts.append(
            f'<text x="{LABELS_WIDTH - 8}" y="{middle:.1f}" text-anchor=end><title>{escape(label)}</title>'
            f"{escape(_short(label, LONGEST_LABEL - len(note)))} <tspan class=soft>{escape(note)}</tspan></text>"
        )
        for number, series in enumerate(bars):
            value = series.values[row]
            if math.isnan(value):
                continue
            spoken = escape(f"{label}, {series.name}: {value:.3f}")
            length, bar_top = max(1.0, full * value), y + BAR * number
            parts.append(
                f'<rect class="bar c{number % N_COLOURS}" x="{LABELS_WIDTH}" y="{bar_top}" width="{length:.1f}" '
                f'height="{BAR - 2}"><title>{spoken}</title></rect>'
                f'<text class=soft x="{LABELS_WIDTH + length + 5:.1f}" y="{bar_top + BAR - 2}">{value:.2f}</text>'
            )

    return _svg(title, top + len(labels) * group, parts)


def _svg(title: str, height: float, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role=img aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>{''.join(parts)}</svg>"
    )


def _legend(series: Sequence[Series], *, dashed: bool) -> tuple[str, int]:
    """Name the lines or bars, one a row, where there are several; return the drawing and its height."""
    if len(series) < 2:
        return "", 0
    rows = []
    for number, one in enumerate(series):
        y, colour = LEGEND_ROW * number + 9, number % N_COLOURS
        sign = (
            f'<line class="line c{colour}"{DASHES[colour]} x1="{LEFT}" x2="{LEFT + 30}" y1="{y}" y2="{y}"/>'
            if dashed
            else f'<rect class="bar c{colour}" x="{LEFT}" y="{y - 5}" width="30" height="{BAR - 2}"/>'
        )
        rows.append(f'{sign}<text x="{LEFT + 38}" y="{y + 4}">{escape(_short(one.name, LONGEST_NAME))}</text>')
    return "".join(rows), LEGEND_ROW * len(series)


def _short(text: str, longest: int) -> str:
    """Cut a text in its middle, so that names which differ at their ends stay apart."""
    if len(text) <= longest:
        return text
    n_letters = max(1, (longest - 1) // 2)
    return f"{text[:n_letters]}…{text[-n_letters:]}"


def _ticks(most: float) -> list[float]:
    """Return about five round numbers from 0 to the first that is not below `most`."""
    if not most > 0:
        return [0.0, 1.0]
    rough = most / N_TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    return [step * number for number in range(math.ceil(most / step - 1e-9) + 1)]
