"""The table of metrics, from which lists of names, messages and command-line choices are generated."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from visterm.core.errors import UnknownNameError, UserError
from visterm.core.registry import unknown

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

EXAMPLE_K = 5


@dataclass(frozen=True, slots=True)
class Metric:
    """An entry of the table."""

    name: str  # The name that users type, without ``@k``
    summary: str  # A line for lists and docs
    kind: Literal["image", "tag", "word", "sibling", "tree"]
    """The kind of evidence: tags ranked for each image; tags assigned to images and counted tag by tag; each tag as a
    query; or assigned tags compared with siblings of the right tags, or with tags above them in a tree."""
    measure: str
    """The method of `TagRanks`, `GivenTags`, `Ranks`, `SiblingTags` or `TreeTags` that returns the values; the metric
    is their mean."""
    takes_k: bool = False  # Whether it uses only the first k, and is written ``name@k``

    @property
    def example(self) -> str:
        """The name as typed, with a usual k."""
        return self.spelling(EXAMPLE_K)

    def spelling(self, k: int) -> str:
        """Return the name as typed, with `k`."""
        return f"{self.name}@{k}" if self.takes_k else self.name

    def values(self, evidence: Any, k: int) -> NDArray[np.float64]:
        """Return the metric's values from evidence of its kind."""
        values: NDArray[np.float64] = getattr(evidence, self.measure)(*([k] if self.takes_k else []))
        return values


class RequestedMetric(NamedTuple):
    """A metric as requested by a user; k is 0 if the metric takes no k."""

    metric: Metric
    k: int


METRICS = [
    Metric("p", "share of a photo's first k tags that are right", "image", "precision", True),
    Metric("r", "share of a photo's right tags that are among its first k", "image", "recall", True),
    Metric("f1", "harmonic mean of p and r of each photo", "image", "f1", True),
    Metric("map", "mean over photos of the average precision of their ranked tags", "image", "average_precision"),
    Metric("mrr", "mean over photos of 1 / the rank of the first right tag", "image", "reciprocal_rank"),
    Metric(
        "ndcg", "how high right tags rank among the first k, as a share of the best possible", "image", "ndcg", True
    ),
    Metric(
        "auc",
        "share of a photo's pairs of a right and a wrong tag that are in the right order; a tie is half",
        "image",
        "auc",
    ),
    Metric(
        "tag_p",
        "if each photo gets k tags: of the photos that get a tag, the share that have it; mean over tags",
        "tag",
        "precisions",
        True,
    ),
    Metric(
        "tag_r",
        "if each photo gets k tags: of the photos that have a tag, the share that get it; mean over tags",
        "tag",
        "recalls",
        True,
    ),
    Metric("tag_f1", "harmonic mean of tag_p and tag_r", "tag", "f1", True),
    Metric(
        "n_plus", "if each photo gets k tags: the number of tags that are right at least once", "tag", "n_plus", True
    ),
    Metric(
        "word_map", "mean over searches for one tag of the average precision of the photos", "word", "average_precision"
    ),
    Metric("word_p", "share of right photos among the first k of a search for one tag", "word", "precision", True),
    Metric(
        "psib",
        "share of a photo's first k tags that are right or a sibling of a right one",
        "sibling",
        "precisions",
        True,
    ),
    Metric(
        "hp", "as p, after adding the parents of a photo's first k and of the right tags", "tree", "precisions", True
    ),
    Metric("hr", "as r, after adding the parents of a photo's first k and of the right tags", "tree", "recalls", True),
    Metric("hf1", "harmonic mean of hp and hr of each photo", "tree", "f1", True),
]


def check_metrics(
    names: str | Sequence[str], *, siblings: bool = True, tree: bool = True
) -> dict[str, RequestedMetric]:
    """Parse metrics as users type them, ``map`` or ``p@5``; case does not matter.

    `siblings` and `tree` say whether siblings and a tree of tags are available. Raises UnknownNameError for an unknown
    metric, with the nearest names; UserError if no metric is requested, a k is missing, not allowed or not a whole
    number of 1 or more, or a metric needs missing siblings or a missing tree.
    """
    names = [names] if isinstance(names, str) else list(names)
    if not names:
        examples = ", ".join(metric.example for metric in METRICS)
        raise UserError("No metric is requested.", setting="metrics", value=names, expected=f"some of {examples}")
    requested = {name: _parse(name) for name in names}
    for name, (metric, _) in requested.items():
        if metric.kind == "sibling" and not siblings:
            advice = "Pass `siblings`; for a run, pass `tag_rules` with the rule isa."
            raise UserError(
                f"{name} needs to know which tags are siblings.", setting="metrics", value=name, advice=advice
            )
        if metric.kind == "tree" and not tree:
            advice = "Pass `tree`, or a run that was fitted with a tree."
            raise UserError(f"{name} needs a tree, and images in memory.", setting="metrics", value=name, advice=advice)
    return requested


def _parse(name: str) -> RequestedMetric:
    base, separator, k_text = name.strip().lower().partition("@")
    metric = next((metric for metric in METRICS if metric.name == base), None)
    if metric is None:
        digits = re.search(r"[1-9]\d*$", name)
        k = int(digits.group()) if digits else EXAMPLE_K
        problem = unknown("metric", name, [metric.spelling(k) for metric in METRICS])
        raise UnknownNameError(problem, setting="metrics", value=name, advice="`visterm metrics` lists them.")

    if not metric.takes_k:
        if separator:
            problem = f"The metric '{name}' has a k, but {base} measures whole rankings."
            raise UserError(problem, setting="metrics", value=name, advice=f"Write '{base}'.")
        return RequestedMetric(metric, 0)
    if not re.fullmatch(r"[0-9]{1,9}", k_text) or int(k_text) < 1:
        problem = f"The metric '{name}' needs a k, a whole number of 1 or more."
        raise UserError(problem, setting="metrics", value=name, advice=f"Write, for example, '{metric.example}'.")
    return RequestedMetric(metric, int(k_text))
