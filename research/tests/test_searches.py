"""Other seeds of the search: intervals that cover them, in the report beside those over test images."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from visterm_research.comparison.document import Document
from visterm_research.comparison.searches import SEARCHES, read_searches, searches_part, with_search

CLAIM = {
    "first": "A", "second": "B", "relation": "better than", "of": "MAP", "problem": "photos",
    "detail": "95 % interval of the difference 1.00 % to 3.00 %",
}  # fmt: skip
SEARCHED = {"measure": "MAP", "seeds": [0, 1, 2], "command": "python search_seeds.py", "scores": {}}


def part_of(scores: dict[str, list[float]], **claim: str) -> str:
    document = Document("A report")
    searches_part(document, {**SEARCHED, "scores": {"photos": scores}}, [{**CLAIM, **claim}])
    return document.render()


def test_an_interval_is_widened_by_the_spread_of_the_seeds() -> None:
    # Standard deviation of 0.01, 0.02, 0.03: 0.01; Student's factor of two degrees of freedom: 4.3027
    low, high = with_search(0.01, 0.03, [0.01, 0.02, 0.03])
    assert (low + high) / 2 == pytest.approx(0.02)
    assert high - low == pytest.approx(2 * (0.01**2 + (4.3027 * 0.01) ** 2) ** 0.5, rel=1e-4)


def test_seeds_that_agree_change_nothing() -> None:
    assert with_search(-0.01, 0.03, [0.02, 0.02, 0.02]) == pytest.approx((-0.01, 0.03))


def test_the_report_says_which_orders_other_seeds_leave_open() -> None:
    text = part_of({"A": [0.41, 0.42, 0.43], "B": [0.4, 0.4, 0.4]})
    assert "Of 1 orders that the intervals over test images decide, 0 are still decided" in text
    assert "| photos | A better than B | 1.00 %, 2.00 %, 3.00 % | 1.00 % to 3.00 % | -2.42 % to 6.42 % |" in text
    assert "1 are still decided" in part_of({"A": [0.42, 0.42, 0.421], "B": [0.4, 0.4, 0.4]})


@pytest.mark.parametrize("claim", [{"of": "p@1"}, {"first": "C"}, {"problem": "pages"}, {"detail": "Wilcoxon p = 0.1"}])
def test_orders_of_other_measures_methods_and_data_are_left_out(claim: dict[str, str]) -> None:
    assert "seeds" not in part_of({"A": [0.41, 0.42, 0.43], "B": [0.4, 0.4, 0.4]}, **claim)


def test_a_report_without_other_seeds_has_no_file_of_them(tmp_path: Path) -> None:
    assert read_searches(tmp_path) is None
    (tmp_path / SEARCHES).write_text(json.dumps(SEARCHED))
    assert read_searches(tmp_path) == SEARCHED
