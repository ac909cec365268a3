"""How `visterm evaluate` shows what it measured: tables and sentences for people; JSON is what the app gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from visterm.cli.output import show, table

MEASURES = ("AvgP", "BEP", "P10", "nDCG10")  # As far as they were measured: nDCG10 only of graded relevances
BAND_INTERVAL = "tag_r@5"  # The measure whose interval is shown of each band; JSON and the report have all


def show_measured(summary: dict[str, Any], compared: Sequence[str]) -> None:
    """Print the tables of what `evaluate_run` measured; `compared` are the metrics whose comparisons are printed."""
    if "queries" in summary:
        show_queries(summary)
        return
    show_annotation(summary, compared)
    if "bands" in summary:
        show_bands(summary["bands"])
    if "wanted_precision" in summary:
        show_precision(summary["wanted_precision"])


def show_annotation(results: dict[str, Any], compared: Sequence[str]) -> None:
    """Print a table of metrics with a column a run, and what comparing every two runs says of some of them.

    The results are those of `annotation_summary`; `compared` are the metrics whose comparisons are printed.
    """
    runs = results["runs"]
    rows = []
    for metric, first in runs[0]["metrics"].items():
        means = [f"{run['metrics'][metric]['mean']:.4f}" for run in runs]
        interval = [f"{first['low']:.4f} to {first['high']:.4f}" if "low" in first else ""] if len(runs) == 1 else []
        rows.append([metric, *means, *interval])
    header = ["value", "95 % interval"] if len(runs) == 1 else [run["run"] for run in runs]
    table(rows, ["metric", *header])
    _show_pairs(results["pairs"], compared)


def show_bands(bands: Sequence[dict[str, Any]]) -> None:
    """Print a table for each run, with a row for each band of tags, as `band_summary` returns them."""
    from visterm.evaluation.summaries import band_figure, band_metrics

    metrics = band_metrics(bands)
    several = len(bands[0]["runs"]) > 1
    for number, run in enumerate(bands[0]["runs"]):
        if several:
            show(f"{run['run']}:")
        rows = []
        for band in bands:
            counts = [f"{band[of]:,}" for of in ("tags", "measured_tags", "images")]
            figures = band["runs"][number]["metrics"]
            first = figures.get(BAND_INTERVAL)
            interval = f"{first['low']:.3f} to {first['high']:.3f}" if first else "-"
            rows.append([band["band"], *counts, *(band_figure(figures, metric) for metric in metrics), interval])
        header = ["training photos", "tags", "tags measured", "photos", *metrics, f"{BAND_INTERVAL}, 95 % interval"]
        table(rows, header)


def show_precision(found: dict[str, Any]) -> None:
    """Print a table for each run of requested and achieved precision, as `precision_summary` gives them."""
    from visterm.evaluation.summaries import PRECISION_HEADER, precision_cells

    for run in found["runs"]:
        if len(found["runs"]) > 1:
            show(f"{run['run']}:")
        rows = []
        for row in run["bands"]:
            cells = precision_cells(row, found["wanted"])
            rows.append([*(text for text, _ in cells), cells[2][1] or "-"])
        table(rows, [*PRECISION_HEADER, "achieved, 95 % interval"])


def show_queries(results: dict[str, Any]) -> None:
    """Print a table of means by kind of query for each run, and what comparing every two runs says.

    The results are those of `query_summary`.
    """
    measures = [
        name for name in MEASURES if all(name in kind for run in results["runs"] for kind in run["kinds"].values())
    ]
    for run in results["runs"]:
        if len(results["runs"]) > 1:
            show(f"{run['run']}:")
        rows = []
        for kind, found in run["kinds"].items():
            means = [f"{found[measure]['mean']:.4f}" for measure in measures]
            interval = f"{found[MEASURES[0]]['low']:.4f} to {found[MEASURES[0]]['high']:.4f}"
            rows.append([kind, f"{found['queries']:,}", *means, interval])
        table(rows, ["queries", "number", *measures, f"{MEASURES[0]}, 95 % interval"])
    _show_pairs(results["pairs"], measures)


def _show_pairs(pairs: Sequence[dict[str, Any]], measures: Sequence[str]) -> None:
    for pair in pairs:
        for measure in measures:
            if measure in pair:
                show(_sentence(pair["first"], pair["second"], measure, pair[measure], len(pairs)))


def _sentence(first: str, second: str, measure: str, found: dict[str, Any], n_pairs: int) -> str:
    verdict = {
        1: f"{first} is better than {second}",
        -1: f"{second} is better than {first}",
        0: f"{first} and {second} do not differ significantly",
    }[found["better"]]
    corrected = f", corrected for {n_pairs} pairs" if n_pairs > 1 else ""
    mean, low, high = found["mean"], found["low"], found["high"]
    if found["better"] < 0:  # the difference is of the run named first
        mean, low, high = -mean, -high, -low
    return (
        f"{measure}: {verdict} (Wilcoxon p = {found['holm_p']:.2g}{corrected}; difference {mean:+.4f}, 95 % "
        f"{low:+.4f} to {high:+.4f})."
    )
