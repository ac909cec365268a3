"""Tables 3 to 6 of the objects-and-parts paper, beside the paper's figures; what is learned from, what was chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from visterm.metrics.significance import paired_bootstrap
from visterm_research.comparison.claims import RESAMPLES, percent
from visterm_research.comparison.pair_measures import chance_measures
from visterm_research.papers import objects_and_parts as paper
from visterm_research.parts.arms import MORE_ARMS, OFFSETS
from visterm_research.parts.data import KEPT, LEFT_OUT
from visterm_research.parts.run import METRICS, OWN_PARTS, QUADRUPLETS, PartsRun
from visterm_research.parts.tasks import TASKS
from visterm_research.parts.trials import KNOWN

NONE = "–"
CHANCE = "chance"


def statistics_part(run: PartsRun) -> None:
    """Say how many labels, relations and quadruplets there are."""
    problem = run.problem
    data, relations = problem.data, problem.relations
    images = " / ".join(f"{rows.Y.shape[0]:,}" for rows in (data.train, data.valid, data.test))
    rows = [
        ["labels K", f"{len(data.tags):,}", f"{paper.N_TAGS:,}"],
        ["images to learn from / to choose by / of the test", images, "324,158 / 37,920 / 38,412"],
        [KEPT, f"{len(relations.kept):,}", f"{paper.N_RELATIONS:,}"],
        [LEFT_OUT, f"{len(relations.left_out):,}", NONE],
        ["of those with a tag that no learned one has", f"{len(relations.unreachable):,}", NONE],
        *([f"quadruplets: {name}", f"{n:,}", NONE] for name, n in problem.counts.items()),
    ]
    run.comparison.document.table(f"What {run.name} has", ("", run.name, f"{paper.DATA}-WordNet (paper)"), rows)


def settings_part(run: PartsRun) -> None:
    """Say which settings were chosen, by what."""
    rows = []
    for label, choice in run.choices.items():
        start, settings = choice.arm.start, choice.settings
        varied = {name for stage in choice.arm.stages for change in stage for name in change}
        shown = ", ".join(f"{name}={settings.get(name, start.get(name))}" for name in sorted(varied)) or NONE
        record = choice.record
        epoch = NONE if record["epoch"] is None else str(record["epoch"])
        found = f"{record['mean_rank'][choice.arm.by]:,.1f}"
        rows.append([label, choice.arm.by, f"{len(choice.tried)}", shown, found, epoch, f"{record['seconds']:.1f}"])
    header = ("method", "scored by", "settings tried", "chosen", "mean rank", "best epoch", "seconds of its fit")
    run.comparison.document.table(f"Settings chosen on validation rows of {run.name}", header, rows)


def tasks_part(
    run: PartsRun,
    number: str,
    sets: Sequence[str],
    what: str,
    theirs: Mapping[str, Mapping[str, tuple[float, float, float]]],
    data: str,
) -> None:
    """Table 3 or 4: the three tasks, on some examples.

    Parameters
    ----------
    number : str
        Of the table in the paper.
    sets : sequence of str
        Sets of examples, which are put together.
    what : str
        Names the examples in the caption.
    theirs : mapping of label and task to (p@1, p@10, MAP)
        The paper's figures; empty where it has none.
    data : str
        The paper's data.
    """
    labels = [label for label in run.judged if run.has(label, sets)]
    if not labels:
        return
    rows = [[label, run.name, *_cells(run, label, sets)] for label in labels]
    n_tags = len(run.problem.data.tags)
    by_chance = [chance_measures(n) for n in (n_tags, n_tags**2, n_tags)]
    rows.append([CHANCE, run.name, *(cell for one in by_chance for cell in _written(one))])
    for label, tasks in theirs.items():
        cells = [cell for task in TASKS for cell in _paper_cells(tasks.get(task))]
        rows.append([label, f"{data} (paper)", *cells])
    header = ("model", "data", *(f"{task}, {metric}" for task in TASKS for metric in METRICS))
    run.comparison.document.table(f"Table {number} on {run.name}: {what}", header, rows)


def known_part(run: PartsRun) -> None:
    """Table 5: candidates are the relations alone; those learned from have an offset where words do not count."""
    own = any(name in run.problem.tests for name in OWN_PARTS)
    sets = OWN_PARTS if own else QUADRUPLETS
    labels = [label for label in run.judged if run.has(label, sets) and run.choices[label].arm.pairs]
    if not labels:
        return
    parts = [sets, sets[:1], sets[1:]]
    rows = []
    for label in labels:
        cells = [cell for some in parts for cell in _measured(run, label, some, KNOWN)]
        rows.append([OFFSETS.get(label, label), run.name, *cells])
    n = len(run.problem.every)
    rows.append([CHANCE, run.name, *_written(chance_measures(n)) * len(parts)])
    blank = [NONE] * (len(METRICS) * (len(parts) - 1))
    for label, figures in paper.TABLE_5.items():
        rows.append([label, "LHI (paper)", *_paper_cells(figures), *blank])
    names = ("all", "learned", "left out")
    header = ("model", "data", *(f"{name}, {metric}" for name in names for metric in METRICS))
    examples = "objects with their own parts" if own else "test quadruplets"
    document = run.comparison.document
    document.table(f"Table 5 on {run.name}: known relations, {n:,} candidates, {examples}", header, rows)
    document.text(
        "(IO): images alone, with an offset of 100 for relations that were learned from, as in section 6.5: a relation "
        f"that was left out comes after all {len(run.problem.relations.kept):,} that were not. The paper has 771 "
        "learned and 10 left out."
    )


def nearest_part(run: PartsRun) -> None:
    """Table 6: the labels of the largest f_L beside some labels, by shared and by unshared vectors."""
    shared, unshared = (run.judged.get(label) for label in (paper.SHARED_IW, paper.UNSHARED_IW))
    if shared is None or unshared is None:
        return
    rows = [
        [tag, run.name, ", ".join(nearest), ", ".join(unshared.nearest[tag])] for tag, nearest in shared.nearest.items()
    ]
    rows += [[tag, "paper", *map(", ".join, both)] for tag, both in paper.TABLE_6.items()]
    run.comparison.document.table(
        f"Table 6 on {run.name}: nearest labels by f_L", ("label", "data", "shared", "unshared"), rows
    )


def ours_part(run: PartsRun) -> None:
    """Say what our own methods change beside the paper's of the same vectors, and beside images alone."""
    lines = []
    for arm in MORE_ARMS:
        words, images = (
            (paper.SHARED_IW, paper.SHARED_I) if arm.start["shared"] else (paper.UNSHARED_IW, paper.UNSHARED_I)
        )
        for name, sets in (("learned", QUADRUPLETS[:1]), ("left-out", QUADRUPLETS[1:])):
            lines += [_compared(run, arm.label, words, sets, task, "MAP", name) for task in TASKS[1:]]
            lines.append(_compared(run, arm.label, images, sets, TASKS[2], "p@1", name))
    run.comparison.document.items([line for line in lines if line])


