"""Objects and parts: how much hangs on what settings are chosen by, the mean rank of the right pair or the first place.

The paper chooses by the mean rank. Here every setting that the report tried of its four models is fitted again, and the
validation quadruplets are ranked: how often the right pair is first (mean over relations) for the setting of the best
mean rank, and for the setting that is best by this. No test row is looked at. Fits are kept in the cache; a run that
was stopped goes on.

    python chosen_by.py SHARED --report ../docs/reproductions/parts/results.json --cache CACHE
"""

from __future__ import annotations

import json
from argparse import Namespace
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from harness.runs import machine, options, say, write

from visterm.core.errors import DivergedError, UserError
from visterm.core.packing import key_of
from visterm.core.tables import MODELS
from visterm.core.vocabulary import Vocabulary
from visterm_research.comparison.feature_sets import OUR_VISTERMS, FeatureSet
from visterm_research.comparison.sources import Source
from visterm_research.data.wordnet import WordNet
from visterm_research.parts.images import corel_images, drawn_images
from visterm_research.parts.methods import MODEL, PAPER_METHODS, WORDS
from visterm_research.parts.problem import DRAWN_SHARE, PHOTO_SHARE, PartsProblem, related
from visterm_research.parts.ranks import LABELLING, all_scores, group_means, pair_terms, relation_of_each, task_ranks
from visterm_research.parts.relations import wordnet_relations
from visterm_research.parts.report import TEST_QUADRUPLETS, VALID_QUADRUPLETS
from visterm_research.parts.study import LEARNED_SCENES, SCENES

INHERIT = 2
"""Steps of is-a over which Corel5k's tags inherit parts, as the comparison chose."""


@dataclass(frozen=True)
class Measured:
    """One setting on the validation quadruplets: where the right pair comes, and how often first (over relations)."""

    settings: dict[str, Any]
    mean_rank: float
    first: float


def measure(problem: PartsProblem, settings: dict[str, Any], *, words: bool) -> Measured:
    """Fit a setting as the comparison does, with the seed 0."""
    data = problem.data
    model = MODELS.create(MODEL, **settings, **problem.shared(), random_state=0, n_jobs=1)
    try:
        model.fit(data.train.X, data.train.Y, valid=(data.valid.X, data.valid.Y))
    except DivergedError:
        return Measured(settings, float("inf"), 0.0)
    S = all_scores(model, data.valid.X)
    ranks = task_ranks(S, pair_terms(model, S.shape[1], words), problem.valid, 1)[LABELLING]
    first = group_means((ranks == 1).astype(float), relation_of_each(LABELLING, problem.valid))
    return Measured(settings, float(ranks.mean()), float(first.mean()))


def solve(problem: PartsProblem, report: dict[str, Any], cache: Path, most: int | None) -> dict[str, Any]:
    """Measure what the report tried of each model, and choose both ways."""
    if report["problems"][problem.name]["fingerprint"] != problem.fingerprint:
        raise UserError(f"{problem.name} is not what the report is about. Name the report of the same data (--report).")
    cache.mkdir(parents=True, exist_ok=True)
    found = {}
    for method in [method for method in PAPER_METHODS if method.model == MODEL]:
        label, words, tried = method.label, method.by == WORDS, []
        for one in report["tested"][problem.name][label]["tried"][:most]:
            kept = cache / f"{key_of(problem.fingerprint, one['settings'], label)}.json"
            if not kept.exists():
                kept.write_text(json.dumps(vars(measure(problem, one["settings"], words=words))), "utf-8")
            tried.append(Measured(**json.loads(kept.read_text("utf-8"))))
        by_rank, by_first = min(tried, key=lambda one: one.mean_rank), max(tried, key=lambda one: one.first)
        say(f"{problem.name}, {label}: by mean rank {by_rank}; by the first place {by_first}")
        found[label] = {"tried": len(tried), "by mean rank": vars(by_rank), "by first place": vars(by_first)}
    return found


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("shared", type=Path, help="the folder of data and networks")
    parser.add_argument("--report", type=Path, required=True, help="results.json of the parts comparison")
    parser.add_argument("--cache", type=Path, default=Path("cache"), help="where drawings, features and fits are kept")
    parser.add_argument("--only", default="drawn-visterms,drawn-onnx,corel5k-onnx-wordnet", help="problems")
    chosen = parser.parse_args()
    report = json.loads(chosen.report.read_text(encoding="utf-8"))
    result: dict[str, Any] = {"machine": machine(), "problems": {}}
    for name in chosen.only.split(","):
        problem = problem_of(name, chosen)
        result["problems"][name] = solve(problem, report, chosen.cache / "chosen_by", 2 if chosen.quick else None)
        write(result, chosen.json)


def problem_of(name: str, chosen: Namespace) -> PartsProblem:
    """Make a problem as the comparison makes it."""
    source = Source(chosen.cache, 0, 1)
    onnx = FeatureSet("onnx", "onnx", f"onnx:{chosen.shared / 'models' / 'mobilenet_v2.onnx'}")
    drawn = {"n_valid": VALID_QUADRUPLETS, "n_test": TEST_QUADRUPLETS, "seed": 0}
    if name.startswith("drawn-"):
        features = OUR_VISTERMS if name == "drawn-visterms" else onnx
        data, pairs = drawn_images(source, SCENES, features, learned=LEARNED_SCENES)
        return related(data, pairs, share=DRAWN_SHARE, **drawn)
    data = corel_images(source, chosen.shared / "data" / "corel5k", onnx)
    relations = wordnet_relations(WordNet(None), Vocabulary(data.tags))
    kept = data.bearing(np.unique(relations.by_depth[max(relations.by_depth)]))
    kept = replace(kept, name=name, siblings=relations.siblings)
    return related(kept, relations.by_depth[INHERIT], share=PHOTO_SHARE, **drawn)


if __name__ == "__main__":
    main()
