"""What a step costs by P and N: the sampled cross-entropy's O(max(P, N)) beside sampled Fast0Tag's O(P N)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from visterm_research.comparison.claims import least_claim
from visterm_research.comparison.figures import Line, draw_lines
from visterm_research.comparison.records import Record
from visterm_research.comparison.run import Comparison
from visterm_research.comparison.trials import Trials
from visterm_research.ugc.times import drawn_tags

CROSS_ENTROPY, RELATED, RANKS = "cross-entropy, α = 0", "cross-entropy, α = 0.01", "sampled Fast0Tag"
SERIES = (CROSS_ENTROPY, RELATED, RANKS)
LAYER, COST = "output layer", "cost alone"
KINDS = (LAYER, COST)

FITTED = 3
"""Largest sizes that the growth is measured over: at small ones a step costs its calls."""


class Grid(NamedTuple):
    """What is timed.

    Attributes
    ----------
    both : tuple of int
        Values of P and N, with P = N.
    mixed : tuple of (int, int)
        Further pairs of P and N.
    n_tags, dim, batch, rounds : int
    """

    both: tuple[int, ...]
    mixed: tuple[tuple[int, int], ...]
    n_tags: int
    dim: int
    batch: int
    rounds: int

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """All pairs of P and N."""
        return [*((size, size) for size in self.both), *self.mixed]


GRID = Grid((4, 8, 16, 32, 64, 128), ((5, 10), (5, 100), (50, 10), (50, 100)), 14_000, 300, 64, 11)
QUICK_GRID = Grid((2, 4, 8), ((2, 8),), 300, 16, 16, 2)


def costs_part(comparison: Comparison) -> None:
    """Section 2.2: time the output layer alone over a grid of P and N, and write a table, a figure and claims."""
    grid = QUICK_GRID if comparison.quick else GRID
    found: dict[tuple[int, int], Record] = {}
    for p, n in grid.pairs:
        record = comparison.while_time(
            f"Costs of a step with P = {p} and N = {n}", partial(step_times, comparison.trials, grid, p, n)
        )
        if record is not None:
            found[p, n] = record
    if not found:
        return
    _table(comparison, found)
    grown = {(kind, name): growth(found, grid.both, kind, name) for kind in KINDS for name in SERIES}
    sentences = [
        f"{name}: the whole layer by P to the power {grown[LAYER, name]:.2f}, the cost alone {grown[COST, name]:.2f}"
        for name in SERIES
        if grown[LAYER, name] is not None
    ]
    comparison.document.text(
        f"One step of {grid.batch} images, {grid.n_tags:,} tags and {grid.dim} numbers a vector, one thread, the "
        f"fastest of {grid.rounds}. The layer: drawing tags, fetching their vectors, cost, gradients, moving the "
        "vectors. The cost alone: from scores to their gradients. In products of two vectors α = 0 costs P + N an "
        "image, and Fast0Tag too: only its sum has P · N terms. With α above 0 equation (1) takes P · (P + N) products "
        "more, which the paper's O(max(P, N)) leaves out. How the seconds grow over the "
        f"{FITTED} largest P = N, where 1 is linear in P and 2 is P · N:"
    )
    comparison.document.items(sentences)
    _figure(comparison, grid, found)
    _claim(comparison, grid, found)


def step_times(trials: Trials, grid: Grid, p: int, n: int) -> Record:
    """Time a step with P and N, the costs in turn, or look it up.

    Returns
    -------
    dict
        By `KINDS` and the names in `SERIES`: seconds of the fastest round.
    """

    def work() -> Record:
        from visterm.models.deep import torch_settings  # torch

        with torch_settings(1, 0, half=False):
            timed = {LAYER: _layer_steps(grid, p, n), COST: _cost_steps(grid, p, n)}
            return {kind: _fastest(steps, grid.rounds) for kind, steps in timed.items()}

    return trials.once("times/step", [grid, p, n], work, {"P": p, "N": n})


def growth(found: Mapping[tuple[int, int], Record], sizes: Sequence[int], kind: str, name: str) -> float | None:
    """Fit the power of P = N by which seconds grow, over the largest sizes (least squares of logarithms).

    None where fewer than two of them were timed.
    """
    known = [size for size in sizes if (size, size) in found][-FITTED:]
    if len(known) < 2:
        return None
    seconds = [found[size, size][kind][name] for size in known]
    return float(np.polyfit(np.log(known), np.log(seconds), 1)[0])


def _layer_steps(grid: Grid, p: int, n: int) -> dict[str, Callable[[], None]]:
    import torch

    from visterm.models.deep import SampledObjective, TagDraws, WordTable
    from visterm_research.models.deep.objectives import sampled_rank_cost

    rng = np.random.default_rng(0)
    n_images = 10 * grid.batch
    settings: dict[str, Any] = {"power": 1.0, "background": "exact", "subset_size": 1}
    draws = TagDraws(drawn_tags(n_images, grid.n_tags), positives=p, negatives=n, **settings)
    rows = rng.standard_normal((grid.n_tags, grid.dim), np.float32) / np.float32(np.sqrt(grid.dim))
    f = torch.from_numpy(rng.standard_normal((grid.batch, grid.dim), np.float32)).requires_grad_()

    def step(objective: SampledObjective, table: WordTable) -> None:
        f.grad = None
        objective.loss(f, rng.integers(n_images, size=grid.batch), table, rng).backward()
        table.step(0.1)

    table = partial(WordTable, trainable=True, device=torch.device("cpu"))
    return {
        CROSS_ENTROPY: partial(step, SampledObjective(draws), table(rows.copy())),
        RELATED: partial(step, SampledObjective(draws, alpha=0.01), table(rows.copy())),
        RANKS: partial(step, SampledObjective(draws, cost=sampled_rank_cost), table(rows)),
    }


def _cost_steps(grid: Grid, p: int, n: int) -> dict[str, Callable[[], None]]:
    import torch

    from visterm.models.deep import related_tags, sampled_cross_entropy
    from visterm_research.models.deep.objectives import sampled_rank_cost

    s_p, s_n = (torch.zeros(grid.batch, size).requires_grad_() for size in (p, n))
    has, counts = torch.ones(grid.batch, p), torch.ones(grid.batch, n)
    alike, unlike = (torch.zeros(grid.batch, p, size).requires_grad_() for size in (p, n))
    two, apart = torch.ones(grid.batch, p, p), torch.ones(grid.batch, p, n)

    def related() -> Any:
        sums = related_tags(alike, unlike, two, apart, alpha=0.01, printed=False)
        return sampled_cross_entropy(s_p, s_n, has, counts) + sums

    return {
        CROSS_ENTROPY: lambda: sampled_cross_entropy(s_p, s_n, has, counts).backward(),
        RELATED: lambda: related().backward(),
        RANKS: lambda: sampled_rank_cost(s_p, s_n, has, counts).backward(),
    }


def _fastest(steps: Mapping[str, Callable[[], None]], rounds: int) -> dict[str, float]:
    """Time each step a few times, taking turns: others can only slow it. The first turn is not counted."""
    taken: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds + 1):
        for name, step in steps.items():
            began = time.perf_counter()
            step()
            taken[name].append(time.perf_counter() - began)
    return {name: min(seconds[1:]) for name, seconds in taken.items()}


def _table(comparison: Comparison, found: Mapping[tuple[int, int], Record]) -> None:
    header = ("P", "N", *(f"{kind}: {name} (ms)" for kind in KINDS for name in SERIES))
    rows = [
        [str(p), str(n), *(f"{1000 * record[kind][name]:.3g}" for kind in KINDS for name in SERIES)]
        for (p, n), record in sorted(found.items())
    ]
    comparison.document.table("Section 2.2: what a step costs by P and N", header, rows)


def _figure(comparison: Comparison, grid: Grid, found: Mapping[tuple[int, int], Record]) -> None:
    known = [size for size in grid.both if (size, size) in found]
    if len(known) < 2:
        return
    panels: list[tuple[str, dict[str, Line]]] = [
        (kind, {name: (known, [1000 * found[size, size][kind][name] for size in known]) for name in SERIES})
        for kind in KINDS
    ]
    path = "figures/costs-of-a-step.png"
    draw_lines(comparison.out / path, panels, x="P = N", y="milliseconds a step", log_x=True, log_y=True)
    comparison.document.picture(path, "Section 2.2: milliseconds a step by P = N.")


def _claim(comparison: Comparison, grid: Grid, found: Mapping[tuple[int, int], Record]) -> None:
    largest = (grid.both[-1], grid.both[-1])
    if largest not in found:
        return
    seconds = found[largest][COST]
    comparison.claims.append(
        least_claim(
            "Sampled cross-entropy (first two sums)",
            "sampled Fast0Tag",
            f"milliseconds of the cost alone at P = N = {largest[0]}",
            where="section 2.2",
            paper=("O(max(P, N))", "O(P N)"),
            problem="drawn tags",
            here=(1000 * seconds[CROSS_ENTROPY], 1000 * seconds[RANKS]),
            unit="ms",
        )
    )
