"""`visterm evaluate`: measure a run on photos whose tags are known."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from visterm.cli import options
from visterm.cli.output import emit, exit_code, say, table
from visterm.cli.progress import Bars
from visterm.core.errors import UserError

if TYPE_CHECKING:
    from visterm.app.tagger import Tagger
    from visterm.core.types import Skipped
    from visterm.data.corpus import Corpus

EXAMPLES = (
    "Examples:  visterm evaluate run photos --tags tags.csv --split test   ·   "
    "visterm evaluate run photos --tags tags.csv --metric p@1 --metric map --json   ·   "
    "visterm evaluate run photos --tags tags.csv --queries tags --against other-run"
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
    queries: Annotated[
        str | None,
        typer.Option(
            help="Measure search by several words instead (AvgP, BEP, P10): 'tags' for a query of every few tags that "
            "an image has, or a file with the columns query, image and relevance.",
            show_default=False,
        ),
    ] = None,
    against: Annotated[
        list[Path] | None,
        typer.Option(
            help="With --queries: another run, compared on the same queries by Wilcoxon's test; repeat for more.",
            show_default=False,
        ),
    ] = None,
    max_words: Annotated[
        int, typer.Option(min=0, help="With --queries tags: words of a query, at most; 0: as many as images have tags.")
    ] = 3,
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
    from visterm.app.evaluate import evaluate_tagger
    from visterm.app.rows import read_corpus
    from visterm.app.tagger import Tagger
    from visterm.core.jsonlines import write_skipped
    from visterm.core.wording import count_of
    from visterm.metrics import check_metrics

    if metric:
        check_metrics(metric, siblings=isa is not None)
    metrics = _metrics(metric, isa)
    _check_query_options(queries, against, metric, isa)
    tagger = Tagger.load(run, n_jobs=jobs)
    corpus = read_corpus(
        tagger.encoder, images, tags, image_column=image_column, tags_column=tags_column, separator=separator
    )
    for warning in corpus.warnings():
        say(warning)
    everything = corpus
    if split is not None or any(corpus.splits):
        corpus = corpus.select(split or "test")
    if queries is not None:
        unread = _measure_queries([run, *(against or [])], tagger, everything, corpus, queries, max_words, jobs, json)
        if unread or skipped.exists():
            write_skipped(skipped, unread)
        raise typer.Exit(exit_code(unread, skipped))
    result = evaluate_tagger(tagger, corpus, metrics, isa=isa, progress=Bars())
    if result.unknown:
        say(f"{result.unknown:,} of {result.given:,} given tags are not in the run's vocabulary and are not counted.")
    if result.with_siblings is not None:
        say(f"{result.with_siblings:,} of {count_of(len(tagger.vocabulary), 'tag')} have siblings.")
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


def _metrics(named: list[str] | None, isa: Path | None) -> list[str]:
    """Give the metrics that are named, or all usual ones, with that of siblings where it is known which tags are."""
    from visterm.app.evaluate import DEFAULT_METRICS, SIBLING_METRIC
    from visterm.metrics import check_metrics

    if not named:
        return [*DEFAULT_METRICS, *([SIBLING_METRIC] if isa is not None else [])]
    if isa is not None and "psib" not in {found.name for found, _ in check_metrics(named, siblings=True).values()}:
        say(f"--isa changes none of {', '.join(named)}: siblings count for psib@k only. Add --metric {SIBLING_METRIC}.")
    return named


def _check_query_options(
    queries: str | None, against: list[Path] | None, metric: list[str] | None, isa: Path | None
) -> None:
    if queries is not None and metric:
        raise UserError("--metric and --queries do not go together: queries are measured by AvgP, BEP and P10.")
    if isa is not None and queries is not None:
        raise UserError("--isa and --queries do not go together: siblings count for psib@k, which measures tags.")
    if queries is None and against:
        raise UserError("--against compares runs on queries. Say which: --queries tags, or --queries FILE.")


def _measure_queries(
    runs: list[Path],
    tagger: Tagger,
    everything: Corpus,
    corpus: Corpus,
    queries: str,
    max_words: int,
    jobs: int | None,
    json: bool,
) -> list[Skipped]:
    """Measure the run, and those it is compared with, on queries; give the images that could not be read."""
    from visterm.app.query_evaluation import evaluate_queries, learned_part
    from visterm.app.tagger import Tagger
    from visterm.cli.query_report import emit_queries, show_queries

    found = evaluate_queries(
        [tagger, *(Tagger.load(other, n_jobs=jobs) for other in runs[1:])],
        corpus,
        None if queries == "tags" else Path(queries),
        learned=learned_part(everything),
        max_words=max_words or None,
        progress=Bars(),
    )
    if found.left_out:
        say(
            f"Queries left out: {found.left_out:,}, which have no word that is a tag of the run, or no relevant image "
            "among those measured."
        )
    (emit_queries if json else show_queries)(found, [str(run) for run in runs])
    return found.skipped
