"""Every model with its defaults, on the same rows: quality, and the time of one processor to learn and for a photo.

The data sets are those of auto.py. Models learn from the training rows and meet the test rows once; nothing is chosen.
Times are of the process, so that a busy machine changes them little.
A model that a data set doesn't suit is listed with what it says.

    python benchmarks/methods.py ../shared --cache CACHE --only network --only blobs \
        --json docs/figures/methods.json
    make docs                                    # the tables of docs/methods.md and of the families' pages
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from auto import data_sets
from defaults import Rows
from harness.runs import machine, options, say, write

from visterm.core.errors import VistermError
from visterm.core.tables import MODELS
from visterm.metrics import evaluate

METRICS = ["map", "p@5", "n_plus@5", "word_map"]


def measure(name: str, rows: Rows) -> dict[str, Any]:
    """Fit a model with its defaults, and measure it on the judged rows."""
    model = MODELS.create(name)
    shared = {"n_jobs": 1, "random_state": 0}
    model.set_params(**{key: value for key, value in shared.items() if key in model.get_params()})
    began = time.process_time()
    try:
        model.fit(rows.X, rows.Y)
    except VistermError as error:
        return {"refused": str(error)}
    seconds = time.process_time() - began
    model.decision_function(rows.judged[:10])  # what is compiled at the first call
    began = time.process_time()
    scores = model.decision_function(rows.judged)
    photo = (time.process_time() - began) / rows.judged.shape[0]
    return {**evaluate(scores, rows.right, METRICS), "seconds": seconds, "microseconds a photo": photo * 1e6}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("shared", type=Path, nargs="?", help="the folder that holds data and models")
    parser.add_argument("--cache", type=Path, default=Path("encoded"), help="where encoded photos are kept")
    parser.add_argument("--seed", type=int, help="of the drawn families; without, the clock's")
    parser.add_argument("--only", action="append", default=[], help="only data sets whose name has this; repeat it")
    parser.add_argument("--model", action="append", default=[], help="only this model; repeat it")
    chosen = parser.parse_args()
    if chosen.shared is None and not chosen.quick:
        parser.error("Name the folder with the data, or pass --quick.")
    seed = time.time_ns() % 2**31 if chosen.seed is None else chosen.seed
    result: dict[str, Any] = {"machine": machine(), "seed": seed, "data": {}}
    for data in data_sets(chosen.shared, chosen.cache, seed, quick=chosen.quick, only=chosen.only):
        say(f"\n{data.name}: {data.about}")
        found: dict[str, Any] = {}
        result["data"][data.name] = {"about": data.about, "models": found}
        for name in chosen.model or MODELS.names():
            found[name] = measure(name, data.final)
            say(f"  {name:24} {found[name]}")
            write(result, chosen.json)


if __name__ == "__main__":
    main()
