"""Relations that were left out of objects and parts: what finds them, and how much could be found at most.

Of five folds of the relations the first is left out to choose settings by, on validation images, half of the score by
it and half by relations that were learned. Then each of the others is left out in turn, and judged on test images: no
relation of these was left out before. What a table of relations adds is chosen again for each of them, by the four
other folds, each left out in turn, on validation images.

Sides are the paper's four (by images and words, or by images alone), each with the best of the same settings drawn from
a box, with small dimensions, too, and weights of negatives at 1, as in the paper; the same with any weight; a table of
relations beside the embedding, alone and with what wholes that are alike suggest; and "every relation known", images
with a table of all relations, left-out ones too: no f_L can be expected to do better.

Fits are kept in the cache; a run that was stopped goes on. Problems that are not named stay in the JSON as they are.

    python left_out_relations.py SHARED --cache CACHE --json figures/left_out_relations.json
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from harness.runs import TEST_ROWS, machine, options, say, write
from numpy.typing import NDArray

from visterm.core.errors import DataError, DivergedError
from visterm.core.packing import key_of
from visterm.core.tables import MODELS
from visterm.core.vocabulary import Vocabulary
from visterm.metrics import paired_bootstrap
from visterm.models.parts.objects_and_parts import ranks_of_pairs
from visterm.models.parts.relations import QuadrupletBlock, Quadruplets, listed_and_suggested
from visterm_research.comparison.feature_sets import OUR_VISTERMS, FeatureSet
from visterm_research.comparison.sources import Source
from visterm_research.data.wordnet import WordNet
from visterm_research.parts.images import Labelled, corel_images, drawn_images
from visterm_research.parts.ranks import (
    KNOWN,
    LABELLING,
    TRIPLET,
    all_scores,
    group_means,
    known_ranks,
    relation_of_each,
    task_ranks,
)
from visterm_research.parts.relations import wordnet_relations

FOLDS, SEED = 5, 3
SCENES, LEARNED_SCENES = 2000, 0.2
QUADRUPLETS = {"valid": 500, "test": 3000}
POINTS, EPOCHS = 10, 40
INHERIT = 2  # Steps of is-a over which Corel5k's tags inherit parts, as the comparison chose

BOX: dict[str, tuple[Any, ...]] = {
    "learning_rate": (0.001, 0.003, 0.01, 0.03),
    "image_learning_rate": (0.01, 0.03, 0.1, 0.3),
    "alpha": (0.1, 0.3, 1.0, 3.0, 10.0),
    "max_trials": (10, 100),
    "dim": (8, 16, 25, 50, 100),
    "negative_weight": (0.0, 0.01, 0.1, 1.0, 1.0),
    "weight": ("top", "harmonic"),
}
FIRST = (
    {"learning_rate": 0.001, "image_learning_rate": 0.1, "alpha": 0.3, "max_trials": 100, "dim": 50,
     "negative_weight": 1.0, "weight": "top"},
    {"learning_rate": 0.01, "image_learning_rate": 0.1, "alpha": 3.0, "max_trials": 100, "dim": 50,
     "negative_weight": 1.0, "weight": "top"},
)  # fmt: skip
"""What the comparison began with, or found; the others are drawn."""

LISTED, SUGGESTED = (0.5, 1.0, 2.0, 4.0), (1.0, 2.0, 3.0, 5.0)
"""What a table of relations adds to a pair's score (α times the setting `listed`), and the share of suggested ones."""

LEARNED, LEFT_OUT = "learned", "left out"
MEASURES = {"p@1": lambda ranks: ranks == 1, "MAP": lambda ranks: 1 / ranks, "mean rank": lambda ranks: ranks}
WHAT = (TRIPLET, LABELLING, KNOWN)

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]


