"""Tables 1, 2 and 4 to 7 of the WSABIE paper, each with our rows and the paper's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from visterm.metrics import bootstrap_mean, paired_bootstrap
from visterm_research.comparison.claims import RESAMPLES, least_claim, percent, shown_metric
from visterm_research.comparison.methods import EXACT_KNN, WSABIE, Method
from visterm_research.comparison.problem import Problem
from visterm_research.comparison.run import Comparison
from visterm_research.comparison.search import Settings
from visterm_research.comparison.trials import Judged
from visterm_research.papers import read_paper

paper = read_paper("wsabie")

DIMS = (100, 200, 300, 500)
"""WSABIE's Table 4: sizes of the embedding, with the other settings as they were chosen at 100."""

ENSEMBLES = ((100, 200), (100, 300), (100, 200, 300))
"""WSABIE's Table 7: which of those are combined."""

ENSEMBLE = Method("ensembles", "ensemble")
"""What combines them; its members are filled in once WSABIE's settings are chosen."""

SINGLE = 300
"""The size that the paper compares ensembles with."""

ONE_BY_ONE: tuple[tuple[Settings, str], ...] = (
    ({}, "blocks, mean of weights"),
    ({"average": 1}, "blocks"),
    ({"block": 1, "average": 1}, "one pair a step (the paper's)"),
)
"""WSABIE's training, from ours to the paper's."""

METRICS = ("p@1", "p@10", "psib@10", "map")
ABOVE = (
    ("WSABIE", "PAMIR-IA"),
    ("WSABIE", "One-vs-Rest"),
    ("WSABIE", "Approx. k-NN"),
    ("PAMIR-IA", "One-vs-Rest"),
    ("One-vs-Rest", "Approx. k-NN"),
)
LOSSES = (
    ("WSABIE", "embedding, AUC"),
    ("linear, WARP", "PAMIR-IA"),
    ("linear, WARP", "WSABIE"),
    ("PAMIR-IA", "embedding, AUC"),
)
COSTS = (
    ("WSABIE", "PAMIR-IA"),
    ("WSABIE", "One-vs-Rest"),
    ("WSABIE", "k-NN"),
    ("WSABIE", "Approx. k-NN"),
    ("PAMIR-IA", "k-NN"),
)
COMBINED = (
    ((100, 200), (SINGLE,)),
    ((100, 300), (SINGLE,)),
    ((100, 200, 300), (100, 200)),
    ((100, 200, 300), (100, 300)),
)
"""Section 6.4: ensembles give a boost, and all three sizes together the best performance."""

VARIES = "variable"
"""The paper's time of approximate neighbours."""


def data_part(comparison: Comparison, problem: Problem) -> None:
    """Table 1: how large the data are."""
    here = {
        "training images": f"{problem.train.Y.shape[0]:,}",
        "test images": f"{problem.test.Y.shape[0]:,}",
        "validation images": f"{problem.valid.Y.shape[0]:,}",
        "tags": f"{len(problem.tags):,}",
        "median siblings a tag": "–"
        if problem.siblings is None
        else f"{np.median(np.diff(problem.siblings.indptr) - 1):.0f}",
    }
    rows = [[name, here[name], *(f"{value:,}" for value in values)] for name, values in paper.TABLE_1.items()]
    rows.append(["features", f"{problem.train.X.shape[1]:,}", "10,000", "10,000"])
    rows.append(["features of an image that are not zero", f"{problem.nonzeros:.0f}", "245", "245"])
    header = ["", problem.name, *(f"{name} (paper)" for name in paper.DATA)]
    comparison.document.table(f"Table 1 on {problem.name}: the data", header, rows)


