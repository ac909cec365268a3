"""What `visterm fit --queries` tells: how many queries were learned from, and what was left out."""

from __future__ import annotations

from typing import Any

from visterm.core.wording import count_of


def queries_learned(facts: dict[str, Any]) -> str:
    """Say how many queries were learned from."""
    return _queries(facts["queries"])


def queries_left_out(facts: dict[str, Any]) -> list[str]:
    """Say, in a line each, which queries were not learned from, and that images of queries are not there."""
    lines = []
    if unused := facts["queries left out"]:
        lines.append(
            f"{_queries(unused)} {'has' if unused == 1 else 'have'} no relevant image among those learned from, or no "
            "word of the run; left out."
        )
    if missing := facts["images of queries not there"]:
        lines.append(
            f"{count_of(missing, 'image')} that the queries name {'is' if missing == 1 else 'are'} not among those "
            "learned from."
        )
    return lines


def _queries(n: int) -> str:
    return f"{n:,} {'query' if n == 1 else 'queries'}"
