"""The paper's orders as sentences: what was above what, in the paper and here, and how sure that is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visterm.metrics import paired_bootstrap, signed_ranks
from visterm_research.comparison.verdicts import by_interval, by_ranks, by_ratio, p_of_interval

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
    p_value : float, optional
        Of the test behind the verdict; None for single measurements.
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
    p_value: float | None = None

    @property
    def order(self) -> str:
        """Return what the paper puts above what."""
        return f"{self.first} {self.relation} {self.second}"

    def as_dict(self) -> dict[str, Any]:
        """Return the claim as it stands in results.json."""
        document = {"first": self.first, "relation": self.relation, **asdict(self)}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in document.items()}


def order_claim(
    first: str,
    second: str,
    of: str,
    values: tuple[NDArray[np.float64], NDArray[np.float64]],
    *,
    where: str,
    problem: str,
    paper: tuple[str, str] = ("", ""),
    times: float = 1.0,
    units: str = "",
    shown: Callable[[float], str] | None = None,
) -> Claim:
    """Judge an order by a measure: resampling the examples says whether the difference is sure.

    Parameters
    ----------
    first, second : str
        The paper has `first` above.
    of : str
        The measure.
    values : pair of ndarray, shape (n,)
        Of each, example by example.
    where, problem : str
    paper : (str, str)
        The paper's figures; empty where it says the order in words.
    times : float
        How many times as good the first has to be.
    units : str
        What the examples are called, to print their number.
    shown : callable, optional
        Writes a value; None: in percent.
    """
    write = shown or percent
    difference = paired_bootstrap(values[0], times * values[1], n_resamples=RESAMPLES)
    here = [float(np.nanmean(array)) for array in values]
    ratio = f"{here[0] / here[1]:.2f} times; " if times != 1 and here[1] else ""
    less = "the difference" if times == 1 else f"the first less {times:g} times the second"
    counted = f", of {difference.n} {units}" if units else ""
    detail = f"{ratio}95 % interval of {less} {write(difference.low)} to {write(difference.high)}{counted}"
    relation = "better than" if times == 1 else f"at least {times:g} times as good as"
    bounds = difference.low, difference.high
    figures = write(here[0]), write(here[1])
    return Claim(
        first, second, of, where, problem, paper, figures, by_interval(*bounds), detail, relation,
        p_of_interval(*bounds),
    )  # fmt: skip


def ranks_claim(
    first: str,
    second: str,
    of: str,
    values: tuple[NDArray[np.float64], NDArray[np.float64]],
    *,
    where: str,
    problem: str,
    paper: tuple[float, float],
) -> Claim:
    """Judge an order by Wilcoxon's signed ranks of what the two have on each query; all figures are shares."""
    test = signed_ranks(*values)
    here = [percent(float(np.nanmean(array))) for array in values]
    figures = percent(paper[0]), percent(paper[1])
    detail = f"Wilcoxon p = {test.p_value:.2g}"
    return Claim(
        first, second, of, where, problem, figures, (here[0], here[1]), by_ranks(test), detail, p_value=test.p_value
    )


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
    shown = (f"{here[0]:.3g} {unit}", f"{here[1]:.3g} {unit}")
    return Claim(first, second, of, where, problem, paper, shown, by_ratio(*here), f"{ratio:.2g} times as much")


def percent(share: float) -> str:
    """Write a share as the papers do."""
    return f"{100 * share:.2f} %"


def shown_metric(name: str) -> str:
    """Write a metric as the papers do."""
    base, _, k = name.partition("@")
    spelled = {"map": "MAP", "auc": "AUC", "psib": "p_sib"}.get(base, base)
    return f"{spelled}@{k}" if k else spelled
