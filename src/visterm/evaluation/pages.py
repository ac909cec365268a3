"""The HTML pages of `visterm evaluate --report`: measures, curves, comparisons of runs, best and worst results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from visterm.core.types import Doubles, Ints, Tag
from visterm.core.wording import count_of
from visterm.evaluation import summaries
from visterm.evaluation.evaluate import AnnotationEvaluation, is_mean
from visterm.evaluation.html_report import MACROS, SMALL_THUMBNAIL_SIDE, Cell, Report, Shown
from visterm.evaluation.query_evaluation import MAX_CURVE_RANK, RECALLS, QueryEvaluation
from visterm.metrics import check_metrics
from visterm.metrics.retrieval import MIN_EASY_IMAGES

N_PICTURES = 12  # Number of the best images, and of the worst images
N_LISTED_TAGS = 5  # Number of listed tags per image
N_CHART_TAGS = 15  # Number of the most frequent tags, and of the worst tags
COMPARED_METRICS = ("map", "p@5", "word_map")  # Metrics with a table of comparisons; results.json has all
MIN_TAG_IMAGES = 5  # Minimum number of images of a tag in the list of worst tags: fewer are not reliable

N_ROWS = 20
"""Number of rows of pictures, one per query and run, half of them for the best queries: keeps the page below 3 MB."""

N_QUERY_PICTURES = 5  # Number of best images of each query with pictures
MAX_PICTURED_RUNS = 4  # Show pictures of at most this many runs; the tables have all runs

VERDICT_TEXTS = {1: ("better", "good"), -1: ("worse", "poor"), 0: ("no significant difference", "")}
"""Sign of a significant difference between two runs (0: not significant) -> its text and its CSS class."""

# Charts are inline SVG without matplotlib: it is a dependency of 70 MB, and its SVG cannot adapt to a dark page
LINES_HEIGHT, BOTTOM_MARGIN, GROUP_GAP, VALUES_WIDTH, HEADING_HEIGHT, N_TICKS = 300, 42, 7, 42, 24, 5
SIZE = SimpleNamespace(
    width=480, left=46, right=466, bar=11, labels=150, legend_row=18, max_label=22, max_name=62, colours=6
)
"""Sizes of charts in pixels, with the ends of the x axis, and maximum lengths of texts."""


class Series(NamedTuple):
    """One line, or the bars of one colour."""

    name: str
    values: Sequence[float]


def annotation_page(evaluation: AnnotationEvaluation, names: list[str], results: summaries.Figures) -> Report:
    """Return the page on annotation; `PAGE_METRICS` must be measured, `results` come from `annotation_results`."""
    left_out_note = f", of which {evaluation.n_unknown:,} are not in the vocabulary" if evaluation.n_unknown else ""
    report = Report(
        f"How well {' and '.join(names) if len(names) < 3 else f'{len(names)} runs'} put tags on images",
        f"Measured on {count_of(len(evaluation.corpus), 'image')} and {count_of(len(evaluation.vocabulary), 'tag')}, "
        f"against the tags that people gave: {evaluation.n_given:,}{left_out_note}.",
        thumbnail=SMALL_THUMBNAIL_SIDE,
    )
    _add_metrics(report, names, results)
    _add_precision_curves(report, names, results)
    _add_bands(report, names, results["bands"])
    if "wanted_precision" in results:
        _add_precision(report, results["wanted_precision"])
    _add_tags(report, evaluation, names, results)
    metrics = [metric for metric in results["runs"][0]["metrics"] if is_mean(metric)]
    compared_metrics = [metric for metric in COMPARED_METRICS if metric in metrics] or metrics[: len(COMPARED_METRICS)]
    _add_differences(report, results, compared_metrics, "images (for measures of tags and words: tags)")
    if len(names) > 1 and len(compared_metrics) < len(metrics):
        other_metrics = [metric for metric in metrics if metric not in compared_metrics]
        report.note(f"results.json has the comparisons by {', '.join(other_metrics)}.")
    _add_pictures(report, evaluation, names)
    return report


def query_page(evaluation: QueryEvaluation, names: list[str], results: summaries.Figures) -> Report:
    """Return the page on searches for the runs with these names; `results` come from `query_results`."""
    report = Report(
        f"How well {' and '.join(names) if len(names) < 3 else f'{len(names)} runs'} find images by words",
        f"Measured by {count_of(len(evaluation.texts), 'query')} on {count_of(len(evaluation.corpus), 'image')}.",
        thumbnail=SMALL_THUMBNAIL_SIDE,
    )
    measures = list(evaluation.values[0])
    _add_kinds(report, results, measures)
    _add_query_curves(report, evaluation, names)
    _add_differences(report, results, measures, "queries")
    _add_queries(report, evaluation, names)
    return report


def _add_metrics(report: Report, names: list[str], results: summaries.Figures) -> None:
    report.section(
        "Measures",
        "Below each value is its 95 % bootstrap interval over images (for measures of tags and words: over tags)."
        f"{' The largest value of a row is marked.' * (len(names) > 1)}",
    )
    rows = []
    runs = results["runs"]
    for name in runs[0]["metrics"]:
        highest = max(run["metrics"][name]["mean"] for run in runs)
        [(metric, _)] = check_metrics(name).values()
        is_best = [len(runs) > 1 and run["metrics"][name]["mean"] == highest for run in runs]
        cells = [_cell(run["metrics"], name, "best" * best) for run, best in zip(runs, is_best, strict=True)]
        rows.append([Cell(name, metric.summary), *cells])
    report.cells(["measure", *names], rows)


def _add_precision_curves(report: Report, names: list[str], results: summaries.Figures) -> None:
    runs = results["runs"]
    report.section(
        "Precision as more tags are given",
        "Precision at k is the share of right tags among the first k. Recall at k is the share of people's tags that "
        "are among the first k. Both are averaged over images.",
    )
    precisions = [Series(name, run["precision_at_k"]) for name, run in zip(names, runs, strict=True)]
    recalls = [run["recall_at_k"] for run in runs]
    rows = [
        [Cell(str(k)), *(Cell(f"{run[kind][k - 1]:.3f}") for kind in ("precision_at_k", "recall_at_k") for run in runs)]
        for k in summaries.CURVE_KS
    ]
    header = ["k", *(f"{kind}{f', {name}' * (len(names) > 1)}" for kind in ("precision", "recall") for name in names)]
    by_k = line_chart("Precision at k", "k", "precision", [list(summaries.CURVE_KS)] * len(runs), precisions)
    by_recall = line_chart("Precision by recall", "recall", "precision", recalls, precisions)
    report.columns([(by_k, header, rows), (by_recall, (), ())])


def _add_bands(report: Report, names: Sequence[str], bands: Sequence[summaries.Figures]) -> None:
    """Add a table per run, with one row per band of `band_summary`."""
    report.section(
        "Rare and frequent tags",
        "Tags in bands by their number of training images. Every image gets its five best tags from all bands; the "
        "means are over the tags of the band that a measured image has.",
    )
    metrics = summaries.band_metrics(bands)
    for number, name in enumerate(names):
        rows = []
        for band in bands:
            figures = band["runs"][number]["metrics"]
            cells = [_cell(figures, metric) for metric in metrics]
            counts = [Cell(f"{band['tags']:,}", f"{band['measured_tags']:,} measured"), Cell(f"{band['images']:,}")]
            rows.append([Cell(band["band"]), *counts, *cells])
        report.cells(["training photos of a tag", "tags", "photos", *metrics], rows, name if len(names) > 1 else "")


def _add_precision(report: Report, precision: summaries.Figures) -> None:
    """Add a table per run; `precision` comes from `precision_summary`."""
    wanted, runs = precision["wanted"], precision["runs"]
    report.section(
        "Requested and achieved precision",
        f"Every image gets the tags above a cut-off for a precision of {wanted:.0%}, which was chosen on the run's "
        "held-out images. Below each share of right tags is its 95 % interval.",
    )
    for run in runs:
        rows = [[Cell(text, note) for text, note in summaries.precision_cells(row, wanted)] for row in run["bands"]]
        report.cells(summaries.PRECISION_HEADER, rows, run["run"] if len(runs) > 1 else "")


def _add_tags(report: Report, evaluation: AnnotationEvaluation, names: list[str], results: summaries.Figures) -> None:
    counts = np.array(results["tag_images"])
    precision = evaluation.values[0][summaries.METRIC_OF_TAG_MEASURE["average precision"]]
    frequent_tags = np.lexsort((np.arange(counts.size), -counts))
    frequent_tags = frequent_tags[counts[frequent_tags] > 0][:N_CHART_TAGS]
    min_images = min(MIN_TAG_IMAGES, int(counts.max(initial=0)))
    rated_tags = np.flatnonzero((counts >= min_images) & ~np.isnan(precision))
    worst_tags = rated_tags[np.lexsort((-counts[rated_tags], precision[rated_tags]))][:N_CHART_TAGS]
    report.section(
        "Tag by tag",
        "Average precision: of all images, ranked by the score of the tag. "
        f"Recall at {summaries.TAG_K}: the share of the tag's images that get it among their {summaries.TAG_K} tags. "
        "In brackets: the number of images with the tag.",
    )

    for heading, tags in (
        (f"The {len(frequent_tags)} most frequent tags", frequent_tags),
        (f"The {len(worst_tags)} worst tags, of those that at least {min_images} images have", worst_tags),
    ):
        report.subsection(heading)
        labels = [(evaluation.vocabulary.tags[tag], f"({counts[tag]:,})") for tag in tags]
        charts = []
        for measure in ("average precision", f"recall@{summaries.TAG_K}"):
            values = [
                run_values[summaries.METRIC_OF_TAG_MEASURE[measure]][tags].tolist() for run_values in evaluation.values
            ]
            bars = [Series(name, tag_values) for name, tag_values in zip(names, values, strict=True)]
            charts.append((bar_chart(f"{heading}: {measure}", measure, labels, bars), (), ()))
        report.columns(charts)


def _add_differences(report: Report, results: summaries.Figures, measures: Sequence[str], items: str) -> None:
    """Add a section that compares all pairs of runs, with a table per measure, if there are several runs.

    `results` has the ``runs`` and ``pairs`` of a summary; `items` is the noun for the compared items: "images".
    """
    names = [run["run"] for run in results["runs"]]
    if len(names) < 2:
        return
    n_pairs = len(names) * (len(names) - 1) // 2
    correction_note = f", p-values corrected for the {n_pairs} pairs (Holm)" if n_pairs > 1 else ""
    report.section(
        "Significant differences",
        f"Mean difference of the run of each row from the run of each column, and whether it is significant at 95 % by "
        f"Wilcoxon's signed-rank test over {items}{correction_note}.",
    )

    for measure in measures:
        rows = [[Cell(name), *[Cell("")] * len(names)] for name in names]
        for (first, second), pair in zip(combinations(range(len(names)), 2), results["pairs"], strict=True):
            difference = pair[measure]
            for row, column, sign in ((first, second, 1), (second, first, -1)):
                verdict, mark = VERDICT_TEXTS[sign * difference["better"]]
                note = f"{verdict}, p = {difference['holm_p']:.2g}"
                rows[row][column + 1] = Cell(f"{sign * difference['mean']:+.3f}", note, mark)
        report.cells(["", *names], rows, caption=measure)


def _add_pictures(report: Report, evaluation: AnnotationEvaluation, names: Sequence[str]) -> None:
    precision = evaluation.values[0]["map"]
    best, worst = best_and_worst(precision, np.zeros(precision.size, np.int64), N_PICTURES)
    run_text = f" of {names[0]}" if len(names) > 1 else ""
    report.section(
        f"The images with the best tags{run_text}, and with the worst",
        "By the average precision of all tags, ranked for the image. The first few tags are shown.",
    )
    report.note_on_pictures(evaluation.corpus)
    report.legend("people gave it too", "people did not")
    corpus, tags = evaluation.corpus, evaluation.vocabulary.tags
    for heading, images in (("Best", best), ("Worst", worst)):
        if not images:
            continue
        report.subsection(heading)
        cards = []
        for image, ranking in zip(images, evaluation.best_tags(images, N_LISTED_TAGS), strict=True):
            picture = Shown(corpus.images[image], name=corpus.names[image])
            relevant = evaluation.Y[[image]].toarray()[0] > 0
            chips = [Tag(tags[tag], float(score)) for tag, score in zip(*ranking, strict=True)]
            right = np.flatnonzero(relevant[ranking.ids]).tolist()
            cards.append((picture, f"average precision {precision[image]:.2f}", chips, right, corpus.tags[image]))
        report.tagged(cards)


def _add_kinds(report: Report, results: summaries.Figures, measures: Sequence[str]) -> None:
    """Add a table of kinds by measures for a single run; for several runs, a table of kinds by runs per measure."""
    report.section(
        "Measures by kind of query",
        "AvgP: average precision. BEP: precision at the number of relevant images (break-even point). P10: precision "
        "among the first ten. nDCG10, if some images are more relevant than others: the discounted gain of the first "
        "ten as a share of the largest possible. Below each value is its 95 % bootstrap interval over queries. "
        f"Easy queries have {MIN_EASY_IMAGES} or more relevant images, difficult queries have fewer. Seen queries have "
        "a relevant training image, test-only queries have none.",
    )
    runs = results["runs"]
    tables = {measure: [(run["run"], run["kinds"], measure) for run in runs] for measure in measures}
    if len(runs) == 1:
        tables = {"": [(measure, runs[0]["kinds"], measure) for measure in measures]}

    for caption, columns in tables.items():
        rows = []
        for kind, figures in runs[0]["kinds"].items():
            means = [kinds[kind][measure]["mean"] for _, kinds, measure in columns]
            marks = ["best" if caption and mean == max(means) else "" for mean in means]
            cells = [
                _cell(kinds[kind], measure, mark) for (_, kinds, measure), mark in zip(columns, marks, strict=True)
            ]
            rows.append([Cell(kind), Cell(f"{figures['queries']:,}"), *cells])
        report.cells(["queries", "number", *(name for name, _, _ in columns)], rows, caption)


def _cell(figures: summaries.Figures, metric: str, mark: str = "") -> Cell:
    """Return the cell of a metric with its interval; a dash if it has no value."""
    return Cell(summaries.band_figure(figures, metric), summaries.interval_text(figures.get(metric)), mark)


def _add_query_curves(report: Report, evaluation: QueryEvaluation, names: Sequence[str]) -> None:
    report.section(
        "Precision curves",
        "Averaged over all queries. Precision by recall is interpolated: the best precision at this recall or more.",
    )
    ranks = range(1, MAX_CURVE_RANK + 1)
    charts = []
    for title, x_label, header, x, curves in (
        ("Precision by recall", "recall", "recall", RECALLS, evaluation.precision_at_recall),
        ("Precision by rank", "images looked at", "images", ranks, evaluation.precision_at_rank),
    ):
        lines = [Series(name, curve.tolist()) for name, curve in zip(names, curves, strict=True)]
        rows = [[Cell(f"{a:g}"), *(Cell(f"{line.values[i]:.3f}") for line in lines)] for i, a in enumerate(x)]
        charts.append((line_chart(title, x_label, "precision", [list(x)] * len(lines), lines), [header, *names], rows))
    report.columns(charts)


def _add_queries(report: Report, evaluation: QueryEvaluation, names: Sequence[str]) -> None:
    run_names = names[:MAX_PICTURED_RUNS]
    best, worst = best_and_worst(evaluation.values[0]["AvgP"], evaluation.n_relevant, N_ROWS // (2 * len(run_names)))
    run_text = f" of {names[0]}" if len(names) > 1 else ""
    report.section(
        f"The best queries{run_text}, and the worst",
        f"By average precision; ties are broken by more relevant images. Below each query are its first "
        f"{N_QUERY_PICTURES} images, best first; relevant images are outlined and ticked.",
    )
    report.note_on_pictures(evaluation.corpus)

    for heading, queries in (("Best", best), ("Worst", worst)):
        if not queries:
            continue
        report.subsection(heading)
        rankings = [evaluation.best_images(queries, N_QUERY_PICTURES, number) for number in range(len(run_names))]
        for row, query in enumerate(queries):
            note = f"{count_of(int(evaluation.n_relevant[query]), 'relevant image')}, average precision "
            note += " · ".join(f"{values['AvgP'][query]:.2f}" for values in evaluation.values[: len(run_names)])
            report.query(evaluation.texts[query], note, level=4)
            relevant = set(evaluation.relevant.indices[slice(*evaluation.relevant.indptr[query : query + 2])].tolist())
            for name, run_rankings in zip(run_names, rankings, strict=True):
                images = [
                    Shown(evaluation.corpus.images[image], image in relevant, evaluation.corpus.names[image])
                    for image in run_rankings[row].ids.tolist()
                ]
                report.found(name if len(names) > 1 else "", images)


def best_and_worst(values: Doubles, n_relevant: Ints, max_queries: int) -> tuple[list[int], list[int]]:
    """Return the numbers of up to `max_queries` best queries (or images) and of the worst queries, without overlap.

    For equal values, queries with more relevant images come first in both lists: their values are more reliable.
    """
    defined_queries = np.flatnonzero(~np.isnan(values))
    best_first = defined_queries[np.lexsort((defined_queries, -n_relevant[defined_queries], -values[defined_queries]))]
    worst_first = defined_queries[np.lexsort((defined_queries, -n_relevant[defined_queries], values[defined_queries]))]
    best = best_first[: min(max_queries, (defined_queries.size + 1) // 2)].tolist()
    return best, [query for query in worst_first.tolist() if query not in best][:max_queries]


def line_chart(title: str, x_label: str, y_label: str, x: Sequence[Sequence[float]], lines: Sequence[Series]) -> str:
    """Return a line chart with points as SVG; both axes start at 0 and end at a round number.

    `x` has the x values of each line, and `lines` the y values.
    """
    x_ticks = _ticks(max((max(x_values, default=0.0) for x_values in x), default=1.0))
    y_ticks = _ticks(max((max(line.values, default=0.0) for line in lines), default=1.0))
    top = _legend_height(lines)
    height = LINES_HEIGHT + top
    bottom = height - BOTTOM_MARGIN

    def x_at(value: float) -> float:
        return float(SIZE.left + (SIZE.right - SIZE.left) * value / x_ticks[-1])

    def y_at(value: float) -> float:
        return bottom - (bottom - top - 12) * value / y_ticks[-1]

    points = [
        [(x_at(a), y_at(b), f"{line.name}: {y_label} {b:.3f} at {x_label} {a:.3g}") for a, b in zip(*pair, strict=True)]
        for line, pair in ((line, (x_values, line.values)) for x_values, line in zip(x, lines, strict=True))
    ]
    ticks = [(x_at(tick), tick) for tick in x_ticks], [(y_at(tick), tick) for tick in y_ticks]
    return str(MACROS.line_chart(title, x_label, y_label, lines, points, *ticks, SIZE, top, bottom, height))


def bar_chart(title: str, caption: str, labels: Sequence[tuple[str, str]], bars: Sequence[Series]) -> str:
    """Return a chart of horizontal bars as SVG, with a group of bars per label and one bar per series.

    `title` is for screen readers, and `caption` is shown above the bars. A label is the name of a group and a note
    after it. A series has a value from 0 to 1 (the full width) per label; NaN draws no bar.
    """
    top = _legend_height(bars) + HEADING_HEIGHT
    group_height = SIZE.bar * len(bars) + GROUP_GAP
    full_width = SIZE.width - SIZE.labels - VALUES_WIDTH
    height = top + len(labels) * group_height
    return str(MACROS.bar_chart(title, caption, labels, bars, SIZE, top, group_height, full_width, height))


def _legend_height(series: Sequence[Series]) -> int:
    """Return the height of a legend with one series per row; a single series has none."""
    return SIZE.legend_row * len(series) if len(series) > 1 else 0


def _ticks(maximum: float) -> list[float]:
    """Return about five round numbers, from 0 to the first round number that is not below `maximum`."""
    if not maximum > 0:
        return [0.0, 1.0]
    min_step = maximum / N_TICKS
    power = 10.0 ** math.floor(math.log10(min_step))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= min_step * 0.999)
    return [step * number for number in range(math.ceil(maximum / step - 1e-9) + 1)]
