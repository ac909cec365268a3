"""A deep tagger on two machines, of which one is lost in the middle."""

from __future__ import annotations

import threading

import numpy as np
import pytest

pytest.importorskip("ray", reason="wants the package ray (extra ray)")
pytest.importorskip("torch", reason="the extra 'torch' is not installed")

from planted import plant_corpus
from visterm.cluster import RayExecutor
from visterm.cluster import engine as engines
from visterm.core.vocabulary import Vocabulary
from visterm.features.training_rows import TrainingRows
from visterm.models.deep.sampled_tagger import SampledTagger
from visterm.tagging.deep_fit_together import fit_on_machines


def planted_rows():
    planted = plant_corpus(n_train=600, n_test=1, n_tags=12, random_state=5)
    return TrainingRows(Vocabulary([f"tag {t}" for t in range(12)]), planted.X_train, planted.Y_train, None, [])


class Losing:
    """Progress that loses something once so many steps were done, and counts how often a task began."""

    def __init__(self, after, lose):
        self._left, self._lose = after, lose
        self.begun, self.losing = 0, None

    def start(self, task, total=None):
        self.begun += task != "start the workers"

    def advance(self, steps=1, note=""):
        self._left -= steps
        if self._left <= 0 and self.losing is None:
            self.losing = threading.Thread(target=self._lose, daemon=True)
            self.losing.start()

    def finish(self):
        pass


@pytest.mark.slow
def test_a_machine_that_is_lost_changes_nothing_but_the_rounding(no_ray_engine, tmp_path):
    from ray.cluster_utils import Cluster

    settings = {"hidden": [64, 32], "dim": 8, "epochs": 60, "patience": 60, "batch_size": 64, "learning_rate": 0.002}
    settings |= {"device": "cpu", "checkpoint_batches": 10}
    rows = planted_rows()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        _, lost = (cluster.add_node(num_cpus=1) for _ in range(2))
        progress = Losing(5, lambda: cluster.remove_node(lost, allow_graceful=False))
        model = SampledTagger(**settings)
        with engines.engine(cluster.address):
            assert fit_on_machines(model, rows, RayExecutor(cluster.address), tmp_path / "work", progress) == 2
        progress.losing.join()
    finally:
        cluster.shutdown()
    assert progress.begun == 3  # before the loss, after it, and then on all images
    alone = SampledTagger(**settings).fit(rows.X, rows.Y)
    assert len(model.history_) == len(alone.history_) == 60
    assert model.n_epochs_ == alone.n_epochs_
    for name in ("tag_rows_", "weights_0_", "offsets_1_", "weights_2_"):
        np.testing.assert_allclose(getattr(model, name), getattr(alone, name), rtol=1e-3, atol=1e-3, err_msg=name)
    assert not (tmp_path / "work").exists()
