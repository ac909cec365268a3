"""LightFM's WARP, an epoch at a time: images are its users, by number or with features; tags are its items."""

from __future__ import annotations

import time
from importlib.metadata import version

import numpy as np
import scipy.sparse as sp
from answers import serve
from lightfm import LightFM


class Training:
    """One model at a time on one set of pairs."""

    def load(self, pairs: str, threads: int, features: str | None = None, judged: str | None = None) -> None:
        held = np.load(pairs)
        ones = np.ones(held["images"].size, np.float32)
        self.pairs = sp.coo_matrix((ones, (held["images"], held["tags"])), shape=tuple(held["shape"]))
        self.rows = held["judged"]
        self.threads = threads
        self.features = sp.csr_matrix(np.load(features)) if features else None
        self.judged = sp.csr_matrix(np.load(judged)) if judged else None

    def start(self, settings: dict, seed: int) -> None:
        self.model = LightFM(loss="warp", learning_schedule="adagrad", random_state=seed, **settings)

    def epoch(self) -> dict:
        start = time.perf_counter()
        self.model.fit_partial(self.pairs, user_features=self.features, epochs=1, num_threads=self.threads)
        return {"seconds": time.perf_counter() - start}

    def save(self, rows: str, tags: str) -> None:
        if self.judged is None:
            embedded = self.model.user_embeddings[self.rows]
        else:
            embedded = self.model.get_user_representations(self.judged)[1]
        ones = np.ones((len(embedded), 1), np.float32)
        np.save(rows, np.hstack([embedded, ones]).astype(np.float32))
        np.save(tags, np.column_stack([self.model.item_embeddings, self.model.item_biases]).astype(np.float32))


if __name__ == "__main__":
    training = Training()
    serve(
        {
            "version": lambda: {"version": version("lightfm")},
            "load": training.load,
            "start": training.start,
            "epoch": training.epoch,
            "save": training.save,
        }
    )
