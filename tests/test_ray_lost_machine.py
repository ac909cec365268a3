"""A machine is lost in the middle of encoding and of annotating: each image is accounted for, once."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from PIL import Image

from remote_photos import content
from visterm.cluster import RayExecutor
from visterm.features.job import encode_folder
from visterm.tagging import annotation_job as pieces
from visterm.tagging.annotating import Annotated, TagsWanted
from visterm.tagging.annotation_job import annotate_into, annotate_pieces, find, pieces_of
from visterm.tagging.tagger import Tagger

ray = pytest.importorskip("ray", reason="wants the extra ray")

N = 120
WORDS = {"codebook": 20, "colours": 8, "sample_blocks": 1000}


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Photos of a size that takes an encoder some time; one cannot be read."""
    folder = tmp_path_factory.mktemp("photos")
    for i in range(N):
        patches = np.random.default_rng(i).integers(0, 256, (40, 40, 3), np.uint8)
        Image.fromarray(patches.repeat(16, axis=0).repeat(16, axis=1)).save(folder / f"{i:03}.png", compress_level=1)
    (folder / "broken.png").write_bytes(b"no picture")
    return folder


@pytest.fixture(scope="module")
def run(photos, tmp_path_factory):
    tagger = Tagger(encoder="visterms", encoder_params=WORDS, model="ridge", n_jobs=2)
    few = [photos / f"{i:03}.png" for i in range(20)]
    tagger.fit(few, tags=[[f"tag {i % 5}", f"tag {i % 3}"] for i in range(20)])
    folder = tmp_path_factory.mktemp("run") / "run"
    tagger.save(folder)
    return folder


@pytest.fixture
def lossy(no_ray_engine):
    """Two machines of one processor each; `losing(happened)` loses one as soon as something has happened."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})

    class Machines:
        address = cluster.address
        lost_at = None

        def losing(self, happened):
            def lose():
                deadline = time.monotonic() + 600
                while not (value := happened()) and time.monotonic() < deadline:
                    time.sleep(0.02)
                self.lost_at = value
                cluster.remove_node(lost, allow_graceful=False)

            self.thread = threading.Thread(target=lose, daemon=True)
            self.thread.start()

    try:
        _, lost = (cluster.add_node(num_cpus=1) for _ in range(2))
        machines = Machines()
        yield machines
        machines.thread.join()
    finally:
        cluster.shutdown()


def several_in(folder):
    """Say how many shards are written, once there are four."""
    n = len(list(folder.glob("*.json")))
    return n if n >= 4 else 0


@pytest.mark.slow
def test_encoding_ends_with_the_same_bytes(photos, run, lossy, tmp_path):
    alone = encode_folder(photos, tmp_path / "alone", run=run, shard_size=4)
    lossy.losing(lambda: several_in(tmp_path / "F" / ".unfinished"))
    done = encode_folder(photos, tmp_path / "F", run=run, shard_size=4, executor=RayExecutor(lossy.address))
    assert 4 <= lossy.lost_at < done.shards
    assert (done.images, done.rows, done.skipped, done.shared) == (N + 1, N, 1, True)
    assert done.fingerprint == alone.fingerprint
    assert content(tmp_path / "F") == content(tmp_path / "alone")


@pytest.mark.slow
def test_where_the_command_itself_is_killed_the_same_one_goes_on_without_ray_too(photos, run, tmp_path):
    encode_folder(photos, tmp_path / "alone", run=run, shard_size=4)
    arguments = ["encode", photos, "--encoder", run, "-o", tmp_path / "F", "--shard-size", 4, "--ray", "local"]
    child = subprocess.Popen([sys.executable, "-m", "visterm", *map(str, arguments)], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 600
    while not several_in(tmp_path / "F" / ".unfinished") and time.monotonic() < deadline:
        time.sleep(0.02)
    child.kill()
    child.wait()
    assert not (tmp_path / "F" / "manifest.json").exists()
    done = encode_folder(photos, tmp_path / "F", run=run, shard_size=4)
    assert done.reused >= 12
    assert content(tmp_path / "F") == content(tmp_path / "alone")


@pytest.mark.slow
def test_tags_that_are_written_have_the_same_bytes(photos, run, lossy, tmp_path, monkeypatch):
    monkeypatch.setattr(pieces, "CHUNK", 4)
    tagger = Tagger.load(run)
    found = find(tagger.encoder, [str(photos)])
    annotate_into(tmp_path / "alone", tagger, found, TagsWanted(3))
    lossy.losing(lambda: several_in(tmp_path / "T" / ".annotating"))
    done = annotate_into(tmp_path / "T", tagger, found, TagsWanted(3), executor=RayExecutor(lossy.address))
    assert 4 <= lossy.lost_at < done.parts
    assert (done.images, done.annotated, done.skipped, done.shared) == (N + 1, N, 1, True)
    assert content(tmp_path / "T") == content(tmp_path / "alone")


@pytest.mark.slow
def test_tags_that_come_back_are_those_of_one_process_in_order_and_nothing_else_is_printed(
    photos, run, lossy, monkeypatch, capsys
):
    monkeypatch.setattr(pieces, "CHUNK", 4)
    monkeypatch.setattr("visterm.tagging.annotating.CHUNK", 4)
    tagger = Tagger.load(run)
    alone = list(tagger.annotate_each(photos, 3))
    every = pieces_of(tagger.encoder, find(tagger.encoder, [str(photos)]), stable=False)
    told = []
    lossy.losing(lambda: len(told))
    for item in annotate_pieces(tagger, TagsWanted(3), every, RayExecutor(lossy.address)):
        told += [item]
    assert 0 < lossy.lost_at < N / 2
    assert told == alone
    assert sum(isinstance(item, Annotated) for item in told) == N
    assert capsys.readouterr().out == ""
