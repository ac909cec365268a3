"""Measures of rare and of frequent tags, apart: as JSON, and as a section of the page of annotation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from visterm.evaluation.evaluate import AnnotationEvaluation, is_mean
from visterm.evaluation.html_report import Cell, Report
from visterm.metrics.bands import band_values, frequency_bands
from visterm.metrics.comparison import interval_of

BAND_K = 5
BAND_METRICS = (f"tag_p@{BAND_K}", f"tag_r@{BAND_K}", f"tag_f1@{BAND_K}", f"n_plus@{BAND_K}", "word_map")
"""What is told of a band; of these, the first two must be measured, and the last may be."""

LEAD = (
    "Tags in bands by how many training images they have. Every image was given its five best of all tags; the means "
    "are over the tags of the band that a measured image has."
)


def band_summary(found: AnnotationEvaluation, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the measures of each band of tags, for each run.

    Parameters
    ----------
    found : AnnotationEvaluation
        With ``tag_p@5`` and ``tag_r@5`` measured, and ``word_map`` if it is to be told of.
    names : sequence of str
        Of the runs.

    Returns
    -------
    list of dict
        Of each band, the rarest first: its name; the least and the most training images of a tag (None: no end), which
        are those of the first run; how many tags it has, how many of them a measured image has, and how many images
        have one; and for each run its metrics, means with 95 % bootstrap intervals over the tags.
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
    """Return the metrics that some band has, in the order in which they are told."""
    there = {metric for band in bands for run in band["runs"] for metric in run["metrics"]}
    return [metric for metric in BAND_METRICS if metric in there]


def band_figure(figures: dict[str, Any], metric: str) -> str:
    """Write a figure of a band: a dash where no measured image has a tag of it, and N+ as a whole number."""
    if metric not in figures:
        return "-"
    return f"{figures[metric]['mean']:.3f}" if not metric.startswith("n_plus") else f"{figures[metric]['mean']:.0f}"


def add_bands(report: Report, names: Sequence[str], bands: Sequence[dict[str, Any]]) -> None:
    """Add a table for each run, with a row a band.

    Parameters
    ----------
    report : Report
    names : sequence of str
        Of the runs.
    bands : sequence of dict
        As `band_summary` gives them.
    """
    report.section("Rare and frequent tags", LEAD)
    metrics = band_metrics(bands)
    for number, name in enumerate(names):
        rows = []
        for band in bands:
            figures = band["runs"][number]["metrics"]
            cells = [Cell(band_figure(figures, metric), _interval(figures.get(metric, {}))) for metric in metrics]
            counts = [
                Cell(f"{band['tags']:,}", f"{band['measured_tags']:,} measured"),
                Cell(f"{band['images']:,}"),
            ]
            rows.append([Cell(band["band"]), *counts, *cells])
        caption = name if len(names) > 1 else ""
        report.cells(["training images of a tag", "tags", "images", *metrics], rows, caption)


def _interval(figure: dict[str, Any]) -> str:
    return f"{figure['low']:.3f} to {figure['high']:.3f}" if "low" in figure else ""
