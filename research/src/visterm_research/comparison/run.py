"""What the two comparisons share: methods tested on every problem until the time is over, claims, files written."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from visterm.core.digests import jsonable
from visterm.core.writing import write_whole
from visterm_research.comparison.arms import Arm
from visterm_research.comparison.claims import Claim
from visterm_research.comparison.markdown import Document
from visterm_research.comparison.problem import Problem
from visterm_research.comparison.trials import OutOfTimeError, Tested, Trials

TestedArms = dict[str, Tested]


class Outcome(NamedTuple):
    """What a comparison left behind.

    Attributes
    ----------
    report : Path
        The Markdown file; pictures and ``results.json`` lie beside it.
    claims : list of Claim
    unfinished : list of str
        Methods and parts for which there was no time, in words; a second run with the same folder does them.
    """

    report: Path
    claims: list[Claim]
    unfinished: list[str]


@dataclass
class Comparison:
    """The state of one comparison: what is run, on what, and what was found.

    Attributes
    ----------
    out : Path
        The folder of the report.
    paper : str
    arms : sequence of Arm
        The methods that are run.
    trials : Trials
    document : Document
    claims : list of Claim
    unfinished : list of str
    tested : dict
        By problem and method.
    """

    out: Path
    paper: str
    arms: Sequence[Arm]
    trials: Trials
    document: Document
    claims: list[Claim] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    tested: dict[str, TestedArms] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def begin(self, problem: Problem) -> None:
        """Begin the part on a problem: choose and test every method; those without time are noted."""
        self.add(problem)
        self.document.section(f"On {problem.name}", f"{problem.what[0].upper()}{problem.what[1:]}.")
        for arm in self.arms:
            self.include(problem, arm)

    def add(self, problem: Problem) -> None:
        """List a problem among those of the results; nothing is fitted."""
        self.problems.append(problem)
        self.tested.setdefault(problem.name, {})

    def include(self, problem: Problem, arm: Arm) -> None:
        """Choose and test one method, and keep it among the results; one without time is noted."""
        tested = self.try_test(problem, arm)
        if tested is not None:
            self.tested[problem.name][arm.label] = tested

    def try_test(self, problem: Problem, arm: Arm) -> Tested | None:
        """Choose and test one method; None, and a note, where the time is over."""
        tested: Tested | None = self.while_time(
            f"{arm.label} on {problem.name}", lambda: self.trials.test(problem, arm)
        )
        return tested

    def while_time(self, what: str, work: Callable[[], Any]) -> Any:
        """Do some work, or note what was not done where the time is over."""
        try:
            return work()
        except OutOfTimeError:
            self.unfinished.append(what)
            return None

    def values(self, problem: Problem) -> dict[str, dict[str, NDArray[np.float64]]]:
        """Return the metrics of a problem image by image, by method."""
        return {label: tested.values for label, tested in self.tested[problem.name].items()}

    def write(self, facts: dict[str, Any]) -> Outcome:
        """Write ``report.md`` and ``results.json``.

        Parameters
        ----------
        facts : dict
            Further results, such as curves, by name.
        """
        report = self.out / "report.md"
        write_whole(report, self.document.render().encode("utf-8"))
        results = {
            "paper": self.paper,
            "machine": machine(),
            "problems": [_described(problem) for problem in self.problems],
            "tested": {
                problem: {label: _summary(tested) for label, tested in arms.items()}
                for problem, arms in self.tested.items()
            },
            "claims": [claim.as_dict() for claim in self.claims],
            "tables": self.document.tables,
            "unfinished": self.unfinished,
            **facts,
        }
        told = json.dumps(jsonable(results), indent=1, ensure_ascii=False) + "\n"
        write_whole(self.out / "results.json", told.encode("utf-8"))
        return Outcome(report, self.claims, self.unfinished)


def deadline(minutes: float | None) -> float | None:
    """Return the moment, on the monotonic clock, at which the time is over."""
    return None if minutes is None else time.monotonic() + 60 * minutes


def machine() -> dict[str, Any]:
    """Say where the figures of time stem from."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "processor": platform.machine(),
        "threads": cpus,
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "visterm": version("visterm"),
    }


def _described(problem: Problem) -> dict[str, Any]:
    return {
        "name": problem.name,
        "what": problem.what,
        "training_images": problem.train.Y.shape[0],
        "validation_images": problem.valid.Y.shape[0],
        "test_images": problem.test.Y.shape[0],
        "features": problem.train.X.shape[1],
        "nonzeros": problem.nonzeros,
        "tags": len(problem.tags),
        "training_pairs": int((problem.train.Y > 0).sum()),
        "fingerprint": problem.fingerprint,
    }


def _summary(tested: Tested) -> dict[str, Any]:
    chosen = tested.chosen
    return {
        "model": chosen.arm.model,
        "settings": chosen.settings,
        "tried": [
            {"settings": one["settings"], "map": one["map"], "seconds": one.get("seconds")} for one in chosen.tried
        ],
        "validation_map": chosen.record["map"],
        "epoch": chosen.record["epoch"],
        "seconds": chosen.record["seconds"],
        "curve": chosen.record["curve"],
        "test": tested.metrics,
        "cost": tested.cost,
    }
