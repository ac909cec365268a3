"""Orders of searches, parts and sampled tagging on planted results: as in the paper, turned around, and all equal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from planted_figures import AS_PAPER, COSTS, NOISE, VERDICTS, check_the_paper, comparison_in, problem, verdicts
from visterm_research.comparison.claims import RESAMPLES
from visterm_research.comparison.verdicts import NO, UNSURE, YES
from visterm_research.pamir.kernels import kernel_claims
from visterm_research.pamir.results import gain_claim, kind_claims, order_claims, result_claims, results_part
from visterm_research.pamir.search_run import Found, SearchRun
from visterm_research.pamir.tables import block_claims, time_claims
from visterm_research.papers import read_paper
from visterm_research.parts.claims import parts_claims
from visterm_research.parts.methods import OFFSETS
from visterm_research.parts.parts_run import OWN_PARTS, PartsRun
from visterm_research.parts.ranks import KNOWN
from visterm_research.ugc import times, times_costs, times_draws, zero_shot
from visterm_research.ugc.measures import BY_IMAGE, BY_TAG, Five
from visterm_research.ugc.methods import FULL, PROPOSED
from visterm_research.ugc.tables import KIND_OF, PLACES, WITHIN, five_claims, goal_part
from visterm_research.ugc.tag_run import TagRun

# PAMIR

KINDS = {
    "all": np.ones(60, bool),
    "easy": np.arange(60) < 30,
    "difficult": np.arange(60) >= 30,
    "one word": np.arange(60) % 2 == 0,
    "several words": np.arange(60) % 2 == 1,
    "test only": np.arange(60) >= 40,
}


def search_run(folder: Path, values: Mapping[str, Mapping[str, Any]]) -> SearchRun:
    pictures: Any = SimpleNamespace(name="planted", kinds=KINDS)
    run = SearchRun(pictures, comparison_in(folder), encoded=None)  # type: ignore[arg-type]
    for label, by_measure in values.items():
        run.found[label] = Found(None, [], dict(by_measure))  # type: ignore[arg-type]
    return run


@VERDICTS
@pytest.mark.parametrize("gaps", [0, 5])
def test_pamir_orders_methods_by_signed_ranks(tmp_path: Path, verdict: str, gaps: int) -> None:
    paper, undefined = read_paper("pamir"), np.where(np.arange(60) < gaps, np.nan, 0)
    values = {
        label: {name: AS_PAPER[verdict](paper.TABLE_9[name][label]) + NOISE + undefined for name in paper.MEASURES}
        for label in paper.METHODS
    }
    run = search_run(tmp_path, values)
    result_claims(run, "IX", paper.TABLE_9, "all")
    order_claims(run, "IX", paper.TABLE_9)
    kind_claims(run, "X", paper.TABLE_10)
    kind_claims(run, "XI", paper.TABLE_11)
    result_claims(run, "XII", paper.TABLE_12, "test only")
    order_claims(run, "XIII", paper.TABLE_13)
    claims = run.comparison.claims
    assert verdicts(claims) == {verdict}
    assert len(claims) == 12 + 4 + 8 + 8 + 12 + 4
    check_the_paper(claims)
    results_part(run, "IX", paper.SMALL, paper.TABLE_9, "all", paper.METHODS)
    rows = {row[0]: row for row in run.comparison.document.tables[0]["rows"]}
    best = {YES: "PAMIR", NO: "CMRM"}.get(verdict)
    assert [label for label, row in rows.items() if row[1].startswith("**")] == ([best] if best else [])
    beside = {YES: "better", NO: "worse", UNSURE: "neither"}[verdict]
    assert {rows[label][4].partition(" (")[0] for label in paper.METHODS[:-1]} == {beside}


@pytest.mark.parametrize(
    ("gains", "verdict"), [((1.4, 1.05), YES), ((1.05, 1.4), NO), ((1.2, 1.2), UNSURE), ((1.2, 1.199), UNSURE)]
)
def test_pamir_gains_more_on_one_kind_of_queries_than_on_another(
    tmp_path: Path, gains: tuple[float, float], verdict: str
) -> None:
    paper, svm = read_paper("pamir"), 0.4 + 5 * NOISE
    wobble = np.random.default_rng(1).normal(1, 0.02, 60)
    pamir = svm * wobble * np.where(KINDS["difficult"], *gains)
    run = search_run(tmp_path, {"PAMIR": {"AvgP": pamir}, "SVM": {"AvgP": svm}})
    gain_claim(run, "X", paper.TABLE_10, "difficult", "easy")
    (claim,) = run.comparison.claims
    assert (claim.verdict, claim.paper, claim.relation) == (verdict, ("+29.5%", "+3.3%"), "greater than")


@VERDICTS
def test_pamir_orders_times_blocks_and_kernels(tmp_path: Path, verdict: str) -> None:
    paper, plant = read_paper("pamir"), AS_PAPER[verdict]

    def record(share: float) -> dict[str, Any]:
        return {"avgp": plant(share), "by_query": [None, *(plant(share) + NOISE).tolist()]}

    run = search_run(tmp_path, {})
    claims = run.comparison.claims
    for theirs in (paper.SMALL, paper.LARGE):
        time_claims(run, theirs, {label: COSTS[verdict](cost) for label, cost in paper.TABLE_7[theirs].items()})
    assert [(claim.first, claim.second) for claim in claims[:4]] == [
        ("CMRM", "PAMIR"), ("CMTT", "PAMIR"), ("PAMIR", "PLSA"), ("PAMIR", "SVM"),
    ]  # fmt: skip
    block_claims(run, {side: record(share) for side, (_, share) in paper.TABLE_3.items()})
    assert {claim.first for claim in claims[14:]} == {"blocks of 32 px (the paper's 64)"}
    kernel_claims(run, {kernel: record(share) for kernel, (share, _) in paper.TABLE_4.items()})
    assert [(claim.first, claim.second) for claim in claims[20:]] == [
        ("visterm-linear", "match"), ("visterm-linear", "expected likelihood"), ("match", "expected likelihood"),
    ]  # fmt: skip
    assert verdicts(claims) == {verdict}
    check_the_paper(claims)


def test_pamir_judges_no_block_or_kernel_that_was_not_measured(tmp_path: Path) -> None:
    run, record = search_run(tmp_path, {}), {"avgp": 0.2, "by_query": NOISE.tolist()}
    block_claims(run, {64: record, 32: None, 48: {"avgp": None}, 7: record})
    block_claims(run, {32: record, 48: record})
    kernel_claims(run, {"match": record})
    assert run.comparison.claims == []


# Objects and their parts


class PlantedParts(PartsRun):
    """Figures of the paper, relation by relation."""

    plant: Callable[[float], float] = staticmethod(lambda figure: figure)

    def has(self, label: str, sets: Sequence[str]) -> bool:
        return True

    def by_relation(self, label: str, sets: Sequence[str], task: str, metric: str) -> Any:
        paper = read_paper("objects_and_parts")
        place = ("p@1", "p@10", "MAP").index(metric)
        if task == KNOWN:
            share = paper.TABLE_5[OFFSETS.get(label, label)][place]
        else:
            share = (paper.TABLE_4 if tuple(sets) == OWN_PARTS else paper.TABLE_3)[label][task][place]
        return self.plant(share) + 0.01 * NOISE


@VERDICTS
def test_parts_orders_models_over_relations(tmp_path: Path, verdict: str) -> None:
    related: Any = SimpleNamespace(name="planted", every=np.zeros((771, 2)), tests=dict.fromkeys(OWN_PARTS))
    run = PlantedParts(related, comparison_in(tmp_path))
    run.plant = AS_PAPER[verdict]
    parts_claims(run)
    claims = run.comparison.claims
    orders = [claim for claim in claims if claim.relation == "better than"]
    assert verdicts(orders) == {verdict}
    assert len(orders) == 2 + 6 + 4 + 3 + 4 + 1 + 2 + 2 + 1 + 4 + 2  # the first two: relations that were left out
    check_the_paper(orders)
    triplets = [claim for claim in claims if claim.relation.startswith("at least 1.5")]
    # equal models and those turned around are not 1.5 times as good
    assert [claim.verdict for claim in triplets] == [YES if verdict == YES else NO] * 2
    chance = [claim for claim in claims if claim.relation.startswith("at least 10")]
    assert [claim.verdict for claim in chance] == [YES] * 4
    run.plant = lambda figure: 0.0
    run.comparison.claims = []
    parts_claims(run)
    assert {claim.verdict for claim in run.comparison.claims if claim.relation.startswith("at least 10")} == {NO}


# Sampled tagging


class PlantedTags(TagRun):
    """Figures of the paper: those of IAPR TC-12 tag by tag, those of MS COCO image by image."""

    plant: Callable[[float], float] = staticmethod(lambda figure: figure)
    shift: Mapping[str, float] = {}

    def has(self, label: str, kind: str) -> bool:
        return label in self._table(kind)

    def five(self, label: str, kind: str) -> Five:
        return Five(*(self.plant(share) + self.shift.get(label, 0.0) for share in self._table(kind)[label]))

    def resampled(self, label: str, kind: str) -> Any:
        noise = np.random.default_rng(0 if not self.shift else len(label)).normal(0, 1e-3, (RESAMPLES, 3))
        return np.array(self.five(label, kind)) + noise

    def _table(self, kind: str) -> Any:
        data = next(data for data, one in KIND_OF.items() if one == kind)
        return read_paper("ugc").TABLES[data]


def tag_run(folder: Path) -> PlantedTags:
    one: Any = SimpleNamespace(name="planted")
    return PlantedTags(one, comparison_in(folder))


@VERDICTS
def test_sampled_tagging_orders_methods(tmp_path: Path, verdict: str) -> None:
    run = tag_run(tmp_path)
    run.plant = AS_PAPER[verdict]
    five_claims(run)
    orders = [claim for claim in run.comparison.claims if claim.relation == "better than"]
    assert verdicts(orders) == {verdict}
    assert len(orders) == 21
    assert set(PLACES) == {"precision", "recall", "F1"}
    check_the_paper(orders)


@pytest.mark.parametrize(
    ("below", "verdict", "goal"),
    [(0.005, YES, "goal met"), (-0.02, YES, "goal met"), (0.02, NO, "goal not met"), (0.01, UNSURE, "too close")],
)
def test_sampling_may_cost_a_point(tmp_path: Path, below: float, verdict: str, goal: str) -> None:
    run = tag_run(tmp_path)
    run.plant, run.shift = AS_PAPER[UNSURE], {PROPOSED: -below, FULL: 0.0}
    five_claims(run)
    within = [claim.verdict for claim in run.comparison.claims if claim.relation == WITHIN]
    assert within == [verdict] * 2
    goal_part(run)
    assert run.comparison.document.parts[-1].count(goal) == 2


def test_an_interval_of_sampled_tagging_lies_as_its_resamples_do(tmp_path: Path) -> None:
    class Skewed(PlantedTags):
        def resampled(self, label: str, kind: str) -> Any:
            """Resamples of one method reach three times as far up as down."""
            up = np.random.default_rng(0).exponential(0.01, (RESAMPLES, 3)) if label == PROPOSED else 0
            return np.array(self.five(label, kind)) + up + np.zeros((RESAMPLES, 3))

    run = Skewed(SimpleNamespace(name="planted"), comparison_in(tmp_path))  # type: ignore[arg-type]
    run.plant = AS_PAPER[UNSURE]
    for shift, verdict in ((0.012, YES), (-0.012, UNSURE)):
        run.shift, run.comparison.claims = {PROPOSED: shift}, []
        five_claims(run)
        both = [claim for claim in run.comparison.claims if (claim.first, claim.second) == (PROPOSED, FULL)]
        assert {claim.verdict for claim in both if claim.relation == "better than"} == {verdict}


@VERDICTS
def test_words_that_were_never_tags_are_ordered_by_table_2(tmp_path: Path, verdict: str) -> None:
    run, plant, paper = tag_run(tmp_path), AS_PAPER[verdict], read_paper("ugc")
    found = {}
    for label in ("Fast0Tag", "Fixed WV", "Full cross-entropy", "Sampled Fast0Tag", "Sampled Fixed WV", PROPOSED):
        found[label, "learned"] = {
            name: plant(paper.TABLE_2[part][label][place]) + 0.1 * NOISE
            for part, names in zero_shot.PARTS.items()
            for place, name in enumerate(names)
        } | {zero_shot.CHANCE: np.full(60, 0.05), zero_shot.WORD_MAP: 0.1 + NOISE}
    zero_shot._claims(run, found)
    assert len(run.comparison.claims) == 11
    assert verdicts(run.comparison.claims) == {verdict}
    assert {claim.where for claim in run.comparison.claims} == {"Table 2"}
    check_the_paper(run.comparison.claims)
    # five times chance is .25, and the paper's precision .154
    assert [aim.verdict for aim in run.aims] == [NO if verdict == YES else YES]


@VERDICTS
def test_moving_words_and_the_aims_are_judged_in_their_direction(tmp_path: Path, verdict: str) -> None:
    run, plant = tag_run(tmp_path), AS_PAPER[verdict]
    good, bad = ({name: plant(share) + NOISE for name in ("held-out p@5", "held-out r@5", "all p@5", "all r@5")}
                 for share in (0.3, 0.2))  # fmt: skip
    good |= {zero_shot.CHANCE: 0.1 * good["held-out p@5"], zero_shot.WORD_MAP: plant(0.3) + NOISE}
    bad |= {zero_shot.CHANCE: good[zero_shot.CHANCE], zero_shot.WORD_MAP: plant(0.2) + NOISE}
    names = (zero_shot.STAYING, zero_shot.AVERAGE)
    found = {(PROPOSED, "learned"): good, (PROPOSED, zero_shot.RANDOM): bad} | {
        (name, "learned"): bad for name in names
    }
    zero_shot._claims(run, found)
    assert [claim.verdict for claim in run.comparison.claims] == [verdict] * 2
    assert [aim.verdict for aim in run.aims] == [YES, verdict, verdict, verdict]


@VERDICTS
def test_sampled_tagging_orders_seconds_costs_and_draws(tmp_path: Path, verdict: str) -> None:
    comparison, cost = comparison_in(tmp_path), COSTS[verdict]
    seconds = {
        (n_tags, row.label, form): {"epoch": cost(row.paper[n_tags][place])}
        for row in times.ROWS
        for n_tags in row.paper
        for place, form in enumerate((times.FULL, times.SAMPLED))
    }
    times.time_claims(comparison, times.SHAPES, seconds)
    assert len(comparison.claims) == 2 * 4
    grid: Any = SimpleNamespace(both=(4, 8))
    of_steps = {times_costs.CROSS_ENTROPY: cost(1), times_costs.RANKS: cost(8)}
    times_costs._claim(comparison, grid, {(8, 8): {times_costs.COST: of_steps}})
    shares = {YES: (0.5, 0.4), NO: (0.4, 0.5), UNSURE: (0.4, 0.398)}[verdict]
    curves = {
        kept: {chosen: {"f1": [0.1, shares[0]]}, single: {"f1": [0.9, shares[1]]}}
        for kept, chosen, single in (("N = 10", "P = 5", "P = 1"), ("P = 5", "N = 10", "N = 1"))
    }
    times_draws.draws_claims(comparison, problem(), curves)
    assert len(comparison.claims) == 8 + 1 + 2
    assert verdicts(comparison.claims) == {verdict}
    assert {BY_TAG, BY_IMAGE} == set(KIND_OF.values())
