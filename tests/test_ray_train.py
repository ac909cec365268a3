"""Ranking models trained by Ray's workers: the bytes of workers in one process, whoever is lost meanwhile."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from command_line import run_command
from drawn_training import HALF, SMALL, assert_same_model, draw_features, in_threads, tagger_of
from visterm import Tagger
from visterm.cluster import RayExecutor
from visterm.core.errors import UserError
from visterm.core.executor import LOCAL
from visterm.features.streaming.handed_over import take_part
from visterm.tagging.streamed_fit import fit_streamed
from visterm.tagging.streamed_fit_together import ExecutorWorkers, stream_on_machines

ray = pytest.importorskip("ray", reason="wants the extra ray")


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    folder = tmp_path_factory.mktemp("drawn")
    draw_features(folder)
    return folder


def on_machines(drawn, work, *, tagger=None, features="features", **how):
    tagger = tagger or tagger_of()
    how = {"executor": RayExecutor("local", 2), "work": work, **how}
    tagger.told = stream_on_machines(tagger, drawn / features, drawn / "tags.jsonl", SMALL, **how)
    return tagger


@pytest.mark.parametrize("params", [{}, {"step": "adagrad", "learning_rate": 0.1}])
def test_workers_of_one_process_learn_again_to_the_same_bytes_and_as_well_as_one(drawn, tmp_path, params):
    first, second = (in_threads(drawn, tmp_path / name, 3, **params) for name in ("a", "b"))
    assert_same_model(first, second)
    alone = tagger_of(**params)
    fit_streamed(alone, drawn / "features", drawn / "tags.jsonl", HALF, work=tmp_path / "alone")
    best, best_alone = (max(entry["map"] for entry in one.model.history_) for one in (first, alone))
    assert best > 0.95 * best_alone
    assert first.facts["images"] == alone.facts["images"]


@pytest.mark.usefixtures("ray_engine")
def test_rays_workers_learn_the_bytes_of_workers_in_one_process(drawn, tmp_path):
    tagger = on_machines(drawn, tmp_path / "work")
    assert tagger.told == ["Read 12 tags; 0 on one photo only."]
    assert tagger.facts["workers"] == 2
    assert_same_model(tagger, in_threads(drawn, tmp_path / "threads", 2))
    assert not (tmp_path / "work").exists()


def test_workers_find_features_that_were_named_from_here(drawn, tmp_path, monkeypatch):
    monkeypatch.chdir(drawn)
    images = []

    class Elsewhere(ExecutorWorkers):
        def train(self, model, handed, progress):
            with monkeypatch.context() as patch:
                patch.chdir(tmp_path)
                for rank in range(2):
                    windows = take_part(handed, rank, 2).windows
                    images.append(sum(X.shape[0] for X, _ in windows.epoch(1)))
                super().train(model, handed, progress)

    tagger = tagger_of(epochs=1)
    fit_streamed(tagger, "features", drawn / "tags.jsonl", HALF, work=tmp_path / "w", workers=Elsewhere(LOCAL, 2))
    assert sum(images) == tagger.facts["images"]
    assert min(images) > 200  # of 550


@pytest.mark.parametrize("features", ["features", "sparse"])
def test_each_image_is_seen_by_one_worker_and_all_see_as_many_windows(drawn, tmp_path, features):
    seen = []

    class Counted(ExecutorWorkers):
        def train(self, model, handed, progress):
            for rank in range(self.n_workers):
                windows = take_part(handed, rank, self.n_workers).windows
                seen.append([[X.shape[0] for X, _ in windows.epoch(epoch)] for epoch in (1, 2)])
            super().train(model, handed, progress)

    tagger = tagger_of(epochs=1)
    fit_streamed(tagger, drawn / features, drawn / "tags.jsonl", HALF, work=tmp_path / "w", workers=Counted(LOCAL, 5))
    assert {len(epoch) for worker in seen for epoch in worker} == {3}  # of 12 shards
    assert sum(epoch.count(0) for worker in seen for epoch in worker) == 6
    for number in range(2):
        assert sum(sum(worker[number]) for worker in seen) == tagger.facts["images"]
    assert all(sorted(first) == sorted(second) for first, second in seen)  # the same shards in each epoch


def test_features_of_one_shard_are_learned_here(drawn, tmp_path):
    before = ray.is_initialized()
    tagger = on_machines(drawn, tmp_path / "work", features="one", executor=RayExecutor("nowhere:1"))
    assert tagger.told[-1] == "The features are one shard: learned here, without Ray."
    assert ray.is_initialized() == before
    alone = tagger_of()
    fit_streamed(alone, drawn / "one", drawn / "tags.jsonl", SMALL, work=tmp_path / "alone")
    np.testing.assert_array_equal(tagger.model.tag_rows_, alone.model.tag_rows_)


def test_a_model_that_learns_in_one_process_is_refused_with_those_that_can(drawn, tmp_path):
    with pytest.raises(UserError, match=r"--ray needs another model than ridge.*wsabie"):
        on_machines(drawn, tmp_path / "work", tagger=Tagger(model="ridge"))


def test_workers_learn_from_features_and_from_nothing_else(drawn, tmp_path):
    common = ["fit", "--tags", drawn / "tags.jsonl", "-o", tmp_path / "run", "--model", "wsabie", "--ray", "local"]
    found = run_command([*common, tmp_path])
    assert found.returncode == 2
    assert "visterm encode IMAGES -o FEATURES" in " ".join(found.stderr.split())
    found = run_command([*common, tmp_path / "none"])
    assert found.returncode == 2
    assert "There is no folder" in found.stderr
    found = run_command([*common, drawn / "features", "--max-share", "0.5"])
    assert found.returncode == 2
    assert "leave --ray out" in " ".join(found.stderr.split())
    found = run_command([*common, "--set", "epochs=2", drawn / "one"])
    assert found.returncode == 0
    assert "one shard: learned here, without Ray" in " ".join(found.stderr.split())


class Losing:
    """Progress that loses something once so many windows were trained on, and counts how often training began."""

    def __init__(self, after, lose):
        self._left, self._lose = after, lose
        self.begun, self.losing = 0, None

    def start(self, task, total=None):
        self.begun += task.startswith("train windows")

    def advance(self, steps=1, note=""):
        self._left -= steps if self.begun else 0
        if self._left <= 0 and self.losing is None:
            self.losing = threading.Thread(target=self._lose, daemon=True)
            self.losing.start()

    def finish(self):
        pass


@pytest.mark.slow
@pytest.mark.usefixtures("no_ray_engine")
@pytest.mark.parametrize("which", [0, 1])
def test_a_machine_that_is_lost_changes_no_byte(drawn, tmp_path, which):
    from ray.cluster_utils import Cluster

    settings = {"epochs": 40, "patience": 40}  # long enough that the loss falls into it
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        lost = [cluster.add_node(num_cpus=1) for _ in range(2)][which]
        progress = Losing(12, lambda: cluster.remove_node(lost, allow_graceful=False))
        tagger = tagger_of(**settings)
        tagger.told = stream_on_machines(
            tagger, drawn / "features", drawn / "tags.jsonl", HALF, executor=RayExecutor(cluster.address),
            work=tmp_path / "work", every=0, progress=progress,
        )  # fmt: skip
        progress.losing.join()
    finally:
        cluster.shutdown()
    assert progress.begun == 2
    assert len(tagger.model.history_) == 40
    assert_same_model(tagger, in_threads(drawn, tmp_path / "threads", 2, **settings))
