"""Table 7 of the WSABIE paper: embeddings of several sizes combined, weights chosen on validation rows."""

from __future__ import annotations

from visterm_research.comparison.arms import DIMS, ENSEMBLE_ARM, ENSEMBLES, WSABIE, Arm, Settings
from visterm_research.comparison.claims import metric_claim, percent, shown_metric
from visterm_research.comparison.problem import Problem
from visterm_research.comparison.run import Comparison
from visterm_research.comparison.trials import Tested
from visterm_research.papers import wsabie as paper
from visterm_research.wsabie.tables import METRICS, sized, sizes

SINGLE = 300
"""The size that the paper compares ensembles with."""


def ensembles_part(comparison: Comparison, problem: Problem, *, quick: bool) -> None:
    """Test the ensembles with the settings that were chosen for WSABIE, beside its best single size."""
    base = comparison.tested[problem.name].get(WSABIE.label)
    here = dict(zip(DIMS, sizes(quick), strict=True))
    single = sized(comparison, problem, [here[SINGLE]])
    if base is None or not single:
        return
    found: dict[tuple[int, ...], Tested] = {(SINGLE,): single[here[SINGLE]]}
    for combined in ENSEMBLES:
        arm = ensemble_arm([here[size] for size in combined], base.chosen.settings)
        tested = comparison.try_test(problem, arm)
        if tested is not None:
            found[combined] = tested
    metrics = [name for name in METRICS if name != "psib@10" or problem.siblings is not None]
    rows = []
    for members, tested in found.items():
        rows.append(
            [_named([here[size] for size in members]), problem.name, *(percent(tested.metrics[m]) for m in metrics)]
        )
        theirs = paper.TABLE_7[members]
        rows.append([_named(members), "ImageNet (paper)", *(percent(theirs[name]) for name in metrics)])
    header = ("ensemble", "data", *map(shown_metric, metrics))
    comparison.document.table(f"Table 7 on {problem.name}: ensembles of WSABIE", header, rows)
    names = {members: _named([here[size] for size in members]) for members in found}
    values = {names[members]: tested.values for members, tested in found.items()}
    compared: list[tuple[tuple[int, ...], tuple[int, ...]]] = [((100, 200), (SINGLE,)), ((100, 200, 300), (100, 200))]
    for first, second in compared:
        if first in found and second in found:
            where = ("Table 7, ImageNet", paper.TABLE_7[first]["map"], paper.TABLE_7[second]["map"])
            comparison.claims.append(
                metric_claim(names[first], names[second], "map", paper=where, problem=problem.name, values=values)
            )


def ensemble_arm(dims: list[int], settings: Settings) -> Arm:
    """Return the method that combines WSABIE of several sizes."""
    members = [[WSABIE.model, {**settings, "dim": dim}] for dim in dims]
    return ENSEMBLE_ARM.with_fixed(_named(dims), members=members)


def _named(dims: tuple[int, ...] | list[int]) -> str:
    return " + ".join(f"WSABIE-{dim}" for dim in dims)
