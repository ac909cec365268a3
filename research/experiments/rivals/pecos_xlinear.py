"""PECOS XR-Linear: one linear scorer a tag, in a tree of clusters or all on one level."""

from __future__ import annotations

import time
from importlib.metadata import version

import numpy as np
import scipy.sparse as sp
from answers import serve
from pecos.xmc import Indexer, LabelEmbeddingFactory
from pecos.xmc.xlinear.model import XLinearModel


class Training:
    """One model at a time on one set of rows."""

    def load(self, pairs: str, threads: int, features: str, judged: str) -> None:
        held = np.load(pairs)
        ones = np.ones(held["images"].size, np.float32)
        self.pairs = sp.csr_matrix((ones, (held["images"], held["tags"])), shape=tuple(held["shape"]))
        self.features = sp.csr_matrix(np.load(features))
        self.judged = sp.csr_matrix(np.load(judged))
        self.threads = threads

    def train(self, tree: bool, cost: float, seed: int) -> dict:
        start = time.perf_counter()
        chain = None
        if tree:
            labels = LabelEmbeddingFactory.create(self.pairs, self.features, method="pifa")
            chain = Indexer.gen(labels, seed=seed, threads=self.threads)
        self.model = XLinearModel.train(self.features, self.pairs, C=chain, Cp=cost, Cn=cost, threads=self.threads)
        return {"seconds": time.perf_counter() - start}

    def save(self, scores: str) -> None:
        """Write all scores; a tag that it does not rank goes below the others."""
        n_tags = self.pairs.shape[1]
        found = self.model.predict(self.judged, only_topk=n_tags, beam_size=n_tags, threads=self.threads).tocsr()
        dense = np.full(found.shape, -1.0, np.float32)
        dense[np.repeat(np.arange(found.shape[0]), np.diff(found.indptr)), found.indices] = found.data
        np.save(scores, dense)


if __name__ == "__main__":
    training = Training()
    serve(
        {
            "version": lambda: {"version": version("libpecos")},
            "load": training.load,
            "train": training.train,
            "save": training.save,
        }
    )
