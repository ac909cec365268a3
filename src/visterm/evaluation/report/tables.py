"""Tables of a report: rare and frequent tags apart, requested beside achieved precision, runs against runs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visterm.evaluation.evaluate import AnnotationEvaluation, Ranker, is_mean
from visterm.evaluation.html_report import Cell, Report
from visterm.metrics.bands import band_values, frequency_bands
from visterm.metrics.comparison import interval_of
from visterm.metrics.significance import share_of_right
from visterm.tagging.annotating import cutoff_of

BAND_K = 5
BAND_METRICS = (f"tag_p@{BAND_K}", f"tag_r@{BAND_K}", f"tag_f1@{BAND_K}", f"n_plus@{BAND_K}", "word_map")
"""Measures of a band; of these, the first two must be measured, and the last may be."""

BANDS_LEAD = (
    "Tags in bands by how many training images they have. Every image was given its five best of all tags; the means "
    "are over the tags of the band that a measured image has."
)

ALL = "all"

PRECISION_LEAD = (
    "Every image was given the tags above a cut-off chosen for a precision of {wanted:.0%}, by images that the "
    "run held out (visterm annotate --precision {wanted:g}). Below each share of right tags the interval in which it "
    "lies at 95 %."
)

HEADER = ("training photos of a tag", "requested", "achieved", "right", "tags per photo", "recall")

SAY = {1: "better", -1: "worse", 0: "no sure difference"}
MARKS = {1: "good", -1: "poor", 0: ""}


def band_summary(found: AnnotationEvaluation, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the measures of each band of tags, for each run.

    ``tag_p@5`` and ``tag_r@5`` are measured, and ``word_map`` if that is to be shown. Of each band, the rarest first:
    its name; the least and the most training images of a tag (None: no end), which are those of the first run; how many
    tags it has, how many of them a measured image has, and how many images have one; and for each run its metrics,
    means with 95 % bootstrap intervals over the tags.
    """
    bands = []
    for band in frequency_bands(found.vocabulary.counts):
        relevant = found.Y[:, band.tags] > 0
        runs = [band_values(values, band, BAND_K) for values in found.values]
        bands.append(
            {
                "band": band.name,
                "least": band.least,
                "most": None if band.most < 0 else band.most,
                "tags": int(band.tags.size),
                "measured_tags": int(np.count_nonzero(relevant.sum(axis=0))),
                "images": int(np.count_nonzero(relevant.sum(axis=1))),
                "runs": [
                    {
                        "run": name,
                        "metrics": {
                            metric: interval_of(array)._asdict() if is_mean(metric) else {"mean": float(array[0])}
                            for metric, array in values.items()
                        },
                    }
                    for name, values in zip(names, runs, strict=True)
                ],
            }
        )
    return bands


def band_metrics(bands: Sequence[dict[str, Any]]) -> list[str]:
    """Return the metrics that some band has, in the order in which they are shown."""
    there = {metric for band in bands for run in band["runs"] for metric in run["metrics"]}
    return [metric for metric in BAND_METRICS if metric in there]


def band_figure(figures: dict[str, Any], metric: str) -> str:
    """Write a figure of a band: a dash where no measured image has a tag of it, and N+ as a whole number."""
    if metric not in figures:
        return "-"
    return f"{figures[metric]['mean']:.3f}" if not metric.startswith("n_plus") else f"{figures[metric]['mean']:.0f}"


def between(figure: dict[str, Any] | None) -> str:
    """Write the interval of a figure; nothing where it has none."""
    return f"{figure['low']:.3f} to {figure['high']:.3f}" if figure is not None and "low" in figure else ""


def add_bands(report: Report, names: Sequence[str], bands: Sequence[dict[str, Any]]) -> None:
    """Add a table for each run, with a row for each of the bands of `band_summary`."""
    report.section("Rare and frequent tags", BANDS_LEAD)
    metrics = band_metrics(bands)
    for number, name in enumerate(names):
        rows = []
        for band in bands:
            figures = band["runs"][number]["metrics"]
            cells = [Cell(band_figure(figures, metric), between(figures.get(metric))) for metric in metrics]
            counts = [Cell(f"{band['tags']:,}", f"{band['measured_tags']:,} measured"), Cell(f"{band['images']:,}")]
            rows.append([Cell(band["band"]), *counts, *cells])
        caption = name if len(names) > 1 else ""
        report.cells(["training photos of a tag", "tags", "photos", *metrics], rows, caption)


