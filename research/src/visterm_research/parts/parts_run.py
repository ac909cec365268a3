"""The results of the objects-and-parts comparison on one problem: values by relation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visterm_research.comparison.run import Run
from visterm_research.parts.problem import KEPT, LEFT_OUT, OWN_KEPT, OWN_LEFT_OUT, PartsProblem
from visterm_research.parts.ranks import group_means, measure_answers, relation_of_each

METRICS = ("p@1", "p@10", "MAP", "mean rank")

QUADRUPLETS, OWN_PARTS = (KEPT, LEFT_OUT), (OWN_KEPT, OWN_LEFT_OUT)
"""Sets of examples: any pairs of test images of related tags, and objects with their own parts."""

Floats = NDArray[np.float64]


@dataclass
class PartsRun(Run):
    """The results on one problem; the settings of each method are chosen by its own score."""

    problem: PartsProblem

    def has(self, label: str, sets: Sequence[str]) -> bool:
        """Return whether a method has results on any of the `sets` of examples."""
        return label in self.judged and any(name in self.problem.tests for name in sets)

    def values(self, label: str, sets: Sequence[str], task: str) -> dict[str, Floats]:
        """Return the measures of a method for each example of all `sets` together."""
        ranks = [self.judged[label].values[f"{name}|{task}"] for name in sets if name in self.problem.tests]
        return measure_answers(np.concatenate(ranks).astype(np.int64))

    def by_relation(self, label: str, sets: Sequence[str], task: str, metric: str) -> Floats:
        """Return the mean of a measure over the examples of each relation, to resample for intervals."""
        existing = [name for name in sets if name in self.problem.tests]
        groups = np.concatenate([relation_of_each(task, self.problem.tests[name]) for name in existing])
        return group_means(self.values(label, existing, task)[metric], groups)

    def described(self) -> dict[str, Any]:
        """Return the images, tags and relations of the problem, for results.json."""
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
        """Return the chosen settings and the results of each method, for results.json."""
        summaries = {}
        for label, choice in self.choices.items():
            summaries[label] = {
                "model": choice.method.model,
                "chosen_by": choice.by,
                "settings": choice.settings,
                "validation": choice.record,
                "widened": list(choice.widened),
                "at_an_edge": choice.at_an_edge,
                "tried": [
                    {"settings": settings, "mean_rank": record["mean_rank"]} for settings, record in choice.tried
                ],
            }
            if label in self.judged:
                summaries[label]["test"] = {
                    name.replace("|", ", "): _means(ranks) for name, ranks in self.judged[label].values.items()
                }
        return summaries


def _means(ranks: Floats) -> dict[str, float]:
    return {name: float(array.mean()) for name, array in measure_answers(ranks.astype(np.int64)).items()}
