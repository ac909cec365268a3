"""The methods that comparisons run: each with the model behind it, and the settings that are tried."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from visterm.core.errors import UserError
from visterm.core.tables import MODELS

Settings = dict[str, Any]
Grid = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class Method:
    """One method of a comparison.

    Attributes
    ----------
    label : str
        The paper's name for it, or ours.
    model : str
        Ours, as in ``visterm models``.
    fixed : mapping
        Settings that are not chosen.
    grids : sequence of mapping of str to sequence
        Values to try: all combinations of each mapping.
    start : mapping, optional
        Settings that are tried before those of the grids.
    stages : sequence of sequence of mapping
        Changes to try after the grids: those of a stage on top of the best settings of the one before.
    by : str
        What settings are chosen by, where the data have several measures for that.
    most : int, optional
        How many settings of the grids to try at most.
    """

    label: str
    model: str
    fixed: Mapping[str, Any] = field(default_factory=dict)
    grids: Sequence[Grid] = ()
    start: Mapping[str, Any] | None = None
    stages: Sequence[Sequence[Settings]] = ()
    by: str = ""
    most: int | None = None

    def settings(self) -> list[Settings]:
        """List the settings to try, in the order of the grids, each once; stages come after them."""
        tried = [{**self.fixed, **(self.start or {})}] if self.start is not None or not self.grids else []
        for grid in self.grids:
            for values in product(*grid.values()):
                one = {**self.fixed, **dict(zip(grid, values, strict=True))}
                if one not in tried:
                    tried.append(one)
        return tried[: self.most]

    @property
    def varied(self) -> list[str]:
        """Names of the settings that are chosen."""
        return list(dict.fromkeys(name for one in (*self.grids, *(c for s in self.stages for c in s)) for name in one))

    def with_fixed(self, label: str, **settings: Any) -> Method:
        """Return the same method with settings fixed, and no grid over them."""
        grids = [{name: values for name, values in grid.items() if name not in settings} for grid in self.grids]
        return replace(self, label=label, fixed={**self.fixed, **settings}, grids=grids)

    def quick(self) -> Method:
        """Return the same method for a run of a minute: few epochs, at most two settings."""
        accepted = inspect.signature(MODELS.load(self.model)).parameters
        small = {name: value for name, value in QUICK.items() if name in accepted}
        grids = [
            {name: values[: 1 if place else 2] for place, (name, values) in enumerate(grid.items())}
            for grid in self.grids[:1]
        ]
        return replace(self, fixed={**self.fixed, **small}, grids=grids)


QUICK = {"epochs": 8, "patience": 3}

EPOCHS = {"epochs": 60, "patience": 8}
EMBEDDED = {"dim": 100, "standardize": False, **EPOCHS}
"""The papers rank tags by the scores of training, as they are."""

STEPS: Grid = {"learning_rate": (0.0015, 0.005, 0.015, 0.0005), "max_norm": (0.7, 1.5)}
AGGRESSIVENESS: Grid = {"aggressiveness": (1.0, 10.0, 0.1, 0.01, 0.001, 100.0, 0.0001, 1000.0)}
VOTES: Grid = {"n_neighbors": (20, 80), "power": (4.0, 1.0, 8.0, 16.0)}

PAPER_STEPS = {"step": "sgd", "schedule": "constant", "bias": 0.0, "average": 20}
WSABIE_PARAMS = {
    **PAPER_STEPS, "learning_rate": 0.0015, "max_norm": 0.7, "row_length": 6.0, "patience": 10, "standardize": False,
}  # fmt: skip
"""WSABIE's training as in its paper, but for the running mean; named one by one, as the model's defaults may change."""

WSABIE = Method("WSABIE", "wsabie", {**EMBEDDED, **PAPER_STEPS, "row_length": 6.0}, [STEPS])
AUC = Method("embedding, AUC", "auc_embedding", {**EMBEDDED, **PAPER_STEPS, "row_length": 6.0}, [STEPS])
OWPC = Method("OWPC-SGD", "owpc_sgd", EMBEDDED, [STEPS])
WARP_LINEAR = Method("linear, WARP", "warp_linear", EPOCHS, [STEPS])
PAMIR_IA = Method("PAMIR-IA", "pamir_ia", EPOCHS, [AGGRESSIVENESS])
ONE_VS_REST = Method("One-vs-Rest", "one_vs_rest", EPOCHS, [AGGRESSIVENESS])
APPROX_KNN = Method("Approx. k-NN", "rp_knn", {"levels": 4}, [VOTES])
EXACT_KNN = Method("k-NN", "knn", {}, [VOTES])
RIDGE = Method("ridge (not in the paper)", "ridge", {}, [{"alpha": (1.0, 0.1, 10.0, 0.01, 0.3, 3.0, 0.03, 30.0)}])
PRIOR = Method("tag frequencies (not in the paper)", "prior")


def chosen_methods(methods: Sequence[Method], models: Sequence[str]) -> list[Method]:
    """Return the methods of the models that a person named; all where none is named.

    Raises
    ------
    UserError
        If a name is in no row of the comparison, or models are not registered; the message names all of them.
    """
    known = {method.model for method in methods}
    for model in models:
        if model not in known:
            raise UserError(f"The comparison has no model '{model}'; expected some of: {', '.join(sorted(known))}.")
    chosen = [method for method in methods if not models or method.model in models]
    needed = {method.model for method in chosen}
    if missing := sorted(needed - set(MODELS.names())):
        raise UserError(
            f"The comparison runs models that are not registered: {', '.join(missing)}. Name those to run (--model), "
            f"among {', '.join(sorted(needed - set(missing))) or 'none'}."
        )
    return chosen