def results_part(comparison: Comparison, problem: Problem) -> None:
    """Table 2: all methods on the test images."""
    tested = comparison.tested[problem.name]
    metrics = _metrics(problem)
    header = ("method", "data", *map(shown_metric, metrics))
    exact = {data: {"p@1": value} for data, value in paper.EXACT_NEIGHBOURS.items()}
    rows = _beside(tested, {**paper.TABLE_2, EXACT_KNN.label: exact}, problem, metrics)
    comparison.document.table(f"Table 2 on {problem.name}: the test images", header, rows)
    for first, second in ABOVE:
        for metric in ("p@1", "p@10", "map", "psib@10"):
            theirs = paper.TABLE_2[first]["ImageNet"][metric], paper.TABLE_2[second]["ImageNet"][metric]
            comparison.judge_order(problem, first, second, metric, where="Table 2, ImageNet", paper=theirs)
    theirs = paper.EXACT_NEIGHBOURS["ImageNet"], paper.TABLE_2["WSABIE"]["ImageNet"]["p@1"]
    comparison.judge_order(problem, "k-NN", "WSABIE", "p@1", where="section 6.4, ImageNet", paper=theirs)


def pairs_part(comparison: Comparison, problem: Problem) -> None:
    """Every pair of methods by MAP: also those of which the paper has no order, or that it does not have."""
    values = {label: tested.values["map"] for label, tested in comparison.tested[problem.name].items()}
    if len(values) < 2:
        return
    rows = []
    for first, of_first in values.items():
        mean = bootstrap_mean(of_first, n_resamples=RESAMPLES)
        row = [first, f"{100 * mean.mean:.2f} ({100 * mean.low:.2f} to {100 * mean.high:.2f})"]
        for second, of_second in values.items():
            apart = paired_bootstrap(of_first, of_second, n_resamples=RESAMPLES)
            found = f"{100 * apart.mean:+.2f} ({100 * apart.low:.2f} to {100 * apart.high:.2f})"
            row.append("" if first == second else found)
        rows.append(row)
    header = ("method", "MAP, in percent", *(f"less {label}" for label in values))
    comparison.document.table(f"All pairs on {problem.name} by MAP, with 95 % intervals", header, rows)


def sizes_part(comparison: Comparison, problem: Problem) -> None:
    """Table 4: sizes of the embedding, the other settings as they were chosen."""
    found = sized(comparison, problem, sizes(comparison.quick))
    if not found:
        return
    metrics = _metrics(problem)
    rows = []
    for size, theirs in zip(sizes(comparison.quick), paper.TABLE_4, strict=True):
        if size in found:
            rows.append([str(size), problem.name, *(percent(found[size].metrics[name]) for name in metrics)])
        rows.append([str(theirs), "ImageNet (paper)", *(percent(paper.TABLE_4[theirs][name]) for name in metrics)])
    header = ("size of the embedding", "data", *map(shown_metric, metrics))
    comparison.document.table(f"Table 4 on {problem.name}: WSABIE's size", header, rows)
    maps = [tested.metrics["map"] for tested in found.values()]
    reported = [row["map"] for row in paper.TABLE_4.values()]
    comparison.document.text(
        f"The worst size has {min(maps) / max(maps):.0%} of the best one's MAP; in the paper "
        f"{min(reported) / max(reported):.0%}: it calls WSABIE relatively insensitive to the size."
    )
    size_claims(comparison, problem, found)


def size_claims(comparison: Comparison, problem: Problem, found: Mapping[int, Judged]) -> None:
    """Judge the paper's best size by each measure of Table 4 against the others."""
    by_name = {f"{WSABIE.label}-{size}": tested for size, tested in found.items()}
    here = dict(zip(paper.TABLE_4, sizes(comparison.quick), strict=True))
    for metric in ("p@1", "map", "psib@10"):
        best = max(paper.TABLE_4, key=lambda size: paper.TABLE_4[size][metric])
        for other in paper.TABLE_4:
            if other != best:
                first, second = (f"{WSABIE.label}-{here[size]}" for size in (best, other))
                theirs, where = (paper.TABLE_4[best][metric], paper.TABLE_4[other][metric]), "Table 4, ImageNet"
                comparison.judge_order(problem, first, second, metric, where=where, paper=theirs, tested=by_name)


