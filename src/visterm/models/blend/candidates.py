"""Make the members of a blend from a user's list, and define the candidates of `auto` and their columns.

By default, `auto` tries the models with the best results for their time, fastest first, on all features or one block.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
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

EXAMPLE_LIST = '[("wsabie", {"dim": 100}), ("ridge", {})]'
BY_NUMBER: MemberList = (("ease", {}), ("wsabie", {}))
ALS: tuple[str, Settings] = ("als", {"alpha": 4.0, "regularization": 30.0})  # For images known by number, by `implicit`
SMALL: MemberList = (("kernel_ridge", {}), ("ridge", {}), ("knn", {}), ("logistic", {"alpha": 0.1}))
DEFAULT_CANDIDATES: MemberList = (
    ("knn", {}),
    ("kernel_ridge", {}),
    ("ridge", {}),
    ("wsabie", {"dim": 50, "patience": 2}),
    ("mlp", {}),
    ("logistic", {}),
)
"""Few images that are judged in folds have the candidates `SMALL`, which need no images to stop by."""

PROBED: dict[str, Settings] = {
    "mlp": {"hidden": 512, "learning_rate": 0.003, "epochs": 15, "patience": 2},
    "logistic": {"alpha": 0.1},
}
"""Models that are worth their time only on some data: with these settings, they are first tried on an eighth of the
images."""

MUST_GAIN = frozenset({"als"})
"""Models for images known by number that are left out if they don't surely add to the best model before them."""

PRIOR_WEIGHTS = {"knn": 0.0, "logistic": 4.0}
"""Weights that few images are drawn to, where models are alike; 1 for all others (see `shrunk`). With 30 images,
logistic regression was the best model on four of four data sets; neighbours need many."""

GROWTHS = {
    "als": 1,
    "knn": 1,
    "ease": 1,
    "kernel_ridge": 1.6,
    "logistic": 1.2,
    "mlp": 1.2,
    "prior": 1,
    "ridge": 1.5,
    "tagprop": 1.2,
    "text_ridge": 1.5,
    "two_pass_knn": 1,
    "wsabie": 1,
}
"""The time of a fit and of scores grows with the number of images to about these powers, measured from 450 to 3,600
images of 1,280 features. With many more images it grows less: these models choose settings on a part of the images."""

PAIRWISE = 2  # The power for all other models, as if each image is compared with each other image
MIN_DENSITY = 0.1  # Minimum share of values other than 0 for a block to be an array; visterms have far fewer
MAX_DENSE_BYTES = 2**30
"""Maximum size of all columns as an array if some blocks are dense and others are not: as CSR, neighbours among 4,000
rows of visterms and a network took 25 times as long."""


def default_candidates(*, by_number: bool, in_folds: bool) -> MemberList:
    """Return the models to try; by number, ALS is one of them if its package is installed."""
    if by_number:
        return BY_NUMBER if find_spec("implicit") is None else (*BY_NUMBER, ALS)
    return SMALL if in_folds else DEFAULT_CANDIDATES


class ColumnSet(NamedTuple):
    """A range of feature columns, and whether to read it as an array or as CSR."""

    block: int  # 1 for the first block; 0 for all columns
    # Columns from `first` to `stop` - 1
    first: int
    stop: int
    dense: int  # 1: as an array; 0: as CSR or, for all columns, in their own form

    def of(self, X: Matrix) -> Matrix:
        """Return the columns of `X`, (n_images, n_features), an array or CSR."""
        if self.block == 0 and not self.dense:
            return X
        columns: Any = X[:, self.first : self.stop]
        return np.ascontiguousarray(dense(columns)) if self.dense else sp.csr_array(columns)


def column_sets(X: Matrix, blocks: Blocks | None) -> list[ColumnSet]:
    """List all columns and, if there are several blocks (see `read_blocks`), each block.

    All columns together are an array if one of the blocks is dense; they are left out if the array is too large.
    The density of blocks is measured in the training rows `X`, (n_images, n_features).
    """
    n, width = X.shape
    slices = read_blocks(blocks, width)
    if len(slices) == 1:
        return [ColumnSet(0, 0, width, 0)]
    parts = []
    for number, part in enumerate(slices, start=1):
        values: Any = X[:, part]
        density = (values.nnz if sp.issparse(values) else np.count_nonzero(values)) / max(1, np.prod(values.shape))
        parts.append(ColumnSet(number, int(part.start), int(part.stop), int(density >= MIN_DENSITY)))
    dense = int(sp.issparse(X) and any(part.dense for part in parts))
    return parts if dense and 4 * n * width > MAX_DENSE_BYTES else [ColumnSet(0, 0, width, dense), *parts]


def member_list(given: object, what: str) -> list[Member]:
    """Return the entries of the setting `what`, a list of members; raise `UserError` if it is not a list, or empty."""
    if isinstance(given, str) or not isinstance(given, Iterable) or not (members := list(given)):
        raise UserError(setting=what, value=given, expected=f"a list such as {EXAMPLE_LIST}")
    return members


def make_member(member: object, whose: str, n_jobs: int | None, rng: np.random.Generator) -> Annotator:
    """Make an unfitted model from an entry of a list: a (name, settings) pair, or a model, which is cloned.

    Without settings for threads and seed, the threads are `n_jobs` and `rng` draws the seed. `whose` names the owner of
    the member in messages ("the ensemble"). Raises UserError for any other entry.
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
    options = {"n_jobs": n_jobs, "random_state": seed}
    return model.set_known(**{key: value for key, value in options.items() if key not in settings})


def any_from_kernel(given: object, what: str, whose: str) -> bool:
    """Return whether a list of members (may be None) has a model that learns from kernel values of training images."""
    rng = np.random.default_rng(0)  # seeds don't matter here
    members = [] if given is None else member_list(given, what)
    return any(learns_from_kernel(make_member(member, whose, None, rng)) for member in members)


def own_settings(model: Annotator) -> Settings:
    """Return the settings of a model that differ from its defaults, as JSON values, without seed and threads."""
    defaults = json_params(type(model)(), MODELS)
    settings = json_params(model, MODELS)
    return {k: v for k, v in settings.items() if k not in ("random_state", "n_jobs") and v != defaults[k]}


def chosen_settings(model: Annotator) -> Settings:
    """Return the values that a fitted model chose for settings of None: attributes `name_` with numbers above 0."""
    chosen = {name: getattr(model, f"{name}_", None) for name, v in model.get_params(deep=False).items() if v is None}
    return {name: value for name, value in chosen.items() if isinstance(value, int | float) and value > 0}
