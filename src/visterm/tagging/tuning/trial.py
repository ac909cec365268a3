"""One setting tried: a model fitted on the one part of the rows and judged by the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from visterm.core.digests import jsonable
from visterm.core.errors import DivergedError
from visterm.core.progress import SILENT, Progress
from visterm.core.threads import Team
from visterm.tagging.tuning.trial_log import Trial
from visterm.tagging.tuning.validation import Parts, fit_judged


def try_settings(model: Any, settings: Mapping[str, Any], parts: Parts, metric: str, progress: Progress) -> Trial:
    """Fit and judge a model; one that diverges gives a trial without a value.

    Parameters
    ----------
    model : Annotator
        With the settings.
    settings : mapping
        What was searched over, to be kept with the trial.
    parts : Parts
        Rows to learn from and to judge by.
    metric : str
    progress : Progress
    """
    began = time.perf_counter()
    shown = jsonable(dict(settings))
    try:
        judged = fit_judged(model, parts, metric, progress)
    except DivergedError as error:
        return Trial(shown, None, None, time.perf_counter() - began, error=str(error))
    return Trial(shown, judged.value, judged.epochs, judged.seconds, history=jsonable(judged.history))


class Candidate(NamedTuple):
    """A model that is not fitted, and the settings of it that are searched over."""

    model: Any
    settings: Mapping[str, Any]

    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.settings.items())


class TrialJob(NamedTuple):
    """The trials of a search on other processes: `Job`. A part is a `Candidate`; its model learns with one thread."""

    parts: Parts
    metric: str

    def begin(self, team: Team, progress: Progress) -> Callable[[Candidate], Trial]:
        """Return what tries one setting; its own progress is not shown."""

        def tried(candidate: Candidate) -> Trial:
            if "n_jobs" in candidate.model.get_params(deep=False):
                candidate.model.set_params(n_jobs=team.size)
            return try_settings(candidate.model, candidate.settings, self.parts, self.metric, SILENT)

        return tried

    def name_of(self, part: Candidate) -> str:
        """Name a trial by its settings."""
        return f"The trial of {part}"

    def size_of(self, part: Candidate) -> int:
        """Count a trial as one step."""
        return 1
