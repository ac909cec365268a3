"""`auto` beside short programs with other libraries: by MAP, MAP of searches, and seconds of processor.

On Corel5k's photos (features of a network), scikit-learn's LogisticRegression and MLPClassifier. On images known by
number, one held-out tag each, ten lines of EASE; implicit and LightFM only if they are installed.

    OMP_NUM_THREADS=1 python plain_rivals.py SHARED --cache CACHE --json figures/plain_rivals.json
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from harness.data_sets import Rows, encoded, nuswide
from harness.runs import machine, options, say, write
from sklearn.linear_model import LogisticRegression
from sklearn.multioutput import MultiOutputClassifier
from sklearn.neural_network import MLPClassifier

from visterm.data.tag_queries import hold_one_out
from visterm.metrics import evaluate
from visterm.models.blend.auto import Auto

METRICS = ["map", "word_map"]


def logistic(rows: Rows) -> Any:
    """Fit a classifier per tag, and return log odds."""
    model = MultiOutputClassifier(LogisticRegression(max_iter=50)).fit(rows.X, rows.Y.toarray() > 0)
    return np.column_stack([tag.decision_function(rows.judged) for tag in model.estimators_])


def network(rows: Rows) -> Any:
    """Fit a network with one hidden layer, stopped by a tenth of the images, and return chances."""
    model = MLPClassifier((1024,), early_stopping=True, random_state=0).fit(rows.X, rows.Y.toarray() > 0)
    return model.predict_proba(rows.judged)


def ease(rows: Rows, penalty: float = 100.0) -> Any:
    """Return the scores of Steck's program."""
    inverse = np.linalg.inv((rows.Y.T @ rows.Y).toarray() + penalty * np.eye(rows.Y.shape[1]))
    weights = inverse / -np.diag(inverse)
    np.fill_diagonal(weights, 0)
    return rows.Y[rows.judged] @ weights


def auto(rows: Rows) -> Any:
    return Auto(n_jobs=1).fit(rows.X, rows.Y).decision_function(rows.features(rows.judged))


def problems(shared: Path, cache: Path) -> Iterator[tuple[str, Rows, list[Callable[[Rows], Any]]]]:
    """Yield each data set's name, rows, and the rivals to try."""
    held = hold_one_out(nuswide(shared / "data" / "nuswide")[:20_000], np.random.default_rng(0), at_most=5_000)
    yield "NUS-WIDE, by number", Rows(None, held.rest, held.images, held.held, held.known), [ease]
    path = f"onnx:{shared / 'models' / 'mobilenet_v2.onnx'}"
    X, Y, *judged = encoded(shared / "data" / "corel5k", path, {"output": "features"}, cache / "network")
    yield "Corel5k, network", Rows(X, sp.csr_array(Y), judged[0], sp.csr_array(judged[1])), [logistic, network]


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("shared", type=Path)
    parser.add_argument("--cache", type=Path, default=Path("encoded"))
    chosen = parser.parse_args()
    missing = [name for name in ("implicit", "lightfm") if find_spec(name) is None]
    result: dict[str, Any] = {"machine": machine(), "not installed": missing, "data": {}}
    for name, rows, rivals in problems(chosen.shared, chosen.cache):
        figures = result["data"][name] = {}
        for program in (auto, *rivals):
            began = time.process_time()
            scores = program(rows)
            seconds = time.process_time() - began
            figures[program.__name__] = {
                **evaluate(scores, rows.right, METRICS, exclude=rows.known),
                "seconds": seconds,
            }
            say(f"{name:20} {program.__name__:10} {figures[program.__name__]}")
    write(result, chosen.json)


if __name__ == "__main__":
    main()
