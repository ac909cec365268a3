"""Trials given to Ray in tests: few rows, and models that do something before they learn."""

from __future__ import annotations

import numpy as np

from visterm.cluster import RayExecutor
from visterm.core.checks import check_tags
from visterm.learning.tune import TrialJob
from visterm.learning.validation import Parts


def parts():
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(12, 3)).astype(np.float32), check_tags(rng.integers(0, 2, size=(12, 4)), 12)
    return Parts(X[:8], Y[:8], X[8:], Y[8:], None)


def model_that(does):
    """A ridge model that does something before it learns; a class of its own, so that workers get it by value."""
    from visterm.models.linear.ridge import Ridge

    class Doing(Ridge):
        def fit(self, X, Y, **how):
            does()
            return super().fit(X, Y, **how)

    return Doing()


def trials_of(tasks, address="local"):
    """What was told of the tasks, by their numbers; each may be told once."""
    told = {}

    def finished(number, trial):
        assert number not in told
        told[number] = trial

    RayExecutor(address).run_as_done(TrialJob(parts()), tasks, finished)
    return told
