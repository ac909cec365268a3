"""The page of annotation: metrics with intervals, curves, bars a tag, runs against runs, best and worst images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from visterm.core.types import Ranking, Tag
from visterm.core.wording import count_of
from visterm.evaluation.evaluate import AnnotationEvaluation, is_mean
from visterm.evaluation.html_report import SMALL_THUMBNAIL, Cell, Report, Shown
from visterm.evaluation.report.charts import Series, bar_chart, line_chart
from visterm.evaluation.report.results import CURVE_KS, OF_A_TAG, TAG_K
from visterm.evaluation.report.tables import add_bands, add_differences, add_precision, between
from visterm.metrics import check_metrics

N_PICTURES = 12  # Of the best images, and of the worst
N_CHIPS = 5
N_TAGS = 15
MAIN = ("map", "p@5", "word_map")  # Metrics by which runs are compared on the page; all are in the figures
ENOUGH = 5  # Images that a tag must have to be among the worst: of fewer, its figures are chance


def annotation_page(found: AnnotationEvaluation, names: Sequence[str], results: dict[str, Any]) -> Report:
    """Make the page of runs of which the `PAGE_METRICS` were measured; `results` are those of `annotation_results`."""
    report = Report(
        f"How well {' and '.join(names) if len(names) < 3 else f'{len(names)} runs'} put tags on images",
        f"Measured on {count_of(len(found.corpus), 'image')} and {count_of(len(found.vocabulary), 'tag')}, against the "
        f"tags that people gave: {_given(found)}.",
        thumbnail=SMALL_THUMBNAIL,
    )
    metrics = list(results["runs"][0]["metrics"])
    report.section(
        "Measures",
        "Below each, the interval in which it lies at 95 % when images are drawn anew (for measures of tags and words: "
        f"tags).{' The largest of a row is marked.' * (len(names) > 1)}",
    )
    report.cells(["measure", *names], [_metric_row(metric, results) for metric in metrics])
    _add_curves(report, names, results)
    add_bands(report, names, results["bands"])
    if "wanted_precision" in results:
        add_precision(report, results["wanted_precision"])
    _add_tags(report, found, names, results)
    compared = [metric for metric in metrics if is_mean(metric)]
    shown = [metric for metric in MAIN if metric in compared] or compared[: len(MAIN)]
    add_differences(report, results, shown, "images (for measures of tags and words: tags)")
    if len(names) > 1 and len(shown) < len(compared):
        report.note(
            f"Of {', '.join(metric for metric in compared if metric not in shown)} the same is in results.json."
        )
    _add_pictures(report, found, names)
    return report


def _given(found: AnnotationEvaluation) -> str:
    if not found.unknown:
        return f"{found.given:,}"
    return f"{found.given:,}, of which {found.unknown:,} are not in the vocabulary and not counted"


def _metric_row(metric: str, results: dict[str, Any]) -> list[Cell]:
    figures = [run["metrics"][metric] for run in results["runs"]]
    most = max(figure["mean"] for figure in figures)
    [(known, _)] = check_metrics(metric).values()
    cells = []
    for figure in figures:
        mark = "best" if len(figures) > 1 and figure["mean"] == most else ""
        shown = f"{figure['mean']:.3f}" if known.name != "n_plus" else f"{figure['mean']:.0f}"
        cells.append(Cell(shown, between(figure), mark))
    return [Cell(metric, known.summary), *cells]


def _add_curves(report: Report, names: Sequence[str], results: dict[str, Any]) -> None:
    runs = results["runs"]
    report.section(
        "Precision as more tags are given",
        "Precision at k is the share of right tags among the first k, recall at k the share of the tags that people "
        "gave that are among them; both averaged over images.",
    )
    precisions = [Series(name, run["precision_at_k"]) for name, run in zip(names, runs, strict=True)]
    rows = [
        [Cell(str(k)), *(Cell(f"{run[kind][k - 1]:.3f}") for kind in ("precision_at_k", "recall_at_k") for run in runs)]
        for k in CURVE_KS
    ]
    header = ["k", *(f"{kind}{f', {name}' * (len(names) > 1)}" for kind in ("precision", "recall") for name in names)]
    report.columns(
        [
            (line_chart("Precision at k", "k", "precision", [list(CURVE_KS)] * len(runs), precisions), header, rows),
            (
                line_chart(
                    "Precision by recall", "recall", "precision", [run["recall_at_k"] for run in runs], precisions
                ), (), ()
            ),
        ]
    )  # fmt: skip


def _add_tags(report: Report, found: AnnotationEvaluation, names: Sequence[str], results: dict[str, Any]) -> None:
    counts = np.array(results["tag_images"])
    precision = found.values[0][OF_A_TAG["average precision"]]
    frequent = np.lexsort((np.arange(counts.size), -counts))
    frequent = frequent[counts[frequent] > 0][:N_TAGS]
    enough = min(ENOUGH, int(counts.max(initial=0)))
    judged = np.flatnonzero((counts >= enough) & ~np.isnan(precision))
    worst = judged[np.lexsort((-counts[judged], precision[judged]))][:N_TAGS]
    report.section(
        "Tag by tag",
        f"Average precision: of all images, ranked by how well the tag fits. Recall at {TAG_K}: the share of the tag's "
        f"images that get it among their {TAG_K} tags. After each tag, how many of the images have it.",
    )
    for heading, chosen in (
        (f"The {len(frequent)} most frequent tags", frequent),
        (f"The {len(worst)} tags found worst, of those that at least {enough} images have", worst),
    ):
        report.subsection(heading)
        labels = [(found.vocabulary.tags[tag], f"({counts[tag]:,})") for tag in chosen]
        charts = []
        for measure in ("average precision", f"recall@{TAG_K}"):
            values = [of_run[OF_A_TAG[measure]][chosen].tolist() for of_run in found.values]
            bars = [Series(name, of_tags) for name, of_tags in zip(names, values, strict=True)]
            charts.append((bar_chart(f"{heading}: {measure}", measure, labels, bars), (), ()))
        report.columns(charts)


def _add_pictures(report: Report, found: AnnotationEvaluation, names: Sequence[str]) -> None:
    precision = found.values[0]["map"]
    order = np.flatnonzero(~np.isnan(precision))
    order = order[np.argsort(-precision[order], kind="stable")]
    best = order[: min(N_PICTURES, (order.size + 1) // 2)]
    worst = order[best.size :][::-1][:N_PICTURES]
    of = f" of {names[0]}" if len(names) > 1 else ""
    report.section(
        f"The images with the best tags{of}, and with the worst",
        "By the average precision of all tags, ranked for the image; shown are the first few.",
    )
    report.note_on_pictures(found.corpus)
    report.legend("people gave it too", "people did not")
    for heading, chosen in (("Best", best), ("Worst", worst)):
        if chosen.size:
            report.subsection(heading)
            rankings = found.best_tags(chosen.tolist(), N_CHIPS)
            report.tagged([_card(found, int(i), ranking) for i, ranking in zip(chosen, rankings, strict=True)])


def _card(
    found: AnnotationEvaluation, image: int, ranking: Ranking
) -> tuple[Shown, str, list[Tag], set[int], list[str]]:
    span = slice(found.Y.indptr[image], found.Y.indptr[image + 1])
    relevant = set(found.Y.indices[span][found.Y.data[span] > 0].tolist())
    tags = [
        Tag(found.vocabulary.tags[tag], float(score)) for tag, score in zip(ranking.ids, ranking.scores, strict=True)
    ]
    right = {place for place, tag in enumerate(ranking.ids.tolist()) if tag in relevant}
    shown = Shown(found.corpus.images[image], name=found.corpus.names[image])
    note = f"average precision {found.values[0]['map'][image]:.2f}"
    return shown, note, tags, right, found.corpus.tags[image]
