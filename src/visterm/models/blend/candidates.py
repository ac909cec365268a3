"""Members of a blend of models, made of what users list; and what `auto` tries by itself, on which columns.

By itself it tries models that did best for their seconds, the cheapest first, on all features or on one block.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp

from visterm.core.errors import UserError
from visterm.core.estimator import clone
from visterm.core.packing import json_params
from visterm.core.products import dense
from visterm.core.tables import MODELS
from visterm.core.types import Matrix
from visterm.models.base import Annotator, Blocks
from visterm.models.neighbours.distances import read_blocks
from visterm.models.stopping import learns_from_kernel

Settings: TypeAlias = dict[str, Any]
Member: TypeAlias = tuple[str, Settings] | Annotator
MemberList: TypeAlias = tuple[tuple[str, Settings], ...]

EXAMPLE = '[("wsabie", {"dim": 100}), ("ridge", {})]'
EMBEDDING: MemberList = (("wsabie", {}),)
USUAL: MemberList = (("knn", {}), ("kernel_ridge", {}), ("ridge", {}), *EMBEDDING)
"""Of images known only by number none can be held out, so there is one candidate, the last."""

GROWTHS = {
    "knn": 1,
    "kernel_ridge": 1.6,
    "prior": 1,
    "ridge": 1.5,
    "tagprop": 1.2,
    "text_ridge": 1.5,
    "two_pass_knn": 1,
    "wsabie": 1,
}
"""Seconds of a fit and of scores grow with the images to about these powers, measured from 450 to 3,600 images of 1,280
features. With many more images they grow less: all of these look at a part of them only to choose their settings."""

PAIRWISE = 2  # The power for all other models: each image is compared with each
FILLED = 0.1  # Share of values that are not 0 from which on a block is an array: visterms are far below, networks above
MOST_BYTES = 2**30
"""Of all columns as an array, where some blocks are well filled and others are not: as CSR, neighbours among 4,000 rows
of visterms and a network took 25 times as long."""


class ColumnSet(NamedTuple):
    """Which columns, and in which form."""

    block: int  # 1 for the first block; 0 for all columns
    # The first column, and the one after the last
    first: int
    stop: int
    dense: int  # 1: as an array, 0: as CSR, or all columns in the form that they come in

    def of(self, X: Matrix) -> Matrix:
        """Take them from rows (n_images, n_features), an array or CSR."""
        if self.block == 0 and not self.dense:
            return X
        columns: Any = X[:, self.first : self.stop]
        return np.ascontiguousarray(dense(columns)) if self.dense else sp.csr_array(columns)


def column_sets(X: Matrix, blocks: Blocks | None) -> list[ColumnSet]:
    """List all columns and, if there are several blocks (as `read_blocks` takes them), each block.

    All columns are taken as an array too if one of the blocks is; they are left out if that would be too large.
    Training rows `X`, (n_images, n_features), tell how full a block is.
    """
    n, width = X.shape
    slices = read_blocks(blocks, width)
    if len(slices) == 1:
        return [ColumnSet(0, 0, width, 0)]
    parts = []
    for number, part in enumerate(slices, start=1):
        values: Any = X[:, part]
        filled = (values.nnz if sp.issparse(values) else np.count_nonzero(values)) / max(1, np.prod(values.shape))
        parts.append(ColumnSet(number, int(part.start), int(part.stop), int(filled >= FILLED)))
    dense = int(sp.issparse(X) and any(part.dense for part in parts))
    return parts if dense and 4 * n * width > MOST_BYTES else [ColumnSet(0, 0, width, dense), *parts]


def listed(given: object, what: str) -> list[Member]:
    """Return the entries of a list of members, the parameter `what`; raise `UserError` if it is none, or empty."""
    if isinstance(given, str) or not isinstance(given, Iterable) or not (members := list(given)):
        raise UserError(setting=what, value=given, expected=f"a list such as {EXAMPLE}")
    return members


def make_member(member: object, whose: str, n_jobs: int | None, rng: np.random.Generator) -> Annotator:
    """Make an unfitted model from an entry of a list: a pair of name and settings, or a model, which is cloned.

    Its settings may leave open the threads, which are then `n_jobs`, and the seed, which `rng` then draws. `whose` says
    in messages what it is a member of ("the ensemble"). Anything else is a `UserError`.
    """
    seed = int(rng.integers(2**31))
    if isinstance(member, Annotator):
        return clone(member)
    name, settings = member if isinstance(member, list | tuple) and len(member) == 2 else (None, None)
    if not isinstance(name, str) or not isinstance(settings, dict):
        raise UserError(
            f"A member of {whose} is {member!r}.",
            setting="candidates" if whose == "auto" else "members",
            value=member,
            expected='a pair such as ("wsabie", {"dim": 100})',
        )
    model: Annotator = MODELS.create(name, **settings)
    shared = {"n_jobs": n_jobs, "random_state": seed}
    return model.set_known(**{key: value for key, value in shared.items() if key not in settings})


def any_from_kernel(given: object, what: str, whose: str) -> bool:
    """Return whether a list of members, or None, has one whose features are kernel values with the training images."""
    rng = np.random.default_rng(0)  # of seeds, which do not matter here
    members = [] if given is None else listed(given, what)
    return any(learns_from_kernel(make_member(member, whose, None, rng)) for member in members)


def own_settings(model: Annotator) -> Settings:
    """Return the settings of a model that are not its defaults, as JSON holds them; seed and threads aside."""
    defaults = json_params(type(model)(), MODELS)
    settings = json_params(model, MODELS)
    return {
        key: value
        for key, value in settings.items()
        if key not in ("random_state", "n_jobs") and value != defaults[key]
    }


def chosen_settings(model: Annotator) -> Settings:
    """Return the settings that were None and that a fitted model has chosen: numbers above 0 of the name and a "_"."""
    chosen = {name: getattr(model, f"{name}_", None) for name, v in model.get_params(deep=False).items() if v is None}
    return {name: value for name, value in chosen.items() if isinstance(value, int | float) and value > 0}
