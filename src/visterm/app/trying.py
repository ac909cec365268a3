"""One setting tried: a model fitted on the one part of the rows and judged by the other."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from visterm.app.trial_log import Trial
from visterm.app.validation import Parts, fit_judged
from visterm.core.digests import jsonable
from visterm.core.errors import DivergedError
from visterm.core.progress import Progress


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
