r"""How much would other seeds of the search change a report? On validation rows.

Each method is searched with several seeds, which draw other settings to try and other starts of training; data, their
division and features stay those of the report. The score of the first seed is the report's where the data and a fit of
its chosen setting still are the same to the last digits; otherwise it is searched again, too. Test rows are not used.
The scores lie beside the report, which then shows intervals that cover the search, too. Fits are kept in the cache; a
run that was stopped goes on. One seed takes as long as the search of the report (its last line).

    python search_seeds.py SHARED --report ../docs/reproductions/wsabie-corel5k --problem corel5k --seeds 3 \
      --methods "WSABIE,PAMIR-IA,One-vs-Rest,Approx. k-NN,k-NN"
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from harness.runs import machine, options, say, write

from visterm.core.errors import UserError
from visterm.encoders import DEFAULT_ENCODER
from visterm_research.comparison.image_problems import corel_problem, delicious_problem
from visterm_research.comparison.methods import Method
from visterm_research.comparison.problem import Problem
from visterm_research.comparison.run import Study
from visterm_research.comparison.searches import SEARCHES
from visterm_research.comparison.sources import Source
from visterm_research.comparison.trials import Trials
from visterm_research.vse_ens import study as vse_ens
from visterm_research.wsabie import study as wsabie

SAME = 1e-6
"""Difference in validation MAP from which on a fit is not the report's."""


def problem_of(name: str, data: Path, cache: Path, *, quick: bool) -> tuple[Problem, Study]:
    """Make a problem of a report, and return it with the study that it is from; tiny drawn data for a quick run."""
    makers: dict[str, tuple[Callable[[], Problem], Study]] = {
        "corel5k": (lambda: corel_problem(Source(cache, 0, 1), data / "corel5k", DEFAULT_ENCODER), wsabie.STUDY),
        "delicious": (lambda: delicious_problem(data / "delicious", seed=0), wsabie.STUDY),
        "nuswide-81-concepts": (lambda: vse_ens.nuswide_problem(data / "nuswide", seed=0), vse_ens.STUDY),
        "delicious-tags": (lambda: vse_ens.delicious_tag_problem(data / "delicious", seed=0), vse_ens.STUDY),
        "zipf": (lambda: vse_ens.zipf_problem(*((600, 120) if quick else (30_000, 5000)), seed=0), vse_ens.STUDY),
    }
    if name not in makers:
        raise UserError(f"There is no problem '{name}'; expected one of: {', '.join(makers)}.")
    make, study = makers[name]
    return make(), study


def score_of(problem: Problem, method: Method, seed: int, cache: Path, tested: Mapping[str, Any] | None) -> float:
    """Return the validation MAP of the setting that the search with a seed chooses; the report's if it is the same."""
    trials = Trials(cache / "search_seeds", seed=seed, n_jobs=1)
    if tested is not None:
        record = trials.validate(problem, method, {**method.fixed, **tested["settings"]})
        if abs(record["map"] - tested["validation_map"]) <= SAME:
            return float(record["map"])
    choice = trials.choose(problem, method)[0]
    say(f"{method.label}, seed {seed}: MAP {choice.record['map']:.4f} with {choice.shown}; {len(choice.tried)} tried")
    return float(choice.record["map"])


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("shared", type=Path, help="the folder of data and networks")
    parser.add_argument("--report", type=Path, required=True, help="the folder of the report")
    parser.add_argument("--problem", required=True, help="the report's data, by name")
    parser.add_argument("--methods", required=True, help="labels, separated by commas")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds, the report's included")
    parser.add_argument("--cache", type=Path, default=Path("cache"), help="where features and fits are kept")
    chosen = parser.parse_args()
    report = json.loads((chosen.report / "results.json").read_text(encoding="utf-8"))
    problem, study = problem_of(chosen.problem, chosen.shared / "data", chosen.cache, quick=chosen.quick)
    known = {one["name"]: one["fingerprint"] for one in report["problems"]}
    same = known.get(problem.name) == problem.fingerprint
    methods = {method.label: method.quick() if chosen.quick else method for method in study.methods}
    result: dict[str, Any] = {
        "command": shlex.join(["python", Path(sys.argv[0]).name, *sys.argv[1:]]),
        "machine": machine(),
        "measure": "MAP",
        "seeds": list(range(chosen.seeds)),
        "scores": {problem.name: {}},
    }
    for label in chosen.methods.split(","):
        tested = report["tested"][problem.name][label] if same else None
        result["scores"][problem.name][label] = [
            score_of(problem, methods[label], seed, chosen.cache, None if seed else tested) for seed in result["seeds"]
        ]
        write(result, chosen.report / SEARCHES if chosen.json is None else chosen.json)


if __name__ == "__main__":
    main()
