"""Corel5k with WordNet's tree: the same model without and with it, on features of a network and on visterms.

The tree has what two or more of Corel5k's tags are kinds of, by WordNet's first hypernyms, without what lies above a
quarter of all tags. Both runs learn from the same photos; with the tree a photo has the tags above its own. Test photos
are completed in the same way. A third side is the run without the tree whose scores are raised by it afterwards.
Intervals are 95 % of paired bootstrap samples of the test photos.

Then the choices: chances raised to the largest under a tag, or fitted by isotonic regression on the tree; and whether
what lies under a given tag may be drawn as a wrong one, as given and if half of the most specific tags had been given
as their parents only.

    python hierarchy.py SHARED --cache CACHE --json figures/hierarchy.json
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from harness.data_sets import encoded
from harness.runs import TEST_ROWS, machine, options, say, write
from numpy.typing import NDArray

from visterm import Tagger
from visterm.core.tables import MODELS
from visterm.core.vocabulary import Vocabulary
from visterm.data.tag_tree import TagTree, TreeColumns
from visterm.features.training_rows import TrainingRows
from visterm.learning.relations import WordRelations
from visterm.metrics import measure, paired_bootstrap
from visterm_research.comparison.image_problems import read_corel
from visterm_research.data.wordnet import WordNet

_SENSES = {
    2: "albatross booby branch church dock elk fawn horns hut leopard lichen lynx nets path plants railroad ruins sign",
    3: "canal cubs kit palm pyramid sphinx tracks",
    4: "coral designs figures peaks post runway sponges",
    5: "market pillar reflection",
    7: "column",
    9: "seals",
    10: "relief shell",
    0: "african arctic bengal black buddha calf crafts detail display flight fly formation formula giant guard hands "
    "indian interior light marine model outside pack pair pattern perch prayer prop prototype race range row run "
    "school shade star tails texture turn wings",
}
SENSES = {tag: sense for sense, tags in _SENSES.items() for tag in tags.split()} | dict.fromkeys(
    ("stems", "stick", "tables", "tiger", "whales", "writing"), 2
)
"""Of WordNet's meanings (3.0) the one that photos show, where it isn't the first; 0: none, or none in particular."""

MOST = 0.25  # Of the tags, those that may lie under one that is still worth a name
OWN = ("map", "hp@5", "hr@5", "hf1@5")
LAZY = 0.5  # Of the most specific tags, those that are given as their parents


class Problem(NamedTuple):
    """Rows, tags as they were given and as the tree completes them, and the tree."""

    X: Any
    Y: sp.csr_array  # shape (n_images, n_tags): the tags of Corel5k
    X_test: Any
    Y_test: sp.csr_array
    tags: Vocabulary
    every: Vocabulary  # And those above them
    tree: TreeColumns  # In the columns of `every`

    def padded(self, Y: sp.csr_array) -> sp.csr_array:
        """Return tags in the columns of `every`."""
        return sp.csr_array((Y.data, Y.indices, Y.indptr), shape=(Y.shape[0], len(self.every)))

    @property
    def specific(self) -> NDArray[np.int64]:
        """The tags of Corel5k with no other under them: what is right of them is the same with and without a tree."""
        return np.flatnonzero(np.diff(self.tree.below.indptr)[: len(self.tags)] == 1)


def wordnet_tree(tags: Sequence[str]) -> list[tuple[str, str]]:
    """Return child and parent; what only one of the tags is a kind of, and what nearly all are, is passed over."""
    wordnet = WordNet()
    chains: dict[str, list[int]] = {}
    for tag in tags:
        senses, number = wordnet.senses(tag), SENSES.get(tag, 1)
        if 0 < number <= len(senses):
            chain = [senses[number - 1]]
            while above := wordnet.synset(chain[-1]).hypernyms:
                chain.append(above[0])
            chains[tag] = chain
    below: dict[int, set[str]] = defaultdict(set)
    tag_of: dict[int, str] = {}
    for tag, chain in chains.items():
        tag_of.setdefault(chain[0], tag)
        for synset in chain:
            below[synset].add(tag)
    taken = {tag.casefold() for tag in tags}

    def name(synset: int) -> str:
        word = wordnet.synset(synset).words[0]
        return tag_of.get(synset) or (f"{word} [{synset:08d}]" if word.casefold() in taken else word)

    pairs: dict[tuple[str, str], None] = {}
    for tag, chain in chains.items():
        child, n_under = tag, len(below[chain[0]]) if tag_of[chain[0]] == tag else 1
        for synset in chain[1:]:
            if len(below[synset]) > MOST * len(tags):
                break
            if synset in tag_of or len(below[synset]) > max(n_under, 1):
                pairs[child, name(synset)] = None
                child, n_under = name(synset), len(below[synset])
    return list(pairs)


def problem(corel: Path, features: str, cache: Path) -> Problem:
    """Read Corel5k with features and tree."""
    network = corel.parents[1] / "models" / "mobilenet_v2.onnx"
    made = {"network": (f"onnx:{network}", {"output": "features"}), "visterms": ("visterms", {})}[features]
    X, Y, X_test, Y_test = encoded(corel, *made, cache / features)
    tags = Vocabulary.from_lists(read_corel(corel).select("train").tags)
    pairs = wordnet_tree(tags.tags)
    others = dict.fromkeys(parent for _, parent in pairs if parent not in tags)
    every = Vocabulary([*tags.tags, *others])
    return Problem(
        X, sp.csr_array(Y), X_test, sp.csr_array(Y_test), tags, every, TreeColumns(TagTree(pairs), every)
    )  # fmt: skip


def fitted(name: str, X: Any, Y: sp.csr_array, vocabulary: Vocabulary, tree: TreeColumns | None) -> Tagger:
    """Fit a run with confidences."""
    run = Tagger(model=name, n_jobs=1)
    run.parts = run.parts.changed(relations=WordRelations(tree=() if tree is None else tree.words.pairs))
    return run.learn(TrainingRows(vocabulary, X, Y, None, []), calibrate=True)


def isotonic(P: NDArray[np.float64], problem: Problem) -> NDArray[np.float64]:
    """Return the nearest values, by squares, of which no parent's is below its child's; by pooling from the leaves."""
    words, every = problem.tree.words, problem.every
    parents = {every.index(tag): every.index(words.parents(tag)[0]) for tag in every if words.parents(tag)}
    order = sorted(range(len(every)), key=lambda tag: -len(words.above(every.tags[tag])))
    children = defaultdict(list)
    for child, parent in parents.items():
        children[parent].append(child)
    found = P.copy()
    for values, row in zip(P, found, strict=True):
        pools: dict[int, tuple[float, list[int], list[tuple[float, int]]]] = {}
        for tag in order:
            mean, members = float(values[tag]), [tag]
            under = [(-pools[child][0], child) for child in children[tag]]
            heapq.heapify(under)
            while under and -under[0][0] > mean:  # the child that contradicts most joins
                _, child = heapq.heappop(under)
                of_child, more, rest = pools.pop(child)
                mean = (mean * len(members) + of_child * len(more)) / (len(members) + len(more))
                members += more
                for each in rest:
                    heapq.heappush(under, each)
            pools[tag] = mean, members, under
        for mean, members, _ in pools.values():
            row[members] = mean
    return found


def judged(scores: NDArray[Any], data: Problem) -> dict[str, NDArray[np.float64]]:
    """Return the measures of each test photo: over Corel5k's tags, over its specific tags, and by the tags as given."""
    n, specific = len(data.tags), data.specific
    own = np.ascontiguousarray(scores[:, :n])
    right = data.tree.completed(data.padded(data.Y_test))
    found = measure(own, right[:, :n], OWN, tree=data.tree.above[:n])
    found["map of specific tags"] = measure(own[:, specific], right[:, specific], ["map"])["map"]
    found["map by the tags as given"] = measure(own, data.Y_test, ["map"])["map"]
    if scores.shape[1] > n:
        every = measure(scores, right, ["map", "hp@5", "hr@5", "hf1@5"], tree=data.tree.above)
        found |= {f"{name}, tags above too": values for name, values in every.items()}
    return found