def precision_summary(found: AnnotationEvaluation, names: Sequence[str], wanted: float) -> dict[str, Any]:
    """Return each run's tags for a requested precision, and measure how many of them are right.

    ``wanted``, and for each run ``bands``: all tags, then the bands by training images of the first run, the rarest
    first. Of each its name, how many tags are in it, ``given`` and ``right`` over all images, ``precision`` (mean, low,
    high; None where none was given), ``reached`` (whether the requested precision is not above the interval; None
    likewise), ``recall`` (None where people gave none) and ``tags_an_image``. Raises UserError if a run does not know
    what a cut-off takes, or `wanted` is no share.
    """
    every = np.arange(len(found.vocabulary))
    bands = [(ALL, every), *((band.name, band.tags) for band in frequency_bands(found.vocabulary.counts))]
    runs = []
    for name, ranker in zip(names, found.rankers, strict=True):
        given, right = _counts(found, ranker, wanted, [tags for _, tags in bands])
        rows = [_figures(found, *band, given[n], right[n], wanted) for n, band in enumerate(bands)]
        runs.append({"run": name, "bands": rows})
    return {"wanted": wanted, "runs": runs}


def add_precision(report: Report, found: dict[str, Any]) -> None:
    """Add a table for each run of what `precision_summary` gave."""
    report.section("Requested and achieved precision", PRECISION_LEAD.format(wanted=found["wanted"]))
    for run in found["runs"]:
        rows = [[Cell(text, note) for text, note in precision_cells(row, found["wanted"])] for row in run["bands"]]
        report.cells(HEADER, rows, run["run"] if len(found["runs"]) > 1 else "")


def precision_cells(row: dict[str, Any], wanted: float) -> list[tuple[str, str]]:
    """Write the figures of a band, each with what stands below it; a dash where there is none."""
    share, recall = row["precision"], row["recall"]
    return [
        (row["band"], ""),
        (f"{wanted:.3f}", ""),
        ("-" if share is None else f"{share['mean']:.3f}", between(share)),
        (f"{row['right']:,} of {row['given']:,}", ""),
        (f"{row['tags_an_image']:.2f}", ""),
        ("-" if recall is None else f"{recall:.3f}", ""),
    ]


def add_differences(report: Report, results: dict[str, Any], measures: Sequence[str], what: str) -> None:
    """Add a section with a table of all runs for each measure, if there are several runs.

    `results` have the ``runs`` and ``pairs`` of `visterm.evaluation.report.results`; `what` is what the runs were
    compared on: "images".
    """
    names = [run["run"] for run in results["runs"]]
    if len(names) < 2:
        return
    n_pairs = len(names) * (len(names) - 1) // 2
    corrected = f", p-values corrected for the {n_pairs} pairs (Holm)" if n_pairs > 1 else ""
    report.section(
        "Which differs significantly from which",
        f"Each row against each column: mean difference, and whether it is sure at 95 % by Wilcoxon's signed ranks of "
        f"the differences over {what}{corrected}.",
    )
    pairs = dict(zip(combinations(range(len(names)), 2), results["pairs"], strict=True))
    for measure in measures:
        rows = [
            [Cell(name), *(_cell(pairs, measure, row, column) for column in range(len(names)))]
            for row, name in enumerate(names)
        ]
        report.cells(["", *names], rows, caption=measure)


def _counts(
    found: AnnotationEvaluation, ranker: Ranker, wanted: float, bands: Sequence[NDArray[np.int64]]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count the tags of each band that each image is given, and the right ones, shape (n_bands, n_images)."""
    cutoff: Any = cutoff_of(ranker.tagger.calibration, precision=wanted)  # without a calibration it is refused
    given, right = np.zeros((2, len(bands), len(found.corpus)), np.int64)
    columns = slice(None) if ranker.columns is None else ranker.columns
    for rows, scores in ranker.tagger.model.score_blocks(ranker.X):
        above = (ranker.tagger.confidences(scores) >= cutoff.least)[:, columns]
        if found.hidden is not None:
            above &= found.hidden[rows].toarray() == 0
        hits = above & (found.Y[rows].toarray() > 0)
        for number, tags in enumerate(bands):
            given[number, rows], right[number, rows] = above[:, tags].sum(axis=1), hits[:, tags].sum(axis=1)
    return given, right


def _figures(
    found: AnnotationEvaluation,
    name: str,
    tags: NDArray[np.int64],
    given: NDArray[np.int64],
    right: NDArray[np.int64],
    wanted: float,
) -> dict[str, Any]:
    share = share_of_right(right, given)
    relevant = int((found.Y[:, tags].data > 0).sum())
    return {
        "band": name,
        "tags": int(tags.size),
        "given": int(given.sum()),
        "right": int(right.sum()),
        "precision": None if share is None else share._asdict(),
        "reached": None if share is None else share.high >= wanted,
        "recall": int(right.sum()) / relevant if relevant else None,
        "tags_an_image": float(given.mean()),
    }


def _cell(pairs: dict[tuple[int, int], dict[str, Any]], measure: str, row: int, column: int) -> Cell:
    if row == column:
        return Cell("")
    sign = 1 if row < column else -1
    found = pairs[min(row, column), max(row, column)][measure]
    better = sign * found["better"]
    return Cell(f"{sign * found['mean']:+.3f}", f"{SAY[better]}, p = {found['holm_p']:.2g}", MARKS[better])
