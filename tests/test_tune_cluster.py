"""Settings tried on two machines, of which one is lost in the middle."""

from __future__ import annotations

import threading
import time

import pytest

from ray_trials import model_that, parts, trials_of
from visterm.core.progress import SILENT
from visterm.learning.tune import Candidate, try_settings

ray = pytest.importorskip("ray", reason="wants the package ray (extra ray)")


@pytest.mark.slow
def test_a_machine_that_is_lost_has_its_trial_done_again(no_ray_engine, tmp_path):
    from ray.cluster_utils import Cluster

    def wait_for(happened):  # local, so that workers get it by value
        deadline = time.monotonic() + 600
        while not happened() and time.monotonic() < deadline:
            time.sleep(0.05)

    def begin_and_wait():
        (tmp_path / f"{ray.get_runtime_context().get_node_id()}.{time.time_ns()}").touch()
        wait_for(lambda: (tmp_path / "go").exists())

    def begun(node):
        return list(tmp_path.glob(f"{node.node_id}.*"))

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        kept, lost = (cluster.add_node(num_cpus=1) for _ in range(2))
        tasks = [Candidate(model_that(begin_and_wait), {"a": a}) for a in range(3)]

        def lose():
            wait_for(lambda: begun(kept) and begun(lost))
            cluster.remove_node(lost, allow_graceful=False)
            (tmp_path / "go").touch()

        losing = threading.Thread(target=lose, daemon=True)
        losing.start()
        told = trials_of(tasks, cluster.address)
        losing.join()
    finally:
        cluster.shutdown()
    expected = try_settings(model_that(lambda: None), {}, parts(), SILENT).value
    assert {number: (trial.settings, trial.value) for number, trial in told.items()} == {
        number: ({"a": number}, expected) for number in range(3)
    }
    assert len(begun(lost)) == 1
    assert len(begun(kept)) == 3
