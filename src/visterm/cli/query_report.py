"""How `visterm evaluate --queries` shows its figures: a table for people, an object of JSON for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from visterm.cli.output import emit, show, table

if TYPE_CHECKING:
    from visterm.app.query_evaluation import QueryEvaluation

MEASURES = ("AvgP", "BEP", "P10")


def emit_queries(found: QueryEvaluation, names: Sequence[str]) -> None:
    """Print, as one JSON object, means and intervals of each run by kind of query, and the comparisons with the first.

    Parameters
    ----------
    found : QueryEvaluation
    names : sequence of str
        Of the runs.
    """
    runs = [
        {
            "run": name,
            "kinds": {
                kind: {"queries": int(mask.sum())}
                | {measure: found.interval(measure, kind, number)._asdict() for measure in MEASURES}
                for kind, mask in found.kinds.items()
                if mask.any()
            },
        }
        for number, name in enumerate(names)
    ]
    against = [
        {"run": name} | {measure: _comparison(found, measure, number) for measure in MEASURES}
        for number, name in enumerate(names)
        if number > 0
    ]
    emit({"queries": len(found.texts), "runs": runs, "against": against})


def show_queries(found: QueryEvaluation, names: Sequence[str]) -> None:
    """Print a table of means by kind of query for each run, and what the comparisons with the first say."""
    for number, name in enumerate(names):
        if len(names) > 1:
            show(f"{name}:")
        rows = []
        for kind, mask in found.kinds.items():
            if mask.any():
                means = [found.mean(measure, kind, number) for measure in MEASURES]
                _, low, high = found.interval(MEASURES[0], kind, number)
                shown = [*(f"{mean:.4f}" for mean in means), f"{low:.4f} to {high:.4f}"]
                rows.append([kind, f"{mask.sum():,}", *shown])
        table(rows, ["queries", "number", *MEASURES, f"{MEASURES[0]}, 95 %"])
    for number, name in enumerate(names[1:], start=1):
        for measure in MEASURES:
            show(_sentence(found, measure, number, names[0], name))


def _comparison(found: QueryEvaluation, measure: str, number: int) -> dict[str, Any]:
    difference, ranks = found.difference(measure, taggers=(0, number)), found.compare(measure, taggers=(0, number))
    interval = {key: getattr(difference, key) for key in ("mean", "low", "high")}
    return interval | {"wilcoxon_p": ranks.p_value, "better": ranks.better()}


def _sentence(found: QueryEvaluation, measure: str, number: int, first: str, second: str) -> str:
    difference, ranks = found.difference(measure, taggers=(0, number)), found.compare(measure, taggers=(0, number))
    verdict = {
        1: f"{first} is better than {second}",
        -1: f"{second} is better than {first}",
        0: f"{first} and {second} do not differ significantly",
    }[ranks.better()]
    return (
        f"{measure}: {verdict} (Wilcoxon p = {ranks.p_value:.2g}; difference {difference.mean:+.4f}, 95 % "
        f"{difference.low:+.4f} to {difference.high:+.4f})."
    )
