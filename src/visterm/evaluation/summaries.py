"""All figures of an evaluation as plain JSON: what `--json` prints of it, and what `results.json` has besides."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from visterm.evaluation.evaluate import AnnotationEvaluation, Ranker, is_mean
from visterm.evaluation.query_evaluation import RECALLS, QueryEvaluation
from visterm.metrics.bands import band_values, frequency_bands
from visterm.metrics.significance import Compared, interval_of, share_of_right
from visterm.tagging.annotating import cutoff_of

Figures: TypeAlias = dict[str, Any]
"""What JSON has of an evaluation: lists, texts and numbers by name."""

CURVE_KS = range(1, 11)
TAG_K = 5
PAGE_METRICS = (
    "map", "word_map", f"tag_p@{TAG_K}", f"tag_r@{TAG_K}", *(f"p@{k}" for k in CURVE_KS), *(f"r@{k}" for k in CURVE_KS)
)  # fmt: skip
"""What the page of annotation needs beside the requested metrics."""

OF_A_TAG = {
    "average precision": "word_map", f"precision@{TAG_K}": f"tag_p@{TAG_K}", f"recall@{TAG_K}": f"tag_r@{TAG_K}",
}  # fmt: skip

BAND_METRICS = (f"tag_p@{TAG_K}", f"tag_r@{TAG_K}", f"tag_f1@{TAG_K}", f"n_plus@{TAG_K}", "word_map")
"""Measures of a band; of these, the first two must be measured, and the last may be."""

PRECISION_HEADER = ("training photos of a tag", "requested", "achieved", "right", "tags per photo", "recall")


def annotation_summary(evaluation: AnnotationEvaluation, names: Sequence[str], metrics: Sequence[str]) -> Figures:
    """Return the metrics of each run with intervals, and what comparing every two runs says of each metric."""
    runs = []
    for number, name in enumerate(names):
        intervals = {metric: evaluation.interval(metric, number) for metric in metrics}
        figures = {
            metric: {"mean": evaluation.mean(metric, number)} if interval is None else interval._asdict()
            for metric, interval in intervals.items()
        }
        runs.append({"run": name, "metrics": figures})
    pairs = _pairs({metric: evaluation.compare(metric) for metric in metrics if is_mean(metric)}, names)
    return {"images": len(evaluation.corpus), "tags": len(evaluation.vocabulary), "runs": runs, "pairs": pairs}


def annotation_results(evaluation: AnnotationEvaluation, summary: Figures) -> Figures:
    """Add to a summary the bands of tags, the curves and all values of images and tags.

    `PAGE_METRICS` must have been measured. Bands that the summary has are kept.
    """
    results: Figures = {"measured": "annotation"} | summary | {"runs": [dict(run) for run in summary["runs"]]}
    names = [run["run"] for run in summary["runs"]]
    results["bands"] = summary.get("bands") or band_summary(evaluation, names)

    counts = np.bincount(evaluation.Y.indices[evaluation.Y.data > 0], minlength=len(evaluation.vocabulary)).tolist()
    names_of_tags = evaluation.vocabulary.tags
    results |= {"image_names": evaluation.corpus.names, "tag_names": names_of_tags, "tag_images": counts}
    for number, run in enumerate(results["runs"]):
        values = evaluation.values[number]
        run["precision_at_k"] = [evaluation.mean(f"p@{k}", number) for k in CURVE_KS]
        run["recall_at_k"] = [evaluation.mean(f"r@{k}", number) for k in CURVE_KS]
        run["average_precision_of_images"] = _numbers(values["map"])
        run["of_tags"] = {name: _numbers(values[metric]) for name, metric in OF_A_TAG.items()}
    return results


def query_summary(evaluation: QueryEvaluation, names: Sequence[str]) -> Figures:
    """Return the means and intervals of each run by kind of query, and what comparing every two runs says."""
    measures, runs = list(evaluation.values[0]), []
    for number, name in enumerate(names):
        kinds: Figures = {}
        for kind, mask in evaluation.kinds.items():
            if not math.isnan(evaluation.mean("AvgP", kind, number)):
                intervals = {measure: evaluation.interval(measure, kind, number)._asdict() for measure in measures}
                kinds[kind] = {"queries": int(mask.sum())} | intervals
        runs.append({"run": name, "kinds": kinds})

    pairs = _pairs({measure: evaluation.compare(measure) for measure in measures}, names)
    return {"queries": len(evaluation.texts), "runs": runs, "pairs": pairs}


def query_results(evaluation: QueryEvaluation, summary: Figures) -> Figures:
    """Add to a summary the curves, and every query with its kinds and its values for each run."""
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


def _pairs(compared: dict[str, list[Compared]], names: Sequence[str]) -> list[Figures]:
    """Gather what every measure says of each two runs."""
    pairs: dict[tuple[int, int], Figures] = {}
    for measure, of_measure in compared.items():
        for pair in of_measure:
            first, second, difference = pair.first, pair.second, pair.difference
            pairs.setdefault((first, second), {"first": names[first], "second": names[second]})[measure] = {
                "mean": difference.mean, "low": difference.low, "high": difference.high,
                "wilcoxon_p": pair.ranks.p_value, "holm_p": pair.holm_p, "better": pair.better(),
            }  # fmt: skip
    return list(pairs.values())


def _numbers(values: NDArray[np.float64] | Iterable[float]) -> list[float | None]:
    """Return numbers of six digits, and None where a value is not defined, as JSON knows no NaN."""
    return [None if math.isnan(value) else round(float(value), 6) for value in values]


def band_summary(evaluation: AnnotationEvaluation, names: Sequence[str]) -> list[Figures]:
    """Return the measures of each band of tags, for each run.

    ``tag_p@5`` and ``tag_r@5`` are measured, and ``word_map`` if that is to be shown. Of each band, the rarest first:
    its name; the least and the most training images of a tag (None: no end), which are those of the first run; how many
    tags it has, how many of them a measured image has, and how many images have one; and for each run its metrics,
    means with 95 % bootstrap intervals over the tags.
    """
    bands = []
    for band in frequency_bands(evaluation.vocabulary.counts):
        relevant = evaluation.Y[:, band.tags] > 0
        runs = []
        for name, values in zip(names, evaluation.values, strict=True):
            figures = {
                metric: interval_of(of_tags)._asdict() if is_mean(metric) else {"mean": float(of_tags[0])}
                for metric, of_tags in band_values(values, band, TAG_K).items()
            }
            runs.append({"run": name, "metrics": figures})
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
    """Return the metrics that some band has, in the order in which they are shown."""
    measured = {metric for band in bands for run in band["runs"] for metric in run["metrics"]}
    return [metric for metric in BAND_METRICS if metric in measured]


def band_figure(figures: Figures, metric: str) -> str:
    """Write a figure of a band: a dash where no measured image has a tag of it, and N+ as a whole number."""
    if metric not in figures:
        return "-"
    return f"{figures[metric]['mean']:.3f}" if not metric.startswith("n_plus") else f"{figures[metric]['mean']:.0f}"


def between(figure: Figures | None) -> str:
    """Write the interval of a figure; nothing where it has none."""
    return f"{figure['low']:.3f} to {figure['high']:.3f}" if figure is not None and "low" in figure else ""


def precision_summary(evaluation: AnnotationEvaluation, names: Sequence[str], wanted: float) -> Figures:
    """Return each run's tags for a requested precision, and measure how many of them are right.

    ``wanted``, and for each run ``bands``: all tags, then the bands by training images of the first run, the rarest
    first. Of each its name, how many tags are in it, ``given`` and ``right`` over all images, ``precision`` (mean, low,
    high; None where none was given), ``reached`` (whether the requested precision is not above the interval; None
    likewise), ``recall`` (None where people gave none) and ``tags_an_image``. Raises UserError if a run does not know
    what a cut-off takes, or `wanted` is no share.
    """
    every = ("all", np.arange(len(evaluation.vocabulary)))
    bands = [every, *((band.name, band.tags) for band in frequency_bands(evaluation.vocabulary.counts))]
    runs = []

    for name, ranker in zip(names, evaluation.rankers, strict=True):
        given, right = _counts(evaluation, ranker, wanted, [tags for _, tags in bands])
        rows = []
        for number, (band, tags) in enumerate(bands):
            share = share_of_right(right[number], given[number])
            n_relevant, n_right = int((evaluation.Y[:, tags].data > 0).sum()), int(right[number].sum())
            rows.append({
                "band": band,
                "tags": int(tags.size),
                "given": int(given[number].sum()),
                "right": n_right,
                "precision": None if share is None else share._asdict(),
                "reached": None if share is None else share.high >= wanted,
                "recall": n_right / n_relevant if n_relevant else None,
                "tags_an_image": float(given[number].mean()),
            })  # fmt: skip
        runs.append({"run": name, "bands": rows})

    return {"wanted": wanted, "runs": runs}


def _counts(
    evaluation: AnnotationEvaluation, ranker: Ranker, wanted: float, bands: Sequence[NDArray[np.int64]]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count the tags of each band that each image is given, and the right ones, shape (n_bands, n_images)."""
    cutoff: Any = cutoff_of(ranker.tagger.calibration, precision=wanted)  # without a calibration it is refused
    given, right = np.zeros((2, len(bands), len(evaluation.corpus)), np.int64)
    columns = slice(None) if ranker.columns is None else ranker.columns
    for rows, scores in ranker.tagger.model.score_blocks(ranker.X):
        above = (ranker.tagger.confidences(scores) >= cutoff.least)[:, columns]
        if evaluation.hidden is not None:
            above &= evaluation.hidden[rows].toarray() == 0
        hits = above & (evaluation.Y[rows].toarray() > 0)
        for number, tags in enumerate(bands):
            given[number, rows], right[number, rows] = above[:, tags].sum(axis=1), hits[:, tags].sum(axis=1)
    return given, right


def precision_cells(row: Figures, wanted: float) -> list[tuple[str, str]]:
    """Write the figures of a band, each with what stands below it; a dash where there is none."""
    share, recall = row["precision"], row["recall"]
    return [
        (row["band"], ""),
        (f"{wanted:.3f}", ""),
        ("-" if share is None else f"{share['mean']:.3f}", between(share)),
        (f"{row['right']:,} of {row['given']:,}", ""),
        (f"{row['tags_an_image']:.2f}", ""),
        ("-" if recall is None else f"{recall:.3f}", ""),
    ]
