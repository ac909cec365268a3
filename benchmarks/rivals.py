"""Ours with defaults beside short programs with other libraries, on the same rows: quality and time.

By features: `auto` and its candidates alone, scikit-learn's LogisticRegression and MLPClassifier. By number, one
held-out tag each: `auto` and its candidates, EASE in ten lines of NumPy, and implicit's ALS and LightFM where they are
installed. Data are Corel5k (features of a network, visterms, blobs), Delicious (words, and by number), NUS-WIDE by
number, drawn scenes, and drawn families, whose shape is drawn as well (`--seed`, or the clock's).

All have one thread, and take turns: seconds are those of a fit and of the scores; `--runs` repeats them. Test rows are
judged, or with `--validation` a part of the training rows. Differences in MAP over images have paired 95 % bootstrap
intervals. F1 is that of the means of precision and recall over tags, with five tags or those that `best_f1` gives.

`--through` instead compares `fit_pairs` and `evaluate_pairs` with the calls below them, on the sets by number: the
same values, and the least seconds of the processor of `--runs` turns.

    python benchmarks/rivals.py ../shared --cache CACHE --seed 1 --json docs/figures/rivals.json
    python benchmarks/rivals.py ../shared --through --data number --runs 9 --json docs/figures/recommenders.json
    make docs    # the tables of docs/benchmarks.md, from the JSON; `--data Corel5k --data number` renews these sets
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from harness import data_sets as sets
from harness.data_sets import Problem, Rows
from harness.runs import TEST_ROWS, machine, options, say, spread, write
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neural_network import MLPClassifier
from threadpoolctl import threadpool_limits

import visterm
from visterm.core.tables import MODELS
from visterm.kernels.topk import top_k
from visterm.metrics import average_precisions, evaluate
from visterm.metrics.report import measure as values_of
from visterm.metrics.significance import interval_of, paired_bootstrap
from visterm.models.blend.candidates import BY_NUMBER, DEFAULT_CANDIDATES
from visterm.models.confidence.calibration import HeldOutChances, cutoff_of_best_f1, f1_score
from visterm.models.confidence.fit_calibration import fit_calibration

METRICS = ["map", "word_map", "p@5", "n_plus@5", "tag_p@5", "tag_r@5", "tag_f1@5"]
PAIRED, NUS_IMAGES, SCENES, DIM = 5_000, 20_000, 1_000, 100
WARM = 700  # Images of the fit that compiles; `auto` holds out images of 600 and more
BY_PAIRS = {"ease": 1, "knn": 1, "wsabie": 4, "auto": 4}  # Models, and turns of which they take one
COLUMNS = ("MAP", "`auto` minus this", "word MAP", "processor")


class Ours:
    """A model of visterm with its defaults."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, rows: Rows) -> Any:
        self.model = MODELS.create(self._name).set_known(n_jobs=1, random_state=0).fit(rows.X, rows.Y)
        return self.model.decision_function(rows.features(rows.judged))


def chances(model: Any, rows: Rows) -> Any:
    """Fit a classifier of scikit-learn, and return chances."""
    return model.fit(rows.X, rows.Y.toarray() > 0).predict_proba(rows.judged)


def ease(rows: Rows, penalty: float = 100.0) -> Any:
    """Return the scores of Steck's program."""
    inverse = np.linalg.inv((rows.Y.T @ rows.Y).toarray() + penalty * np.eye(rows.Y.shape[1]))
    weights = inverse / -np.diag(inverse)
    np.fill_diagonal(weights, 0)
    return rows.Y[rows.judged] @ weights


