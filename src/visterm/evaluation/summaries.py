"""The results of an evaluation as JSON: summaries for `--json`, and full results for `results.json`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from visterm.core.types import Doubles, Ints
from visterm.evaluation.evaluate import AnnotationEvaluation, Ranker, figures_of, is_mean
from visterm.evaluation.query_evaluation import RECALLS, QueryEvaluation
from visterm.metrics.annotation import band_values, frequency_bands
from visterm.metrics.significance import compare_pairs, interval_of, share_of_right
from visterm.tagging.annotating import cutoff_of

Figures: TypeAlias = dict[str, Any]  # Results by name, as values that JSON supports

CURVE_KS = range(1, 11)
TAG_K = 5
PAGE_METRICS = (
    "map", "word_map", f"tag_p@{TAG_K}", f"tag_r@{TAG_K}", *(f"p@{k}" for k in CURVE_KS), *(f"r@{k}" for k in CURVE_KS)
)  # fmt: skip
"""Metrics that the page on annotation needs in addition to the requested ones."""

METRIC_OF_TAG_MEASURE = {
    "average precision": "word_map", f"precision@{TAG_K}": f"tag_p@{TAG_K}", f"recall@{TAG_K}": f"tag_r@{TAG_K}",
}  # fmt: skip

BAND_METRICS = (f"tag_p@{TAG_K}", f"tag_r@{TAG_K}", f"tag_f1@{TAG_K}", f"n_plus@{TAG_K}", "word_map")
"""Metrics of a band: the first two must be measured, the last is optional, the others follow from the first two."""

PRECISION_HEADER = ("training photos of a tag", "requested", "achieved", "right", "tags per photo", "recall")


def annotation_summary(evaluation: AnnotationEvaluation, names: Sequence[str], metrics: Sequence[str]) -> Figures:
    """Return the metrics of each run with intervals, and the comparisons of each pair of runs."""
    runs = [
        {"run": name, "metrics": figures_of({metric: values[metric] for metric in metrics})}
        for name, values in zip(names, evaluation.values, strict=True)
    ]
    pairs = _pair_figures(evaluation.values, filter(is_mean, metrics), names)
    return {"images": len(evaluation.corpus), "tags": len(evaluation.vocabulary), "runs": runs, "pairs": pairs}


def annotation_results(evaluation: AnnotationEvaluation, summary: Figures) -> Figures:
    """Return a summary with additional bands of tags, curves, and the values of all images and tags.

    `PAGE_METRICS` must have been measured. Bands in the summary are not computed again.
    """
    results: Figures = {"measured": "annotation"} | summary | {"runs": [dict(run) for run in summary["runs"]]}
    results["bands"] = summary.get("bands") or band_summary(evaluation, [run["run"] for run in summary["runs"]])

    counts = np.bincount(evaluation.Y.indices[evaluation.Y.data > 0], minlength=len(evaluation.vocabulary)).tolist()
    tag_names = evaluation.vocabulary.tags
    results |= {"image_names": evaluation.corpus.names, "tag_names": tag_names, "tag_images": counts}
    for number, run in enumerate(results["runs"]):
        values = evaluation.values[number]
        run["precision_at_k"] = [evaluation.mean(f"p@{k}", number) for k in CURVE_KS]
        run["recall_at_k"] = [evaluation.mean(f"r@{k}", number) for k in CURVE_KS]
        run["average_precision_of_images"] = _numbers(values["map"])
        run["of_tags"] = {name: _numbers(values[metric]) for name, metric in METRIC_OF_TAG_MEASURE.items()}
    return results


def query_summary(evaluation: QueryEvaluation, names: Sequence[str]) -> Figures:
    """Return means with intervals per run and kind of query, and the comparisons of each pair of runs."""
    measures, runs = list(evaluation.values[0]), []
    for number, name in enumerate(names):
        kinds: Figures = {}
        for kind, mask in evaluation.kinds.items():
            if not math.isnan(evaluation.mean("AvgP", kind, number)):
                values = {measure: evaluation.values[number][measure][mask] for measure in measures}
                intervals = {measure: interval_of(array)._asdict() for measure, array in values.items()}
                kinds[kind] = {"queries": int(mask.sum())} | intervals
        runs.append({"run": name, "kinds": kinds})

    pairs = _pair_figures(evaluation.values, measures, names)
    return {"queries": len(evaluation.texts), "runs": runs, "pairs": pairs}


def query_results(evaluation: QueryEvaluation, summary: Figures) -> Figures:
    """Return a summary with additional curves, and the kinds and values of all queries."""
    results: Figures = {"measured": "queries"} | summary | {"runs": [dict(run) for run in summary["runs"]]}
    results |= {
        "left_out": evaluation.left_out,
        "query_texts": evaluation.texts,
        "query_relevant_images": evaluation.n_relevant.tolist(),
        "query_kinds": {kind: mask.tolist() for kind, mask in evaluation.kinds.items() if kind != "all"},
        "recall_levels": list(RECALLS),
    }
    for number, run in enumerate(results["runs"]):
        run["interpolated_precision_at_recall"] = _numbers(evaluation.precision_at_recall[number])
        run["precision_at_rank"] = _numbers(evaluation.precision_at_rank[number])
        run["of_queries"] = {measure: _numbers(values) for measure, values in evaluation.values[number].items()}
    return results


def _pair_figures(values: Sequence[dict[str, Doubles]], measures: Iterable[str], names: Sequence[str]) -> list[Figures]:
    """Compare each pair of runs by their values of each measure; return one entry per pair."""
    pairs: dict[tuple[int, int], Figures] = {}
    for measure in measures:
        for pair in compare_pairs([run_values[measure] for run_values in values]):
            first, second, difference = pair.first, pair.second, pair.difference
            pairs.setdefault((first, second), {"first": names[first], "second": names[second]})[measure] = {
                "mean": difference.mean, "low": difference.low, "high": difference.high,
                "wilcoxon_p": pair.ranks.p_value, "holm_p": pair.holm_p, "better": pair.better(),
            }  # fmt: skip
    return list(pairs.values())


def _numbers(values: Doubles | Iterable[float]) -> list[float | None]:
    """Return numbers rounded to six decimals, with None for NaN, which JSON does not support."""
    return [None if math.isnan(value) else round(float(value), 6) for value in values]


def band_summary(evaluation: AnnotationEvaluation, names: Sequence[str]) -> list[Figures]:
    """Return the measures per band of tags and run, the rarest band first.

    The evaluation needs ``tag_p@5`` and ``tag_r@5``; ``word_map`` is optional. Each band has its name; the minimum and
    maximum number of training images of a tag in the first run (None: unlimited); the number of tags, of tags on the
    measured images, and of images with one of the tags; and for each run the metrics, as means with 95 % bootstrap
    intervals over the tags.
    """
    bands = []
    for band in frequency_bands(evaluation.vocabulary.counts):
        relevant = evaluation.Y[:, band.tags] > 0
        runs = [
            {"run": name, "metrics": figures_of(band_values(values, band, TAG_K))}
            for name, values in zip(names, evaluation.values, strict=True)
        ]
        bands.append({
            "band": band.name,
            "least": band.least,
            "most": None if band.most < 0 else band.most,
            "tags": int(band.tags.size),
            "measured_tags": int(np.count_nonzero(relevant.sum(axis=0))),
            "images": int(np.count_nonzero(relevant.sum(axis=1))),
            "runs": runs,
        })  # fmt: skip

    return bands


def band_metrics(bands: Sequence[Figures]) -> list[str]:
    """Return the metrics that at least one band has, in the order of display."""
    measured = {metric for band in bands for run in band["runs"] for metric in run["metrics"]}
    return [metric for metric in BAND_METRICS if metric in measured]


def band_figure(figures: Figures, metric: str) -> str:
    """Return a measure of a band as text: a dash without a value, and N+ as a whole number."""
    if metric not in figures:
        return "-"
    return f"{figures[metric]['mean']:.3f}" if not metric.startswith("n_plus") else f"{figures[metric]['mean']:.0f}"


def interval_text(figure: Figures | None) -> str:
    """Return the interval of a measure as text; "" if it has no interval."""
    return f"{figure['low']:.3f} to {figure['high']:.3f}" if figure is not None and "low" in figure else ""


def precision_summary(evaluation: AnnotationEvaluation, names: Sequence[str], precision: float) -> Figures:
    """Measure the share of right tags if each run predicts tags for a requested precision.

    Returns ``wanted``, and for each run ``bands``: all tags, then bands by training images of the first run, the rarest
    first. Each band has its name, the number of tags, ``given`` and ``right`` predictions over all images,
    ``precision`` (mean, low, high), ``reached`` (whether ``wanted`` is not above the interval), ``recall`` and
    ``tags_an_image``. Precision and ``reached`` are None without predictions, recall is None without tags from people.
    Raises UserError if a run has no calibration, or `precision` is not between 0 and 1.
    """
    all_tags = ("all", np.arange(len(evaluation.vocabulary)))
    bands = [all_tags, *((band.name, band.tags) for band in frequency_bands(evaluation.vocabulary.counts))]
    runs = []

    for name, ranker in zip(names, evaluation.rankers, strict=True):
        given_counts, right_counts = _counts(evaluation, ranker, precision, [tags for _, tags in bands])
        rows = []
        for number, (band, tags) in enumerate(bands):
            share = share_of_right(right_counts[number], given_counts[number])
            n_relevant, n_right = int((evaluation.Y[:, tags].data > 0).sum()), int(right_counts[number].sum())
            rows.append({
                "band": band,
                "tags": int(tags.size),
                "given": int(given_counts[number].sum()),
                "right": n_right,
                "precision": None if share is None else share._asdict(),
                "reached": None if share is None else share.high >= precision,
                "recall": n_right / n_relevant if n_relevant else None,
                "tags_an_image": float(given_counts[number].mean()),
            })  # fmt: skip
        runs.append({"run": name, "bands": rows})

    return {"wanted": precision, "runs": runs}


def _counts(evaluation: AnnotationEvaluation, ranker: Ranker, precision: float, bands: list[Ints]) -> tuple[Ints, Ints]:
    """Return the number of predicted and of right tags per band and image, shape (n_bands, n_images)."""
    cutoff: Any = cutoff_of(ranker.tagger.calibration, precision=precision)  # raises an error without a calibration
    given_counts, right_counts = np.zeros((2, len(bands), len(evaluation.corpus)), np.int64)
    columns = slice(None) if ranker.columns is None else ranker.columns
    for rows, scores in ranker.tagger.model.score_blocks(ranker.X):
        is_predicted = (ranker.tagger.confidences(scores) >= cutoff)[:, columns]
        if evaluation.hidden is not None:
            is_predicted &= evaluation.hidden[rows].toarray() == 0
        hits = is_predicted & (evaluation.Y[rows].toarray() > 0)
        for number, tags in enumerate(bands):
            given_counts[number, rows] = is_predicted[:, tags].sum(axis=1)
            right_counts[number, rows] = hits[:, tags].sum(axis=1)

    return given_counts, right_counts


def precision_cells(row: Figures, precision: float) -> list[tuple[str, str]]:
    """Return the cells of a band's row as (text, note below it); a dash for a missing value."""
    share, recall = row["precision"], row["recall"]
    return [
        (row["band"], ""),
        (f"{precision:.3f}", ""),
        ("-" if share is None else f"{share['mean']:.3f}", interval_text(share)),
        (f"{row['right']:,} of {row['given']:,}", ""),
        (f"{row['tags_an_image']:.2f}", ""),
        ("-" if recall is None else f"{recall:.3f}", ""),
    ]