def log_loss(P: NDArray[np.float64], data: Problem) -> float:
    """Return the mean log loss of the chances of tags with others under them."""
    parents = np.flatnonzero(np.diff(data.tree.below.indptr) > 1)
    right = data.tree.completed(data.padded(data.Y_test)).toarray()[:, parents] > 0
    P = np.clip(P[:, parents], 1e-6, 1 - 1e-6)
    return float(-np.log(np.where(right, P, 1 - P)).mean())


def compared(sides: dict[str, dict[str, NDArray[np.float64]]]) -> dict[str, Any]:
    """Return the means of two sides, and the interval of the second less the first."""
    (one, first), (other, second) = sides.items()
    found: dict[str, Any] = {}
    for name, values in second.items():
        row: dict[str, Any] = {other: float(np.nanmean(values))}
        if name in first:
            gap = paired_bootstrap(values, first[name])
            row |= {one: float(np.nanmean(first[name])), "difference": [gap.low, gap.high]}
        found[name] = row
        say(f"    {name:34} " + ", ".join(f"{key} {np.round(value, 4)}" for key, value in row.items()))
    return found


def with_and_without(name: str, data: Problem) -> dict[str, Any]:
    """Return what the tree changes of a model, and both ways to make chances agree with it."""
    flat = fitted(name, data.X, data.Y, data.tags, None)
    right = data.tree.completed(data.padded(data.Y))
    run = fitted(name, data.X, right, data.every, data.tree)
    scores, raised = run.scores_and_confidences(data.X_test)
    plain, by_tree = flat.scores_and_confidences(data.X_test)[0], judged(scores, data)
    found = compared({"flat": judged(plain, data), "tree": by_tree})
    say("  beside the run without it, whose scores are raised by the tree afterwards")
    after = judged(TreeColumns(data.tree.words, data.tags).raised(plain), data)
    afterwards = compared({"raised": after, "tree": by_tree})
    assert run.calibration is not None
    assert raised is not None
    raw = run.calibration.confidences(np.vstack([block.copy() for _, block in run.model.score_blocks(data.X_test)]))
    pooled = isotonic(raw, data)
    say("  chances: isotonic beside the largest")
    ways = compared({"largest": judged(raised, data), "isotonic": judged(pooled, data)})
    losses = {way: log_loss(P, data) for way, P in (("as fitted", raw), ("largest", raised), ("isotonic", pooled))}
    say("    log loss of parents", losses)
    return {"tree": found, "afterwards": afterwards, "chances": ways, "log loss of parents": losses}