def als(rows: Rows) -> Any:
    """Return products of implicit's factors, with its defaults, but a factor per 16 tags: more are worse."""
    factors = max(1, min(DIM, rows.Y.shape[1] // 16))
    model = import_module("implicit.als").AlternatingLeastSquares(factors=factors, num_threads=1, random_state=0)
    model.fit(sp.csr_matrix(rows.Y), show_progress=False)
    return model.user_factors[rows.judged] @ model.item_factors.T


def lightfm(rows: Rows) -> Any:
    """Return LightFM's scores: with the WARP loss, the epochs of its documentation, and rows as long as ours."""
    model = import_module("lightfm").LightFM(no_components=DIM, loss="warp", random_state=0)
    pairs = sp.coo_matrix(rows.Y)
    pairs = sp.coo_matrix((pairs.data, (pairs.row.astype(np.int32), pairs.col.astype(np.int32))), shape=pairs.shape)
    model.fit(pairs, epochs=30, num_threads=1)
    biases, tags = model.get_item_representations()
    return model.get_user_representations()[1][rows.judged] @ tags.T + biases


FEATURE_RIVALS = {
    "scikit-learn LogisticRegression": partial(chances, OneVsRestClassifier(LogisticRegression())),
    "scikit-learn MLPClassifier": partial(chances, MLPClassifier(random_state=0)),
}
NUMBER_RIVALS = {"EASE in NumPy": ease, "implicit ALS": als, "LightFM": lightfm}
PACKAGES = {"implicit ALS": "implicit", "LightFM": "lightfm"}
MISSING = [name for name, package in PACKAGES.items() if find_spec(package) is None]


def data_sets(shared: Path, cache: Path, seed: int, *, quick: bool) -> dict[str, Callable[[str], Problem]]:
    """Return what reads or draws each data set; in a quick run only drawn ones, small."""

    def features(name: str, draw: int) -> Problem:
        return replace(sets.drawn_features(np.random.default_rng([seed, draw]), 800 if quick else 5_600), name=name)

    def pairs(name: str) -> Problem:
        Y = sets.drawn_pairs(np.random.default_rng([seed, 3]), 1_000 if quick else 12_500)
        return sets.by_number(name, "drawn pairs", Y, PAIRED)

    drawn: dict[str, Callable[[str], Problem]] = {
        "drawn, first": lambda name: features(name, 1),
        "drawn, second": lambda name: features(name, 2),
        "drawn pairs, by number": pairs,
    }
    if quick:
        return drawn
    corel: dict[str, Callable[[str], Problem]] = {
        f"Corel5k, {kind}": lambda name, kind=kind: sets.with_features(
            name, "corel5k", *sets.corel5k(shared, cache, kind)
        )
        for kind in ("network", "visterms", "blobs")
    }
    return corel | drawn | {
        "scenes, visterms": lambda name: some_scenes(name, cache),
        "NUS-WIDE, by number": lambda name: sets.by_number(name, "nuswide", some_concepts(shared), PAIRED),
        "Delicious, by number": lambda name: sets.by_number(
            name, "delicious", sp.csr_array(sets.delicious(shared)[1]), PAIRED),
        "Delicious, words": lambda name: sets.with_features(name, "delicious", *sets.delicious(shared)),
    }  # fmt: skip


def some_concepts(shared: Path) -> sp.csr_array:
    """Return the tags of some of NUS-WIDE's images."""
    Y = sets.nuswide(shared / "data" / "nuswide")
    return sp.csr_array(Y[np.sort(np.random.default_rng(0).permutation(Y.shape[0])[:NUS_IMAGES])])


def some_scenes(name: str, cache: Path) -> Problem:
    """Return drawn scenes with visterms; the last fifth is for the end."""
    X, Y = sets.drawn_scenes(cache, SCENES)
    n = X.shape[0] * 4 // 5
    return sets.with_features(name, "drawn scenes", X[:n], Y[:n], X[n:], Y[n:])


def in_turns(rows: Rows, programs: dict[str, Callable[[Rows], Any]], runs: int) -> tuple[dict[str, Any], Any]:
    """Run the programs in turn; return the scores of each, and the seconds of the processor and of the clock."""
    scores: dict[str, Any] = {}
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in programs}
    for turn in range(runs):  # in both orders, as what comes later finds warm caches
        for name, program in list(programs.items())[:: 1 - turn % 2 * 2]:
            processor, clock = time.process_time(), time.perf_counter()
            made = np.asarray(program(rows))
            seconds[name].append((time.process_time() - processor, time.perf_counter() - clock))
            scores.setdefault(name, made)
            say(f"  {name:34} {seconds[name][-1][0]:7.1f} s")
    return scores, seconds


def measure(rows: Rows, runs: int) -> dict[str, Any]:
    """Compare `auto` with its candidates and with the rivals on the same rows."""
    candidates, rivals = (BY_NUMBER, NUMBER_RIVALS) if rows.X is None else (DEFAULT_CANDIDATES, FEATURE_RIVALS)
    auto = Ours("auto")
    programs: dict[str, Any] = {"auto": auto, **{name: Ours(name) for name, _ in candidates}}
    programs |= {name: rival for name, rival in rivals.items() if name not in MISSING}
    auto(Rows(rows.X if rows.X is None else rows.X[:WARM], sp.csr_array(rows.Y[:WARM]), rows.judged[:1], rows.right))
    scores, seconds = in_turns(rows, programs, runs)
    entry: dict[str, Any] = {"methods": {name: {"missing": "not installed"} for name in rivals if name in MISSING}}
    maps = {name: average_precisions(each, rows.right, exclude=rows.known) for name, each in scores.items()}
    for name, each in scores.items():
        processor, clock = map(spread, zip(*seconds[name], strict=True))
        figures = evaluate(each, rows.right, METRICS, exclude=rows.known)
        entry["methods"][name] = {**figures, "processor": processor, "clock": clock}
        if name != "auto":
            entry["methods"][name]["auto less it"] = paired_bootstrap(maps["auto"], maps[name])._asdict()
    entry["weights"] = {each["model"]: each["weight"] for each in auto.model.report_}
    if rows.X is not None:
        entry |= {"lift": auto.model.lift_, "with best_f1": with_cutoffs(auto.model, rows, scores["auto"])}
    return entry


def through(rows: Rows, runs: int) -> dict[str, Any]:
    """Compare the interface for pairs, from a matrix and from a frame of pandas, with the calls below it."""
    users, items = rows.Y.nonzero()
    frame = pd.DataFrame({"user": np.char.add("u", users.astype(str)), "item": items})
    test, settings = sp.csr_array(rows.features(rows.judged).T @ rows.right), {"random_state": 0, "n_jobs": 1}

    def fit(name: str, _: Any, Y: sp.csr_array = rows.Y) -> Any:
        return MODELS.create(name).set_known(**settings).fit(None, Y)

    def fit_frame(name: str, _: Any) -> Any:
        (users, names), (items, tags) = (pd.factorize(frame[role], sort=True) for role in ("user", "item"))
        pairs = np.ones(users.size, np.float32), (users, items)
        return fit(name, _, sp.csr_array(pairs, shape=(names.size, tags.size)))

    def judge(name: str, _: Any) -> Any:
        scores = fit(name, _).decision_function(rows.features(rows.judged))
        values = values_of(scores, rows.right, ["r@10", "ndcg@10", "mrr"], exclude=rows.known).values()
        means = [interval_of(each).mean for each in values]
        scores[rows.known.nonzero()] = -np.inf
        n_listed = np.bincount(top_k(scores, 10)[0].ravel(), minlength=test.shape[1])
        shares = np.bincount(rows.Y.indices, minlength=test.shape[1]) / test.shape[0]
        return [*means, (n_listed > 0).mean(), np.average(shares, weights=n_listed)]

    def evaluate_pairs(name: str, _: Any) -> Any:
        return [row["value"] for row in visterm.evaluate_pairs(rows.Y, name, test=test, **settings).rows()]

    def fit_pairs(pairs: Any, name: str, _: Any) -> Any:
        return visterm.fit_pairs(pairs, model=name, **settings).model_

    sides = [(fit, partial(fit_pairs, rows.Y)), (fit_frame, partial(fit_pairs, frame)), (judge, evaluate_pairs)]
    entry: dict[str, Any] = {}
    for name, turns in BY_PAIRS.items():
        programs = {f"{name}, {i}": partial(call, name) for i, call in enumerate(chain(*sides))}
        values, seconds = in_turns(rows, programs, -(-runs // turns))
        *_, below, above = values.values()
        assert np.allclose(below.astype(float), above.astype(float), atol=1e-9), (name, below, above)
        least = np.array([min(processor for processor, _ in each) for each in seconds.values()])
        entry[name] = {"mrr": above[2], "seconds": least.tolist()}
    return entry


def with_cutoffs(auto: Any, rows: Rows, scores: Any) -> dict[str, float] | None:
    """Measure the tags above the cut-offs of the best F1, which are chosen on images that `auto` didn't learn from."""
    held = auto.take_held_out()
    if held is None:
        return None
    others, every = np.setdiff1d(np.arange(rows.Y.shape[0]), held.images), np.arange(len(held.images))
    counts = np.bincount(rows.Y.indices[rows.Y.data > 0], minlength=rows.Y.shape[1])
    learned = rows.Y[others] if others.size else rows.Y  # by folds, each image is held out once
    calibration = fit_calibration(held.scores(every), rows.Y[held.images], learned, counts)
    if calibration is None or calibration.held_out is None:
        return None
    judged = HeldOutChances.of(calibration.confidences(scores), rows.right.toarray() > 0)
    given = judged.chances >= cutoff_of_best_f1(calibration.held_out, "macro")[judged.tags]
    return {"f1": f1_score(judged, given, "macro"), "tags an image": float(given.sum() / judged.image_counts.size)}


def tables(result: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of a table per data set, the best MAP first: the best three, `auto`, `wsabie` and the rivals."""
    yield f"Measured on {result['measured on']} with one thread and the seed {result['seed']}."
    for name, entry in result["data"].items():
        yield f"\n#### {name}\n\n{entry['about']}.\n\n| | {' | '.join(COLUMNS)} |\n|{' --- |' * (len(COLUMNS) + 1)}"
        methods, ours = entry["methods"], set(MODELS.names()) - {"auto", "wsabie"}
        for place, method in enumerate(sorted(methods, key=lambda method: -methods[method].get("map", 0))):
            if place < 3 or method not in ours:
                name = f"`{method}`" if method in MODELS.names() else method
                yield f"| {name} | {' | '.join(cells(methods[method]))} |"


def through_table(result: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of the table of `--through`."""
    yield "|data|model|MRR|fit|`fit_pairs`|from a frame|`evaluate_pairs`|\n|" + "---|" * 7
    for name, models in result["data"].items():
        for model, each in models.items():
            below, above = each["seconds"][::2], each["seconds"][1::2]
            ratios = "|".join(f"{a / b:.2f}" for a, b in zip(above, below, strict=True))
            yield f"|{name.partition(',')[0]}|`{model}`|{each['mrr']:.3f}|{below[0]:.3f} s|{ratios}|"


def cells(each: dict[str, Any]) -> list[str]:
    """Return the cells of a method's row."""
    if "missing" in each:
        return [each["missing"], *[""] * (len(COLUMNS) - 1)]
    less = each.get("auto less it")
    shown = [f"{each['map']:.4f}", f"{less['mean']:+.3f} ({less['low']:+.3f}…{less['high']:+.3f})" if less else ""]
    seconds = each["processor"]["median"]
    return [*shown, f"{each['word_map']:.3f}", f"{seconds:,.{2 if seconds < 10 else 0}f} s"]


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("shared", type=Path, nargs="?", help="the folder that holds data and models")
    parser.add_argument("--cache", type=Path, default=Path("encoded"), help="where encoded photos are kept")
    parser.add_argument("--seed", type=int, help="of the drawn families; without, the clock's")
    parser.add_argument("--validation", action="store_true", help="measure on validation rows, not on test rows")
    parser.add_argument("--through", action="store_true", help="compare the interface for pairs with the calls below")
    parser.add_argument("--data", action="append", default=[], help="only sets with this in their name; others stay")
    parser.set_defaults(runs=1)
    chosen = parser.parse_args()
    if chosen.shared is None and not chosen.quick:
        parser.error("Name the folder with the data, or pass --quick.")
    seed = time.time_ns() % 2**31 if chosen.seed is None else chosen.seed
    result: dict[str, Any] = {"machine": machine(), "seed": seed, "runs": chosen.runs, "data": {}}
    result["measured on"] = "validation rows" if chosen.validation else TEST_ROWS
    if chosen.data and chosen.json and chosen.json.exists():
        result["data"] = json.loads(chosen.json.read_text(encoding="utf-8"))["data"]
    warnings.filterwarnings("ignore", module="sklearn")  # of what did not converge, and of tags without an image
    with threadpool_limits(1):
        for name, read in data_sets(chosen.shared, chosen.cache, seed, quick=chosen.quick).items():
            if sets.chosen_by(name, chosen.data) and ("by number" in name or not chosen.through):
                problem = read(name)
                say(f"{name}: {problem.about}")
                rows = problem.choose if chosen.validation else problem.final
                measured = through(rows, chosen.runs) if chosen.through else measure(rows, chosen.runs)
                result["data"][name] = measured if chosen.through else {"about": problem.about, **measured}
                write(result, chosen.json)
    say("\n".join(through_table(result) if chosen.through else tables(result)))


if __name__ == "__main__":
    main()
