"""Figure 3 of the sampled tagging paper: the best images of a search with people's tags, and tags of each method."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from visterm.data import read_image
from visterm_research.comparison.figures import figure_class, framed, save
from visterm_research.ugc.measures import BY_TAG
from visterm_research.ugc.methods import LABELS, PROPOSED
from visterm_research.ugc.problems import OUTSIDE_SEARCHED, TagProblem
from visterm_research.ugc.tag_run import TagRun

SIDE = 200
"""Longer side of a picture in the figures, in pixels."""

NO_TAGS = "words that are no tags"

LINE = 24
"""Letters of a line of tags beside a picture."""


def pictures_part(run: TagRun) -> None:
    """Draw the searches of the proposed method, and test images with the tags that every method gives."""
    if not run.problem.rows.test_images:
        return
    document, folder = run.comparison.document, run.comparison.out
    judged = run.judged.get((PROPOSED, BY_TAG))
    if judged is not None and judged.values["found"].size:
        name = f"figures/figure-3-{run.name}-searches.png"
        terms = _terms(run.problem)
        draw_searches(run.problem, terms, judged.values["found"], folder / name)
        outside = [term for term, tag in terms if tag is None]
        words = f"; no image has {', '.join(map(repr, outside))} as a tag" if outside else ""
        document.picture(
            name,
            f"Figure 3 on {run.name}: the best test images of searches by the proposed method, with the tags that "
            f"people gave (green frames: the searched tag is among them{words}).",
        )
    wanted = [label for label in LABELS if run.has(label, BY_TAG)]
    if wanted:
        name = f"figures/figure-3-{run.name}-tags.png"
        draw_tags(run, wanted, folder / name)
        document.picture(
            name,
            f"Test images of {run.name} with the tags that people gave, and the five of each method (✓: given by "
            "people, too).",
        )


def draw_searches(problem: TagProblem, terms: Sequence[tuple[str, int | None]], found: Any, path: Path) -> None:
    """Draw a column for each search: images from the best down, with people's tags beneath.

    Parameters
    ----------
    terms : sequence of (str, int or None)
        What is searched for, and the tag that it is.
    found : ndarray of int64, shape (n_terms, n_shown)
        Rows of test images.
    """
    n_rows = found.shape[1]
    figure = figure_class()(figsize=(2.1 * len(terms), 2.2 * n_rows + 0.4), dpi=90, layout="constrained")
    for column, ((term, tag), images) in enumerate(zip(terms, found.tolist(), strict=True)):
        for place, row in enumerate(images):
            axes = figure.add_subplot(n_rows, len(terms), place * len(terms) + column + 1)
            given = tags_of(problem, row)
            right = tag is not None and problem.rows.tags[tag] in given
            framed(axes, problem.rows.test_images[row], right=right, side=SIDE)
            axes.set_xlabel(textwrap.fill(", ".join(given), LINE + 4), fontsize=7)
            if place == 0:
                axes.set_title(term if tag is not None else f"{term}\n(no tag)", fontsize=10)
    save(figure, path)


def draw_tags(run: TagRun, labels: Sequence[str], path: Path) -> None:
    """Draw a row for each of a few test images: the image, then what people and each method gave it."""
    problem = run.problem
    outside = run.judged.get((PROPOSED, BY_TAG)) if problem.words.outside else None
    columns = ["people", *labels, *([] if outside is None else [NO_TAGS])]
    n_rows = len(problem.shown)
    figure = figure_class()(figsize=(2.0 + 1.35 * len(columns), 1.55 * n_rows + 0.4), dpi=90)
    grid = figure.add_gridspec(
        n_rows, 1 + len(columns), width_ratios=[1.5, *[1.0] * len(columns)], left=0.01, right=0.995, top=0.95,
        bottom=0.01, wspace=0.06, hspace=0.08,
    )  # fmt: skip
    for number, row in enumerate(problem.shown):
        axes = figure.add_subplot(grid[number, 0])
        axes.imshow(read_image(problem.rows.test_images[row], max_side=SIDE))
        axes.set_axis_off()
        given = tags_of(problem, row)
        for place, label in enumerate(columns):
            text = figure.add_subplot(grid[number, place + 1])
            text.set_axis_off()
            if number == 0:
                text.set_title(textwrap.fill(label, 14), fontsize=8, loc="left")
            if place == 0:
                lines = given
            elif label == NO_TAGS and outside is not None:
                lines = [problem.words.outside[word] for word in outside.values["outside"][number]]
            else:
                names = [problem.rows.tags[tag] for tag in run.judged[label, BY_TAG].values["ids"][row]]
                lines = [f"{name} ✓" if name in given else name for name in names]
            text.text(0, 0.95, "\n".join(lines[:8]), fontsize=7, va="top", transform=text.transAxes)
    save(figure, path)


def tags_of(problem: TagProblem, row: int) -> list[str]:
    """Return the tags that people gave a test image, of those that are learned."""
    Y = problem.rows.test.Y
    part = slice(Y.indptr[row], Y.indptr[row + 1])
    return [problem.rows.tags[tag] for tag, value in zip(Y.indices[part], Y.data[part], strict=True) if value > 0]


def _terms(problem: TagProblem) -> list[tuple[str, int | None]]:
    tags: list[tuple[str, int | None]] = [(problem.rows.tags[tag], tag) for tag in problem.searched_tags]
    return tags + [(word, None) for word in problem.words.outside[:OUTSIDE_SEARCHED]]
