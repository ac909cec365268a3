"""`visterm evaluate`: measure a run on photos whose tags are known."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from visterm.cli import options
from visterm.cli.command_line import imported_when_used
from visterm.cli.output import Bars, JsonObject, emit, say, say_skipped, show, table

with imported_when_used():
    from visterm.evaluation import evaluate_run, summaries
    from visterm.learning import fit_input

EXAMPLES = (
    ("visterm evaluate run photos --tags tags.csv", "measure on the test split"),
    ("visterm evaluate run photos --tags tags.csv --metric p@1 --metric map --json", "choose the metrics"),
    ("visterm evaluate run photos --tags tags.csv --against other_run --report report", "compare runs"),
    ("visterm evaluate run photos --tags tags.csv --queries tags", "measure searches"),
    ("visterm evaluate run other_photos --tags other.csv --map words.csv", "on a library with other tags"),
)
measure_option = partial(typer.Option, rich_help_panel="Measures", show_default=False)
MEASURES = ("AvgP", "BEP", "P10", "nDCG10")  # nDCG10 is only measured for graded relevance
BAND_INTERVAL = "tag_r@5"  # The only measure of bands that is printed with an interval; JSON and the report have all


def evaluate(
    run: options.Run,
    images: options.ImagesOrFeatureFolders = None,
    tags: options.TagFile = "auto",
    tag_rules: options.TagRulesFile = None,
    map_: Annotated[
        str | None,
        options.input_option(
            "--map", help="For photos of another library: a CSV of their_tag,run_tag; or 'names'.", metavar="FILE"
        ),
    ] = None,
    metrics: Annotated[
        list[str] | None,
        measure_option(
            "--metric",
            metavar="NAME",
            help="A name from `visterm metrics`, such as p@5. Repeat for more.",
            autocompletion=options.metric_names,
        ),
    ] = None,
    precision: Annotated[
        float | None,
        options.precision_option(
            help="Also measure the tags that `visterm annotate --precision` gives.", rich_help_panel="Measures"
        ),
    ] = None,
    queries: Annotated[
        str | None,
        measure_option(
            help="Measure searches instead: 'tags' makes queries from tags, or a file with the columns query, "
            "image and relevance."
        ),
    ] = None,
    against: Annotated[list[Path] | None, measure_option(help="Another run to compare with. Repeat for more.")] = None,
    report: Annotated[
        Path | None,
        options.output_option(
            help="Write a page of tables, curves and pictures, and results.json, here.", metavar="FOLDER"
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Measure how well a run tags photos, or compare runs.

    Use tagged photos that the run has not learned from. Runs are compared on the photos that all can read and the
    tags that all know.
    """
    request = evaluate_run.EvaluateRequest(
        runs=[run, *(against or [])], images=fit_input.single_or_features(images), tags=tags, tag_rules=tag_rules,
        map=map_, metrics=metrics, bands=report is not None and queries is None, precision=precision,
        queries=queries, report=report, intervals=not json,
    )  # fmt: skip
    evaluation = evaluate_run.evaluate_run(request, say=say, progress=Bars())
    if json:
        emit(evaluation.values if evaluation.summary is None or not against else evaluation.summary)
    elif evaluation.summary is not None and "queries" in evaluation.summary:
        show_queries(evaluation.summary)
    elif evaluation.summary is not None:
        show_annotation(evaluation.summary, metrics or ["map"])
        if "bands" in evaluation.summary:
            show_bands(evaluation.summary["bands"])
        if "wanted_precision" in evaluation.summary:
            show_precision(evaluation.summary["wanted_precision"])

    raise typer.Exit(say_skipped(evaluation.skipped))


def show_annotation(results: JsonObject, compared: Sequence[str]) -> None:
    """Print a table of metrics with one column per run, and the comparisons of each pair of runs.

    `results` come from `annotation_summary`; only comparisons of the metrics in `compared` are printed.
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


def show_bands(bands: Sequence[JsonObject]) -> None:
    """Print a table per run with one row per band of tags; `bands` come from `band_summary`."""
    metrics = summaries.band_metrics(bands)
    has_several_runs = len(bands[0]["runs"]) > 1
    for number, run in enumerate(bands[0]["runs"]):
        if has_several_runs:
            show(f"{run['run']}:")
        rows = []
        for band in bands:
            counts = [f"{band[name]:,}" for name in ("tags", "measured_tags", "images")]
            figures = band["runs"][number]["metrics"]
            first = figures.get(BAND_INTERVAL)
            interval = f"{first['low']:.3f} to {first['high']:.3f}" if first else "-"
            rows.append(
                [band["band"], *counts, *(summaries.band_figure(figures, metric) for metric in metrics), interval]
            )
        header = ["training photos", "tags", "tags measured", "photos", *metrics, f"{BAND_INTERVAL}, 95 % interval"]
        table(rows, header)


def show_precision(results: JsonObject) -> None:
    """Print a table of requested and achieved precision per run; `results` come from `precision_summary`."""
    for run in results["runs"]:
        if len(results["runs"]) > 1:
            show(f"{run['run']}:")
        rows = []
        for row in run["bands"]:
            cells = summaries.precision_cells(row, results["wanted"])
            rows.append([*(text for text, _ in cells), cells[2][1] or "-"])
        table(rows, [*summaries.PRECISION_HEADER, "achieved, 95 % interval"])


def show_queries(results: JsonObject) -> None:
    """Print a table of means by kind of query per run, and the comparisons of each pair of runs.

    `results` come from `query_summary`.
    """
    measures = [
        name for name in MEASURES if all(name in kind for run in results["runs"] for kind in run["kinds"].values())
    ]
    for run in results["runs"]:
        if len(results["runs"]) > 1:
            show(f"{run['run']}:")
        rows = []
        for kind, figures in run["kinds"].items():
            means = [f"{figures[measure]['mean']:.4f}" for measure in measures]
            interval = f"{figures[MEASURES[0]]['low']:.4f} to {figures[MEASURES[0]]['high']:.4f}"
            rows.append([kind, f"{figures['queries']:,}", *means, interval])
        table(rows, ["queries", "number", *measures, f"{MEASURES[0]}, 95 % interval"])
    _show_pairs(results["pairs"], measures)


def _show_pairs(pairs: Sequence[JsonObject], measures: Sequence[str]) -> None:
    correction_note = f", corrected for {len(pairs)} pairs" if len(pairs) > 1 else ""
    for pair in pairs:
        for measure in [measure for measure in measures if measure in pair]:
            first, second, test = pair["first"], pair["second"], pair[measure]
            mean, low, high = test["mean"], test["low"], test["high"]
            if test["better"] < 0:  # name the better run first
                first, second, mean, low, high = pair["second"], pair["first"], -mean, -high, -low
            verdict = f"{first} is better than {second}"
            if not test["better"]:
                verdict = f"{first} and {second} do not differ significantly"
            show(
                f"{measure}: {verdict} (Wilcoxon p = {test['holm_p']:.2g}{correction_note}; difference {mean:+.4f}, "
                f"95 % {low:+.4f} to {high:+.4f})."
            )
