"""One set of defaults on data of different make: ours beside the rivals' best over grids of their own.

Corel5k (visterms, features of a network, blobs), Delicious (words as features, and by number), NUS-WIDE by number, and
two drawn families, with features and by number, whose shape is drawn anew in each run (`--seed` repeats one). For each
source of data the defaults are chosen on the others, by validation rows, and then meet its test rows. A rival meets the
test rows with all of its grid, and the best counts. By number one tag an image is held out, else a tenth of the rows.

    python defaults.py SHARED --cache CACHE --lightfm-python RIVALS/bin/python \
        --pecos-python PECOS/bin/python --json figures/defaults.json
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from harness.data_sets import Problem, Rows, by_number, corel5k, delicious, drawn_features, drawn_pairs, with_features
from harness.runs import TEST_ROWS, machine, options, say, write
from lab.child import Child, RivalError
from lab.grids import grid
from lab.judged import Judge
from lab.race import Limits, explore
from lab.sides import Theirs, hand_over
from train_by_number import nuswide, warm_up

from visterm.core.tables import MODELS

CANDIDATES: list[dict[str, Any]] = [{}, {"learning_rate": 0.1}, {"max_norm": 1.3}]
"""Settings that could be the defaults for everything: those that are, and others near."""

LIGHTFM = grid(learning_rate=[0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1])
BPR = grid(learning_rate=[0.01, 0.05], regularization=[0.01, 0.05])
RIDGE = grid(alpha=[0.1, 0.3, 1.0, 3.0, 10.0])
PECOS = grid(tree=[False, True], cost=[0.3, 1.0])

JUDGED = 2_000  # Images of a set by number whose held-out tags are judged
NUS_IMAGES = 60_000


def problems(shared: Path, cache: Path, seed: int, *, quick: bool) -> Iterator[Problem]:
    """Yield the data sets; in a quick run only drawn ones, small."""
    rng = np.random.default_rng(seed)
    yield by_number("drawn, by number", "drawn pairs", drawn_pairs(rng, 1_500 if quick else 12_500))
    yield drawn_features(rng, 800 if quick else 4_000)
    if quick:
        return
    yield with_features("Corel5k, blobs", "corel5k", *corel5k(shared, cache, "blobs"))
    Y = nuswide(shared / "data" / "nuswide")
    some = np.sort(np.random.default_rng(0).permutation(Y.shape[0])[:NUS_IMAGES])
    yield by_number("NUS-WIDE, by number", "nuswide", sp.csr_array(Y[some]))
    for kind in ("network", "visterms"):
        yield with_features(f"Corel5k, {kind}", "corel5k", *corel5k(shared, cache, kind))
    pages = delicious(shared)
    yield with_features("Delicious, words", "delicious", *pages)
    yield by_number("Delicious, by number", "delicious", sp.csr_array(pages[1]))


class Fitted:
    """One of our models as a side: one fit, from the rows to what can annotate, and one MAP."""

    def __init__(self, model: str, rows: Rows, fixed: dict[str, Any]) -> None:
        self.name, self._rows, self._fixed = model, rows, fixed
        self.epochs: int | None = None

    def train(self, settings: dict[str, Any], seed: int, judged: Callable[[float, float], bool]) -> None:
        """Fit and judge."""
        model = MODELS.create(self.name, **self._fixed, **settings, random_state=seed)
        start = time.perf_counter()
        model.fit(self._rows.X, self._rows.Y)
        seconds = time.perf_counter() - start
        self.epochs = getattr(model, "n_epochs_", None)
        judged(seconds, self._rows.judge(model))


class Pecos:
    """PECOS: one training, one MAP."""

    def __init__(self, child: Child, folder: Path, judge: Judge) -> None:
        self.name = f"pecos {child.version}"
        self._child, self._judge, self._path = child, judge, str(folder / "scores.npy")

    def train(self, settings: dict[str, Any], seed: int, judged: Callable[[float, float], bool]) -> None:
        """Fit and judge."""
        seconds = self._child.ask("train", **settings, seed=seed)["seconds"]
        self._child.ask("save", scores=self._path)
        judged(seconds, self._judge.scores(np.load(self._path)))


def best_of(curves: list[Any]) -> dict[str, Any]:
    """Return the best MAP of a grid, and what it took."""
    curve = max(curves, key=lambda each: each.best())
    return {"map": curve.best(), "settings": curve.settings, "seconds": curve.time_to(curve.best())}


def rivals(problem: Problem, chosen: Any, folder: Path, limits: Limits) -> dict[str, Any]:
    """Return what each rival reaches on the test rows, the best of its grid."""
    rows, found = problem.final, {}
    few = slice(1 if chosen.quick else None)
    if rows.X is not None:
        ridge = Fitted(
            "ridge", rows, {"n_jobs": chosen.threads} if "n_jobs" in MODELS.load("ridge")().get_params() else {}
        )
        found["ridge"] = best_of(explore(ridge, RIDGE[few], limits))
    arrays = {"pairs": hand_over(folder / "pairs.npz", rows.Y, rows.judged if rows.X is None else np.arange(0))}
    judge = Judge(rows.right, rows.known)
    if rows.X is None:
        sides = {
            "lightfm": (chosen.lightfm_python, "lightfm_warp.py", LIGHTFM, {"no_components": 100}),
            "implicit": (chosen.lightfm_python, "implicit_bpr.py", BPR, {"factors": 100}),
        }
    else:
        for name, matrix in (("features", rows.X), ("judged", rows.judged)):
            np.save(folder / f"{name}.npy", matrix.toarray() if sp.issparse(matrix) else matrix)
            arrays[name] = str(folder / f"{name}.npy")
        sides = {"pecos": (chosen.pecos_python, "pecos_xlinear.py", PECOS, {})}
    for name, (python, script, settings, fixed) in sides.items():
        try:
            with Child(python, script, chosen.threads) as child:
                child.ask("load", **arrays, threads=chosen.threads)
                side: Any = Theirs(child, name, folder, judge, fixed) if rows.X is None else Pecos(child, folder, judge)
                found[name] = best_of(explore(side, settings[few], limits))
        except RivalError as error:
            say(f"  {name} is missing: {error}")
            found[name] = {"missing": str(error)}
    return found


def chosen_without(source: str, found: list[dict[str, Any]]) -> int:
    """Return which of the candidates is nearest to the best on the validation rows of all other sources."""
    others = [each["validation"] for each in found if each["source"] != source]
    return int(np.argmax(np.mean([np.array(values) - max(values) for values in others], axis=0))) if others else 0


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("shared", type=Path, nargs="?", help="the folder that holds data and models")
    parser.add_argument("--cache", type=Path, default=Path("encoded"), help="where encoded photos are kept")
    parser.add_argument("--model", default="wsabie")
    parser.add_argument("--only", metavar="TEXT", default="", help="sets with this in their name alone")
    parser.add_argument("--seed", type=int, help="of the drawn families; without, the clock's")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--lightfm-python", type=Path, metavar="PATH", help="has implicit, too")
    parser.add_argument("--pecos-python", type=Path, metavar="PATH")
    parser.add_argument("--most-seconds", type=float, default=60, help="of one training of a rival")
    chosen = parser.parse_args()
    if chosen.shared is None and not chosen.quick:
        parser.error("Name the folder with the data, or pass --quick.")
    seed = time.time_ns() % 2**31 if chosen.seed is None else chosen.seed
    limits = Limits(patience=4, epochs=2 if chosen.quick else 150, seconds=chosen.most_seconds)
    found: list[dict[str, Any]] = []
    result: dict[str, Any] = {"machine": machine(), "threads": chosen.threads, "seed": seed, "candidates": CANDIDATES}
    result["measured on"] = TEST_ROWS
    result["sets"] = found
    fixed = {"n_jobs": chosen.threads}
    warm_up(chosen)
    every = problems(chosen.shared, chosen.cache, seed, quick=chosen.quick)
    sets = [one for one in every if chosen.only in one.name]
    for one in sets:
        say(f"\n{one.name}: {one.about}")
        tried = explore(Fitted(chosen.model, one.choose, fixed), CANDIDATES, limits)
        about = {"name": one.name, "source": one.source, "about": one.about}
        found.append(about | {"validation": [curve.best() for curve in tried]})
    say("\non test rows, with the defaults chosen on the other sources")
    for one, entry in zip(sets, found, strict=True):
        ours = Fitted(chosen.model, one.final, fixed)
        for name, settings in (("ours", CANDIDATES[chosen_without(one.source, found)]), ("ours, as they are", {})):
            entry[name] = best_of(explore(ours, [settings], limits))
            entry[name]["epochs"] = ours.epochs
        write(result, chosen.json)
    with tempfile.TemporaryDirectory() as folder:
        for one, entry in zip(sets, found, strict=True):
            say(f"\nrivals: {one.name}")
            theirs = entry["rivals"] = rivals(one, chosen, Path(folder), limits)
            ran = [name for name in theirs if "map" in theirs[name]]
            if ran:
                name = max(ran, key=lambda each: theirs[each]["map"])
                entry["over the best rival"] = entry["ours"]["map"] - theirs[name]["map"]
                entry["seconds of the best rival over ours"] = theirs[name]["seconds"] / entry["ours"]["seconds"]
                say(f"  ours is {entry['over the best rival']:+.4f} to {name}")
            write(result, chosen.json)


if __name__ == "__main__":
    main()
