"""`visterm evaluate`: measure a run on photos whose tags are known."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from visterm.cli import options
from visterm.cli.output import emit, exit_code, say, table
from visterm.cli.progress import Bars

EXAMPLES = (
    "Examples:  visterm evaluate run photos --tags tags.csv --split test   ·   "
    "visterm evaluate run photos --tags tags.csv --metric p@1 --metric map --json"
)


def evaluate(
    run: options.Run,
    images: options.ImagesOrNone = None,
    tags: options.TagFile = "auto",
    split: Annotated[
        str | None,
        typer.Option(
            help="Measure on these rows only [default: test, if the tag file has splits].", show_default=False
        ),
    ] = None,
    metric: Annotated[
        list[str] | None, typer.Option(help="A name from `visterm metrics`, such as p@5; repeat for more.")
    ] = None,
    isa: Annotated[
        Path | None,
        typer.Option(
            help="Which tags are siblings, for psib@5: a CSV of child,parent, or WordNet's folder "
            "(Debian: /usr/share/wordnet).",
            show_default=False,
        ),
    ] = None,
    json: options.Json = False,
    jobs: options.Jobs = None,
    image_column: options.ImageColumn = None,
    tags_column: options.TagsColumn = None,
    separator: options.Separator = None,
    skipped: options.SkippedFile = Path("skipped.jsonl"),
) -> None:
    """Measure a run on photos whose tags are known, and that it did not learn from.

    Of images known by number, the tags that the run learned from are left out of the rankings.
    """
    from visterm.app.evaluate import DEFAULT_METRICS, evaluate_tagger
    from visterm.app.rows import read_corpus
    from visterm.app.tagger import Tagger
    from visterm.core.jsonlines import write_skipped
    from visterm.core.wording import count_of
    from visterm.metrics import check_metrics

    metrics = metric or list(DEFAULT_METRICS)
    check_metrics(metrics, siblings=isa is not None)
    tagger = Tagger.load(run, n_jobs=jobs)
    corpus = read_corpus(
        tagger.encoder, images, tags, image_column=image_column, tags_column=tags_column, separator=separator
    )
    for warning in corpus.warnings():
        say(warning)
    if split is not None or any(corpus.splits):
        corpus = corpus.select(split or "test")
    result = evaluate_tagger(tagger, corpus, metrics, isa=isa, progress=Bars())
    if result.unknown:
        say(f"{result.unknown:,} of {result.given:,} given tags are not in the run's vocabulary and are not counted.")
    if result.learned:
        say(
            f"{result.learned:,} of {count_of(len(corpus), 'image')} have names of images that the run learned from: "
            "the figures are better than those of new photos. Hold some out before fitting: a column 'split' in the "
            "tag file, with train and test."
        )
    if json:
        emit(result.values)
    else:
        table([[name, f"{value:.4f}"] for name, value in result.values.items()], ["metric", "value"])
    if result.skipped or skipped.exists():
        write_skipped(skipped, result.skipped)
    raise typer.Exit(exit_code(result.skipped, skipped))
