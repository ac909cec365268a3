"""Figure 4 of the objects-and-parts paper: the best images for a label and, below a line, for its parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from visterm_research.comparison.figures import figure_class, framed, save
from visterm_research.comparison.trials import Judged
from visterm_research.parts.methods import UNSHARED_IW
from visterm_research.parts.parts_run import PartsRun
from visterm_research.parts.problem import SHOWN_IMAGES

PICTURE_SIDE = 160
"""Longer side of a picture in the figure, in pixels."""


def pictures_part(run: PartsRun) -> None:
    """Draw a sheet for each shown whole, by the unshared model as in the paper."""
    judged = run.judged.get(UNSHARED_IW.label)
    if judged is None:
        return
    document, tags = run.comparison.document, run.problem.data.tags
    for tag in run.problem.shown_wholes:
        name = f"figures/figure-4-{run.name}-{tags[tag].replace(' ', '-')}.png"
        draw_sheet(run, judged, tag, run.comparison.out / name)
        parts = ", ".join(judged.record["parts"][tags[tag]])
        document.picture(
            name,
            f"Figure 4 on {run.name}: the best test images for '{tags[tag]}' by f_I; below the line those of its parts "
            f"by f_L: {parts} ({UNSHARED_IW.label}; green frames: the image has the tag of the row; in brackets beside "
            "a part: whether that relation was learned, was left out, or doesn't exist).",
        )


def draw_sheet(run: PartsRun, judged: Judged, tag: int, path: Path) -> None:
    """Draw a label and its parts, one row each."""
    data = run.problem.data
    whole = data.tags[tag]
    rows = [whole, *judged.record["parts"][whole]]
    figure = figure_class()(figsize=(1.25 * SHOWN_IMAGES + 1.6, 1.3 * len(rows) + 0.2), dpi=100)
    grid = figure.add_gridspec(
        len(rows), SHOWN_IMAGES, left=0.2, right=0.99, top=0.97, bottom=0.03, hspace=0.22, wspace=0.08
    )
    has_tag = (data.test.Y > 0).tocsc()
    for number, label in enumerate(rows):
        column = data.tags.index(label)
        tagged_rows = set(has_tag.indices[slice(*has_tag.indptr[column : column + 2])].tolist())
        for position, row in enumerate(judged.record["images"][label]):
            axes = figure.add_subplot(grid[number, position])
            framed(axes, data.images[row], right=row in tagged_rows, side=PICTURE_SIDE)
            if position == 0:
                kind = "" if label == whole else f"\n({_kind(run, column, tag)})"
                axes.set_ylabel(f"{label}{kind}", rotation=0, ha="right", va="center", fontsize=9, labelpad=6)
    if len(rows) > 1:
        boxes = [grid[number, 0].get_position(figure) for number in (0, 1)]
        line_y = (boxes[0].y0 + boxes[1].y1) / 2
        line: Any = figure.add_artist(_line([0.01, 0.99], [line_y, line_y]))
        line.set_linestyle("--")
    save(figure, path)


def _line(x: list[float], y: list[float]) -> Any:
    from matplotlib.lines import Line2D

    return Line2D(x, y, color="black", linewidth=1)


def _kind(run: PartsRun, part: int, whole: int) -> str:
    relations = run.problem.relations
    for pairs, name in ((relations.kept, "learned"), (relations.left_out, "left out")):
        if ((pairs[:, 0] == part) & (pairs[:, 1] == whole)).any():
            return name
    return "no relation"
