"""Measures of annotation and of search, and how sure one may be of a difference."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from visterm.metrics.comparison import compare_pairs
    from visterm.metrics.queries import kinds_of_queries, measure_queries, rank_queries
    from visterm.metrics.ranking import average_precisions
    from visterm.metrics.report import evaluate, measure
    from visterm.metrics.siblings import sibling_precisions
    from visterm.metrics.significance import bootstrap_mean, paired_bootstrap, signed_ranks
    from visterm.metrics.table import METRICS, check_metrics

_EXPORTS = {
    "comparison": ["compare_pairs"],
    "queries": ["kinds_of_queries", "measure_queries", "rank_queries"],
    "ranking": ["average_precisions"],
    "report": ["evaluate", "measure"],
    "siblings": ["sibling_precisions"],
    "significance": ["bootstrap_mean", "paired_bootstrap", "signed_ranks"],
    "table": ["METRICS", "check_metrics"],
}

__all__ = [
    "METRICS", "average_precisions", "bootstrap_mean", "check_metrics", "compare_pairs", "evaluate", "kinds_of_queries",
    "measure", "measure_queries", "paired_bootstrap", "rank_queries", "sibling_precisions", "signed_ranks",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import a public name at its first use: the table of metrics is listed without loading Numba."""
    for module, names in _EXPORTS.items():
        if name in names:
            return getattr(import_module(f"visterm.metrics.{module}"), name)
    raise AttributeError(f"module 'visterm.metrics' has no attribute '{name}'; public names: {', '.join(__all__)}")
