"""Orders of methods, losses and features on planted results: WSABIE, VSE-ens and the comparison of features."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from planted_figures import (
    AS_PAPER,
    COSTS,
    VERDICTS,
    check_the_paper,
    comparison_in,
    judged,
    let_swing,
    problem,
    verdicts,
)
from visterm_research.comparison.feature_sets import ENSEMBLE, OUR_VISTERMS, PAPER_VISTERMS
from visterm_research.comparison.methods import AUC, EXACT_KNN, OWPC, WSABIE
from visterm_research.comparison.run import Comparison
from visterm_research.comparison.trials import Judged
from visterm_research.comparison.verdicts import NO, UNSURE, YES
from visterm_research.features.photo_run import PhotoRun, paper_label
from visterm_research.features.tables import differences_part, feature_claims, loss_claims, method_claims
from visterm_research.papers import read_paper
from visterm_research.vse_ens import study as vse_ens
from visterm_research.wsabie import figures, neighbours, tables


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (figures, neighbours, vse_ens):
        monkeypatch.setattr(module, "draw_lines", lambda *_, **__: None)


def test_an_order_of_a_method_that_is_missing_is_not_judged(tmp_path: Path) -> None:
    comparison = comparison_in(tmp_path)
    comparison.tested["planted"] = {"A": judged({"map": 0.5}), "B": judged({"map": 0.4})}
    for first, second, metric in (("A", "C", "map"), ("C", "A", "map"), ("A", "B", "p@1"), ("A", "B", "map")):
        comparison.judge_order(problem(), first, second, metric, where="", paper=(0.2, 0.1))
    assert [(claim.first, claim.second, claim.verdict) for claim in comparison.claims] == [("A", "B", YES)]


def test_every_pair_of_methods_has_its_difference_with_an_interval(tmp_path: Path) -> None:
    comparison = comparison_in(tmp_path)
    comparison.tested["planted"] = {label: judged({"map": value}) for label, value in (("A", 0.5), ("B", 0.4))}
    tables.pairs_part(comparison, problem())
    (table,) = comparison.document.tables
    (first, a, _, a_less_b), (_, _, b_less_a, _) = table["rows"]
    assert first == "A"
    assert a.startswith("50.")
    assert a_less_b.startswith("+10.00 (10.00 to 10.00")  # the same noise in both
    assert b_less_a.startswith("-10.00 (-10.00 to -10.00")


def test_images_without_a_value_do_not_decide_an_order(tmp_path: Path) -> None:
    comparison, gap = comparison_in(tmp_path), np.where(np.arange(60) < 20, np.nan, 0)
    found = {label: judged({"map": value}) for label, value in (("A", 0.5), ("B", 0.4))}
    for one in found.values():
        one.values["map"] += gap
    comparison.tested["planted"] = found
    for pair in (("A", "B"), ("B", "A")):
        comparison.judge_order(problem(), *pair, "map", where="", paper=(0.2, 0.1))
    assert [claim.verdict for claim in comparison.claims] == [YES, NO]


# WSABIE


def wsabie_found(plant: Callable[[float], float], cost: Callable[[float], float]) -> dict[str, Judged]:
    paper = tables.paper
    by_label: dict[str, dict[str, float]] = {label: dict(row["ImageNet"]) for label, row in paper.TABLE_2.items()}
    by_label[EXACT_KNN.label] = {"p@1": paper.EXACT_NEIGHBOURS["ImageNet"]}
    by_label |= {label: dict(row["ImageNet"]) for label, row in paper.TABLE_5.items() if label not in by_label}
    seconds, space = {"WSABIE": 1, "PAMIR-IA": 3, "One-vs-Rest": 3, "k-NN": 9}, {"WSABIE": 1, "PAMIR-IA": 2}
    space |= {"One-vs-Rest": 2, "k-NN": 4, "Approx. k-NN": 4}
    return {
        label: judged(
            {metric: plant(value) for metric, value in row.items()},
            {"batch": cost(seconds.get(label, 9)), "bytes": cost(space.get(label, 9))},
        )
        for label, row in by_label.items()
    }


@VERDICTS
def test_wsabie_orders_methods_losses_and_costs(tmp_path: Path, verdict: str) -> None:
    comparison, one = comparison_in(tmp_path), problem()
    comparison.tested[one.name] = wsabie_found(AS_PAPER[verdict], COSTS[verdict])
    if verdict == UNSURE:
        let_swing(comparison.tested[one.name].values())
    tables.results_part(comparison, one)
    tables.loss_part(comparison, one)
    tables.cost_claims(comparison, one)
    assert verdicts(comparison.claims) == {verdict}
    # five pairs by four measures, and exact neighbours; four pairs by two, without a tie; five by two, without a time
    assert len(comparison.claims) == 21 + 7 + 9
    check_the_paper(comparison.claims)


@VERDICTS
def test_wsabie_orders_sizes_ensembles_and_leaves(
    tmp_path: Path, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant, paper = AS_PAPER[verdict], tables.paper
    found = {f"WSABIE-{size}": row for size, row in paper.TABLE_4.items()}
    found |= {" + ".join(f"WSABIE-{size}" for size in sizes): row for sizes, row in paper.TABLE_7.items() if sizes[1:]}
    for levels in neighbours.LEAVES:
        found[f"Approx. k-NN, {levels} levels"] = {"p@1": 0.05 - 0.005 * levels}
    planted = {label: judged({name: plant(value) for name, value in row.items()}) for label, row in found.items()}
    monkeypatch.setattr(Comparison, "try_test", lambda self, problem, method: planted[method.label])
    comparison, one = comparison_in(tmp_path), problem()
    comparison.tested[one.name] = {WSABIE.label: judged({}), "Approx. k-NN": planted["Approx. k-NN, 6 levels"]}
    tables.sizes_part(comparison, one)
    assert [(claim.first, claim.second) for claim in comparison.claims[:3]] == [
        ("WSABIE-300", "WSABIE-100"),
        ("WSABIE-300", "WSABIE-200"),
        ("WSABIE-300", "WSABIE-500"),
    ]
    assert {claim.first for claim in comparison.claims if claim.of == "p_sib@10"} == {"WSABIE-200"}
    tables.ensembles_part(comparison, one)
    neighbours.leaves_part(comparison, one)
    assert verdicts(comparison.claims) == {verdict}
    assert len(comparison.claims) == 9 + 8 + 2
    check_the_paper(comparison.claims)


@pytest.mark.parametrize(
    ("maps", "expected"),
    [
        ((0.5, 0.4, 0.3), [YES, YES, YES]),
        ((0.3, 0.4, 0.5), [NO, NO, NO]),
        ((0.4, 0.4, 0.4), [UNSURE, UNSURE, UNSURE]),
        ((0.4, 0.396, 0.395), [UNSURE, YES, UNSURE]),
    ],
)
def test_wsabie_orders_losses_by_what_they_reach_in_the_same_time(
    tmp_path: Path, maps: tuple[float, ...], expected: list[str]
) -> None:
    comparison, lines = comparison_in(tmp_path), {}
    for method, value in zip((WSABIE, AUC, OWPC), maps, strict=True):
        lines[method.label] = [1.0, 2.0, 9.0], [0.1, value, value if method is WSABIE else 0.9]
    figures.training_claims(comparison, problem(), lines)
    assert [claim.verdict for claim in comparison.claims] == expected
    assert comparison.claims[0].here == (f"{maps[0]:.4f}", f"{maps[1]:.4f}")


# VSE-ens


def curve_of(*, seconds: float, epochs: int, draws: tuple[float, float] = (1, 1)) -> list[dict[str, Any]]:
    """A training that is at its best after its last epoch."""
    known = np.linspace(*draws, epochs)
    return [
        {"map": (n + 1) / epochs, "epoch": n + 1, "seconds": seconds * (n + 1) / epochs, "draws": d, "violated": 1.0}
        for n, d in enumerate(known)
    ]


@VERDICTS
def test_vse_ens_orders_methods_and_costs(tmp_path: Path, verdict: str) -> None:
    comparison, one, paper = comparison_in(tmp_path), problem(), vse_ens.paper
    epochs = {YES: (15, 20, 80), NO: (80, 20, 15), UNSURE: (20, 20, 20)}[verdict]
    seconds = {YES: (50, 10, 25), NO: (5, 30, 15), UNSURE: (9, 9, 9)}[verdict]
    draws = {YES: (1.0, 9.0), NO: (9.0, 1.0), UNSURE: (5.0, 5.2)}[verdict]
    steps = {YES: (15, 2.6, 0.8), NO: (1, 5, 20), UNSURE: (9, 9, 9)}[verdict]
    for n, label in enumerate(("WARP", "VSE-ens", "Opt-AUC")):
        row = {metric: AS_PAPER[verdict](value) for metric, value in paper.TABLE_2[label]["NUS-WIDE"].items()}
        curve = curve_of(seconds=seconds[n], epochs=epochs[n], draws=draws)
        comparison.tested.setdefault(one.name, {})[label] = judged(row, curve=curve, map=1.0)
    vse_ens.results_part(comparison, one)
    vse_ens.time_part(comparison, one)
    vse_ens.draws_part(comparison, one)
    assert verdicts(comparison.claims) == {verdict}
    assert len(comparison.claims) == 8 + 5 + 1
    check_the_paper(comparison.claims)
    assert comparison.claims[-1].here == (f"{draws[1]:.2f}", f"{draws[0]:.2f}")
    comparison.claims.clear()
    for n, label in enumerate(("WARP", "VSE-ens", "Opt-AUC")):
        curve = curve_of(seconds=steps[n], epochs=10)
        comparison.tested[one.name][label] = judged({}, curve=curve, map=1.0)
    vse_ens.complexity_part(comparison, one)
    assert [(claim.first, claim.second) for claim in comparison.claims] == [("Opt-AUC", "VSE-ens"), ("VSE-ens", "WARP")]
    assert verdicts(comparison.claims) == {verdict}


# Features


@VERDICTS
def test_features_orders_features_methods_and_losses(tmp_path: Path, verdict: str) -> None:
    paper, plant = read_paper("objects_and_parts"), AS_PAPER[verdict]
    sets = [PAPER_VISTERMS, OUR_VISTERMS, ENSEMBLE]
    comparison = comparison_in(tmp_path)
    problems: Any = {features.slug: SimpleNamespace(name=features.slug) for features in sets}
    run = PhotoRun("photos", comparison, sets=sets, problems=problems)
    losses = {label: value for row in paper.TABLE_2.values() for label, value in row.items()}
    for features in sets:
        found = comparison.tested.setdefault(features.slug, {})
        for method in ("WSABIE", "k-NN", "Approx. k-NN", "linear, AUC", "One-vs-Rest"):
            row = {"p@1": 0.01, "p@10": 0.01} | paper.TABLE_1.get(
                (paper_label(method, features), features.stands_for), {}
            )
            row["map"] = 0.3 if features is ENSEMBLE else 0.2
            found[run.label(method, features)] = judged({name: plant(value) for name, value in row.items()})
        for label in set(losses) - set(found):
            found[label] = judged({"p@1": plant(losses[label])})
    if verdict == UNSURE:
        let_swing(one for found in comparison.tested.values() for one in found.values())
    feature_claims(run)
    method_claims(run)
    loss_claims(run)
    assert verdicts(comparison.claims) == {verdict}
    assert len(comparison.claims) == 16 + 10 + 4
    check_the_paper(comparison.claims)
    counts = {YES: "for 5 of 5 methods, below for 0, too close to call for 0", NO: "for 0 of 5 methods, below for 5"}
    for sentence in differences_part(run):
        assert counts.get(verdict, "for 0 of 5 methods, below for 0, too close to call for 5") in sentence
