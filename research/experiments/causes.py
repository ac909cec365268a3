"""Why do orders of the papers not hold? Suspected causes that a small run can test, each once, on validation rows.

One-vs-Rest is behind approximate neighbours on Delicious: is it how its scorers are trained? The sampled tagger with
fixed vectors is behind the full one on drawn tags: does it draw too few negatives? Fixed settings, one seed; no test
rows.

    python causes.py SHARED --json figures/causes.json
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.runs import machine, options, say, write

from visterm.core.tables import MODELS
from visterm.metrics import evaluate
from visterm_research.comparison.image_problems import delicious_problem, dictionary_problem
from visterm_research.comparison.problem import Problem
from visterm_research.comparison.sources import Source
from visterm_research.ugc.problems import DICTIONARY, QUICK_DICTIONARY, words_of

NEGATIVES = (10, 100, 1000)
SETTINGS = {
    "hidden": [1024, 512], "learning_rate": 0.001, "epochs": 30, "patience": 8, "batch_size": 128,
    "fixed_vectors": True,
}  # fmt: skip
METRICS = ("map", "r@5")


def measured(problem: Problem, model: str, settings: Mapping[str, Any]) -> dict[str, float]:
    """Fit a model on the training rows and measure it on the validation rows."""
    fitted = MODELS.create(model, random_state=0, **settings)
    fitted.fit(problem.train.X, problem.train.Y, valid=(problem.valid.X, problem.valid.Y))
    return evaluate(fitted.decision_function(problem.valid.X), problem.valid.Y, METRICS)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("shared", type=Path, help="the folder of data and networks")
    chosen = parser.parse_args()
    result: dict[str, Any] = {"machine": machine(), "measured on": "validation rows"}
    if not chosen.quick:
        delicious = delicious_problem(chosen.shared / "data" / "delicious", seed=0)
        result["scorers on delicious"] = {"logistic": measured(delicious, "logistic", {})}
        say(f"Delicious, logistic: {result['scorers on delicious']['logistic']}")

    n_images, n_tags, n_features = QUICK_DICTIONARY if chosen.quick else DICTIONARY
    dictionary = dictionary_problem(n_images, n_tags, n_features=n_features, seed=0)
    shared = {**SETTINGS, "word_vectors": words_of(dictionary, Source(Path()), readable=False).tags}
    taggers = {"all": ("cross_entropy_tagger", shared)}
    taggers |= {f"{n}": ("sampled_tagger", {**shared, "negatives": n, "power": 0.5}) for n in NEGATIVES}
    result["Fixed WV on dictionary"] = {}
    for name, (model, settings) in taggers.items():
        result["Fixed WV on dictionary"][name] = measured(dictionary, model, settings)
        say(f"Fixed WV on dictionary, {name}: {result['Fixed WV on dictionary'][name]}")
    write(result, chosen.json)


if __name__ == "__main__":
    main()
