"""`visterm evaluate`: measure a run on photos whose tags are known."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from visterm.cli import options
from visterm.cli.completion import metric_names
from visterm.cli.output import emit, list_skipped, say
from visterm.cli.progress import Bars

EXAMPLES = (
    ("visterm evaluate run photos --tags tags.csv", "measure on the test split"),
    ("visterm evaluate run photos --tags tags.csv --metric p@1 --metric map --json", "choose the metrics"),
    ("visterm evaluate run photos --tags tags.csv --against other_run --report report", "compare runs"),
    ("visterm evaluate run photos --tags tags.csv --queries tags", "measure searches"),
    ("visterm evaluate run other_photos --tags other.csv --map words.csv", "on a library with other tags"),
)
measure_option = partial(typer.Option, rich_help_panel="Measures", show_default=False)


def evaluate(
    run: options.Run,
    images: options.ImagesOrSeveral = None,
    tags: options.TagFile = "auto",
    tag_rules: options.TagRulesFile = None,
    map_of_tags: Annotated[
        str | None,
        options.input_option(
            "--map", help="For photos of another library: a CSV of their_tag,run_tag; or 'names'.", metavar="FILE"
        ),
    ] = None,
    metric: Annotated[
        list[str] | None,
        measure_option(
            help="A name from `visterm metrics`, such as p@5. Repeat for more.", autocompletion=metric_names
        ),
    ] = None,
    precision: Annotated[
        float | None,
        measure_option(
            help="Also measure the tags that `visterm annotate --precision` gives.",
            callback=options.in_range("--precision", above=0, below=1),
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
    from visterm.cli.evaluation_tables import show_measured
    from visterm.evaluation.evaluate_run import EvaluateRequest, evaluate_run
    from visterm.tagging.fit_input import one_or_features

    request = EvaluateRequest(
        runs=[run, *(against or [])], images=one_or_features(images), tags=tags, tag_rules=tag_rules, map=map_of_tags,
        metrics=metric, bands=report is not None and queries is None, precision=precision, queries=queries,
        report=report, intervals=not json,
    )  # fmt: skip
    found = evaluate_run(request, say=say, progress=Bars())
    if json:
        emit(found.values if found.summary is None or not against else found.summary)
    elif found.summary is not None:
        show_measured(found.summary, metric or ["map"])
    raise typer.Exit(list_skipped(found.skipped))