@dataclass
class Problem:
    """Images with tags, their relations (part, whole), and tags of the same kind."""

    data: Labelled
    pairs: Ints
    siblings: Ints
    folds: Ints = field(init=False)

    def __post_init__(self) -> None:
        self.folds = np.random.default_rng(SEED).permutation(len(self.pairs)) % FOLDS

    def sides(self, fold: int) -> dict[str, Ints]:
        """Return the relations that are learned and left out."""
        return {LEARNED: self.pairs[self.folds != fold], LEFT_OUT: self.pairs[self.folds == fold]}

    def examples(self, split: str, fold: int) -> dict[str, QuadrupletBlock]:
        """Draw quadruplets of both, as far as images show them."""
        found = {}
        for name, some in self.sides(fold).items():
            try:
                found[name] = Quadruplets(getattr(self.data, split).Y, some, random_state=0).draw(QUADRUPLETS[split])
            except DataError:
                say(f"    no images of {split} show a relation {name} of fold {fold}")
        return found


@dataclass(frozen=True)
class Side:
    """One way to score: which fits are tried, whether words count, and whether a table of relations is added."""

    shared: bool
    words: bool = True
    only: Mapping[str, Any] = field(default_factory=dict)
    listed: Sequence[float] = (0.0,)
    suggested: Sequence[float] = (0.0,)
    siblings: bool = False

    def tables(self) -> list[dict[str, Any]]:
        """Return what to try beside each fit."""
        return [
            {"listed": listed, "suggested": suggested, "siblings": self.siblings}
            for listed in self.listed
            for suggested in self.suggested
        ]


PAPER = {"negative_weight": 1.0}
SIDES = {
    "Shared (I)": Side(True, words=False, only=PAPER),
    "UnShared (I)": Side(False, words=False, only=PAPER),
    "Shared (IW)": Side(True, only=PAPER),
    "UnShared (IW)": Side(False, only=PAPER),
    "Shared (IW), any weight of negatives": Side(True),
    "UnShared (IW), any weight of negatives": Side(False),
    "Shared (IW), table": Side(True, listed=LISTED),
    "UnShared (IW), table": Side(False, listed=LISTED),
    "Shared (IW), suggested by shared parts": Side(True, listed=LISTED, suggested=SUGGESTED),
    "UnShared (IW), suggested by shared parts": Side(False, listed=LISTED, suggested=SUGGESTED),
    "Shared (IW), suggested by siblings": Side(True, listed=LISTED, suggested=SUGGESTED, siblings=True),
    "UnShared (IW), suggested by siblings": Side(False, listed=LISTED, suggested=SUGGESTED, siblings=True),
}
KNOWING = "every relation known"
"""Beside UnShared (I)."""


def points(n: int) -> list[dict[str, Any]]:
    """Return settings of the box: the same for both kinds of model."""
    rng = np.random.default_rng(SEED)
    drawn = [{name: values[int(rng.integers(len(values)))] for name, values in BOX.items()} for _ in range(n)]
    return [*FIRST, *drawn][:n]


class Fits:
    """Scores of fitted models, kept in a folder."""

    def __init__(self, problem: Problem, folder: Path, epochs: int) -> None:
        self.problem, self.folder, self.epochs = problem, folder / "fits", epochs
        self.folder.mkdir(parents=True, exist_ok=True)
        self.validated: dict[str, float] = {}

    def scores(self, settings: Mapping[str, Any], fold: int, split: str) -> tuple[Floats, Floats] | None:
        """Return the scores of tags for the images of a split, and α W Wᵀ; None where training diverged."""
        path = self.folder / f"{key_of(self.problem.data.name, dict(settings), fold, self.epochs)}.npz"
        if not path.exists():
            self._fit(settings, fold, path)
        with np.load(path) as kept:
            return (kept[split], kept["terms"]) if split in kept else None

    def _fit(self, settings: Mapping[str, Any], fold: int, path: Path) -> None:
        data = self.problem.data
        model = MODELS.create(
            "objects_and_parts", **settings, part_of=self.problem.sides(fold)[LEARNED], epochs=self.epochs, patience=5,
            max_norm=1.0, random_state=0, n_jobs=1,
        )  # fmt: skip
        found: dict[str, Floats] = {}
        try:
            model.fit(data.train.X, data.train.Y, valid=(data.valid.X, data.valid.Y))
        except DivergedError:
            say("    diverged")
        else:
            found = {split: all_scores(model, getattr(data, split).X) for split in QUADRUPLETS}
            found["terms"] = model.pair_scores()
        unfinished = path.with_suffix(".part.npz")
        np.savez(unfinished, **found)
        unfinished.replace(path)