def sizes(quick: bool) -> tuple[int, ...]:
    """Return the sizes that stand for the paper's 100, 200, 300 and 500."""
    return tuple(size // 10 for size in DIMS) if quick else DIMS


def sized(comparison: Comparison, problem: Problem, wanted: Sequence[int]) -> dict[int, Judged]:
    """Test WSABIE of several sizes with the settings that were chosen for it; sizes without time are left out."""
    base = comparison.tested[problem.name].get(WSABIE.label)
    if base is None:
        return {}
    found = {}
    for size in wanted:
        settings = {**base.choice.settings, "dim": size}
        method = base.choice.method.with_fixed(f"{WSABIE.label}-{size}", **settings)
        tested = comparison.try_test(problem, method)
        if tested is not None:
            found[size] = tested
    return found


def loss_part(comparison: Comparison, problem: Problem) -> None:
    """Table 5: WARP against AUC, embedding against linear."""
    tested = comparison.tested[problem.name]
    metrics = ("p@1", "p@10", "map")
    tested = {label: one for label, one in tested.items() if label in paper.TABLE_5}
    rows = _beside(tested, paper.TABLE_5, problem, metrics)
    header = ("model and loss", "data", *map(shown_metric, metrics))
    comparison.document.table(f"Table 5 on {problem.name}: losses (PAMIR-IA is linear, AUC)", header, rows)
    for first, second in LOSSES:
        for metric in ("p@1", "p@10"):
            theirs = paper.TABLE_5[first]["ImageNet"][metric], paper.TABLE_5[second]["ImageNet"][metric]
            if theirs[0] > theirs[1]:
                comparison.judge_order(problem, first, second, metric, where="Table 5, ImageNet", paper=theirs)


def steps_part(comparison: Comparison, problem: Problem) -> None:
    """Compare WSABIE's training as it is here with the paper's own: one pair a step, and the weights as they end."""
    base = comparison.tested[problem.name].get(WSABIE.label)
    if base is None:
        return
    rows = []
    for settings, what in ONE_BY_ONE:
        method = base.choice.method.with_fixed(f"{WSABIE.label}, {what}", **{**base.choice.settings, **settings})
        tested = comparison.try_test(problem, method) if settings else base
        if tested is not None:
            rows.append([what, *(percent(tested.metrics[name]) for name in ("p@1", "p@10", "map"))])
    header = ("WSABIE's training", *map(shown_metric, ("p@1", "p@10", "map")))
    comparison.document.table(f"One pair per step, on {problem.name}, with the settings chosen above", header, rows)


def cost_part(comparison: Comparison, problem: Problem) -> None:
    """Table 6: seconds and bytes at test time as measured, and the formula."""
    rows = []
    for label, tested in comparison.tested[problem.name].items():
        counted = formula(tested.choice.method.model, problem, tested.choice.settings)
        theirs = paper.TABLE_6.get(label, {}).get("ImageNet", ("–", "–"))
        rows.append(
            [
                label,
                counted.time if counted else "–",
                counted.space if counted else "–",
                f"{counted.operations:,.0f}" if counted else "–",
                f"{1e3 * tested.record['cost']['batch']:.3f}",
                f"{1e3 * tested.record['cost']['alone']:.3f}",
                f"{4e-6 * counted.numbers:,.2f}" if counted else "–",
                f"{1e-6 * tested.record['cost']['bytes']:,.2f}",
                *theirs,
            ]
        )
    header = (
        "method",
        "time, by formula",
        "space, by formula",
        "operations an image",
        "ms an image, 200 together",
        "ms an image alone",
        "MB, by formula",
        "MB, measured",
        "all of ImageNet's test (paper)",
        "space on ImageNet (paper)",
    )
    comparison.document.table(f"Table 6 on {problem.name}: the cost at test time", header, rows)
    comparison.document.text(
        "The 10 best tags of each image, from extracted features. d₀: the number of non-zero features of an image; the "
        "formula counts 4 bytes per number (sparse rows also store the position of each number)."
    )
    cost_claims(comparison, problem)


def cost_claims(comparison: Comparison, problem: Problem) -> None:
    """Judge the times and bytes of Table 6."""
    found = comparison.tested[problem.name]
    for first, second in COSTS:
        if first not in found or second not in found:
            continue
        for column, key, unit, of, scale in (
            (0, "batch", "ms an image", "time at test", 1e3),
            (1, "bytes", "MB", "memory", 1e-6),
        ):
            written = (paper.TABLE_6[first]["ImageNet"][column], paper.TABLE_6[second]["ImageNet"][column])
            if VARIES in written:
                continue
            here = [scale * found[label].record["cost"][key] for label in (first, second)]
            comparison.claims.append(
                least_claim(
                    first,
                    second,
                    of,
                    where="Table 6, ImageNet",
                    paper=written,
                    problem=problem.name,
                    here=(here[0], here[1]),
                    unit=unit,
                )
            )


def _metrics(problem: Problem) -> tuple[str, ...]:
    return METRICS if problem.siblings is not None else tuple(name for name in METRICS if name != "psib@10")


def _beside(
    tested: Mapping[str, Judged],
    theirs: Mapping[str, Mapping[str, Mapping[str, float]]],
    problem: Problem,
    metrics: Sequence[str],
) -> list[list[str]]:
    """Return a row of each method here, and below it the paper's rows of the same method."""
    rows = []
    for label in dict.fromkeys([*theirs, *tested]):
        if label in tested:
            rows.append([label, problem.name, *(percent(tested[label].metrics[name]) for name in metrics)])
        for data, figures in theirs.get(label, {}).items():
            cells = [percent(figures[name]) if name in figures else "–" for name in metrics]
            rows.append([label, f"{data} (paper)", *cells])
    return rows


def ensembles_part(comparison: Comparison, problem: Problem) -> None:
    """Test the ensembles with the settings that were chosen for WSABIE, beside its best single size."""
    base = comparison.tested[problem.name].get(WSABIE.label)
    here = dict(zip(DIMS, sizes(comparison.quick), strict=True))
    single = sized(comparison, problem, [here[SINGLE]])
    if base is None or not single:
        return
    found: dict[tuple[int, ...], Judged] = {(SINGLE,): single[here[SINGLE]]}
    for combined in ENSEMBLES:
        method = ensemble_of([here[size] for size in combined], base.choice.settings)
        tested = comparison.try_test(problem, method)
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
    by_name = {names[members]: tested for members, tested in found.items()}
    for first, second in COMBINED:
        for metric in ("p@1", "map"):
            if first in found and second in found:
                both, where = (names[first], names[second]), "Table 7, ImageNet"
                theirs = paper.TABLE_7[first][metric], paper.TABLE_7[second][metric]
                comparison.judge_order(problem, *both, metric, where=where, paper=theirs, tested=by_name)


def ensemble_of(dims: list[int], settings: Settings) -> Method:
    """Return the method that combines WSABIE of several sizes."""
    members = [[WSABIE.model, {**settings, "dim": dim}] for dim in dims]
    return ENSEMBLE.with_fixed(_named(dims), members=members)


def _named(dims: tuple[int, ...] | list[int]) -> str:
    return " + ".join(f"WSABIE-{dim}" for dim in dims)


class Formula(NamedTuple):
    """A line of WSABIE's Table 6: what is said of time and space, and how many numbers that is here."""

    time: str
    space: str
    operations: float
    numbers: float


def formula(model: str, problem: Problem, settings: dict[str, Any]) -> Formula | None:
    """Return the paper's formula for a model, counted for a problem; None for models that the table does not have."""
    n, d = problem.train.X.shape
    given, n_tags, dim = problem.nonzeros, len(problem.tags), settings.get("dim", 0)
    if model == "knn":
        return Formula("O(n · d₀)", "O(n · d₀)", n * given, n * given)
    if model == "rp_knn":
        levels = settings["levels"]
        return Formula("O((p + n/2ᵖ) · d₀)", "O(n · d)", (levels + n / 2**levels) * given, n * given)
    if model in ("one_vs_rest", "pamir_ia", "warp_linear", "ridge"):
        return Formula("O(Y · d₀)", "O(Y · d)", n_tags * given, n_tags * d)
    if dim:
        return Formula("O((Y + d₀) · D)", "O((Y + d) · D)", (n_tags + given) * dim, (n_tags + d) * dim)
    return None
