"""`visterm fit --ray`: which models learn on several machines, where they keep what they need, and what is said."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from visterm.cli.output import say
from visterm.core.errors import UserError
from visterm.core.executor import Executor


def learns_elsewhere(executor: Executor, model: Any, unusable: Mapping[str, Any]) -> bool:
    """Check that a model can learn on the executor's machines; False where there are none, or it streams features.

    A model of the ranking family learns there from features in shards, see `fit_and_save`. `unusable` are options and
    their values that cannot be used there: any that is given is an error.
    """
    if not executor.remote or getattr(model, "learns_together", False):
        return False
    from visterm.app.deep_fit_together import check_fits_together

    check_fits_together(model)
    if given := [option for option, value in unusable.items() if value is not None]:
        raise UserError(f"{given[0]} is learned from in one process. Leave {given[0]} or --ray out.")
    return True


def say_if_learned_here(facts: Mapping[str, Any]) -> None:
    """Say so where other machines were there to learn, and one process has done it all."""
    if "workers" not in facts:
        say("All images are in one batch, so that one process learned from them: no engine was started.")
