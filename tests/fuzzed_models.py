"""Damaged models by number: a sound run of every model of a package, changed as `fuzzed_runs` says."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from fuzzed_runs import Cases, open_cases
from visterm.core.tables import MODELS
from visterm.core.vocabulary import Vocabulary
from visterm.encoders.visterms import Visterms
from visterm.tagging.tagger import Tagger

N_IMAGES, N_TAGS = 40, 6
FURTHER = {"svm": {"kernel": "rbf"}, "tagprop": {"weights": "rank", "blocks": [4, 8]}, "wsabie": {"bias": 0.5}}
"""Settings of the sparse runs of some models, so that all that can be learned is there."""


def make_runs(folder: Path, package: str) -> None:
    """Fit every model of a package on dense features and on sparse ones, and save each as a run."""
    rng = np.random.default_rng(0)
    pictures = list(rng.integers(0, 256, (N_IMAGES, 16, 16, 3), np.uint8))
    encoder = Visterms(colours=4, codebook=12, scales=(1.0,), max_side=16, sample_blocks=200, n_jobs=1).fit(pictures)
    X: Any = encoder.transform(pictures)
    Y = sp.csr_array(X[:, :N_TAGS] > np.median(X.toarray()[:, :N_TAGS], axis=0), dtype=np.float32)
    tags = Vocabulary([f"tag {t}" for t in range(N_TAGS)])
    sp.save_npz(folder / "X.npz", X)
    for entry in MODELS:
        if entry.package != package or (entry.extra and not find_spec(entry.extra)):
            continue
        for form, features in (("dense", X.toarray()), ("sparse", X)):
            cls = entry.load()
            params = cls.test_params | (FURTHER.get(entry.name, {}) if form == "sparse" else {})
            short = {"epochs": 2, "n_jobs": 1, "random_state": 0}
            model = cls(**params)
            model.set_params(**{key: value for key, value in short.items() if key in model.get_params(deep=False)})
            tagger = Tagger.from_parts(encoder, model.fit(features, Y), tags, {})
            tagger.save(folder / f"model {entry.name} {form}")


class ModelCases(Cases):
    """Opens damaged copies of the sound runs of `make_runs`."""

    def __init__(self, folder: Path, names: list[str]) -> None:
        sparse = sp.csr_array(sp.load_npz(folder / "X.npz"))
        self._features = {"sparse": sparse, "dense": sparse.toarray()}
        super().__init__(folder, names)

    def answer(self, run: Path, name: str) -> list[Any]:
        """Ask the model of a run for tags, rows and pairs."""
        model, X = Tagger.load(run, n_jobs=1).model, self._features[name.rpartition(" ")[2]]
        ids, scores = model.annotate(X, 3)
        rows = model.image_rows(X)
        found = rows @ model.query_rows(np.eye(N_TAGS)[:2]).T
        if not np.isfinite(scores).all() or not np.isfinite(found.data if sp.issparse(found) else found).all():
            raise ArithmeticError("infinite scores")
        if hasattr(model, "pair_scores"):
            model.pair_scores()
        return [ids.tolist(), scores.tolist()]


if __name__ == "__main__":
    open_cases(ModelCases, sys.argv[1:])
