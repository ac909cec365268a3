"""Ranking models trained by Ray's workers: the bytes of workers in one process, whoever is lost meanwhile."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from visterm import Tagger
from visterm.app.cluster.engine import engine
from visterm.app.cluster.train_group import Together
from visterm.app.cluster.training import RayWorkers, SharedFit, stream_on_machines
from visterm.app.features.writing import write_features
from visterm.app.parts import make_encoder
from visterm.app.streaming.fitting import fit_streamed
from visterm.app.streaming.memory import Plan
from visterm.core.errors import UserError
from visterm.data.feature_shards import Shard
from visterm.data.planted import plant_corpus

ray = pytest.importorskip("ray", reason="wants the extra ray")

N, SHARD, N_TAGS = 600, 50, 12
SMALL = Plan(2, 8 * 160 * 50 * 2)
"""Memory for windows of two shards, or of one shard of two workers."""

HALF = Plan(2, SMALL.memory // 2)


@pytest.fixture(scope="module")
def reached():
    """An engine of two workers, which all tests of this file use."""
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import tests
    with engine("local", 2) as there:
        yield there


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """A features folder of 600 planted images in shards of 50, and a table of their tags."""
    folder = tmp_path_factory.mktemp("drawn")
    planted = plant_corpus(n_train=N, n_test=1, n_tags=N_TAGS, random_state=5)
    encoder = make_encoder("histograms", {"textons": 4, "sample_pixels": 300}, {"random_state": 0, "n_jobs": 1})
    encoder.fit(list(np.random.default_rng(0).integers(0, 256, (6, 32, 32, 3), np.uint8)))

    def shards(n):
        for start in range(0, n, SHARD):
            names = [f"{i:04}.jpg" for i in range(start, start + SHARD)]
            yield Shard(names, ["0" * 64] * SHARD, planted.X_train[start : start + SHARD])

    write_features(folder / "features", shards(N), encoder)
    write_features(folder / "one", shards(SHARD), encoder)
    given = planted.Y_train.toarray()
    lines = [{"file_name": f"{i:04}.jpg", "tags": [f"tag {t}" for t in np.flatnonzero(given[i])]} for i in range(N)]
    (folder / "tags.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return folder


class InThreads(RayWorkers):
    """The same workers, all in this process."""

    def train(self, model, handed, progress):
        """Train them as one process does that is alone left."""
        SharedFit(model, handed, self.n_workers)(Together(0, 1, 1), progress)


def tagger_of(model="wsabie", **params):
    params = {"epochs": 4, **({"dim": 8} if model == "wsabie" else {}), **params}
    return Tagger(model=model, model_params=params, n_jobs=1)


def in_threads(drawn, work, n_workers, **params):
    """Learn in windows of one shard."""
    tagger, workers = tagger_of(**params), InThreads(n_workers)
    fit_streamed(tagger, drawn / "features", drawn / "tags.jsonl", HALF, work=work, workers=workers, every=0)
    return tagger


def on_machines(drawn, work, *, tagger=None, features="features", **how):
    tagger = tagger or tagger_of()
    how = {"address": "local", "n_jobs": 2, "work": work, **how}
    tagger.told = stream_on_machines(tagger, drawn / features, drawn / "tags.jsonl", SMALL, **how)
    return tagger


def assert_same_model(tagger, other):
    np.testing.assert_array_equal(tagger.model.tag_rows_, other.model.tag_rows_, strict=True)
    np.testing.assert_array_equal(tagger.model.image_map_, other.model.image_map_, strict=True)
    assert [entry["map"] for entry in tagger.model.history_] == [entry["map"] for entry in other.model.history_]
    assert tagger.vocabulary == other.vocabulary


@pytest.mark.parametrize("params", [{}, {"step": "adagrad", "learning_rate": 0.1}])
def test_workers_of_one_process_learn_again_to_the_same_bytes_and_as_well_as_one(drawn, tmp_path, params):
    first, second = (in_threads(drawn, tmp_path / name, 3, **params) for name in ("a", "b"))
    assert_same_model(first, second)
    alone = tagger_of(**params)
    fit_streamed(alone, drawn / "features", drawn / "tags.jsonl", HALF, work=tmp_path / "alone")
    best, best_alone = (max(entry["map"] for entry in one.model.history_) for one in (first, alone))
    assert best > 0.95 * best_alone
    assert first.facts["images"] == alone.facts["images"]


def test_rays_workers_learn_the_bytes_of_workers_in_one_process(reached, drawn, tmp_path):
    tagger = on_machines(drawn, tmp_path / "work")
    assert tagger.told == []
    assert_same_model(tagger, in_threads(drawn, tmp_path / "threads", 2))
    assert not (tmp_path / "work").exists()


def test_features_of_one_shard_are_learned_here(drawn, tmp_path):
    before = ray.is_initialized()
    tagger = on_machines(drawn, tmp_path / "work", features="one", address="nowhere:1")
    assert tagger.told[-1] == "The features are one shard: learned here, without Ray."
    assert ray.is_initialized() == before
    alone = tagger_of()
    fit_streamed(alone, drawn / "one", drawn / "tags.jsonl", SMALL, work=tmp_path / "alone")
    np.testing.assert_array_equal(tagger.model.tag_rows_, alone.model.tag_rows_)


def test_a_model_that_learns_in_one_process_is_refused_with_those_that_can(drawn, tmp_path):
    with pytest.raises(UserError, match=r"'ridge' learns in one process.*wsabie"):
        on_machines(drawn, tmp_path / "work", tagger=Tagger(model="ridge"))
