"""The paper's orders as sentences: what was above what, in the paper and here, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visterm.metrics import paired_bootstrap

RESAMPLES = 2000
"""Of the test images, for the interval of a difference."""


@dataclass(frozen=True)
class Claim:
    """One order of the paper, judged here.

    Attributes
    ----------
    first, second : str
        What the paper puts above, and what below.
    of : str
        The measure: "p@1", "seconds to its best".
    where : str
        In the paper: "Table 2, ImageNet".
    problem : str
        Here.
    paper : (str, str)
        The paper's figures for the two; both empty where it has none.
    here : (str, str)
        Ours.
    verdict : {"yes", "no", "too close to call"}
    detail : str
        How sure that is; empty where it is one measurement.
    relation : str
        What `first` is said to be beside `second`.
    """

    first: str
    second: str
    of: str
    where: str
    problem: str
    paper: tuple[str, str]
    here: tuple[str, str]
    verdict: str
    detail: str = ""
    relation: str = "better than"

    @property
    def sentence(self) -> str:
        """Say it in one sentence."""
        detail = f"; {self.detail}" if self.detail else ""
        figures = f"{self.paper[0]} against {self.paper[1]}; " if any(self.paper) else ""
        return (
            f"{self.first} {self.relation} {self.second} by {self.of}: paper yes ({figures}{self.where}), "
            f"{self.problem} {self.verdict} ({self.here[0]} against {self.here[1]}"
            f"{detail})."
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the claim as it stands in results.json."""
        return {
            "first": self.first,
            "relation": self.relation,
            "second": self.second,
            "of": self.of,
            "where": self.where,
            "problem": self.problem,
            "paper": list(self.paper),
            "here": list(self.here),
            "verdict": self.verdict,
            "detail": self.detail,
        }


def metric_claim(
    first: str,
    second: str,
    metric: str,
    *,
    paper: tuple[str, float | None, float | None],
    problem: str,
    values: Mapping[str, Mapping[str, NDArray[np.float64]]],
) -> Claim:
    """Judge an order by a metric: resampling the test images says whether the difference is sure.

    Parameters
    ----------
    first, second : str
        Methods; the paper has `first` above.
    metric : str
    paper : (str, float or None, float or None)
        Where in the paper, and its two figures; None where it says it in words.
    problem : str
    values : mapping of method to metric to ndarray, shape (n_images,)
    """
    a, b = values[first][metric], values[second][metric]
    difference = paired_bootstrap(a, b, n_resamples=RESAMPLES)
    verdict = "yes" if difference.low > 0 else "no" if difference.high < 0 else "too close to call"
    where, above, below = paper
    here = (float(np.nanmean(a)), float(np.nanmean(b)))
    shown = "95 % interval of the difference "
    detail = f"{shown}{percent(difference.low)} to {percent(difference.high)}"
    return Claim(
        first, second, shown_metric(metric), where, problem, (_written(above), _written(below)),
        (percent(here[0]), percent(here[1])), verdict, detail,
    )  # fmt: skip


def least_claim(
    first: str,
    second: str,
    of: str,
    *,
    where: str,
    paper: tuple[str, str],
    problem: str,
    here: tuple[float, float],
    unit: str,
) -> Claim:
    """Judge an order by a cost, of which less is better; differences below a tenth are too close to call."""
    ratio = here[0] / here[1] if here[1] else np.inf
    verdict = "yes" if ratio < 0.9 else "no" if ratio > 1 / 0.9 else "too close to call"
    shown = (f"{here[0]:.3g} {unit}", f"{here[1]:.3g} {unit}")
    return Claim(first, second, of, where, problem, paper, shown, verdict, f"{ratio:.2g} times as much")


def _written(figure: float | None) -> str:
    return "" if figure is None else percent(figure)


def percent(share: float) -> str:
    """Write a share as the papers do."""
    return f"{100 * share:.2f} %"


def shown_metric(name: str) -> str:
    """Write a metric as the papers do."""
    base, _, k = name.partition("@")
    spelled = {"map": "MAP", "auc": "AUC", "psib": "p_sib"}.get(base, base)
    return f"{spelled}@{k}" if k else spelled
