"""Does WARP need many tags to be ahead of the uniform sampler? Delicious by number, with its commonest tags alone.

WARP and Opt-AUC with the box and the fixed settings of the VSE-ens comparison, which has all 983 tags. Settings are
searched on validation tags, 16 for each and more where the box was widened, with one seed; no model is judged by test
tags. Fits are kept in the cache; a run that was stopped goes on.

    python few_tags.py SHARED --cache CACHE --json figures/few_tags.json
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from harness.runs import machine, options, say, write

from visterm.data import read_mulan
from visterm_research.comparison.problem import Problem
from visterm_research.comparison.search import TRIALS
from visterm_research.comparison.trials import Trials
from visterm_research.vse_ens.study import OPT_AUC, VSE_WARP, held_tag_problem

TAGS = (81, 300)  # As many as NUS-WIDE has concepts, and between these and all


def commonest(folder: Path, n_tags: int) -> Problem:
    """Keep the commonest tags, and the pages that have one of them."""
    parts = [read_mulan(folder / f"delicious-{part}.arff", folder / "delicious.xml") for part in ("train", "test")]
    Y = sp.csr_array(sp.vstack([part.Y for part in parts], format="csr"))
    kept = np.sort(np.argsort(-Y.sum(axis=0), kind="stable")[:n_tags])
    Y = sp.csr_array(Y[:, kept])
    Y = sp.csr_array(Y[np.flatnonzero(np.diff(Y.indptr))])
    return held_tag_problem(f"delicious-{n_tags}-tags", "Delicious", Y, [parts[0].tags[tag] for tag in kept], seed=0)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("shared", type=Path, help="the folder of data and networks")
    parser.add_argument("--cache", type=Path, default=Path("cache"), help="where fits are kept")
    chosen = parser.parse_args()
    result: dict[str, Any] = {"machine": machine(), "tags": {}}
    for n_tags in TAGS[:1] if chosen.quick else TAGS:
        problem = commonest(chosen.shared / "data" / "delicious", n_tags)
        trials = Trials(chosen.cache / "few_tags", seed=0, n_jobs=1)
        found = result["tags"].setdefault(n_tags, {})
        for method in (VSE_WARP, OPT_AUC):
            small = method.quick() if chosen.quick else replace(method, trials=TRIALS)
            choice, *_ = trials.choose(problem, small)
            found[method.label] = {
                "validation MAP": choice.record["map"],
                "best epoch": choice.record["epoch"],
                "settings": choice.shown,
                "fixed": method.shown_fixed,
                "tried": len(choice.tried),
            }
            say(f"{n_tags} tags, {method.label}: {found[method.label]}")
        write(result, chosen.json)


if __name__ == "__main__":
    main()
