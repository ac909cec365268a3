"""Features and taggers that tests of training on several workers share."""

from __future__ import annotations

import json

import numpy as np
import scipy.sparse as sp

from planted import plant_corpus
from planted_features import fitted_encoder
from visterm import Tagger
from visterm.core.executor import LOCAL
from visterm.data.feature_shards import Shard
from visterm.features.streaming.memory import Plan
from visterm.tagging.streamed_fit import fit_streamed
from visterm.tagging.streamed_fit_together import ExecutorWorkers
from written_features import write_features

N, SHARD, N_TAGS = 600, 50, 12
SMALL = Plan(2, 8 * 160 * 50 * 2)
"""Memory for windows of two shards, or of one shard of two workers."""

HALF = Plan(2, SMALL.memory // 2)


def draw_features(folder):
    """Write 600 planted images in shards of 50, dense and sparse, and a single shard; and a table of tags."""
    planted = plant_corpus(n_train=N, n_test=1, n_tags=N_TAGS, random_state=5)
    encoder = fitted_encoder()

    def shards(X):
        for start in range(0, X.shape[0], SHARD):
            names = [f"{i:04}.jpg" for i in range(start, start + SHARD)]
            yield Shard(names, ["0" * 64] * SHARD, X[start : start + SHARD])

    write_features(folder / "features", shards(planted.X_train), encoder)
    write_features(folder / "sparse", shards(sp.csr_array(planted.X_train)), encoder)
    write_features(folder / "one", shards(planted.X_train[:SHARD]), encoder)
    given = planted.Y_train.toarray()
    lines = [{"file_name": f"{i:04}.jpg", "tags": [f"tag {t}" for t in np.flatnonzero(given[i])]} for i in range(N)]
    (folder / "tags.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def in_this_process(n_workers):
    """Return workers as they go on when only one process is left: all in it."""
    return ExecutorWorkers(LOCAL, n_workers)


def tagger_of(model="wsabie", **params):
    params = {"epochs": 4, **({"dim": 8} if model == "wsabie" else {}), **params}
    return Tagger(model=model, model_params=params, n_jobs=1)


def in_threads(drawn, work, n_workers, **params):
    """Learn in windows of one shard."""
    tagger, workers = tagger_of(**params), in_this_process(n_workers)
    fit_streamed(tagger, drawn / "features", drawn / "tags.jsonl", HALF, work=work, workers=workers, every=0)
    return tagger


def assert_same_model(tagger, other):
    np.testing.assert_array_equal(tagger.model.tag_rows_, other.model.tag_rows_, strict=True)
    np.testing.assert_array_equal(tagger.model.image_map_, other.model.image_map_, strict=True)
    assert [entry["map"] for entry in tagger.model.history_] == [entry["map"] for entry in other.model.history_]
    assert tagger.vocabulary == other.vocabulary
