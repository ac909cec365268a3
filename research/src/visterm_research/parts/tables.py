"""Tables 3 to 6 of the objects-and-parts paper, compared with the paper; the data, and the chosen settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visterm.core.packing import key_of
from visterm.metrics import paired_bootstrap
from visterm_research.comparison.claims import RESAMPLES, percent
from visterm_research.comparison.records import Record
from visterm_research.comparison.trials import FORMAT, Choice, Trials
from visterm_research.papers import read_paper
from visterm_research.parts import methods
from visterm_research.parts.methods import MORE_METHODS, OFFSETS, SHARED_I, SHARED_IW, UNSHARED_I, UNSHARED_IW
from visterm_research.parts.parts_run import METRICS, OWN_PARTS, QUADRUPLETS, PartsRun
from visterm_research.parts.problem import KEPT, LEFT_OUT, PartsProblem
from visterm_research.parts.ranks import (
    KNOWN,
    LABELLING,
    TASKS,
    TRIPLET,
    all_scores,
    chance_measures,
    measure_answers,
    pair_terms,
    task_ranks,
)

paper = read_paper("objects_and_parts")

NONE = "–"
CHANCE = "chance"

LEFT_OUT_SHARES = (0.1, 0.25, 0.5)
"""Shares of the relations to leave out; the paper leaves out 10 of 781."""


def statistics_part(run: PartsRun) -> None:
    """Write the numbers of labels, relations and quadruplets."""
    problem = run.problem
    data, relations = problem.data, problem.relations
    images = " / ".join(f"{rows.Y.shape[0]:,}" for rows in (data.train, data.valid, data.test))
    rows = [
        ["labels K", f"{len(data.tags):,}", f"{paper.N_TAGS:,}"],
        ["images: training / validation / test", images, "324,158 / 37,920 / 38,412"],
        [KEPT, f"{len(relations.kept):,}", f"{paper.N_RELATIONS:,}"],
        [LEFT_OUT, f"{len(relations.left_out):,}", NONE],
        ["of those with a tag that no learned one has", f"{len(relations.unreachable):,}", NONE],
        *([f"quadruplets: {name}", f"{n:,}", NONE] for name, n in problem.counts.items()),
    ]
    run.comparison.document.table(f"Data of {run.name}", ("", run.name, f"{paper.DATA}-WordNet (paper)"), rows)


def settings_part(run: PartsRun) -> None:
    """Write the chosen settings of each method, and the criterion of the choice."""
    rows = []
    for label, choice in run.choices.items():
        record = choice.record
        epoch = NONE if record["epoch"] is None else str(record["epoch"])
        mean_rank = f"{record['mean_rank'][choice.by]:,.1f}"
        widened = ", ".join(choice.widened) or NONE
        rows.append(
            [
                label,
                choice.by,
                f"{len(choice.tried)}",
                choice.shown,
                widened,
                mean_rank,
                epoch,
                f"{record['seconds']:.1f}",
            ]
        )
    header = (
        "method",
        "scored by",
        "settings tried",
        "chosen",
        "box widened",
        "mean rank",
        "best epoch",
        "seconds of its fit",
    )
    run.comparison.document.table(f"Settings chosen on validation rows of {run.name}", header, rows)


def tasks_part(
    run: PartsRun,
    number: str,
    sets: Sequence[str],
    what: str,
    theirs: Mapping[str, Mapping[str, tuple[float, float, float]]],
    data: str,
) -> None:
    """Table 3 or 4: the three tasks, on the examples of `sets`.

    Parameters
    ----------
    number : str
        Number of the table in the paper.
    sets : sequence of str
        Sets of examples, whose union is used.
    what : str
        Describes the examples in the caption.
    theirs : mapping of label and task to (p@1, p@10, MAP)
        The paper's figures; empty if it has none.
    data : str
        The paper's data.
    """
    labels = [label for label in run.judged if run.has(label, sets)]
    if not labels:
        return
    rows = [[label, run.name, *_cells(run, label, sets)] for label in labels]
    n_tags = len(run.problem.data.tags)
    by_chance = [chance_measures(n) for n in (n_tags, n_tags**2, n_tags)]
    rows.append([CHANCE, run.name, *(cell for measures in by_chance for cell in _format_measures(measures))])
    for label, tasks in theirs.items():
        cells = [cell for task in TASKS for cell in _paper_cells(tasks.get(task))]
        rows.append([label, f"{data} (paper)", *cells])
    header = ("model", "data", *(f"{task}, {metric}" for task in TASKS for metric in METRICS))
    run.comparison.document.table(f"Table {number} on {run.name}: {what}", header, rows)


def known_part(run: PartsRun) -> None:
    """Table 5: candidates are only the relations; learned relations have an offset if words are not used."""
    has_own_parts = any(name in run.problem.tests for name in OWN_PARTS)
    sets = OWN_PARTS if has_own_parts else QUADRUPLETS
    labels = [label for label in run.judged if run.has(label, sets) and run.choices[label].by != methods.ANNOTATION]
    if not labels:
        return
    parts = [sets, sets[:1], sets[1:]]
    rows = []
    for label in labels:
        cells = [cell for part_sets in parts for cell in _measure_cells(run, label, part_sets, KNOWN)]
        rows.append([OFFSETS.get(label, label), run.name, *cells])
    n = len(run.problem.every)
    rows.append([CHANCE, run.name, *_format_measures(chance_measures(n)) * len(parts)])
    blank = [NONE] * (len(METRICS) * (len(parts) - 1))
    for label, figures in paper.TABLE_5.items():
        rows.append([label, "LHI (paper)", *_paper_cells(figures), *blank])
    names = ("all", "learned", "left out")
    header = ("model", "data", *(f"{name}, {metric}" for name in names for metric in METRICS))
    examples = "objects with their own parts" if has_own_parts else "test quadruplets"
    document = run.comparison.document
    document.table(f"Table 5 on {run.name}: known relations, {n:,} candidates, {examples}", header, rows)
    document.text(
        "(IO): images alone, with an offset of 100 for learned relations, as in section 6.5: a left-out relation comes "
        f"after all {len(run.problem.relations.kept):,} learned ones. The paper has 771 "
        "learned and 10 left out."
    )


def nearest_part(run: PartsRun) -> None:
    """Table 6: the labels with the largest f_L for shown labels, by shared and by unshared vectors."""
    shared, unshared = (run.judged.get(method.label) for method in (SHARED_IW, UNSHARED_IW))
    if shared is None or unshared is None:
        return
    rows = [
        [tag, run.name, ", ".join(nearest), ", ".join(unshared.record["nearest"][tag])]
        for tag, nearest in shared.record["nearest"].items()
    ]
    rows += [[tag, "paper", *map(", ".join, labels)] for tag, labels in paper.TABLE_6.items()]
    run.comparison.document.table(
        f"Table 6 on {run.name}: nearest labels by f_L", ("label", "data", "shared", "unshared"), rows
    )


def ours_part(run: PartsRun) -> None:
    """Compare our own methods with the paper's methods of the same vectors, and with images alone."""
    rows = []
    for method in MORE_METHODS:
        words, images = (SHARED_IW, SHARED_I) if method.fixed["shared"] else (UNSHARED_IW, UNSHARED_I)
        for name, sets in (("learned", QUADRUPLETS[:1]), ("left-out", QUADRUPLETS[1:])):
            rows += [_comparison_row(run, method.label, words.label, sets, task, "MAP", name) for task in TASKS[1:]]
            rows.append(_comparison_row(run, method.label, images.label, sets, TASKS[2], "p@1", name))
    header = ("ours", "against", "measure", "figures", "ratio", "difference", "95 % interval", "relations")
    run.comparison.document.table(
        f"Our methods on {run.name}, against the paper's", header, [row for row in rows if row]
    )


