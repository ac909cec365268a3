"""Wanted beside achieved precision, for all tags and for rare and frequent ones: as JSON, and on the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visterm.evaluation.evaluate import AnnotationEvaluation, Ranker
from visterm.evaluation.html_report import Cell, Report
from visterm.metrics.bands import frequency_bands
from visterm.metrics.significance import share_of_right
from visterm.tagging.cutoffs import cutoff_of

ALL = "all"

LEAD = (
    "Every image was given the tags above a cut-off chosen for a wanted precision of {wanted:.0%}, by images that the "
    "run held out (visterm annotate --precision {wanted:g}). Below each share of right tags the interval in which it "
    "lies at 95 %."
)


def precision_summary(found: AnnotationEvaluation, names: Sequence[str], wanted: float) -> dict[str, Any]:
    """Return each run's tags for a wanted precision, and measure how many of them are right.

    Returns
    -------
    dict
        ``wanted``, and for each run ``bands``: all tags, then the bands by training images of the first run, the rarest
        first. Of each its name, how many tags are in it, ``given`` and ``right`` over all images, ``precision`` (mean,
        low, high; None where none was given), ``reached`` (whether the wanted precision is not above the interval;
        None likewise), ``recall`` (None where people gave none) and ``tags_an_image``.

    Raises
    ------
    UserError
        If a run does not know what a cut-off takes, or `wanted` is no share.
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
    report.section("Wanted and achieved precision", LEAD.format(wanted=found["wanted"]))
    for run in found["runs"]:
        rows = [[Cell(text, note) for text, note in precision_cells(row, found["wanted"])] for row in run["bands"]]
        report.cells(HEADER, rows, run["run"] if len(found["runs"]) > 1 else "")


HEADER = ("training images of a tag", "wanted", "achieved", "right of given", "tags an image", "recall")


def precision_cells(row: dict[str, Any], wanted: float) -> list[tuple[str, str]]:
    """Write the figures of a band, each with what stands below it; a dash where there is none."""
    share, recall = row["precision"], row["recall"]
    interval = "" if share is None else f"{share['low']:.3f} to {share['high']:.3f}"
    return [
        (row["band"], ""),
        (f"{wanted:.3f}", ""),
        ("-" if share is None else f"{share['mean']:.3f}", interval),
        (f"{row['right']:,} of {row['given']:,}", ""),
        (f"{row['tags_an_image']:.2f}", ""),
        ("-" if recall is None else f"{recall:.3f}", ""),
    ]


def _counts(
    found: AnnotationEvaluation, ranker: Ranker, wanted: float, bands: Sequence[NDArray[np.int64]]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count the tags of each band that each image is given, and the right ones, shape (n_bands, n_images)."""
    calibration: Any = ranker.tagger.calibration
    cutoff: Any = cutoff_of(calibration, precision=wanted)  # without a calibration it is refused
    least = cutoff.least if ranker.columns is None else cutoff.least[ranker.columns]
    given, right = np.zeros((2, len(bands), len(found.corpus)), np.int64)
    for rows, scores in ranker.blocks():
        above = calibration.confidences(scores, ranker.columns) >= least
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