Values = dict[tuple[str, str, str], dict[tuple[int, int], float]]
"""By set of relations, task and measure: the mean over the examples of each relation."""


def measured(S: Floats, F: Floats, examples: Mapping[str, QuadrupletBlock], pairs: Ints) -> Values:
    """Rank the right answers, and take the mean of each relation."""
    found: Values = {}
    for name, block in examples.items():
        ranks = task_ranks(S, F, block, 1)
        ranks[KNOWN] = known_ranks(S, F, block, pairs)
        for task in WHAT:
            of_each = relation_of_each(task, block)
            relations = [(int(part), int(whole)) for part, whole in np.unique(of_each, axis=0)]
            for measure, values in MEASURES.items():
                means = group_means(values(ranks[task]), of_each)
                found[name, task, measure] = dict(zip(relations, map(float, means), strict=True))
    return found


def mean_of(found: Values, name: str, task: str, measure: str) -> float:
    """Return the mean over relations."""
    return float(np.mean(list(found[name, task, measure].values()))) if (name, task, measure) in found else np.nan


def table(problem: Problem, fold: int, suggested: float, siblings: bool) -> Floats:
    """Return how surely tags are related, by those that are learned."""
    alike = problem.siblings if siblings else np.empty((0, 2), np.int64)
    n_tags = len(problem.data.tags)
    return np.asarray(
        listed_and_suggested(problem.sides(fold)[LEARNED], alike, n_tags, suggested).toarray(), np.float32
    )


def choose(problem: Problem, fits: Fits, side: Side, n: int) -> dict[str, Any]:
    """Return the settings with the best mean of learned and left-out validation relations, by labelling's MAP."""
    best: dict[str, Any] = {"score": -np.inf}
    for point in points(n):
        if any(point[name] != value for name, value in side.only.items()):
            continue
        settings = {**point, "shared": side.shared}
        for added in side.tables():
            score = validated(problem, fits, settings, side.words, added, 0)
            if score > best["score"]:
                best = {"score": score, "settings": settings, **added}
    return best


def choose_table(problem: Problem, fits: Fits, side: Side, chosen: dict[str, Any], fold: int) -> dict[str, Any]:
    """Return the settings with what a table adds as is best for the other folds, each left out in turn."""
    others = [one for one in range(FOLDS) if one != fold]

    def score(added: dict[str, Any]) -> float:
        return float(np.mean([validated(problem, fits, chosen["settings"], side.words, added, one) for one in others]))

    tables = side.tables()
    return {**chosen, **(max(tables, key=score) if len(tables) > 1 else tables[0])}


def validated(
    problem: Problem, fits: Fits, settings: Mapping[str, Any], words: bool, added: Mapping[str, Any], fold: int
) -> float:
    """Return labelling's MAP of a fit and a table on validation images; -inf where training diverged."""
    key = key_of(dict(settings), words, dict(added), fold)
    if key not in fits.validated:
        scores, found = fits.scores(settings, fold, "valid"), -np.inf
        if scores is not None:
            F = words * scores[1] + np.float32(added["listed"]) * table(
                problem, fold, added["suggested"], added["siblings"]
            )
            found = labelling_map(scores[0], F, problem.examples("valid", fold))
        fits.validated[key] = found
    return fits.validated[key]


