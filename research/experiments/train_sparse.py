"""Training WSABIE on sparse visterms: pairs a second, beside Algorithm 1 pair by pair and beside PyTorch.

Drawn images with some 245 of 10,000 visterms and some of 16,000 tags; 100 dimensions. All sides go on from the same
weights, after three epochs. PyTorch runs in a process of its own, under the Python that is named, for a part of an
epoch.

    python train_sparse.py --torch-python /tmp/rivals/bin/python
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from harness.runs import machine, options, parse, ratios, say, spread, write
from lab.child import Child, RivalError
from lab.epochs import Epoch, timed_epoch
from lab.one_by_one import OneByOne

from visterm_research.data.drawn_tags import draw_visterms

SETTINGS = {"dim": 100, "learning_rate": 0.01, "max_norm": 2.0}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument("--tags", type=int, default=16_000)
    parser.add_argument("--features", type=int, default=10_000)
    parser.add_argument("--words", type=int, default=290, help="words of an image, some of them twice")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--torch-python", type=Path, metavar="PATH")
    parser.add_argument("--torch-pairs", type=int, default=20_000, help="PyTorch's part of an epoch")
    chosen = parse(parser)
    n_images, n_tags = (2_000, 2_000) if chosen.quick else (chosen.images, chosen.tags)
    drawn = draw_visterms(n_images, n_tags, n_features=chosen.features, words_an_image=chosen.words, random_state=0)
    X, own = drawn.X, drawn.Y
    own.sort_indices()
    say(f"{n_images:,} images × {n_tags:,} tags, {own.nnz:,} pairs, {X.nnz / n_images:.0f} visterms an image")
    result: dict[str, Any] = {"machine": machine(), "images": n_images, "tags": n_tags, "pairs": own.nnz}
    result["features"], result["stored"] = X.shape[1], X.nnz / n_images
    with tempfile.TemporaryDirectory() as folder:
        result |= compare(X, own, chosen, Path(folder))
    write(result, chosen.json)


def compare(X: sp.csr_array, own: sp.csr_array, chosen: Any, folder: Path) -> dict[str, Any]:
    n_tags = own.shape[1]
    several = f"visterm, {chosen.threads} threads"
    state = timed_epoch(X, own, before=3, n_jobs=chosen.threads, **SETTINGS)
    say(f"epoch 4: {state.draws:.1f} draws a pair, {state.violated:.0%} of the pairs make a step")
    children: list[Child] = []
    missing = None
    try:
        children.append(Child(chosen.torch_python, "torch_wsabie.py", chosen.threads))
        children[0].ask("load", arrays=_arrays(folder / "arrays.npz", X, own, state), threads=chosen.threads)
    except RivalError as error:
        missing = f"missing: {error}"
        say(f"PyTorch is missing: {error}")
    speeds: dict[str, list[float]] = {}

    def add(name: str, pairs: int, seconds: float) -> None:
        speeds.setdefault(name, []).append(pairs / seconds)

    one_by_one(X, own, state, 0, 10)
    for number in range(1, chosen.runs + 1):
        for name, n_jobs in ((several, chosen.threads), ("visterm, 1 thread", 1)):
            add(name, own.nnz, timed_epoch(X, own, before=3, n_jobs=n_jobs, **SETTINGS).seconds)
        add("pair by pair, 1 thread", own.nnz, one_by_one(X, own, state, number))
        if missing is None:
            pairs = min(own.nnz, chosen.torch_pairs)
            settings = {"rate": SETTINGS["learning_rate"], "max_norm": SETTINGS["max_norm"], "max_trials": n_tags}
            answer = children[0].ask("train", pairs=pairs, block=256, seed=number, **settings)
            add("PyTorch", pairs, answer["seconds"])
    for child in children:
        with child:
            pass
    for name, found in speeds.items():
        least_most = f"({min(found):,.0f} to {max(found):,.0f})"
        against = ratios(speeds[several], found)["median"]
        say(f"  {name:24s}{spread(found)['median']:12,.0f} pairs a second {least_most:24s} ours is {against:.2f} times")
    return {
        "draws": state.draws,
        "violated": state.violated,
        "pairs a second": {name: spread(found) for name, found in speeds.items()},
        "ours over": {name: ratios(speeds[several], found) for name, found in speeds.items() if name != several},
        "PyTorch": missing or children[0].version,
    }


def one_by_one(X: sp.csr_array, own: sp.csr_array, state: Epoch, number: int, n_pairs: int | None = None) -> float:
    training = OneByOne(
        X,
        own,
        state.V.copy(),
        state.W.copy(),
        rate=SETTINGS["learning_rate"],
        max_norm=SETTINGS["max_norm"],
        max_trials=own.shape[1],
        threads=1,
    )
    return training.epoch(number, n_pairs)


def _arrays(path: Path, X: sp.csr_array, own: sp.csr_array, state: Epoch) -> str:
    np.savez(
        path,
        start=X.indptr.astype(np.int64),
        cols=X.indices,
        vals=X.data,
        own_start=own.indptr.astype(np.int64),
        own_tags=own.indices,
        V=state.V,
        W=state.W,
    )
    return str(path)


if __name__ == "__main__":
    main()
