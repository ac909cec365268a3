"""The page of queries: measures by kind with intervals, curves, runs against runs, best and worst ones in pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visterm.core.wording import count_of
from visterm.evaluation.html_report import SMALL_THUMBNAIL, Cell, Report, Shown
from visterm.evaluation.query_evaluation import CURVE_RANKS, RECALLS, QueryEvaluation
from visterm.evaluation.report.charts import Series, line_chart
from visterm.evaluation.report.tables import add_differences, between
from visterm.metrics.queries import EASY_FROM

N_ROWS = 20
"""Rows of pictures, half of them for the best queries: each query has one of each run. Keeps the page below 3 MB."""

N_FOUND = 5
MOST_RUNS = 4  # Runs whose pictures are shown; the figures are of all
KINDS = (
    f"Easy queries have {EASY_FROM} or more relevant images, difficult ones fewer. Seen ones have a relevant image "
    "among those learned from, test-only ones have none."
)


def query_page(found: QueryEvaluation, names: Sequence[str], results: dict[str, Any]) -> Report:
    """Make the page of some runs, by their names; `results` are those of `query_results`."""
    report = Report(
        f"How well {' and '.join(names) if len(names) < 3 else f'{len(names)} runs'} find images by words",
        f"Measured by {len(found.texts):,} {'query' if len(found.texts) == 1 else 'queries'} on "
        f"{count_of(len(found.corpus), 'image')}.",
        thumbnail=SMALL_THUMBNAIL,
    )
    report.section(
        "Measures by kind of query",
        "AvgP: average precision. BEP: precision among as many images as are relevant (break-even point). P10: "
        "precision among the first ten. nDCG10, where some images are more relevant than others: the discounted gain "
        "of the first ten as a share of the largest possible. Below each, the interval in which it lies at 95 % when "
        "queries are drawn anew. " + KINDS,
    )
    _add_measures(report, results, list(found.values[0]))
    _add_curves(report, found, names)
    add_differences(report, results, list(found.values[0]), "queries")
    _add_queries(report, found, names)
    return report


def _add_measures(report: Report, results: dict[str, Any], measures: Sequence[str]) -> None:
    """Add one table of kinds by measures for a run alone, and one of kinds by runs a measure for several."""
    runs = results["runs"]
    kinds = runs[0]["kinds"]
    if len(runs) == 1:
        rows = [
            [Cell(kind), Cell(f"{found['queries']:,}"), *(_figure(found[measure]) for measure in measures)]
            for kind, found in kinds.items()
        ]
        report.cells(["queries", "number", *measures], rows)
        return
    for measure in measures:
        rows = []
        for kind in kinds:
            figures = [run["kinds"][kind][measure] for run in runs]
            most = max(figure["mean"] for figure in figures)
            cells = [_figure(figure, "best" if figure["mean"] == most else "") for figure in figures]
            rows.append([Cell(kind), Cell(f"{kinds[kind]['queries']:,}"), *cells])
        report.cells(["queries", "number", *(run["run"] for run in runs)], rows, caption=measure)


def _figure(figure: dict[str, float], mark: str = "") -> Cell:
    return Cell(f"{figure['mean']:.3f}", between(figure), mark)


def _add_curves(report: Report, found: QueryEvaluation, names: Sequence[str]) -> None:
    report.section(
        "Precision curves",
        "Averaged over all queries. By recall, precision is interpolated: the best that comes with as much or more.",
    )
    by_recall = [Series(name, curves.at_recall.tolist()) for name, curves in zip(names, found.curves, strict=True)]
    by_rank = [Series(name, curves.at_rank.tolist()) for name, curves in zip(names, found.curves, strict=True)]
    ranks = range(1, CURVE_RANKS + 1)
    report.columns(
        [
            (
                line_chart("Precision by recall", "recall", "precision", [RECALLS] * len(names), by_recall),
                ["recall", *names],
                _numbers([f"{recall:g}" for recall in RECALLS], by_recall),
            ),
            (
                line_chart(
                    "Precision by rank", "images looked at", "precision", [list(ranks)] * len(names), by_rank
                ),
                ["images", *names],
                _numbers([str(rank) for rank in ranks], by_rank),
            ),
        ]
    )  # fmt: skip


def _numbers(places: Sequence[str], lines: Sequence[Series]) -> list[list[Cell]]:
    return [[Cell(place), *(Cell(f"{line.values[row]:.3f}") for line in lines)] for row, place in enumerate(places)]


def _add_queries(report: Report, found: QueryEvaluation, names: Sequence[str]) -> None:
    shown = names[:MOST_RUNS]
    best, worst = best_and_worst(found.values[0]["AvgP"], found.n_relevant, N_ROWS // (2 * len(shown)))
    of = f" of {names[0]}" if len(names) > 1 else ""
    report.section(
        f"The best queries{of}, and the worst",
        f"By average precision; of equals, those with more relevant images. Below each, the first {N_FOUND} images, "
        "best first; outlined and ticked are the relevant ones.",
    )
    report.note_on_pictures(found.corpus)
    for heading, chosen in (("Best", best), ("Worst", worst)):
        if not chosen:
            continue
        report.subsection(heading)
        rankings = [found.best_images(chosen, N_FOUND, number) for number in range(len(shown))]
        for place, query in enumerate(chosen):
            note = f"{count_of(int(found.n_relevant[query]), 'relevant image')}, average precision "
            note += " · ".join(f"{values['AvgP'][query]:.2f}" for values in found.values[: len(shown)])
            report.query(found.texts[query], note, level=4)
            relevant = set(found.relevant.indices[slice(*found.relevant.indptr[query : query + 2])].tolist())
            for number, name in enumerate(shown):
                images = [
                    Shown(found.corpus.images[image], image in relevant, found.corpus.names[image])
                    for image in rankings[number][place].ids.tolist()
                ]
                report.found(name if len(names) > 1 else "", images)


def best_and_worst(
    values: NDArray[np.float64], n_relevant: NDArray[np.int64], most: int
) -> tuple[list[int], list[int]]:
    """Return the numbers of the best queries and of the worst, none of them in both.

    Of equal values those with more relevant images come first in both lists: they say more.
    """
    defined = np.flatnonzero(~np.isnan(values))
    down = defined[np.lexsort((defined, -n_relevant[defined], -values[defined]))]
    up = defined[np.lexsort((defined, -n_relevant[defined], values[defined]))]
    best = down[: min(most, (defined.size + 1) // 2)].tolist()
    return best, [query for query in up.tolist() if query not in best][:most]