def _comparison_row(
    run: PartsRun, first: str, second: str, sets: Sequence[str], task: str, metric: str, name: str
) -> list[str]:
    """Return a row that compares two methods over relations; empty if there are fewer than two relations."""
    if not (run.has(first, sets) and run.has(second, sets)):
        return []
    pair_values = [run.by_relation(label, sets, task, metric) for label in (first, second)]
    if pair_values[0].size < 2:
        return []
    difference = paired_bootstrap(*pair_values, n_resamples=RESAMPLES)
    means = [float(values.mean()) for values in pair_values]
    return [
        first,
        second,
        f"{task.lower()}, {name} relations, {metric}",
        f"{means[0]:.4f} / {means[1]:.4f}",
        f"{means[0] / means[1]:.2f}" if means[1] else NONE,
        f"{difference.mean:+.4f}",
        f"{difference.low:+.4f} to {difference.high:+.4f}",
        str(difference.n),
    ]


def _cells(run: PartsRun, label: str, sets: Sequence[str]) -> list[str]:
    by = run.choices[label].by
    cells: list[str] = []
    for task in TASKS:
        is_left_out = (task == TASKS[0] and by == methods.WORDS) or (task == TASKS[1] and by == methods.ANNOTATION)
        cells += [NONE] * len(METRICS) if is_left_out else _measure_cells(run, label, sets, task)
    return cells


