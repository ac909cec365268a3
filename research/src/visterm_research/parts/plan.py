"""What every part of the objects-and-parts comparison is run with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from visterm.core.progress import Progress
from visterm_research.comparison.feature_sets import OUR_VISTERMS
from visterm_research.comparison.run import Comparison
from visterm_research.comparison.trials import Trials
from visterm_research.parts.arms import PartArm
from visterm_research.parts.data import PartsProblem, related
from visterm_research.parts.images import Labelled
from visterm_research.parts.report import report
from visterm_research.parts.run import PartsRun

SCENES, QUICK_SCENES = 2000, 100
LEARNED_SCENES, QUICK_LEARNED = 0.2, 1.0
"""Share of the training scenes: by all of them, images alone name 7 of 10 test crops, and words have little to
add; in the paper they name 1 of 10."""

VALID_QUADRUPLETS, QUICK_VALID = 2000, 200
TEST_QUADRUPLETS, QUICK_TEST = 5000, 300
QUICK_VISTERMS = replace(OUR_VISTERMS, params={"colours": 16, "codebook": 150, "sample_blocks": 3000})


@dataclass(frozen=True)
class Plan:
    """What is run, and with what.

    Attributes
    ----------
    comparison : Comparison
    trials : Trials
    arms : list of PartArm
    seed : int
    n_jobs : int or None
    quick : bool
    progress : Progress
    check_time : callable
        Raises where the time is over.
    """

    comparison: Comparison
    trials: Trials
    arms: list[PartArm]
    seed: int
    n_jobs: int | None
    quick: bool
    progress: Progress
    check_time: Callable[[], None]

    @property
    def cache(self) -> Path:
        """Where drawn images and features are kept."""
        return self.comparison.out / "data"

    @property
    def shared(self) -> dict[str, Any]:
        """Return what makes images."""
        return {
            "seed": self.seed,
            "n_jobs": self.n_jobs,
            "before_work": self.check_time,
            "progress": self.progress,
        }

    def related(self, data: Labelled, pairs: Any, share: float, judged: Any = None) -> PartsProblem:
        """Leave out a share of the relations, and draw quadruplets."""
        n_valid, n_test = (QUICK_VALID, QUICK_TEST) if self.quick else (VALID_QUADRUPLETS, TEST_QUADRUPLETS)
        return related(data, pairs, share=share, n_valid=n_valid, n_test=n_test, seed=self.seed, judged=judged)

    def run(self, problem: PartsProblem) -> PartsRun:
        """Choose and judge all methods, and write the part of the report."""
        run = PartsRun(problem, self.comparison, self.trials)
        run.run(self.arms)
        report(run)
        return run
