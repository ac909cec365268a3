"""A WARP head on dense features of a network: seconds to a MAP over images, beside LightFM, PECOS and ridge.

Corel5k's training photos as MobileNetV2 features, 500 of them held out to judge by; test photos stay out. Each side
looks for its best MAP over its own small grid, then ours and each other run, in turn, to the best that either reached.
The features are encoded once and kept in the file that --cache names.

    python train_head.py --shared SHARED --cache corel.npz --lightfm-python PATH --pecos-python PATH
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from harness.runs import machine, options, parse, say, write
from lab.child import Child, RivalError
from lab.grids import grid
from lab.judged import Judge
from lab.race import Limits, as_json, explore, race
from lab.sides import Judged, Ours, Settings, Side, Theirs, hand_over

from visterm.core.tables import MODELS
from visterm.core.vocabulary import Vocabulary
from visterm.data.corpus import Corpus
from visterm.encoders.onnx import Onnx
from visterm.features.training_rows import encode_corpus

DIM = 100
HELD_OUT = 500

FIXED = {"wsabie": {"step": "sgd", "row_length": 6.0, "schedule": "cosine", "epochs": 30, "average": 5}}
OURS = {"wsabie": grid(bias=[2.0, 4.0], learning_rate=[0.003, 0.004], max_norm=[0.7, 0.8, 0.9])}
LIGHTFM = grid(learning_rate=[0.02, 0.05], user_alpha=[0.0, 1e-5])
PECOS = grid(tree=[False, True], cost=[0.3, 0.5, 1.0, 2.0])
RIDGE = grid(alpha=[0.3, 0.5, 1.0, 2.0, 3.0])


class Pecos:
    """PECOS: one training, one MAP."""

    def __init__(self, child: Child, folder: Path, judge: Judge) -> None:
        self.name = f"pecos {child.version}"
        self._child, self._judge, self._path = child, judge, str(folder / "scores.npy")

    def train(self, settings: Settings, seed: int, judged: Judged) -> None:
        seconds = self._child.ask("train", **settings, seed=seed)["seconds"]
        self._child.ask("save", scores=self._path)
        judged(seconds, self._judge.scores(np.load(self._path)))


class Ridge:
    """Our ridge: one solution, one MAP."""

    name = "ridge"

    def __init__(self, X: np.ndarray, own: sp.csr_array, judged_rows: np.ndarray, judge: Judge) -> None:
        self._X, self._own, self._rows, self._judge = X, own, judged_rows, judge

    def train(self, settings: Settings, seed: int, judged: Judged) -> None:
        start = time.perf_counter()
        model = MODELS.create("ridge", **settings, random_state=seed).fit(self._X, self._own)
        seconds = time.perf_counter() - start
        judged(seconds, self._judge.scores(model.decision_function(self._rows)))


def corel(shared: Path | None, cache: Path | None) -> tuple[np.ndarray, sp.csr_array]:
    """Return features and tags of Corel5k's training photos, from the cache if it is there."""
    if cache is not None and cache.exists():
        held = np.load(cache)
        return held["X"], sp.csr_array(held["Y"])
    if shared is None:
        raise SystemExit("Without --cache FILE that exists, --shared FOLDER must hold data/corel5k and models.")
    folder = shared / "data" / "corel5k"
    train = Corpus.read(folder / "images", folder / "labels.tsv").select("train")
    encoder = Onnx(path=shared / "models" / "mobilenet_v2.onnx", output="features")
    encoder.fit(train.images)
    X, Y, _ = encode_corpus(encoder, train, Vocabulary.from_lists(train.tags))
    if cache is not None:
        np.savez(cache, X=X, Y=Y.toarray())
    return np.asarray(X), Y


def drawn(n_images: int) -> tuple[np.ndarray, sp.csr_array]:
    """Draw dense rows around a few centres, a tag each."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((20, 64))
    tag = rng.integers(20, size=n_images)
    X = centres[tag] + rng.standard_normal((n_images, 64))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X.astype(np.float32), sp.csr_array(np.eye(20, dtype=np.float32)[tag])


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--shared", type=Path, metavar="FOLDER", help="holds data/corel5k and models/mobilenet_v2.onnx")
    parser.add_argument("--cache", type=Path, metavar="FILE", help="npz of the features; written if it is not there")
    parser.add_argument("--model", choices=sorted(OURS), default="wsabie")
    parser.add_argument("--max-trials", type=int, default=100, help="draws a pair, of ours and of LightFM's")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--lightfm-python", type=Path, metavar="PATH")
    parser.add_argument("--pecos-python", type=Path, metavar="PATH", help="PECOS wants NumPy 1 and SciPy before 1.12")
    parser.add_argument("--lightfm-patience", type=int, default=5, help="epochs without a better MAP")
    parser.add_argument("--most-seconds", type=float, default=150, help="of one training")
    chosen = parse(parser)
    X, Y = drawn(1500) if chosen.quick else corel(chosen.shared, chosen.cache)
    order = np.random.default_rng(0).permutation(len(X))
    held, kept = np.sort(order[:HELD_OUT]), np.sort(order[HELD_OUT:])
    own = sp.csr_array(Y[kept])
    judge = Judge(sp.csr_array(Y[held]))
    limits = Limits(20, 5 if chosen.quick else 200, chosen.most_seconds)
    fixed = {
        **FIXED[chosen.model],
        "dim": DIM,
        "max_trials": chosen.max_trials,
        "valid_share": 0,
        "n_jobs": chosen.threads,
    }
    ours = Ours(chosen.model, X[kept], own, X[held], judge, fixed)
    result: dict[str, Any] = {"machine": machine(), "threads": chosen.threads, "shape": [*X.shape, Y.shape[1]]}
    ours.train({}, 0, lambda *_: True)
    our_curves = explore(ours, _some(OURS[chosen.model], chosen.quick), limits)
    result[ours.name] = as_json(our_curves)

    def against(name: str, theirs: Side, their_grid: list[Settings], their_limits: Limits = limits) -> None:
        say()
        curves = explore(theirs, _some(their_grid, chosen.quick), their_limits)
        result[theirs.name] = as_json(curves)
        result[f"against {name}"] = race(ours, theirs, (our_curves, curves), chosen.runs, limits)

    against("ridge", Ridge(X[kept], own, X[held], judge), RIDGE)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        np.save(folder / "kept.npy", X[kept])
        np.save(folder / "held.npy", X[held])
        arrays = {
            "pairs": hand_over(folder / "pairs.npz", own, held),
            "features": str(folder / "kept.npy"),
            "judged": str(folder / "held.npy"),
        }
        pythons = {"pecos": chosen.pecos_python, "lightfm": chosen.lightfm_python}
        for name, script in (("pecos", "pecos_xlinear.py"), ("lightfm", "lightfm_warp.py")):
            try:
                with Child(pythons[name], script, chosen.threads) as child:
                    child.ask("load", **arrays, threads=chosen.threads)
                    if name == "pecos":
                        against(name, Pecos(child, folder, judge), PECOS)
                    else:
                        lightfm = {"no_components": DIM, "max_sampled": chosen.max_trials}
                        slower = limits._replace(patience=chosen.lightfm_patience)
                        against(name, Theirs(child, name, folder, judge, lightfm), LIGHTFM, slower)
            except RivalError as error:
                say(f"\n{name} is missing: {error}")
                result[f"against {name}"] = f"missing: {error}"
    write(result, chosen.json)


def _some(settings: list[Settings], quick: bool) -> list[Settings]:
    return settings[:1] if quick else settings


if __name__ == "__main__":
    main()