def _measure_cells(run: PartsRun, label: str, sets: Sequence[str], task: str) -> list[str]:
    if not run.has(label, sets):
        return [NONE] * len(METRICS)
    return _format_measures({name: float(np.mean(array)) for name, array in run.values(label, sets, task).items()})


def _format_measures(measures: Mapping[str, float]) -> list[str]:
    """Format measures like the paper: shares in percent, MAP as a fraction."""
    return [
        percent(measures["p@1"]),
        percent(measures["p@10"]),
        f"{measures['MAP']:.4f}",
        f"{measures['mean rank']:,.1f}",
    ]


def _paper_cells(figures: tuple[float, float, float] | None) -> list[str]:
    if figures is None:
        return [NONE] * len(METRICS)
    return [percent(figures[0]), percent(figures[1]), f"{figures[2]:.4f}", NONE]


def shares_part(run: PartsRun, make: Callable[[float], PartsProblem]) -> None:
    """Write a table of results by the share of left-out relations, with the settings that are already chosen.

    Parameters
    ----------
    make : callable
        Returns the problem in which a share of the relations is left out.
    """
    rows = []
    for label, choice in run.choices.items():
        if choice.by != methods.WORDS:
            continue
        for share in LEFT_OUT_SHARES:
            problem = make(share)
            if LEFT_OUT not in problem.tests:
                continue
            record: Record | None = run.comparison.while_time(
                f"{label} with a share of {share:g} left out, {run.name}",
                partial(left_out_again, run.comparison.trials, problem, choice),
            )
            if record is not None:
                cells = [percent(record[f"{by}, {task}, p@1"]) for task in (TRIPLET, LABELLING) for by in ("I", "IW")]
                ranks = [f"{record[f'{by}, {LABELLING}, mean rank']:,.1f}" for by in ("I", "IW")]
                n = f"{len(problem.relations.left_out)}"
                rows.append([label, f"{share:g}", n, *cells, *ranks, record["place"]])
    scored = [f"({by})" for by in ("I", "IW")]
    header = (
        *("model", "share left out", "relations"),
        *(f"{task}, p@1 {by}" for task in (TRIPLET, LABELLING) for by in scored),
        *(f"{LABELLING}, mean rank {by}" for by in scored),
        "place by f_L",
    )
    document = run.comparison.document
    document.table(f"Left-out relations of {run.name}, by how many were left out: test quadruplets", header, rows)
    document.text(
        "(I) and (IW) are two scores of the same fit here, with the method's settings from above. Place: the rank by "
        "f_L of the left-out part among all parts that were not learned for this whole: 0 is first, 1 last, 0.5 chance."
    )


def left_out_again(trials: Trials, problem: PartsProblem, choice: Choice) -> Record:
    """Measure one fit on the left-out relations, with and without words, or read the record of an earlier trial."""

    def work(model: Any) -> Record:
        record: Record = {"place": f"{place_of_left_out(problem, model):.2f}"}
        S, examples = all_scores(model, problem.data.test.X), problem.tests[LEFT_OUT]
        for by, words in (("I", False), ("IW", True)):
            for task, ranks in task_ranks(S, pair_terms(model, S.shape[1], words), examples, trials.n_jobs).items():
                measures = measure_answers(ranks)
                record |= {f"{by}, {task}, {name}": float(values.mean()) for name, values in measures.items()}
        return record

    key = trials.key(problem, choice.method.model, choice.settings)
    return trials.derive(problem, choice, key_of(FORMAT, key, problem.test_fingerprint, "left out again"), work)


def place_of_left_out(problem: PartsProblem, model: Any) -> float:
    """Return the mean relative rank, 0 to 1, of left-out parts by f_L among the parts not learned for their whole."""
    parts = np.unique(problem.every[:, 0])
    kept = problem.relations.kept
    relative_ranks = []
    for part, whole in problem.relations.left_out:
        scores: NDArray[np.float32] = model.relation_scores([whole])[0]
        candidates = np.setdiff1d(parts, [part, whole, *kept[kept[:, 1] == whole, 0]])
        if candidates.size:
            above = (scores[candidates] > scores[part]) + 0.5 * (scores[candidates] == scores[part])
            relative_ranks.append(float(above.mean()))
    return float(np.mean(relative_ranks)) if relative_ranks else float("nan")
