"""Measures of annotation and search, and tests of differences between models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from visterm.core.registry import lazy_names

if TYPE_CHECKING:
    from visterm.metrics.ranking import Ranks, average_precisions, ratio
    from visterm.metrics.report import evaluate, measure
    from visterm.metrics.retrieval import kinds_of_queries, measure_queries, rank_images, rank_queries
    from visterm.metrics.significance import (
        Difference,
        SignedRanks,
        bootstrap_mean,
        compare_pairs,
        holm,
        paired_bootstrap,
        signed_ranks,
    )
    from visterm.metrics.table import METRICS, check_metrics

_NAMES = {
    "ranking": "Ranks average_precisions ratio",
    "report": "evaluate measure",
    "retrieval": "kinds_of_queries measure_queries rank_images rank_queries",
    "significance": "Difference SignedRanks bootstrap_mean compare_pairs holm paired_bootstrap signed_ranks",
    "table": "METRICS check_metrics",
}
"""Names that plug-ins may use, by module: docs/add_a_model.md."""

__getattr__, __dir__ = lazy_names("visterm.metrics", _NAMES)