def children_as_unknown(data: Problem) -> dict[str, Any]:
    """Return what becomes of wsabie if nothing under a tag that was given alone is drawn as a wrong one."""
    given = data.padded(data.Y).toarray() > 0
    below = data.tree.below.toarray() > 0
    under = below & ~np.eye(len(below), dtype=bool)
    lazy, rng = given.copy(), np.random.default_rng(0)
    for image, tag in zip(*np.nonzero(given), strict=True):
        parents = data.tree.words.parents(data.every.tags[tag])
        if parents and not under[tag].any() and rng.random() < LAZY:
            lazy[image, tag], lazy[image, data.every.index(parents[0])] = False, True
    order = np.random.default_rng(0).permutation(len(given))
    kept, held = np.sort(order[len(order) // 10 :]), np.sort(order[: len(order) // 10])
    found = {}
    for label, tags in (("as given", given), ("half as parents", lazy)):
        say(f"  {label}: what lies under a tag that was given alone, wrong or unknown")
        has = tags.astype(np.float32) @ below.T > 0
        sides = {}
        for side, tree in (("wrong", None), ("unknown", data.tree.pairs)):
            Y = sp.csr_array(has.astype(np.float32))
            model = MODELS.create("wsabie", random_state=0, n_jobs=1, tree=tree)
            model.fit(data.X[kept], Y[kept], valid=(data.X[held], Y[held]))
            sides[side] = judged(data.tree.raised(model.decision_function(data.X_test)), data)
        found[label] = compared(sides)
    return found


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("shared", type=Path, help="the folder of data and networks")
    parser.add_argument("--cache", type=Path, default=Path("cache"), help="where features are kept")
    parser.add_argument("--models", default="ridge,wsabie,auto", help="models to compare with and without the tree")
    parser.add_argument("--features", default="network,visterms", help="features to compare them on")
    chosen = parser.parse_args()
    result: dict[str, Any] = {"machine": machine(), "measured on": TEST_ROWS, "models": {}}
    for features in chosen.features.split(","):
        data = problem(chosen.shared / "data" / "corel5k", features, chosen.cache)
        words = data.tree.words
        result["tags"] = {
            "of Corel5k": len(data.tags), "above them": len(data.every) - len(data.tags),
            "of Corel5k in the tree": sum(bool(words.parents(tag) or words.children(tag)) for tag in data.tags),
            "deepest": max(len(words.path(tag)) for tag in data.tags),
        }  # fmt: skip
        say(result["tags"])
        for name in chosen.models.split(","):
            say(f"{features}, {name}")
            result["models"][f"{features}, {name}"] = with_and_without(name, data)
            write(result, chosen.json)
        if features == "network":
            result["under a tag that was given alone"] = children_as_unknown(data)
    write(result, chosen.json)


if __name__ == "__main__":
    main()
