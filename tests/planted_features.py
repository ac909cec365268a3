"""Features on disk of planted images, with a table of their tags: what the tests of streaming start from."""

from __future__ import annotations

import json

import numpy as np

from planted import plant_corpus
from visterm.data.feature_shards import Shard
from visterm.encoders.named import make_encoder
from written_features import write_features

N, SHARD, N_TAGS = 600, 50, 12


def fitted_encoder():
    """Return an encoder whose rows are as wide as planted ones: a run is opened only where both agree."""
    words = {"codebook": 40, "colours": 8, "sample_blocks": 1000}
    encoder = make_encoder("visterms", words, {"random_state": 0, "n_jobs": 1})
    return encoder.fit(list(np.random.default_rng(0).integers(0, 256, (6, 32, 32, 3), np.uint8)))


def plant(folder, encoder):
    """Write features of 600 planted images in shards of 50, and a table of their tags in another order."""
    planted = plant_corpus(n_train=N, n_test=1, n_tags=N_TAGS, random_state=5)
    write(folder / "features", planted.X_train, encoder)
    order = np.random.default_rng(1).permutation(N)
    given = planted.Y_train.toarray()
    table = [{"file_name": name_of(i), "tags": [f"tag {t}" for t in np.flatnonzero(given[i])]} for i in order]
    write_table(folder / "tags.jsonl", table)
    return folder


def name_of(i):
    return f"{i:04}.jpg"


def write(path, X, encoder, first=0):
    """Write rows as features of the images from number `first` on."""

    def shard(start):
        names = [name_of(first + i) for i in range(start, min(start + SHARD, X.shape[0]))]
        return Shard(names, ["0" * 64] * len(names), X[start : start + SHARD])

    write_features(path, map(shard, range(0, X.shape[0], SHARD)), encoder)


def write_table(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
