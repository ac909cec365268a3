"""The other ranking models with the open schedule and `wsabie`'s settings, beside the defaults they had: MAP and time.

The data are those of `defaults.py`, judged on its validation rows: by number one held-out tag an image, else a tenth of
the training rows. Both sides of a pair are trained one after the other, with the same seeds, on one thread. Linear
scorers learn nothing from images by number that others could use, so they are not tried there.

    OMP_NUM_THREADS=1 python open_family.py SHARED --cache CACHE --json figures/open_family.json
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from defaults import problems
from harness.data_sets import Problem
from harness.runs import machine, options, say, spread, write

from visterm.core.tables import MODELS

MODELS_TRIED = ("vse_ens", "auc_embedding", "opt_auc", "warp_linear", "owpc_sgd")

OPEN: dict[str, Any] = {
    "schedule": "open", "step": "adagrad", "learning_rate": 0.2, "max_norm": 1.15, "row_length": 1.0,
    "average": 6, "patience": 5,
}  # fmt: skip
"""What `wsabie` does by default."""

OWN: dict[str, dict[str, Any]] = {
    "vse_ens": {"learning_rate": 0.1, "max_norm": 2.0, "patience": 10},
    "auc_embedding": {"learning_rate": 0.05},
    "warp_linear": {"max_norm": 3.0, "row_length": 3.0},
}
EMBEDDED: dict[str, Any] = {"bias": 0.7}


def open_settings(model: str) -> dict[str, Any]:
    """Return the settings with the open schedule."""
    bias = {} if model == "warp_linear" else EMBEDDED
    return OPEN | bias | OWN.get(model, {})


AS_IT_WAS: dict[str, dict[str, Any]] = {
    "vse_ens": {
        "schedule": "constant", "step": "sgd", "learning_rate": 0.01, "max_norm": 10.0, "l2": 0.01, "init_scale": 0.01,
        "average": 20, "patience": 10, "bias": 0.0,
    },
    "opt_auc": {
        "schedule": "constant", "step": "sgd", "learning_rate": 0.0015, "max_norm": 0.7, "row_length": 6.0,
        "average": 20, "patience": 10, "bias": 0.0,
    },
}  # fmt: skip
"""What the defaults were of those that now have the open schedule."""


def sides(model: str) -> dict[str, tuple[type, dict[str, Any]]]:
    """Return the two kinds of a model, with their settings."""
    kind = MODELS.load(model)
    return {"as it was": (kind, AS_IT_WAS.get(model, {})), "open": (kind, open_settings(model))}


def trained(problem: Problem, side: tuple[type, dict[str, Any]], seed: int) -> dict[str, Any]:
    """Train once, and judge by the validation rows."""
    kind, settings = side
    model: Any = kind(**settings, n_jobs=1, random_state=seed)
    rows = problem.choose
    X = rows.X if rows.X is not None else rows.features(np.arange(rows.Y.shape[0]))
    began, clock = time.perf_counter(), time.process_time()
    model.fit(X, rows.Y)
    seconds = {"seconds": time.perf_counter() - began, "processor": time.process_time() - clock}
    return {"map": rows.judge(model), "epochs": model.n_epochs_, **seconds}


def chosen_problems(chosen: Any) -> Iterator[Problem]:
    """Yield the data sets that were asked for."""
    for problem in problems(chosen.shared, chosen.cache, chosen.seed, quick=chosen.quick):
        if not chosen.data or problem.name in chosen.data:
            yield problem


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("shared", type=Path)
    parser.add_argument("--cache", type=Path, default=Path("features"))
    parser.add_argument("--seed", type=int, default=0, help="draws the two drawn families")
    parser.add_argument("--data", nargs="+", help="names of data sets; all by default")
    parser.add_argument("--models", nargs="+", default=MODELS_TRIED, choices=MODELS_TRIED)
    chosen = parser.parse_args()
    result: dict[str, Any] = {"machine": machine(), "settings": {m: open_settings(m) for m in chosen.models}}
    found: dict[str, Any] = {}
    result["data"] = found
    for problem in chosen_problems(chosen):
        models: dict[str, Any] = {}
        found[problem.name] = {"about": problem.about, "models": models}
        for model in chosen.models:
            if model == "warp_linear" and problem.choose.X is None:
                continue
            runs: dict[str, list[dict[str, Any]]] = {"as it was": [], "open": []}
            for seed in range(chosen.runs):
                for name, side in sides(model).items():
                    runs[name].append(trained(problem, side, seed))
            models[model] = {
                name: {key: spread([run[key] for run in each]) for key in each[0]} for name, each in runs.items()
            }
            words = (
                f"{name} {each['map']['median']:.4f} ({each['map']['least']:.4f} to {each['map']['most']:.4f}), "
                f"{each['epochs']['median']:.0f} epochs, {each['processor']['median']:.1f} s"
                for name, each in models[model].items()
            )
            say(f"{problem.name:22s}{model:14s}", "   ".join(words))
            write(result, chosen.json)


if __name__ == "__main__":
    main()
