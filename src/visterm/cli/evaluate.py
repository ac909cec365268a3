"""`visterm evaluate`: measure a run on photos whose tags are known."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from visterm.cli import options
from visterm.cli.output import emit, exit_code, say
from visterm.cli.progress import Bars

EXAMPLES = (
    "Examples:  visterm evaluate run photos --tags tags.csv --split test   ·   "
    "visterm evaluate run photos --tags tags.csv --metric p@1 --metric map --json   ·   "
    "visterm evaluate run photos --tags tags.csv --against other-run --report report   ·   "
    "visterm evaluate run photos --tags tags.csv --queries tags --combine product"
)
measure_option = partial(typer.Option, rich_help_panel="Measures", show_default=False)


def evaluate(
    run: options.Run,
    images: options.ImagesOrSeveral = None,
    tags: options.TagFile = "auto",
    split: Annotated[
        str | None, options.input_option(help="Measure on these rows only [default: test, if the tag file has splits].")
    ] = None,
    image_column: options.ImageColumn = None,
    tags_column: options.TagsColumn = None,
    separator: options.Separator = None,
    metric: Annotated[
        list[str] | None, measure_option(help="A name from `visterm metrics`, such as p@5; repeat for more.")
    ] = None,
    isa: Annotated[
        Path | None,
        measure_option(
            help="Which tags are siblings, for psib@5: a CSV of child,parent, or WordNet's folder "
            "(Debian: /usr/share/wordnet).",
        ),
    ] = None,
    bands: Annotated[
        bool,
        measure_option(
            "--bands",
            help="Measure rare and frequent tags apart too, in bands by how many training images a tag has; the report "
            "always does.",
        ),
    ] = False,
    precision: Annotated[
        float | None,
        measure_option(
            help="Measure the tags that `visterm annotate --precision` gives for this value, too: the precision asked "
            "for beside the one achieved, for all tags and for rare and frequent ones.",
        ),
    ] = None,
    queries: Annotated[
        str | None,
        measure_option(
            help="Measure search by several words instead (AvgP, BEP, P10): 'tags' for a query of every few tags that "
            "an image has, or a file with the columns query, image and relevance (which needs no --tags).",
        ),
    ] = None,
    max_words: Annotated[
        int,
        measure_option(
            min=0,
            help="With --queries tags: words of a query, at most; 0: as many as images have tags.",
            show_default=True,
        ),
    ] = 3,
    combine: Annotated[
        str,
        measure_option(
            help="With --queries: words put together as `visterm search --combine` does: sum of their scores, product "
            "of their probabilities (models cmrm, mbrm, cmtt, plsa), or confidence that an image is meant.",
            show_default=True,
        ),
    ] = "sum",
    against: Annotated[
        list[Path] | None,
        measure_option(
            help="Another run, compared on the same images or queries by Wilcoxon's test, every two of them; repeat "
            "for more.",
        ),
    ] = None,
    report: Annotated[
        Path | None,
        options.output_option(
            help="Write FOLDER/index.html, a page of tables, curves and pictures, and FOLDER/results.json.",
            metavar="FOLDER",
        ),
    ] = None,
    json: options.Json = False,
    skipped: options.SkippedFile = Path("skipped.jsonl"),
    memory: options.Memory = None,
    jobs: options.Jobs = None,
) -> None:
    """Measure a run on photos whose tags are known, and that it did not learn from; or compare several runs.

    Runs are compared on the images that all can read and the tags that all know. Of images known by number, the tags
    that a run learned from are left out of the rankings.
    """
    from visterm.cli.evaluation_tables import show_measured
    from visterm.core.jsonlines import write_skipped
    from visterm.evaluation.evaluate_run import EvaluateRequest, evaluate_run
    from visterm.tagging.fit_input import one_or_features

    request = EvaluateRequest(
        runs=[run, *(against or [])], images=one_or_features(images), tags=tags, split=split, image_column=image_column,
        tags_column=tags_column, separator=separator, metrics=metric, isa=isa, bands=bands, precision=precision,
        queries=queries, max_words=max_words, combine=combine, report=report, intervals=not json,
        memory=options.bytes_of(memory), n_jobs=jobs,
    )  # fmt: skip
    found = evaluate_run(request, say=say, progress=Bars())
    if json:
        emit(found.values if found.summary is None or not against else found.summary)
    elif found.summary is not None:
        show_measured(found.summary, metric or ["map"])
    if found.skipped or skipped.exists():
        write_skipped(skipped, found.skipped)
    raise typer.Exit(exit_code(found.skipped, skipped))
