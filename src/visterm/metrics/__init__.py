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
    "METRICS": "visterm.metrics.table",
    "average_precisions": "visterm.metrics.ranking",
    "bootstrap_mean": "visterm.metrics.significance",
    "check_metrics": "visterm.metrics.table",
    "compare_pairs": "visterm.metrics.comparison",
    "evaluate": "visterm.metrics.report",
    "kinds_of_queries": "visterm.metrics.queries",
    "measure": "visterm.metrics.report",
    "measure_queries": "visterm.metrics.queries",
    "paired_bootstrap": "visterm.metrics.significance",
    "rank_queries": "visterm.metrics.queries",
    "sibling_precisions": "visterm.metrics.siblings",
    "signed_ranks": "visterm.metrics.significance",
}

__all__ = [
    "METRICS",
    "average_precisions",
    "bootstrap_mean",
    "check_metrics",
    "compare_pairs",
    "evaluate",
    "kinds_of_queries",
    "measure",
    "measure_queries",
    "paired_bootstrap",
    "rank_queries",
    "sibling_precisions",
    "signed_ranks",
]


def __getattr__(name: str) -> Any:
    """Import a public name at its first use: the table of metrics is listed without loading Numba."""
    if name not in _EXPORTS:
        raise AttributeError(f"module 'visterm.metrics' has no attribute '{name}'; public names: {', '.join(__all__)}")
    return getattr(import_module(_EXPORTS[name]), name)
