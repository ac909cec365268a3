"""The methods that comparisons run: each with the model behind it, and the settings that are tried."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from visterm.core.errors import UserError
from visterm.models import MODELS
from visterm_research.comparison.search import DRAWN, TRIALS, Axis, Box, Settings, draw_points, unordered


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
    box : mapping of str to Axis
        Values of the settings that are chosen, which are searched together (`search`).
    start : mapping, optional
        Settings of the box that are tried first.
    by : str
        What settings are chosen by, where the data have several measures for that.
    trials : int
        How many settings are tried; the same for all methods of a comparison that have a box.
    """

    label: str
    model: str
    fixed: Mapping[str, Any] = field(default_factory=dict)
    box: Box = field(default_factory=dict)
    start: Mapping[str, Any] | None = None
    by: str = ""
    trials: int = TRIALS

    def settings(self, seed: int = 0) -> list[Settings]:
        """List the settings to try first: points drawn from the box, or the fixed ones alone."""
        if not self.box:
            return [{**self.fixed, **(self.start or {})}]
        n_drawn = max(1, round(self.trials * DRAWN / TRIALS)) if self.trials > 2 else self.trials
        return [{**self.fixed, **one} for one in draw_points(self.box, n_drawn, start=self.start, seed=seed)]

    @property
    def shown_box(self) -> str:
        """The box to draw from: "learning_rate 0.0005 to 0.05", or the values where they have no order."""
        shown = (
            f"{name} {axis.values[0]:g} to {axis.values[-1]:g}"
            if axis.ordered
            else f"{name} {' or '.join(map(str, axis.values))}"
            for name, axis in self.box.items()
        )
        return ", ".join(shown) or "–"

    @property
    def shown_fixed(self) -> str:
        """What is not searched and not the model's default, by name."""
        return ", ".join(f"{name}={value}" for name, value in self.fixed.items()) or "–"

    def with_fixed(self, label: str, **settings: Any) -> Method:
        """Return the same method with settings fixed, which are then not searched."""
        box = {name: axis for name, axis in self.box.items() if name not in settings}
        start = None if self.start is None else {name: self.start[name] for name in self.start if name not in settings}
        return replace(self, label=label, fixed={**self.fixed, **settings}, box=box, start=start)

    def quick(self) -> Method:
        """Return the same method for a run of a minute: few epochs, at most two settings."""
        accepted = inspect.signature(MODELS.load(self.model)).parameters
        small = {name: value for name, value in QUICK.items() if name in accepted}
        middle = {name: axis.values[len(axis.values) // 2] for name, axis in self.box.items()}
        box = {name: unordered(*axis.values[:2]) for name, axis in list(self.box.items())[:1]}
        return replace(self, fixed={**self.fixed, **middle, **small}, box=box, start=None, trials=2)


QUICK = {"epochs": 8, "patience": 3}

EPOCHS = {"epochs": 60, "patience": 8}
EMBEDDED = {"dim": 100, "standardize": False, **EPOCHS}
"""The papers rank tags by the scores of training, as they are."""

STEPS: Box = {"learning_rate": Axis((0.0005, 0.0015, 0.005, 0.015, 0.05)), "max_norm": Axis((0.7, 1.5, 3.0, 6.0))}
AGGRESSIVENESS: Box = {"aggressiveness": Axis((0.0001, 0.001, 0.01, 0.03, 0.1, 0.3, 1.0, 10.0, 100.0, 1000.0))}
VOTES: Box = {"n_neighbors": Axis((10, 20, 40, 80, 160), low=1), "power": Axis((0.5, 1.0, 2.0, 4.0, 8.0, 16.0))}

ALPHAS: Box = {"alpha": Axis((0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0))}

PAPER_STEPS = {"step": "sgd", "schedule": "constant", "bias": 0.0, "average": 20}
WSABIE_PARAMS = {
    **PAPER_STEPS, "learning_rate": 0.0015, "max_norm": 0.7, "row_length": 6.0, "patience": 10, "standardize": False,
}  # fmt: skip
"""WSABIE's training as in its paper, but for the running mean; named one by one, as the model's defaults may change."""

WSABIE = Method("WSABIE", "wsabie", {**EMBEDDED, **PAPER_STEPS, "row_length": 6.0}, STEPS)
AUC = Method("embedding, AUC", "auc_embedding", {**EMBEDDED, **PAPER_STEPS, "row_length": 6.0}, STEPS)
OWPC = Method("OWPC-SGD", "owpc_sgd", EMBEDDED, STEPS)
WARP_LINEAR = Method("linear, WARP", "warp_linear", EPOCHS, STEPS)
PAMIR_IA = Method("PAMIR-IA", "pamir_ia", EPOCHS, AGGRESSIVENESS)
ONE_VS_REST = Method("One-vs-Rest", "one_vs_rest", EPOCHS, AGGRESSIVENESS)
APPROX_KNN = Method("Approx. k-NN", "rp_knn", {"levels": 4}, VOTES)
EXACT_KNN = Method("k-NN", "knn", {}, VOTES)
RIDGE = Method("ridge (not in the paper)", "ridge", {}, ALPHAS)
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
