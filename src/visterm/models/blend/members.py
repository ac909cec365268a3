"""Members of a blend of models, made of what users list: names with settings, or models."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from visterm.core.errors import UserError
from visterm.core.estimator import clone
from visterm.core.packing import json_params
from visterm.core.tables import MODELS
from visterm.models.base import Annotator
from visterm.models.stopping import learns_from_kernel

EXAMPLE = '[("wsabie", {"dim": 100}), ("ridge", {})]'


def listed(given: Any, what: str) -> list[Any]:
    """Return the entries of a list of members, the parameter `what`; raise `UserError` if it is none, or empty."""
    if isinstance(given, str) or not isinstance(given, Iterable) or not (members := list(given)):
        raise UserError(f"{what} is {given!r}; expected a list such as {EXAMPLE}.")
    return members


def make_member(member: Any, whose: str, n_jobs: int | None, rng: np.random.Generator) -> Annotator:
    """Make an unfitted model from an entry of a list: a pair of name and settings, or a model, which is cloned.

    Its settings may leave open the threads, which are then `n_jobs`, and the seed, which `rng` then draws. `whose` says
    in messages what it is a member of ("the ensemble"). Anything else is a `UserError`.
    """
    seed = int(rng.integers(2**31))
    if isinstance(member, Annotator):
        return clone(member)
    pair = isinstance(member, list | tuple) and len(member) == 2
    if not (pair and isinstance(member[0], str) and isinstance(member[1], dict)):
        raise UserError(f'A member of {whose} is {member!r}; expected a pair such as ("wsabie", {{"dim": 100}}).')
    name, settings = member
    model: Annotator = MODELS.create(name, **settings)
    shared = {"n_jobs": n_jobs, "random_state": seed}
    known = model.get_params(deep=False)
    model.set_params(**{key: value for key, value in shared.items() if key in known and key not in settings})
    return model


def any_from_kernel(given: Any, what: str, whose: str) -> bool:
    """Return whether a list of members, or None, has one whose features are kernel values with the training images."""
    rng = np.random.default_rng(0)  # of seeds, which do not matter here
    members = [] if given is None else listed(given, what)
    return any(learns_from_kernel(make_member(member, whose, None, rng)) for member in members)


def own_settings(model: Annotator) -> dict[str, Any]:
    """Return the settings of a model that are not its defaults, as JSON holds them; seed and threads aside."""
    defaults = json_params(type(model)(), MODELS)
    settings = json_params(model, MODELS)
    return {
        key: value
        for key, value in settings.items()
        if key not in ("random_state", "n_jobs") and value != defaults[key]
    }


def chosen_settings(model: Annotator) -> dict[str, Any]:
    """Return the settings that were None and that a fitted model has chosen: numbers above 0 of the name and a "_"."""
    found = {name: getattr(model, f"{name}_", None) for name, v in model.get_params(deep=False).items() if v is None}
    return {name: value for name, value in found.items() if isinstance(value, int | float) and value > 0}
