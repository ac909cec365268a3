"""Run an evaluation from its request to its results, for both the command line and Python."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from visterm.core.errors import NoTagsError, UserError
from visterm.core.estimator import known_settings
from visterm.core.persist import check_target, new_folder, write_json
from visterm.core.progress import SILENT, Progress, Say, say_or_warn, silent
from visterm.core.types import Place, Skipped
from visterm.core.wording import count_of
from visterm.data.corpus import Corpus
from visterm.data.frames import Framed
from visterm.data.tag_queries import QueryRow, read_query_file
from visterm.data.tag_rules import Rules, TagRules
from visterm.evaluation import summaries
from visterm.evaluation.evaluate import (
    DEFAULT_METRICS,
    SIBLING_METRIC,
    TREE_METRICS,
    AnnotationEvaluation,
    count_learned,
    evaluate_taggers,
    figures_of,
)
from visterm.evaluation.html_report import Report
from visterm.evaluation.joined_tags import OtherLibrary, TagMap, join_library
from visterm.evaluation.pages import annotation_page, query_page
from visterm.evaluation.query_evaluation import evaluate_queries, learned_part
from visterm.evaluation.streamed import StreamedEvaluation, evaluate_streamed
from visterm.features.training_rows import Photos, read_corpus
from visterm.learning.fit_input import plan_streaming
from visterm.learning.query_rows import query_corpus, query_lines
from visterm.metrics import check_metrics
from visterm.tagging.annotating import cutoff_of
from visterm.tagging.tagger import Tagger

REPORT_KIND = "report"
PAGE_FILE, RESULTS_FILE = "index.html", "results.json"  # Files of a report, for people and for programs
QUERIES_OF_TAGS = "tags"  # Value of `queries` for queries made from tags


@dataclass(frozen=True, kw_only=True)
class EvaluateRequest:
    """What to measure, on which images, and what to write; `visterm.evaluate` describes the fields.

    Each option of ``visterm evaluate`` is a field.
    """

    runs: Sequence[Tagger | Place]
    images: Photos | Sequence[Place] | None = None
    tags: object = "auto"
    split: str | None = None
    tag_rules: Rules = None
    map: TagMap | None = None
    metrics: str | Sequence[str] | None = None
    bands: bool = False
    precision: float | None = None
    queries: Place | None = None
    max_words: int = 3
    combine: str | None = None
    report: Place | None = None
    intervals: bool = True
    memory: int | None = None
    n_jobs: int | None = None

    def check(self) -> None:
        """Raise UserError, before any image is read, if options conflict or a file does not exist."""
        if self.metrics:
            check_metrics(self.metrics, siblings=self.isa is not None)
        if self.queries is None and self.combine is not None:
            advice = "Add `queries`: a file, or 'tags'; or leave it out."
            raise UserError("`combine` applies to searches.", setting="combine", value=self.combine, advice=advice)

        is_file = self.queries not in (None, QUERIES_OF_TAGS)
        conflicts = {
            "metrics": (self.metrics, "queries are measured by AvgP, BEP and P10"),
            "bands": (self.bands, "bands are for predicted tags"),
            "precision": (self.precision, "it is the precision of predicted tags"),
            "map": (self.map if is_file else None, "tags are mapped for queries from tags (`queries`: 'tags')"),
        }
        for setting, (value, reason) in conflicts.items():
            if self.queries is not None and value:
                problem = f"`{setting}` and `queries` do not go together: {reason}."
                raise UserError(problem, setting=setting, value=value, advice="Leave one of them out.")

        if self.isa is not None and not self.isa.is_file():
            problem, advice = f"There is no file {self.isa}.", "Correct the rule isa of the `tag_rules`."
            raise UserError(problem, setting="tag_rules", value=self.isa, advice=advice)
        if self.report is not None:
            check_target(self.report, REPORT_KIND)

    def check_streamed(self) -> None:
        """Raise UserError for options that need all features in memory, if the features are streamed."""
        unusable = {
            "queries": self.queries, "runs": self.runs[1:], "report": self.report, "bands": self.bands,
            "precision": self.precision, "map": self.map,
        }  # fmt: skip
        for setting, value in unusable.items():
            if value:
                subject = "Comparing `runs`" if setting == "runs" else f"`{setting}`"
                raise UserError(
                    f"{subject} needs all features in memory.", setting=setting, value=value,
                    advice="Leave it out, or allow more `memory`.",
                )  # fmt: skip

    @cached_property
    def rules(self) -> TagRules:
        """Return the validated tag rules."""
        return TagRules.of(self.tag_rules)

    @cached_property
    def isa(self) -> Path | None:
        """Return the file of is-a relations; None if there is none, or searches are measured."""
        return None if self.rules.isa is None or self.queries is not None else Path(self.rules.isa)


@dataclass(frozen=True)
class Measured(Framed):
    """The results of an evaluation.

    As a DataFrame (`to_pandas`, `to_polars`) it has one row per metric and run: ``run``, for searches ``kind`` of
    query, ``metric``, ``mean``, and the ends of its 95 % interval, ``low`` and ``high``, if it has one.
    """

    values: summaries.Figures
    """Results of the first run: metric -> value, and the results of bands and precision."""
    summary: summaries.Figures | None
    """Results of all runs with intervals and comparisons; None for a single run without intervals."""
    skipped: list[Skipped]
    """The images that could not be read."""

    def __repr__(self) -> str:
        lines = ["Measured:"]
        for row in self.rows():
            labels = [str(row[name]) for name in ("run", "kind", "metric") if name in row]
            interval = f" ({row['low']:.4g} to {row['high']:.4g})" if row.get("low") is not None else ""
            lines.append(f"{' '.join(labels)} {row['mean']:.4g}{interval}")
        return "\n".join(lines)

    def rows(self) -> list[summaries.Figures]:
        """Return one row per metric and run."""
        if self.summary is None:
            return [{"metric": name, "mean": mean} for name, mean in self.values.items() if isinstance(mean, float)]
        return [
            {"run": run["run"], **({} if kind is None else {"kind": kind}), "metric": name, **figures}
            for run in self.summary["runs"]
            for kind, metrics in ({None: run["metrics"]} if "metrics" in run else run["kinds"]).items()
            for name, figures in metrics.items()
            if isinstance(figures, dict)
        ]


@known_settings("visterm.evaluate")
def evaluate(
    runs: Tagger | Place | Sequence[Tagger | Place],
    images: Photos | Sequence[Place] | None = None,
    tags: object = "auto",
    *,
    split: str | None = None,
    tag_rules: Rules = None,
    map: TagMap | None = None,
    metrics: str | Sequence[str] | None = None,
    bands: bool = False,
    precision: float | None = None,
    queries: Place | None = None,
    max_words: int = 3,
    combine: str | None = None,
    report: Place | None = None,
    intervals: bool = True,
    memory: int | None = None,
    n_jobs: int | None = None,
    say: Say | None = None,
    progress: Progress | None = None,
) -> Measured:
    """Measure one or more runs on tagged photos, like ``visterm evaluate``.

    Photos that a run has learned from give figures that are too high: a warning says how many there are.

    Parameters
    ----------
    runs : Tagger or path, or a sequence of them
        The run to measure, then runs to compare it with, on the images that all can read and the tags that all know.
    images : path, sequence of paths, Pillow images or uint8 arrays (height, width, 3), DataFrame or list of dicts
        As in `visterm.fit`: a folder, photos, a table, or features folders; None if the tag file names the images.
    tags : path, DataFrame, list of dicts, lists of str, or matrix
        As in `visterm.fit`: a tag file or table, ``"auto"``, or the tags of each image.
    split : str, optional
        Measure only on the rows of this split. None: on the split "test", if there are splits.
    tag_rules : path or mapping, optional
        As in `visterm.fit`: how to read the tag file, and which tags are siblings (`isa`), for ``psib@k``: precision
        with siblings.
    map : path or mapping, optional
        How tags of another library map to the run's tags: a CSV of their_tag,run_tag, a mapping, or ``"names"``.
    metrics : str or sequence of str, optional
        Names from ``visterm metrics``, such as "map" (mean average precision), "p@5", "r@5" or "tag_f1@5". None: the
        default metrics.
    bands : bool
        Whether to also measure rare and frequent tags separately.
    precision : float, optional
        Also measure the tags that are predicted for this expected precision, 0 to 1.
    queries : str or path, optional
        Measure searches instead: ``"tags"`` for queries made from tags, or a file with the columns query, image and
        relevance.
    max_words : int
        Maximum number of words in queries made from tags; 0: the number of tags of an image.
    combine : str, optional
        How the scores of words are combined: "sum", "product" or "confidence". None: as a search does.
    report : path, optional
        A folder for a page with tables, curves and pictures.
    intervals : bool
        Whether to compute intervals for a single run, which takes some time; a report always has them.
    memory : int, optional
        Maximum memory in bytes: larger features are streamed from disk. None: half of the machine's memory.
    n_jobs : int, optional
        Number of threads for runs that are opened from a path; None: one per core.
    say : callable, optional
        Called with remarks for people, such as tags that were left out. For example: print.
    progress : Progress, optional
        Shows each step.

    Returns
    -------
    Measured
        ``values`` has the mean of each metric by name; `to_pandas` returns a row per metric with its interval.

    Raises
    ------
    UserError
        If options conflict.
    DataError
        If there are no photos to measure on.

    Examples
    --------
    >>> visterm.evaluate(tagger, frame, metrics=["map", "p@5"]).to_pandas()  # doctest: +SKIP
    """
    request = EvaluateRequest(
        runs=[runs] if isinstance(runs, Tagger | str | os.PathLike) else runs, images=images, tags=tags, split=split,
        tag_rules=tag_rules, map=map, metrics=metrics, bands=bands, precision=precision, queries=queries,
        max_words=max_words, combine=combine, report=report, intervals=intervals, memory=memory, n_jobs=n_jobs,
    )  # fmt: skip
    return evaluate_run(request, say=say or silent, progress=progress or SILENT)


def evaluate_run(request: EvaluateRequest, *, say: Say = silent, progress: Progress = SILENT) -> Measured:
    """Measure runs on tagged photos, and write a report if requested.

    `say` gets remarks for people, such as tags that were left out. Raises UserError if options conflict; DataError if
    there are no photos to measure on.
    """
    request.check()
    queries = None if request.queries in (None, QUERIES_OF_TAGS) else read_query_file(str(request.queries))
    streamed = plan_streaming(request.images, request.memory, say, "measured shard by shard") is not None
    if streamed:
        request.check_streamed()
    taggers = [run if isinstance(run, Tagger) else Tagger.load(run, n_jobs=request.n_jobs) for run in request.runs]
    if request.precision is not None:
        for tagger in taggers:  # raises an error for a run without confidences, before images are read
            cutoff_of(tagger.calibration, precision=request.precision)
    if streamed:
        return _measure_streamed(taggers[0], request, say, progress)

    photos = _read_photos(taggers[0], request, queries, say)
    if request.queries is None:
        results = _measure_annotation(taggers, photos, request, say, progress)
    else:
        results = _measure_queries(taggers, photos, request, say, progress)
    if request.report is not None:
        say(f"The report is {Path(request.report) / PAGE_FILE}")
    return results


class _Photos(NamedTuple):
    """The photos of an evaluation."""

    corpus: Corpus  # All photos of the tag file
    measured: Corpus  # The photos of the requested split
    other: OtherLibrary | None  # The mapping from the tags of another library to the run's tags
    queries: list[QueryRow] | None  # The rows of a query file


def _read_photos(tagger: Tagger, request: EvaluateRequest, queries: list[QueryRow] | None, say: Say) -> _Photos:
    """Read the photos and their tags, map the tags to those of the run, and select the split to measure on."""
    try:
        corpus = read_corpus(tagger.encoder, request.images, request.tags, **request.rules.columns())
    except NoTagsError:
        if queries is None:
            raise
        corpus, queries = query_corpus(tagger.encoder, request.images, query_lines(tagger.encoder, queries))
    for remark in corpus.remarks:
        say(remark)

    other = None
    if request.map is not None:
        tree = None if tagger.tree is None else tagger.tree.words
        other = join_library(tagger.vocabulary, corpus, request.map, tree)
        corpus = other.corpus
        for remark in other.remarks:
            say(remark)
    has_split = request.split is not None or any(corpus.splits)
    return _Photos(corpus, corpus.select(request.split or "test") if has_split else corpus, other, queries)


def _measure_annotation(
    taggers: Sequence[Tagger], photos: _Photos, request: EvaluateRequest, say: Say, progress: Progress
) -> Measured:
    names, report, other = _names(taggers, request), request.report, photos.other
    metrics = _metrics(request, tree=any(tagger.tree is not None for tagger in taggers))
    needed_metrics = [
        *metrics,
        *(summaries.PAGE_METRICS if report else ()),
        *(summaries.BAND_METRICS if request.bands else ()),
    ]
    evaluation = evaluate_taggers(
        taggers, photos.measured, list(dict.fromkeys(needed_metrics)), optional=() if request.metrics else metrics,
        ranked_tags=None if other is None else other.ranked_tags, isa=request.isa, progress=progress,
    )  # fmt: skip
    extra_figures: summaries.Figures = {"bands": summaries.band_summary(evaluation, names)} if request.bands else {}
    if other is not None:
        given_counts = {"given": evaluation.n_given, "given_left_out": evaluation.n_unknown}
        extra_figures["map_counts"] = other.counts | given_counts

    if request.precision is not None:
        extra_figures["wanted_precision"] = summaries.precision_summary(evaluation, names, request.precision)
    _report_left_out(evaluation, len(taggers), len(evaluation.vocabulary), say, mapped=other is not None)
    _warn_of_learned(names, evaluation.n_learned, len(photos.measured), say)
    metrics = [name for name in metrics if name not in evaluation.undefined]
    values = {name: evaluation.mean(name) for name in metrics} | extra_figures
    if len(names) == 1 and not request.intervals and report is None:
        return Measured(values, None, evaluation.skipped)
    summary = summaries.annotation_summary(evaluation, names, metrics) | extra_figures
    if report is not None:
        results = summaries.annotation_results(evaluation, summary)
        write_report(report, annotation_page(evaluation, names, results), results)
    return Measured(values, summary, evaluation.skipped)


def _measure_queries(
    taggers: Sequence[Tagger], photos: _Photos, request: EvaluateRequest, say: Say, progress: Progress
) -> Measured:
    names, report, other = _names(taggers, request), request.report, photos.other
    evaluation = evaluate_queries(
        taggers, photos.measured, photos.queries,
        learned=learned_part(photos.corpus) if other is None else None, max_words=request.max_words or None,
        combine=request.combine, progress=progress,
    )  # fmt: skip
    learned = [count_learned(tagger, evaluation.corpus) for tagger in taggers]
    _warn_of_learned(names, learned, len(evaluation.corpus), say)
    without = [name for name, tagger in zip(names, taggers, strict=True) if tagger.calibration is None]
    if request.combine is None and without:
        say(f"Photos are ranked by the sum of scores, because there are no confidences in {', '.join(without)}.")
    if evaluation.left_out:
        say(f"Queries left out: {evaluation.left_out:,}, without a tag of the run or without a relevant photo.")
    summary = summaries.query_summary(evaluation, names) | ({} if other is None else {"map_counts": other.counts})
    if report is not None:
        results = summaries.query_results(evaluation, summary)
        write_report(report, query_page(evaluation, names, results), results)
    return Measured(summary, summary, evaluation.skipped)


def _measure_streamed(tagger: Tagger, request: EvaluateRequest, say: Say, progress: Progress) -> Measured:
    """Measure a run on features that do not fit in memory, with temporary files in the parent folder of the run."""
    if tagger.tree is not None:
        problem = "The run has a tree of tags, which needs all features in memory."
        raise UserError(problem, setting="memory", value=request.memory, advice="Allow more `memory`.")
    [run] = _names([tagger], request)
    features: Any = request.images
    tags: Any = request.tags
    metrics = _metrics(request)
    folder = Path(tagger.path or run).absolute().parent
    evaluation = evaluate_streamed(
        tagger, features, tags, metrics,
        work=folder if os.access(folder, os.W_OK) else None, split=request.split,
        optional=() if request.metrics else metrics, isa=request.isa, progress=progress, **request.rules.columns(),
    )  # fmt: skip
    for line in evaluation.remarks:
        say(line)
    _report_left_out(evaluation, 1, len(tagger.vocabulary), say)
    _warn_of_learned([run], [evaluation.n_learned], evaluation.n_images, say)
    values = {name: float(np.nanmean(array)) for name, array in evaluation.values.items()}
    runs = [{"run": run, "metrics": figures_of(evaluation.values)}]
    counts = {"images": evaluation.n_images, "tags": len(tagger.vocabulary)}
    return Measured(values, counts | {"runs": runs, "pairs": []}, evaluation.skipped)


def _names(taggers: Sequence[Tagger], request: EvaluateRequest) -> list[str]:
    """Return the names of the runs: their paths, or "run N" for a tagger without a file."""
    pairs = enumerate(zip(taggers, request.runs, strict=True), 1)
    return [tagger.path or f"run {n}" if tagger is run else str(run) for n, (tagger, run) in pairs]


def _metrics(request: EvaluateRequest, *, tree: bool = False) -> list[str]:
    """Return the requested metrics, or the default metrics, with those of siblings and of a tree if they apply."""
    requested = request.metrics
    if not requested:
        return [*DEFAULT_METRICS, *([] if request.isa is None else [SIBLING_METRIC]), *(TREE_METRICS if tree else ())]
    return [requested] if isinstance(requested, str) else list(requested)


def _report_left_out(
    evaluation: AnnotationEvaluation | StreamedEvaluation, n_runs: int, n_tags: int, say: Say, *, mapped: bool = False
) -> None:
    for reason in evaluation.undefined.values():
        say(f"Left out: {reason}")
    if evaluation.n_unknown:
        vocabulary_text = "the run's vocabulary" if n_runs == 1 else "the vocabulary of every run"
        reason = "joined" if mapped else f"in {vocabulary_text}"
        say(f"{evaluation.n_unknown:,} of {evaluation.n_given:,} given tags are not {reason} and are not counted.")
    if evaluation.n_with_siblings is not None:
        say(f"{evaluation.n_with_siblings:,} of {count_of(n_tags, 'tag')} have siblings.")


def _warn_of_learned(names: Sequence[str], learned: Sequence[int], n_images: int, say: Say) -> None:
    """Tell `say`, or warn if nobody listens, which runs have learned from photos that they are measured on."""
    for name, n_learned in zip(names, learned, strict=True):
        if n_learned:
            problem = (
                f"{'The run' if len(names) == 1 else f'The run {name}'} has learned from {n_learned:,} of these "
                f"{count_of(n_images, 'photo')} (by their names), so the figures are too high. Hold "
                "photos out before fitting: add a column 'split' with train and test to the tag file."
            )
            say_or_warn(problem, say, stacklevel=7)


def write_report(path: Place, page: Report, results: summaries.Figures) -> None:
    """Write a page and its results into a folder, atomically; an earlier report is replaced.

    Raises StorageError if something other than a report is at `path`.
    """
    with new_folder(path, REPORT_KIND) as folder:
        page.write(folder / PAGE_FILE)
        write_json(folder / RESULTS_FILE, results)
