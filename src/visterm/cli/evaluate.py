"""`visterm evaluate`: measure a run on photos whose tags are known."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from visterm.cli import options
from visterm.cli.evaluate_streamed import check_usable, show_streamed, tell_of_learned
from visterm.cli.output import emit, exit_code, say
from visterm.cli.progress import Bars
from visterm.core.errors import NoTagsError, UserError

if TYPE_CHECKING:
    from visterm.core.types import Skipped
    from visterm.data.corpus import Corpus
    from visterm.data.query_files import QueryRow
    from visterm.evaluation.evaluate import AnnotationEvaluation
    from visterm.tagging.tagger import Tagger

EXAMPLES = (
    "Examples:  visterm evaluate run photos --tags tags.csv --split test   ·   "
    "visterm evaluate run photos --tags tags.csv --metric p@1 --metric map --json   ·   "
    "visterm evaluate run photos --tags tags.csv --against other-run --report report   ·   "
    "visterm evaluate run photos --tags tags.csv --queries tags --combine product"
)


def evaluate(
    run: options.Run,
    images: options.ImagesOrSeveral = None,
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
            "an image has, or a file with the columns query, image and relevance (which needs no --tags).",
            show_default=False,
        ),
    ] = None,
    against: Annotated[
        list[Path] | None,
        typer.Option(
            help="Another run, compared on the same images or queries by Wilcoxon's test, every two of them; repeat "
            "for more.",
            show_default=False,
        ),
    ] = None,
    max_words: Annotated[
        int, typer.Option(min=0, help="With --queries tags: words of a query, at most; 0: as many as images have tags.")
    ] = 3,
    combine: Annotated[
        str,
        typer.Option(
            help="With --queries: words put together as `visterm search --combine` does: sum of their scores, product "
            "of their probabilities (models cmrm, mbrm, cmtt, plsa), or confidence that an image is meant."
        ),
    ] = "sum",
    report: Annotated[
        Path | None,
        typer.Option(
            help="Write FOLDER/index.html, a page of tables, curves and pictures, and FOLDER/results.json.",
            show_default=False,
            metavar="FOLDER",
        ),
    ] = None,
    bands: Annotated[
        bool,
        typer.Option(
            "--bands",
            help="Measure rare and frequent tags apart too, in bands by how many training images a tag has; the report "
            "always does.",
        ),
    ] = False,
    precision: Annotated[
        float | None,
        typer.Option(
            help="Measure the tags given for a wanted precision too, as `visterm annotate --precision` gives them: "
            "wanted beside achieved, for all tags and for rare and frequent ones.",
            show_default=False,
        ),
    ] = None,
    memory: options.Memory = None,
    json: options.Json = False,
    jobs: options.Jobs = None,
    image_column: options.ImageColumn = None,
    tags_column: options.TagsColumn = None,
    separator: options.Separator = None,
    skipped: options.SkippedFile = Path("skipped.jsonl"),
) -> None:
    """Measure a run on photos whose tags are known, and that it did not learn from; or compare several runs.

    Runs are compared on the images that all can read and the tags that all know. Of images known by number, the tags
    that a run learned from are left out of the rankings.
    """
    from visterm.core.jsonlines import write_skipped
    from visterm.data.query_files import read_query_file
    from visterm.evaluation.report.folder import check_report_target
    from visterm.features.training_rows import read_corpus
    from visterm.metrics import check_metrics
    from visterm.tagging.cutoffs import cutoff_of
    from visterm.tagging.fit_input import one_or_features, plan_streaming
    from visterm.tagging.query_corpus import query_corpus
    from visterm.tagging.tagger import Tagger

    if metric:
        check_metrics(metric, siblings=isa is not None)
    _check_options(queries, metric, combine, isa)
    if bands and queries is not None:
        raise UserError("--bands and --queries do not go together: bands are of tags that are put on images.")
    if precision is not None and queries is not None:
        raise UserError("--precision and --queries do not go together: it is wanted of tags that are put on images.")
    if report is not None:
        check_report_target(report)
    photos: Any = one_or_features(images)
    plan = plan_streaming(photos, options.bytes_of(memory), say, "measured shard by shard")
    if plan is not None:
        check_usable({"--queries": queries, "--against": against, "--report": report, "--bands": bands or None,
                      "--precision": precision})  # fmt: skip
    taggers = [Tagger.load(path, n_jobs=jobs) for path in [run, *(against or [])]]
    if precision is not None:
        for tagger in taggers:
            cutoff_of(tagger.calibration, precision=precision)  # refuses what cannot be before images are read
    lines = None if queries in (None, "tags") else read_query_file(str(queries))
    columns = {"image_column": image_column, "tags_column": tags_column, "separator": separator}
    if plan is not None:
        show_streamed(
            taggers[0], run, photos, tags, _metrics(metric, isa), named=bool(metric), isa=isa, split=split, json=json,
            skipped=skipped, columns=columns,
        )  # fmt: skip
    encoder = taggers[0].encoder
    try:
        corpus = read_corpus(encoder, photos, tags, **columns)
    except NoTagsError:
        if lines is None:
            raise
        corpus, lines = query_corpus(encoder, photos, lines)
    for warning in corpus.warnings():
        say(warning)
    everything = corpus
    if split is not None or any(corpus.splits):
        corpus = corpus.select(split or "test")
    names = [str(run), *map(str, against or [])]
    unread = (
        _measure_annotation(names, taggers, corpus, metric, isa, report, bands, precision, json)
        if queries is None
        else _measure_queries(names, taggers, everything, corpus, lines, max_words or None, combine, report, json)
    )
    if report is not None:
        say(f"The report is {report / 'index.html'}")
    if unread or skipped.exists():
        write_skipped(skipped, unread)
    raise typer.Exit(exit_code(unread, skipped))


def _check_options(queries: str | None, metric: list[str] | None, combine: str, isa: Path | None) -> None:
    from visterm.data.query_files import read_query_file

    if queries is not None and metric:
        raise UserError("--metric and --queries do not go together: queries are measured by AvgP, BEP and P10.")
    if queries is None and combine != "sum":
        raise UserError("--combine says how the words of queries are put together. Add --queries tags, or FILE.")
    if queries is not None and queries != "tags":
        read_query_file(queries)  # refuses what is no such file before images are read
    if isa is not None and queries is not None:
        raise UserError("--isa and --queries do not go together: siblings count for psib@k, which measures tags.")
    if isa is not None and not isa.exists():
        raise UserError(f"There is no file or folder {isa} of what tags are kinds of (--isa).")


def _metrics(named: list[str] | None, isa: Path | None) -> list[str]:
    """Return the metrics that are named, or all usual ones, with that of siblings where it is known which tags are."""
    from visterm.evaluation.evaluate import DEFAULT_METRICS, SIBLING_METRIC
    from visterm.metrics import check_metrics

    if not named:
        return [*DEFAULT_METRICS, *([SIBLING_METRIC] if isa is not None else [])]
    if isa is not None and "psib" not in {found.name for found, _ in check_metrics(named, siblings=True).values()}:
        say(f"--isa changes none of {', '.join(named)}: siblings count for psib@k only. Add --metric {SIBLING_METRIC}.")
    return named


def _measure_annotation(
    names: list[str],
    taggers: list[Tagger],
    corpus: Corpus,
    metric: list[str] | None,
    isa: Path | None,
    report: Path | None,
    bands: bool,
    precision: float | None,
    json: bool,
) -> list[Skipped]:
    """Measure the tags that runs put on images; give the images that could not be read."""
    from visterm.cli.evaluation_tables import show_annotation, show_bands, show_precision
    from visterm.evaluation.evaluate import evaluate_taggers
    from visterm.evaluation.report.annotation import annotation_page
    from visterm.evaluation.report.bands import BAND_METRICS, band_summary
    from visterm.evaluation.report.folder import write_report
    from visterm.evaluation.report.precision import precision_summary
    from visterm.evaluation.report.results import PAGE_METRICS, annotation_results, annotation_summary

    metrics = _metrics(metric, isa)
    wanted = list(dict.fromkeys([*metrics, *(PAGE_METRICS if report else ()), *(BAND_METRICS if bands else ())]))
    found = evaluate_taggers(taggers, corpus, wanted, optional=() if metric else metrics, isa=isa, progress=Bars())
    apart: dict[str, Any] = {"bands": band_summary(found, names)} if bands else {}
    if precision is not None:
        apart["wanted_precision"] = precision_summary(found, names, precision)
    for reason in found.undefined.values():
        say(f"Left out: {reason}")
    metrics = [name for name in metrics if name not in found.undefined]
    _tell_of_annotation(found, names, len(corpus))
    if json and len(names) == 1:
        emit({name: found.mean(name) for name in metrics} | apart)
        if report is None:
            return found.skipped  # of a run alone, intervals are for people and for the report
    summary = annotation_summary(found, names, metrics) | apart
    if report is not None:
        results = annotation_results(found, summary)
        write_report(report, annotation_page(found, names, results), results)
    if not json:
        show_annotation(summary, metric or ["map"])
        if bands:
            show_bands(summary["bands"])
        if precision is not None:
            show_precision(summary["wanted_precision"])
    elif len(names) > 1:
        emit(summary)
    return found.skipped


def _measure_queries(
    names: list[str],
    taggers: list[Tagger],
    everything: Corpus,
    corpus: Corpus,
    queries: list[QueryRow] | None,
    max_words: int | None,
    combine: str,
    report: Path | None,
    json: bool,
) -> list[Skipped]:
    """Measure what runs find for queries; give the images that could not be read."""
    from visterm.cli.evaluation_tables import show_queries
    from visterm.evaluation.query_evaluation import evaluate_queries, learned_part
    from visterm.evaluation.report.folder import write_report
    from visterm.evaluation.report.queries import query_page
    from visterm.evaluation.report.results import query_results, query_summary

    found = evaluate_queries(
        taggers,
        corpus,
        queries,
        learned=learned_part(everything),
        max_words=max_words,
        combine=combine,
        progress=Bars(),
    )
    measured = found.corpus.names
    learned = [0 if tagger.encoder.by_number else tagger.learned_images.count(measured) for tagger in taggers]
    tell_of_learned(names, learned, len(measured))
    if found.left_out:
        say(
            f"Queries left out: {found.left_out:,}, which have no word that is a tag of the run, or no relevant image "
            "among those measured."
        )
    summary = query_summary(found, names)
    if report is not None:
        results = query_results(found, summary)
        write_report(report, query_page(found, names, results), results)
    if json:
        emit(summary)
    else:
        show_queries(summary)
    return found.skipped


def _tell_of_annotation(found: AnnotationEvaluation, names: list[str], n_images: int) -> None:
    from visterm.core.wording import count_of

    if found.unknown:
        of = "the run's vocabulary" if len(names) == 1 else "the vocabulary of every run"
        say(f"{found.unknown:,} of {found.given:,} given tags are not in {of} and are not counted.")
    if found.with_siblings is not None:
        say(f"{found.with_siblings:,} of {count_of(len(found.vocabulary), 'tag')} have siblings.")
    tell_of_learned(names, found.learned, n_images)
