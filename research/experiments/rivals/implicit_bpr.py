"""implicit's BPR, an epoch at a time: images are its users, by number; tags are its items."""

from __future__ import annotations

import time
from importlib.metadata import version

import numpy as np
import scipy.sparse as sp
from answers import serve
from implicit.cpu.bpr import BayesianPersonalizedRanking


class Training:
    """One model at a time on one set of pairs."""

    def load(self, pairs: str, threads: int) -> None:
        held = np.load(pairs)
        ones = np.ones(held["images"].size, np.float32)
        self.pairs = sp.csr_matrix((ones, (held["images"], held["tags"])), shape=tuple(held["shape"]))
        self.rows = held["judged"]
        self.threads = threads

    def start(self, settings: dict, seed: int) -> None:
        self.model = BayesianPersonalizedRanking(random_state=seed, num_threads=self.threads, iterations=1, **settings)

    def epoch(self) -> dict:
        """Fit once more: it goes on from the factors that it has."""
        start = time.perf_counter()
        self.model.fit(self.pairs, show_progress=False)
        return {"seconds": time.perf_counter() - start}

    def save(self, rows: str, tags: str) -> None:
        np.save(rows, self.model.user_factors[self.rows])
        np.save(tags, self.model.item_factors)


if __name__ == "__main__":
    training = Training()
    serve(
        {
            "version": lambda: {"version": version("implicit")},
            "load": training.load,
            "start": training.start,
            "epoch": training.epoch,
            "save": training.save,
        }
    )
