"""All figures of an evaluation as plain JSON: what `--json` prints of it, and what `results.json` holds besides."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visterm.evaluation.evaluate import AnnotationEvaluation, is_mean
from visterm.evaluation.query_evaluation import RECALLS, QueryEvaluation
from visterm.evaluation.report.tables import band_summary
from visterm.metrics.comparison import Compared

CURVE_KS = range(1, 11)
TAG_K = 5
PAGE_METRICS = (
    "map", "word_map", f"tag_p@{TAG_K}", f"tag_r@{TAG_K}", *(f"p@{k}" for k in CURVE_KS), *(f"r@{k}" for k in CURVE_KS)
)  # fmt: skip
"""What the page of annotation needs beside the requested metrics."""

OF_A_TAG = {
    "average precision": "word_map",
    f"precision@{TAG_K}": f"tag_p@{TAG_K}",
    f"recall@{TAG_K}": f"tag_r@{TAG_K}",
}


def annotation_summary(found: AnnotationEvaluation, names: Sequence[str], metrics: Sequence[str]) -> dict[str, Any]:
    """Return the metrics of each run with intervals, and what comparing every two runs says of each metric."""
    return {
        "images": len(found.corpus),
        "tags": len(found.vocabulary),
        "runs": [
            {"run": name, "metrics": {metric: _figure(found, metric, number) for metric in metrics}}
            for number, name in enumerate(names)
        ],
        "pairs": _pairs({metric: found.compare(metric) for metric in metrics if is_mean(metric)}, names),
    }


def annotation_results(found: AnnotationEvaluation, summary: dict[str, Any]) -> dict[str, Any]:
    """Add to a summary the bands of tags, the curves and all values of images and tags.

    `PAGE_METRICS` must have been measured. Bands that the summary has are kept.
    """
    results = {"measured": "annotation"} | summary | {"runs": [dict(run) for run in summary["runs"]]}
    names = [run["run"] for run in summary["runs"]]
    results["bands"] = summary.get("bands") or band_summary(found, names)
    counts = np.bincount(found.Y.indices[found.Y.data > 0], minlength=len(found.vocabulary))
    results["image_names"] = found.corpus.names
    results["tag_names"] = found.vocabulary.tags
    results["tag_images"] = counts.tolist()
    for number, run in enumerate(results["runs"]):
        values = found.values[number]
        run["precision_at_k"] = [found.mean(f"p@{k}", number) for k in CURVE_KS]
        run["recall_at_k"] = [found.mean(f"r@{k}", number) for k in CURVE_KS]
        run["average_precision_of_images"] = _numbers(values["map"])
        run["of_tags"] = {name: _numbers(values[metric]) for name, metric in OF_A_TAG.items()}
    return results


def query_summary(found: QueryEvaluation, names: Sequence[str]) -> dict[str, Any]:
    """Return the means and intervals of each run by kind of query, and what comparing every two runs says."""
    return {
        "queries": len(found.texts),
        "runs": [
            {
                "run": name,
                "kinds": {
                    kind: {"queries": int(mask.sum())}
                    | {measure: found.interval(measure, kind, number)._asdict() for measure in found.values[0]}
                    for kind, mask in found.kinds.items()
                    if not math.isnan(found.mean("AvgP", kind, number))
                },
            }
            for number, name in enumerate(names)
        ],
        "pairs": _pairs({measure: found.compare_all(measure) for measure in found.values[0]}, names),
    }


def query_results(found: QueryEvaluation, summary: dict[str, Any]) -> dict[str, Any]:
    """Add to a summary the curves, and every query with its kinds and its values for each run."""
    results = {"measured": "queries"} | summary | {"runs": [dict(run) for run in summary["runs"]]}
    results["left_out"] = found.left_out
    results["query_texts"] = found.texts
    results["query_relevant_images"] = found.n_relevant.tolist()
    results["query_kinds"] = {kind: mask.tolist() for kind, mask in found.kinds.items() if kind != "all"}
    results["recall_levels"] = list(RECALLS)
    for number, run in enumerate(results["runs"]):
        run["interpolated_precision_at_recall"] = _numbers(found.curves[number].at_recall)
        run["precision_at_rank"] = _numbers(found.curves[number].at_rank)
        run["of_queries"] = {measure: _numbers(found.values[number][measure]) for measure in found.values[number]}
    return results


def _figure(found: AnnotationEvaluation, metric: str, number: int) -> dict[str, Any]:
    interval = found.interval(metric, number)
    return {"mean": found.mean(metric, number)} if interval is None else interval._asdict()


def _pairs(compared: dict[str, list[Compared]], names: Sequence[str]) -> list[dict[str, Any]]:
    """Gather what every measure says of each two runs."""
    pairs: dict[tuple[int, int], dict[str, Any]] = {}
    for measure, found in compared.items():
        for pair in found:
            entry = pairs.setdefault(
                (pair.first, pair.second), {"first": names[pair.first], "second": names[pair.second]}
            )
            entry[measure] = {key: getattr(pair.difference, key) for key in ("mean", "low", "high")} | {
                "wilcoxon_p": pair.ranks.p_value,
                "holm_p": pair.holm_p,
                "better": pair.better(),
            }
    return list(pairs.values())


def _numbers(values: NDArray[np.float64] | Iterable[float]) -> list[float | None]:
    """Return numbers of six digits, and None where a value is not defined, as JSON knows no NaN."""
    return [None if math.isnan(value) else round(float(value), 6) for value in values]