def labelling_map(S: Floats, F: Floats, examples: Mapping[str, QuadrupletBlock]) -> float:
    """Return the mean of sets of relations of the mean reciprocal rank of pairs, by relation."""
    found = []
    for block in examples.values():
        places = ranks_of_pairs(S[block.object_images], S[block.part_images], F, block.objects, block.parts, 1)
        found.append(group_means(1 / (places + 1), relation_of_each(LABELLING, block)).mean())
    return float(np.mean(found))


def judge(problem: Problem, fits: Fits, words: bool, chosen: Sequence[dict[str, Any]], knowing: float = 0.0) -> Values:
    """Leave out each other fold in turn, and measure on test images; a learned relation's mean is over folds."""
    several: dict[tuple[str, str, str], dict[tuple[int, int], list[float]]] = {}
    for fold, choice in enumerate(chosen, start=1):
        scores = fits.scores(choice["settings"], fold, "test")
        if scores is None:
            say(f"    fold {fold} diverged: its relations are missing")
            continue
        added = np.float32(choice["listed"]) * table(problem, fold, choice["suggested"], choice["siblings"])
        if knowing:
            added = np.zeros_like(added)
            added[problem.pairs[:, 1], problem.pairs[:, 0]] = knowing
        found = measured(scores[0], words * scores[1] + added, problem.examples("test", fold), problem.pairs)
        for key, values in found.items():
            for relation, value in values.items():
                several.setdefault(key, {}).setdefault(relation, []).append(value)
    return {key: {one: float(np.mean(some)) for one, some in values.items()} for key, values in several.items()}


def compared(first: Values, second: Values) -> dict[str, Any]:
    """Return differences and ratios with intervals over relations."""
    found = {}
    for key, values in first.items():
        if key[2] != "mean rank":
            relations = sorted(set(values) & set(second[key]))
            a, b = (np.array([side[key][one] for one in relations]) for side in (first, second))
            difference = paired_bootstrap(a, b, n_resamples=2000)
            drawn = np.random.default_rng(0).integers(len(a), size=(2000, len(a)))
            ratios = a[drawn].mean(1) / np.maximum(b[drawn].mean(1), 1e-9)
            found[", ".join(key)] = {
                "mean": float(a.mean()), "against": float(b.mean()), "relations": len(a),
                "difference": [difference.mean, difference.low, difference.high],
                "times": [float(a.mean() / max(b.mean(), 1e-9)), *map(float, np.percentile(ratios, (2.5, 97.5)))],
            }  # fmt: skip
    return found


def solve(problem: Problem, fits: Fits, n: int) -> dict[str, Any]:
    """Choose and judge every side."""
    name, examples = problem.data.name, problem.examples("valid", 0)
    say(f"{name}: {len(problem.pairs)} relations of {len(problem.data.tags)} tags, {len(problem.siblings)} siblings")
    found: dict[str, Values] = {}
    chosen: dict[str, Any] = {}
    for label, side in SIDES.items():
        first = choose(problem, fits, side, n)
        chosen[label] = [choose_table(problem, fits, side, first, fold) for fold in range(1, FOLDS)]
        found[label] = judge(problem, fits, side.words, chosen[label])
        say(f"  {label}: {first}; {[(one['listed'], one['suggested']) for one in chosen[label]]}")
        say(*(f"    {k[0]} {k[1]} {k[2]} {mean_of(found[label], *k):.3f};" for k in found[label]))
    images = chosen["UnShared (I)"][0]
    scores = fits.scores(images["settings"], 0, "valid")
    assert scores is not None
    every = np.zeros_like(scores[1])
    every[problem.pairs[:, 1], problem.pairs[:, 0]] = 1

    weight = max((0.5, 1.0, 2.0, 4.0, 8.0), key=lambda one: labelling_map(scores[0], np.float32(one) * every, examples))
    chosen[KNOWING] = [{**images, "knowing": weight}]
    found[KNOWING] = judge(problem, fits, False, chosen["UnShared (I)"], weight)
    against = {}
    for label in found:
        kind = "Shared (I)" if label.startswith("Shared") else "UnShared (I)"
        if label != kind:
            against[f"{label} / {kind}"] = compared(found[label], found[kind])
        for plain in ("Shared (IW)", "UnShared (IW)"):
            if label.startswith(f"{plain},"):
                against[f"{label} / {plain}"] = compared(found[label], found[plain])
    means = {label: {", ".join(key): mean_of(values, *key) for key in values} for label, values in found.items()}
    for pair, sides in against.items():
        for key in (f"{LEFT_OUT}, {TRIPLET}, p@1", f"{LEARNED}, {TRIPLET}, p@1", f"{LEFT_OUT}, {LABELLING}, MAP"):
            if key in sides:
                say(f"  {pair}: {key}", *(f"{name} {value}" for name, value in sides[key].items()))
    tried = []
    for settings in [{**point, "shared": shared} for shared in (True, False) for point in points(n)]:
        if (scores := fits.scores(settings, 0, "valid")) is not None:
            by_words = measured(*scores, examples, problem.pairs)
            by_images = measured(scores[0], np.zeros_like(scores[1]), examples, problem.pairs)
            of = {", ".join(key): mean_of(by_words, *key) for key in by_words}
            tried.append({"settings": settings, "words": of, "images": _p1(by_images)})
    return {
        "points": n, "epochs": fits.epochs, "relations": len(problem.pairs), "tags": len(problem.data.tags),
        "siblings": len(problem.siblings), "chosen": chosen, "tried on validation images": tried, "means": means,
        "against": against,
    }  # fmt: skip