def _compared(run: PartsRun, first: str, second: str, sets: Sequence[str], task: str, metric: str, name: str) -> str:
    """Say what one method has beside another, over relations; nothing where one was not judged on two relations."""
    if not (run.has(first, sets) and run.has(second, sets)):
        return ""
    both = [run.by_relation(label, sets, task, metric) for label in (first, second)]
    if both[0].size < 2:
        return ""
    found = paired_bootstrap(*both, n_resamples=RESAMPLES)
    means = [float(values.mean()) for values in both]
    times = f", {means[0] / means[1]:.2f} times" if means[1] else ""
    return (
        f"{first} beside {second}, {task.lower()}, {name} relations, {metric}: {means[0]:.4f} against "
        f"{means[1]:.4f}{times} "
        f"(difference {found.mean:+.4f}, 95 %: {found.low:+.4f} to {found.high:+.4f}, of {found.n} relations)."
    )


def _cells(run: PartsRun, label: str, sets: Sequence[str]) -> list[str]:
    arm = run.choices[label].arm
    cells: list[str] = []
    for task in TASKS:
        left = (task == TASKS[0] and arm.words) or (task == TASKS[1] and not arm.pairs)
        cells += [NONE] * len(METRICS) if left else _measured(run, label, sets, task)
    return cells


def _measured(run: PartsRun, label: str, sets: Sequence[str], task: str) -> list[str]:
    if not run.has(label, sets):
        return [NONE] * len(METRICS)
    return _written({name: float(np.mean(array)) for name, array in run.values(label, sets, task).items()})


def _written(found: Mapping[str, float]) -> list[str]:
    """Write measures as the paper does: shares in percent, MAP as a fraction."""
    return [percent(found["p@1"]), percent(found["p@10"]), f"{found['MAP']:.4f}", f"{found['mean rank']:,.1f}"]


def _paper_cells(figures: tuple[float, float, float] | None) -> list[str]:
    if figures is None:
        return [NONE] * len(METRICS)
    return [percent(figures[0]), percent(figures[1]), f"{figures[2]:.4f}", NONE]
