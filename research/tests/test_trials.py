"""Choosing settings where some of them cannot be fitted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from planted_figures import problem
from visterm.core.errors import DivergedError, TooLargeError
from visterm.models.neighbours.knn import Knn
from visterm_research.comparison.methods import Method
from visterm_research.comparison.search import Axis
from visterm_research.comparison.trials import Trials

METHOD = Method("k-NN", "knn", box={"n_neighbors": Axis((1, 2, 4, 8), low=1)})


@pytest.fixture(params=[DivergedError, TooLargeError])
def refusing_from(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Have k-NN refuse this number of neighbours, and larger ones."""
    fit = Knn.fit

    def refuse_from(largest: int) -> None:
        def fit_or_refuse(self: Knn, *args: Any, **kwargs: Any) -> Knn:
            if self.n_neighbors >= largest:
                raise request.param("planted")
            return fit(self, *args, **kwargs)

        monkeypatch.setattr(Knn, "fit", fit_or_refuse)

    return refuse_from


def test_settings_that_cannot_be_fitted_are_left_out_and_counted(refusing_from: Any, tmp_path: Path) -> None:
    refusing_from(4)
    (choice,) = Trials(tmp_path).choose(problem(), METHOD)
    assert choice.settings["n_neighbors"] < 4
    assert {one["n_neighbors"] for one, record in choice.tried if "failed" in record} >= {4, 8}
    assert "diverged or too large" in choice.shown_tried


def test_a_method_without_any_fit_is_refused_with_the_reason(refusing_from: Any, tmp_path: Path) -> None:
    refusing_from(1)
    with pytest.raises(DivergedError, match=r"None of the \d settings of k-NN .* planted"):
        Trials(tmp_path).choose(problem(), METHOD)


def test_hours_are_those_of_each_fit_once_whether_made_now_or_before(tmp_path: Path) -> None:
    trials = Trials(tmp_path)
    (choice,) = trials.choose(problem(), METHOD)
    expected = sum(record["seconds"] for _, record in choice.tried) / 3600
    assert trials.hours == pytest.approx(expected)
    assert expected > 0
    trials.choose(problem(), METHOD)
    again = Trials(tmp_path)
    again.choose(problem(), METHOD)
    assert trials.hours == again.hours == pytest.approx(expected)
