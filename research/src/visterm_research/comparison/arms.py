"""The one table of what is run: each method of the papers, the model behind it, and the settings that are tried."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from visterm.core.errors import UserError
from visterm.core.tables import MODELS

Settings = dict[str, Any]


@dataclass(frozen=True)
class Arm:
    """One method of a comparison.

    Attributes
    ----------
    label : str
        The paper's name for it.
    model : str
        Ours, as in ``visterm models``.
    fixed : mapping
        Settings that are not chosen.
    grid : mapping of str to sequence
        Values to try; all combinations.
    """

    label: str
    model: str
    fixed: Mapping[str, Any] = field(default_factory=dict)
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    def settings(self) -> list[Settings]:
        """List the settings to try, in the order of the grid."""
        return [{**self.fixed, **dict(zip(self.grid, values, strict=True))} for values in product(*self.grid.values())]

    def with_fixed(self, label: str, **settings: Any) -> Arm:
        """Return the same method with settings fixed, and no grid over them."""
        grid = {name: values for name, values in self.grid.items() if name not in settings}
        return replace(self, label=label, fixed={**self.fixed, **settings}, grid=grid)

    def quick(self) -> Arm:
        """Return the same method for a run of a minute: a small space, few epochs, at most two settings."""
        accepted = inspect.signature(MODELS.load(self.model)).parameters
        small = {name: value for name, value in QUICK.items() if name in accepted}
        grid = {name: values[:1] for name, values in self.grid.items()}
        if self.grid:
            first = next(iter(self.grid))
            grid[first] = self.grid[first][:2]
        return replace(self, fixed={**self.fixed, **small}, grid=grid)


QUICK = {"epochs": 8, "patience": 3}

RATES = (0.0015, 0.005, 0.015, 0.0005)
NORMS = (0.7, 1.5)
EPOCHS = {"epochs": 60, "patience": 8}
STEPS = {"learning_rate": RATES, "max_norm": NORMS}
AGGRESSIVENESS = (1.0, 10.0, 0.1, 0.01, 0.001, 100.0, 0.0001, 1000.0)

WSABIE = Arm("WSABIE", "wsabie", {"dim": 100, **EPOCHS}, STEPS)
AUC = Arm("embedding, AUC", "auc_embedding", {"dim": 100, **EPOCHS}, STEPS)
OWPC = Arm("OWPC-SGD", "owpc_sgd", {"dim": 100, **EPOCHS}, STEPS)
WARP_LINEAR = Arm("linear, WARP", "warp_linear", EPOCHS, STEPS)
PAMIR_IA = Arm("PAMIR-IA", "pamir_ia", EPOCHS, {"aggressiveness": AGGRESSIVENESS})
ONE_VS_REST = Arm("One-vs-Rest", "one_vs_rest", EPOCHS, {"aggressiveness": AGGRESSIVENESS})
VOTES = {"n_neighbors": (20, 80), "power": (4.0, 1.0, 8.0, 16.0)}
APPROX_KNN = Arm("Approx. k-NN", "rp_knn", {"levels": 4}, VOTES)
EXACT_KNN = Arm("k-NN", "knn", {}, VOTES)
RIDGE = Arm("ridge (not in the paper)", "ridge", {}, {"alpha": (1.0, 0.1, 10.0, 0.01, 0.3, 3.0, 0.03, 30.0)})
PRIOR = Arm("tag frequencies (not in the paper)", "prior")

WSABIE_ARMS = (
    WSABIE,
    AUC,
    OWPC,
    WARP_LINEAR,
    PAMIR_IA,
    ONE_VS_REST,
    APPROX_KNN,
    EXACT_KNN,
    RIDGE,
    PRIOR,
)
"""Tables 2, 5, 6 and 8 and Figures 1 and 2 of the WSABIE paper; eight settings of each method that has settings."""

LINEAR_AUC = replace(PAMIR_IA, label="linear, AUC")
"""As the objects-and-parts paper calls it."""

FEATURE_ARMS = (WSABIE, EXACT_KNN, APPROX_KNN, LINEAR_AUC, ONE_VS_REST, RIDGE)
"""Table 1 of the objects-and-parts paper: run on all features."""

LOSS_ARMS = (AUC, WARP_LINEAR)
"""What its Table 2 adds, on visterms."""

DIMS = (100, 200, 300, 500)
"""WSABIE's Table 4: sizes of the embedding, with the other settings as they were chosen at 100."""

ENSEMBLES = ((100, 200), (100, 300), (100, 200, 300))
"""WSABIE's Table 7: which of those are combined."""

ENSEMBLE_ARM = Arm("ensembles", "ensemble")
"""What combines them; its members are filled in once WSABIE's settings are chosen."""

LEAVES = (1, 2, 3, 4, 5, 6, 8)
"""Depths p of the tree of the approximate neighbours, for the trade of leaf size (WSABIE, section 6.4)."""

BY_NUMBER = {"dim": 100, "epochs": 100, "patience": 5, "row_length": 1.0, "init_scale": 0.01, "max_norm": 10.0}
"""The VSE-ens paper's: 100 dimensions, start values N(0, 0.01), L2 and no limit of norms."""

BY_NUMBER_STEPS = {"learning_rate": (0.01, 0.03, 0.1, 0.003), "l2": (0.01, 0.03)}
"""Within the range in which the paper tunes the models that it compares with, 0.001 to 0.1."""

VSE_WARP = Arm("WARP", "wsabie", BY_NUMBER, BY_NUMBER_STEPS)
VSE_ENS = Arm(
    "VSE-ens",
    "vse_ens",
    {**BY_NUMBER, "l2": 0.01},
    {"learning_rate": (0.01, 0.03), "rank_scale": (0.1, 0.01, 1.0, 0.001)},
)
OPT_AUC = Arm("Opt-AUC", "opt_auc", BY_NUMBER, BY_NUMBER_STEPS)

VSE_ENS_ARMS = (VSE_ENS, VSE_WARP, OPT_AUC, PRIOR)
"""Tables 2 to 4 and Figure 1 of the VSE-ens paper."""


def require(arms: Sequence[Arm]) -> None:
    """Refuse a comparison that names models which are not registered, with all of them.

    Raises
    ------
    UserError
        If a model is missing.
    """
    missing = sorted({arm.model for arm in arms} - set(MODELS.names()))
    if missing:
        raise UserError(
            f"The comparison runs models that are not registered: {', '.join(missing)}. Name those to run (--model), "
            f"among {', '.join(sorted({arm.model for arm in arms} - set(missing))) or 'none'}."
        )


def chosen_arms(arms: Sequence[Arm], models: Sequence[str]) -> list[Arm]:
    """Return the methods that a person asked for by the models' names; all where none is named.

    Raises
    ------
    UserError
        If a name is in no row of the comparison, or in none that is registered.
    """
    known = {arm.model for arm in arms}
    for model in models:
        if model not in known:
            raise UserError(f"The comparison has no model '{model}'; expected some of: {', '.join(sorted(known))}.")
    chosen = [arm for arm in arms if not models or arm.model in models]
    require(chosen)
    return chosen
