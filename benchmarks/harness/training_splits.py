"""Training rows that benchmarks draw rows to learn from and rows to measure on from: test rows are not looked at."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from defaults import encoded

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from planted import plant_corpus
from visterm_research.data.mulan import read_mulan


class Data(NamedTuple):
    """Features and tags of the rows of a training split."""

    name: str
    X: Any
    Y: sp.csr_array


def training_splits(shared: Path, cache: Path | None, *, quick: bool) -> Iterator[Data]:
    """Yield Delicious, and Corel5k as features of a network and as visterms; in a quick run two small planted sets."""
    if quick:
        for name, form in (("planted, dense", np.asarray), ("planted, sparse", sp.csr_array)):
            planted = plant_corpus(n_train=400, random_state=0)
            yield Data(name, form(planted.X_train), planted.Y_train)
        return
    if cache is None:
        raise SystemExit("Missing folder for features: pass --cache FOLDER (it is filled where it is empty).")
    folder = shared / "data" / "delicious"
    read = read_mulan(folder / "delicious-train.arff", folder / "delicious.xml")
    yield Data("Delicious", read.X, read.Y)
    network = f"onnx:{shared / 'models' / 'mobilenet_v2.onnx'}"
    for name, file, encoder, params in (
        ("Corel5k, MobileNet", "network", network, {"output": "features"}),
        ("Corel5k, visterms", "visterms", "visterms", {}),
    ):
        X, Y, *_ = encoded(shared / "data" / "corel5k", encoder, params, cache / file)
        yield Data(name, X, Y)
