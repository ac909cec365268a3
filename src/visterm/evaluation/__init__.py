"""Evaluation of runs: metrics, curves, reports and comparisons."""

from __future__ import annotations

from typing import TYPE_CHECKING

from visterm.core.registry import lazy_names

if TYPE_CHECKING:
    from visterm.evaluation.html_report import Cell, Report, Shown
    from visterm.evaluation.joined_tags import NONE, JoinedTags, join_tags
    from visterm.evaluation.query_evaluation import MIN_COUNT

_NAMES = {
    "html_report": "Cell Report Shown",
    "joined_tags": "JoinedTags NONE join_tags",
    "query_evaluation": "MIN_COUNT",
}
"""Module -> names that plug-ins may use (docs/add_a_model.md)."""

__getattr__, __dir__ = lazy_names("visterm.evaluation", _NAMES)
