"""Planted results: shares and costs as a paper has them, turned around, or all equal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from visterm_research.comparison.claims import Claim
from visterm_research.comparison.methods import Method
from visterm_research.comparison.problem import Problem, Rows
from visterm_research.comparison.run import Comparison
from visterm_research.comparison.trials import Choice, Judged, Trials
from visterm_research.comparison.verdicts import NO, UNSURE, YES

NOISE = np.random.default_rng(0).normal(0, 0.01, 60)
"""Of sixty images, queries or relations, the same for every method: differences are what was planted."""

AS_PAPER: dict[str, Callable[[float], float]] = {
    YES: lambda figure: figure,
    NO: lambda figure: 1 - figure,
    UNSURE: lambda figure: 0.5,
}
"""Shares that make every order of a paper hold, none, or leave all open."""

COSTS: dict[str, Callable[[float], float]] = {YES: lambda cost: cost, NO: lambda cost: 1 / cost, UNSURE: lambda _: 7.0}
"""The same for costs, of which less is better."""

VERDICTS = pytest.mark.parametrize("verdict", [YES, NO, UNSURE])

METHOD = Method("any", "knn")


def comparison_in(folder: Path) -> Comparison:
    return Comparison(folder, Trials(folder, n_jobs=1))


def problem() -> Problem:
    rng = np.random.default_rng(0)
    rows = [
        Rows(rng.random((n, 4)).astype(np.float32), sp.csr_array((rng.random((n, 3)) < 0.5).astype(np.float32)))
        for n in (9, 6, 6)
    ]
    return Problem("planted", "planted rows", list("abc"), *rows, siblings=sp.csr_array(np.eye(3)))


def judged(figures: Mapping[str, float], cost: Mapping[str, float] | None = None, **record: Any) -> Judged:
    """What was found of a method that has these shares on average."""
    metrics = defaultdict(float, figures)
    values = {name: value + NOISE for name, value in figures.items()}
    costs = defaultdict(float, cost or {})
    return Judged(Choice(METHOD, "map", {"levels": 6}, record, []), {"metrics": metrics, "cost": costs}, values)


def let_swing(found: Iterable[Judged]) -> None:
    """Let values swing from image to image, each method's in a pattern of its own that changes no mean."""
    for one, half_period in zip(found, cycle((1, 2, 3, 5, 6, 10, 15)), strict=False):
        swings = np.where(np.arange(60) // half_period % 2, 0.05, -0.05)
        for name in one.values:
            one.values[name] = one.values[name] + swings


def verdicts(claims: Sequence[Claim]) -> set[str]:
    return {claim.verdict for claim in claims}


def shares(claims: Sequence[Claim]) -> list[Claim]:
    """Claims by shares, which the papers write in percent."""
    return [claim for claim in claims if claim.paper[0].endswith("%")]


def check_the_paper(claims: Sequence[Claim]) -> None:
    """All figures of the paper are in the order that is claimed."""
    for claim in shares(claims):
        above, below = (float(figure.removesuffix("%")) for figure in claim.paper)
        assert above > below, claim.order
