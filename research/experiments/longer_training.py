r"""VSE-ens: do orders change if the chosen settings, limited to 100 epochs, train for up to 200? On validation tags.

The paper trained for 150 and 200 epochs; in the report eight of nine best epochs are 96 to 100. Each setting that the
report chose is fitted once more with a limit of 200 epochs and the same seed. Orders with both limits are those of this
one fit: by MAP, with paired bootstrap intervals over the validation images, and by the epochs to 99 % of the best MAP.
Test tags are not used. Settings are not searched again: with 200 epochs, others might be better. Fits are kept in the
cache; a run that was stopped goes on.

    python longer_training.py SHARED --report ../docs/reproductions/vse-ens/results.json \
      --json figures/longer_training.json
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from harness.runs import machine, options, say, write

from visterm.core.packing import key_of
from visterm.core.progress import SILENT
from visterm.core.tables import MODELS
from visterm.metrics import average_precisions, paired_bootstrap
from visterm.tagging import EarlyStopping
from visterm_research.comparison.claims import RESAMPLES
from visterm_research.comparison.problem import Problem
from visterm_research.comparison.verdicts import by_interval
from visterm_research.vse_ens.study import (
    EPOCH_PAIRS,
    OPT_AUC,
    PAIRS,
    VSE_ENS,
    VSE_WARP,
    converged,
    delicious_tag_problem,
    nuswide_problem,
    zipf_problem,
)

METHODS = (VSE_ENS, VSE_WARP, OPT_AUC)
LIMITS = (100, 200)
QUICK_LIMITS = (3, 6)


def train(problem: Problem, model: str, settings: Mapping[str, Any], limits: tuple[int, int]) -> dict[str, Any]:
    """Train with the larger limit; return MAP by epoch, and the average precisions of the best epoch of each limit."""
    rows, curve = problem.valid, []
    best: dict[int, tuple[float, list[float]]] = {}
    fitted = MODELS.create(model, **{**settings, "epochs": limits[-1]}, **problem.shared(), random_state=0, n_jobs=1)

    def measure(trained: Any) -> float:
        values = average_precisions(trained.score_blocks(rows.X), rows.Y, exclude=rows.known)
        curve.append(float(np.nanmean(values)))
        for limit in limits:
            if len(curve) <= limit and (limit not in best or curve[-1] > best[limit][0]):
                best[limit] = curve[-1], values.tolist()
        return curve[-1]

    stopping = EarlyStopping(fitted, measure, int(settings["patience"]), SILENT)
    fitted.fit(problem.train.X, problem.train.Y, on_epoch=stopping)
    return {"map": curve, "best": {limit: values for limit, (_, values) in best.items()}}


def solve(problem: Problem, report: Mapping[str, Any], cache: Path, limits: tuple[int, int]) -> dict[str, Any]:
    """Train each setting that the report chose, and compare methods with both limits."""
    fits, result = {}, {"methods": {}, "orders": []}
    for method in METHODS:
        label, chosen = method.label, report["tested"][problem.name][method.label]
        settings = {**method.fixed, **chosen["settings"]}  # what is a default today was one then, or is fixed today
        kept = cache / f"{key_of(problem.fingerprint, method.model, settings, limits)}.json"
        if not kept.exists():
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps(train(problem, method.model, settings, limits)), "utf-8")
        fits[label] = json.loads(kept.read_text("utf-8"))
        curve = fits[label]["map"]
        report_curve = [point["map"] for point in chosen["curve"]]
        points = [{"epoch": epoch, "map": value} for epoch, value in enumerate(curve, 1)]
        result["methods"][label] = {
            "largest difference from the report's curve": max(
                abs(here - there) for here, there in zip(curve, report_curve, strict=False)
            ),
            **{f"best epoch of {n}": int(np.argmax(curve[:n])) + 1 for n in limits},
            **{f"validation MAP with {n}": max(curve[:n]) for n in limits},
            **{f"epochs to converge with {n}": converged(points[:n])["epoch"] for n in limits},
        }
        say(f"{problem.name}, {label}: {result['methods'][label]}")
        result["methods"][label]["map by epoch"] = curve
    for first, second in PAIRS:
        order: dict[str, Any] = {"first": first, "second": second, "of": "MAP"}
        for n in limits:
            values = [np.array(fits[label]["best"][str(n)]) for label in (first, second)]
            interval = paired_bootstrap(*values, n_resamples=RESAMPLES)
            order[f"interval with {n}"] = [interval.low, interval.high]
            order[f"holds with {n}"] = by_interval(interval.low, interval.high)
        result["orders"].append(order)
        say(f"{problem.name}: {order}")
    for first, second in EPOCH_PAIRS:
        order = {"first": first, "second": second, "of": "epochs of training"}
        for n in limits:
            order[f"epochs with {n}"] = [
                result["methods"][label][f"epochs to converge with {n}"] for label in (first, second)
            ]
        result["orders"].append(order)
    return result


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("shared", type=Path, help="the folder of data and networks")
    parser.add_argument("--report", type=Path, required=True, help="results.json of the VSE-ens comparison")
    parser.add_argument("--cache", type=Path, default=Path("cache"), help="where fits are kept")
    chosen = parser.parse_args()
    report = json.loads(chosen.report.read_text(encoding="utf-8"))
    data, limits = chosen.shared / "data", QUICK_LIMITS if chosen.quick else LIMITS
    result: dict[str, Any] = {"machine": machine(), "measured on": "validation tags", "problems": {}}
    for make in (
        lambda: nuswide_problem(data / "nuswide", seed=0),
        lambda: zipf_problem(30_000, 5000, seed=0),
        lambda: delicious_tag_problem(data / "delicious", seed=0),
    )[: 1 if chosen.quick else None]:
        problem = make()
        result["problems"][problem.name] = solve(problem, report, chosen.cache / "longer_training", limits)
        write(result, chosen.json)


if __name__ == "__main__":
    main()