def _p1(found: Values) -> dict[str, float]:
    return {name: mean_of(found, name, TRIPLET, "p@1") for name in (LEARNED, LEFT_OUT)}


def drawn_problem(source: Source, features: FeatureSet) -> Problem:
    """Return drawn crops; things of one kind are siblings."""
    data, pairs = drawn_images(source, SCENES, features, learned=LEARNED_SCENES)
    return Problem(data, pairs, data.siblings)


def corel_problem(source: Source, shared: Path, features: FeatureSet, nouns: WordNet) -> Problem:
    """Return Corel5k with WordNet's parts; tags are siblings by what they are a kind of, over few steps."""
    data = corel_images(source, shared / "data" / "corel5k", features)
    vocabulary = Vocabulary(data.tags)
    relations = wordnet_relations(nouns, vocabulary)
    pairs = relations.by_depth[INHERIT]
    return Problem(data.bearing(np.unique(pairs)), pairs, relations.siblings)


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("shared", type=Path, help="the folder of data and networks")
    parser.add_argument("--cache", type=Path, default=Path("cache"), help="where drawings, features and fits are kept")
    parser.add_argument("--only", default="drawn-visterms,drawn-onnx,corel5k-onnx", help="problems, after one another")
    parser.add_argument("--points", type=int, default=POINTS, help="settings to choose from")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="at most")
    chosen = parser.parse_args()
    source = Source(chosen.cache, 0, 1)
    onnx = FeatureSet("onnx", "onnx", f"onnx:{chosen.shared / 'models' / 'mobilenet_v2.onnx'}")
    n, epochs = (3, 5) if chosen.quick else (chosen.points, chosen.epochs)
    made = {
        "drawn-visterms": lambda: drawn_problem(source, OUR_VISTERMS),
        "drawn-onnx": lambda: drawn_problem(source, onnx),
        "corel5k-onnx": lambda: corel_problem(source, chosen.shared, onnx, WordNet(None)),
    }
    result: dict[str, Any] = {"machine": machine(), "measured on": TEST_ROWS, "problems": {}}
    if chosen.json is not None and chosen.json.exists():
        result["problems"] = json.loads(chosen.json.read_text(encoding="utf-8"))["problems"]
    for name in chosen.only.split(","):
        problem = made[name]()
        result["problems"][name] = solve(problem, Fits(problem, chosen.cache, epochs), n)
        write(result, chosen.json)


if __name__ == "__main__":
    main()
