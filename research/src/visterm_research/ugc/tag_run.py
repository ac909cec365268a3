"""What the sampled-tagging comparison found on one problem, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visterm_research.comparison.claims import Claim
from visterm_research.comparison.methods import Method
from visterm_research.comparison.run import Run
from visterm_research.comparison.search import Settings
from visterm_research.ugc.measures import BY_IMAGE, KINDS, Five, five_of, resampled_fives
from visterm_research.ugc.problems import TagProblem

Floats = NDArray[np.float64]


@dataclass
class TagRun(Run):
    """What was found on one problem; methods are chosen and judged by both ways to average.

    Attributes
    ----------
    problem : TagProblem
    aims : list of Claim
        What is aimed at and not in the paper.
    """

    problem: TagProblem
    aims: list[Claim] = field(default_factory=list)
    _resampled: dict[tuple[str, str], Floats] = field(default_factory=dict, repr=False)

    def has(self, label: str, kind: str) -> bool:
        """Return whether a method was judged."""
        return (label, kind) in self.judged

    def five(self, label: str, kind: str) -> Five:
        """Return precision, recall and F1 of a method on the test rows."""
        return five_of(self.judged[label, kind].metrics, kind)

    def resampled(self, label: str, kind: str) -> Floats:
        """Return the three of each resample of the test images, the same resamples for every method."""
        place = label, kind
        if place not in self._resampled:
            self._resampled[place] = resampled_fives(self.judged[place].values["ids"], self.problem.rows.test.Y, kind)
        return self._resampled[place]

    def described(self) -> dict[str, Any]:
        """Return what the problem is, for results.json."""
        rows = self.problem.rows
        return {
            "what": rows.what,
            "images": {
                name: int(part.Y.shape[0])
                for name, part in (("train", rows.train), ("valid", rows.valid), ("test", rows.test))
            },
            "features": int(rows.train.X.shape[1]),
            "tags": len(rows.tags),
            "word_vectors": self.problem.words.source,
            "fingerprint": self.problem.fingerprint,
        }

    def summaries(self) -> dict[str, Any]:
        """Return what was chosen and found of each method, for results.json."""
        found: dict[str, Any] = {}
        for (label, kind), choice in self.choices.items():
            judged = self.judged.get((label, kind))
            found.setdefault(label, {"model": choice.method.model})[kind] = {
                "settings": choice.settings,
                "widened": list(choice.widened),
                "at_an_edge": choice.at_an_edge,
                "validation": choice.record["metrics"],
                "epoch": choice.record["epoch"],
                "seconds": choice.record["seconds"],
                "test": None if judged is None else judged.metrics,
            }
        for (label, kind), choice in self.choices.items():
            if kind == KINDS[0]:
                found[label]["tried"] = [
                    {"settings": settings, "validation": record["metrics"]} for settings, record in choice.tried
                ]
        return found


def chosen_settings(run: TagRun, method: Method) -> Settings:
    """Return the settings of a method that were chosen by F1 over images, to be fitted anew without validation rows.

    Its epochs are then those of the chosen fit. If none was chosen: the first that is drawn.
    """
    choice = run.choices.get((method.label, BY_IMAGE))
    if choice is None:
        return method.settings()[0]
    epochs = choice.record["epoch"]
    return choice.settings if epochs is None else {**choice.settings, "epochs": epochs}
