"""The state of the objects-and-parts comparison on one problem: methods chosen and judged, values by relation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visterm_research.comparison.pair_measures import group_means, measure_answers
from visterm_research.comparison.run import Comparison
from visterm_research.comparison.trials import Trials
from visterm_research.parts.arms import PartArm
from visterm_research.parts.data import KEPT, LEFT_OUT, OWN_KEPT, OWN_LEFT_OUT, PartsProblem
from visterm_research.parts.shown import shown_parts, shown_wholes
from visterm_research.parts.tasks import relation_of_each
from visterm_research.parts.trials import Choice, Judged, choose, judge

METRICS = ("p@1", "p@10", "MAP", "mean rank")

QUADRUPLETS, OWN_PARTS = (KEPT, LEFT_OUT), (OWN_KEPT, OWN_LEFT_OUT)
"""Sets of examples: of test images in any pairing, and of objects with their own parts."""

Floats = NDArray[np.float64]


@dataclass
class PartsRun:
    """What was found on one problem.

    Attributes
    ----------
    problem : PartsProblem
    comparison : Comparison
    trials : Trials
    choices : dict of str to Choice
        By the method's label.
    judged : dict of str to Judged
    """

    problem: PartsProblem
    comparison: Comparison
    trials: Trials
    choices: dict[str, Choice] = field(default_factory=dict)
    judged: dict[str, Judged] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What tables call it."""
        return self.problem.name

    def run(self, arms: Sequence[PartArm]) -> None:
        """Choose the settings of all methods, then judge them; those without time are noted."""
        for arm in arms:
            choice = self.comparison.while_time(
                f"{arm.label} on {self.name}", partial(choose, self.trials, self.problem, arm)
            )
            if choice is not None:
                self.choices[arm.label] = choice
        shown = [*shown_wholes(self.problem), *shown_parts(self.problem)]
        for label, choice in self.choices.items():
            judged = self.comparison.while_time(
                f"{label} on the test rows of {self.name}", partial(judge, self.trials, self.problem, choice, shown)
            )
            if judged is not None:
                self.judged[label] = judged

    def has(self, label: str, sets: Sequence[str]) -> bool:
        """Return whether a method was judged on any of some sets of examples."""
        return label in self.judged and any(name in self.problem.tests for name in sets)

    def values(self, label: str, sets: Sequence[str], task: str) -> dict[str, Floats]:
        """Return the measures of a method, example by example, of some sets together."""
        found = [self.judged[label].ranks[name, task] for name in sets if name in self.problem.tests]
        return measure_answers(np.concatenate(found))

    def by_relation(self, label: str, sets: Sequence[str], task: str, metric: str) -> Floats:
        """Return the mean of a measure over the examples of each relation: what intervals are resampled from."""
        known = [name for name in sets if name in self.problem.tests]
        groups = np.concatenate([relation_of_each(task, self.problem.tests[name]) for name in known])
        return group_means(self.values(label, known, task)[metric], groups)

    def described(self) -> dict[str, Any]:
        """Return what the problem is, for results.json."""
        data, relations = self.problem.data, self.problem.relations
        return {
            "what": data.what,
            "relations_from": self.problem.what,
            "images": {
                name: int(rows.Y.shape[0])
                for name, rows in (("train", data.train), ("valid", data.valid), ("test", data.test))
            },
            "tags": len(data.tags),
            "relations": len(relations.kept),
            "relations_left_out": len(relations.left_out),
            "left_out_relations_with_a_tag_in_no_other": len(relations.unreachable),
            "quadruplets": self.problem.counts,
            "fingerprint": self.problem.fingerprint,
        }

    def summaries(self) -> dict[str, Any]:
        """Return what was chosen and found of each method, for results.json."""
        return {label: self._summary(label) for label in self.choices}

    def _summary(self, label: str) -> dict[str, Any]:
        choice = self.choices[label]
        summary: dict[str, Any] = {
            "model": choice.arm.model,
            "chosen_by": choice.arm.by,
            "settings": choice.settings,
            "validation": choice.record,
            "tried": [{"settings": settings, "mean_rank": one["mean_rank"]} for settings, one in choice.tried],
        }
        judged = self.judged.get(label)
        if judged is not None:
            summary["test"] = {
                f"{sets}, {task}": {name: float(array.mean()) for name, array in measure_answers(ranks).items()}
                for (sets, task), ranks in judged.ranks.items()
            }
        return summary
