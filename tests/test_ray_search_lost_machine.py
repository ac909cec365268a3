"""A machine is lost while a union is open: its catalogues are opened on another, and searches find the same."""

from __future__ import annotations

import sys
import time

import pytest

from tiny_catalogues import draw_photos, fit_run
from visterm import Catalogue, Tagger
from visterm.cluster import RayExecutor
from visterm.library.union import CatalogueUnion

ray = pytest.importorskip("ray", reason="wants the extra ray")


@pytest.fixture(autouse=True)
def _by_value():
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import tests


@pytest.fixture
def cluster(no_ray_engine):
    """Two machines of one processor each, beside a head that works on nothing."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        cluster.lost, _ = (cluster.add_node(num_cpus=1) for _ in range(2))
        yield cluster
    finally:
        cluster.shutdown()


@pytest.mark.slow
def test_searches_find_the_same_before_and_after(cluster, tmp_path):
    tags = draw_photos(tmp_path / "photos")
    tagger = Tagger.load(fit_run(tmp_path / "photos", tags, tmp_path / "run"), n_jobs=1)
    paths = sorted((tmp_path / "photos").iterdir())
    parts = [tmp_path / f"part{i}" for i in range(4)]
    for i, part in enumerate(parts):
        Catalogue.create(part, tagger).add(paths[6 * i : 6 * i + 6])
    with CatalogueUnion(parts) as here:
        expected = here.search("red -blue", 0)
    with CatalogueUnion(parts, executor=RayExecutor(cluster.address)) as there:
        actors = there._shards._actors
        assert _count(actors) == 2
        assert there.search("red -blue", 0) == expected
        cluster.remove_node(cluster.lost, allow_graceful=False)
        deadline = time.monotonic() + 600
        while _count(actors) == 2 and time.monotonic() < deadline:  # its processes outlive it a little
            assert there.search("red -blue", 0) == expected
            time.sleep(0.5)
        assert there.search("red -blue", 0) == expected
        assert _count(actors) == 1


def _count(actors):
    """Count the machines that the actors are on; both, while one cannot be asked."""
    try:
        return len(set(ray.get([actor.__ray_call__.remote(_node) for actor in actors])))
    except ray.exceptions.RayActorError:
        return 2


def _node(_):
    import ray

    return ray.get_runtime_context().get_node_id()
