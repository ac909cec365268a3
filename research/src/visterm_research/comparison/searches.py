"""How much other seeds of the search change: intervals of differences that cover the search, too."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t

from visterm_research.comparison.claims import percent
from visterm_research.comparison.document import Document
from visterm_research.comparison.verdicts import LEVEL, UNSURE, by_interval

SEARCHES = "searches.json"
"""Beside a report: the validation score of the chosen setting of each method for each seed of the search."""

_INTERVAL = re.compile(r"interval of the difference (-?[\d.]+) % to (-?[\d.]+) %")


def read_searches(folder: Path) -> dict[str, Any] | None:
    """Return what `SEARCHES` holds in the folder of a report; None if it is not there."""
    path = folder / SEARCHES
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def with_search(low: float, high: float, differences: Sequence[float]) -> tuple[float, float]:
    """Widen the interval of a difference over test images by what seeds of the search change.

    Parameters
    ----------
    low, high : float
        The 95 % interval of one search.
    differences : sequence of float
        The difference on validation rows for each seed, two or more. Its standard deviation, times Student's factor for
        so few seeds, is added to half the interval as independent errors are: by squares.
    """
    n = len(differences)
    spread = float(t.ppf((1 + LEVEL) / 2, n - 1)) * float(np.std(differences, ddof=1))
    half = math.hypot((high - low) / 2, spread)
    return (low + high) / 2 - half, (low + high) / 2 + half


def searches_part(document: Document, searches: Mapping[str, Any], claims: Sequence[Mapping[str, Any]]) -> None:
    """Write the orders between methods that were searched with several seeds, by what settings are chosen by.

    Parameters
    ----------
    searches : mapping
        ``seeds``, ``command``, and ``scores``: by problem and method, a score for each seed, in the order of `seeds`.
    claims : sequence of dict
        The orders of the report.
    """
    rows: list[list[str]] = []
    decided, still = 0, 0
    for claim in claims:
        scores = searches["scores"].get(claim["problem"], {})
        interval = _INTERVAL.search(claim["detail"])
        if claim["of"] != searches["measure"] or not interval or not {claim["first"], claim["second"]} <= scores.keys():
            continue
        differences = np.subtract(scores[claim["first"]], scores[claim["second"]]).tolist()
        low, high = (float(bound) / 100 for bound in interval.groups())
        wide = with_search(low, high, differences)
        before, after = by_interval(low, high), by_interval(*wide)
        decided, still = decided + (before != UNSURE), still + (after == before != UNSURE)
        rows.append(
            [
                claim["problem"],
                f"{claim['first']} {claim['relation']} {claim['second']}",
                ", ".join(map(percent, differences)),
                f"{percent(low)} to {percent(high)}",
                f"{percent(wide[0])} to {percent(wide[1])}",
            ]
        )
    if not rows:
        return
    seeds = searches["seeds"]
    document.section(
        "How much other seeds of the search change",
        f"These methods were searched with {len(seeds)} seeds, which draw other settings to try and other starts of "
        "training. For each seed the setting with the best score on the validation rows was chosen; test rows were not "
        f"used. Of {decided} orders that the intervals over test images decide, {still} are still decided by intervals "
        "that cover the search, too.",
    )
    header = ["on", "order", "difference on validation rows by seed", "interval over test images", "with the search"]
    document.table(f"Orders by {searches['measure']} with several seeds of the search", header, rows)
    document.text(f"Made by `{searches['command']}`.")
