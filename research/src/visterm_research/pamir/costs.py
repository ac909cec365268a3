"""What searching costs: seconds of one training with the mapping of the test pictures, and milliseconds a query."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from visterm_research.comparison.arms import Settings
from visterm_research.comparison.record import Record
from visterm_research.comparison.trials import Trials
from visterm_research.pamir.rows import SearchRows
from visterm_research.pamir.trials import group_of

QUERIES_TIMED = 500
ROUNDS = 5


def frozen(model: str, settings: Settings, record: Record) -> Settings:
    """Return the settings of one run: what the model chose itself is fixed, and nothing stops early.

    As in the paper's Table VII, which times single runs. A C for each word is replaced by their median.
    """
    learned = record["learned"]
    once = dict(settings)
    if model == "pamir":
        return {**once, "epochs": max(1, int(learned["epochs"])), "valid_share": 0.0}
    for name in ("alpha", "beta", "C"):
        if name in learned:
            once[name] = learned[name]
    return once


def index_time(trials: Trials, rows: SearchRows, model: str, settings: Settings) -> Record:
    """Time training and the mapping of the test pictures to scores of words, on one thread, once; or look it up."""

    def work() -> Record:
        made = trials.make(model, settings, n_jobs=1)
        began = time.perf_counter()
        made.fit(rows.train.X, rows.train.Y)
        fitted = time.perf_counter()
        for _ in made.score_blocks(rows.X_test):
            pass
        return {"fit": fitted - began, "map": time.perf_counter() - fitted}

    of = [rows.fingerprint, rows.test_fingerprint, model, settings]
    return trials.once(group_of(rows, "index-time"), of, work, {"model": model, **settings})


def retrieval_time(trials: Trials, rows: SearchRows) -> Record:
    """Time matching a query with the mapped test pictures and ranking them: the median, in seconds; or look it up."""
    words = rows.test_queries.words[:QUERIES_TIMED]
    n_images = rows.X_test.shape[0]

    def work() -> Record:
        S: Any = np.random.default_rng(trials.seed).random((n_images, words.shape[1]), np.float32)
        taken = []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            for query in range(words.shape[0]):
                part = slice(words.indptr[query], words.indptr[query + 1])
                np.argsort(-(S[:, words.indices[part]] @ words.data[part]), kind="stable")
            taken.append((time.perf_counter() - began) / words.shape[0])
        return {"seconds": float(np.median(taken))}

    of = [rows.test_fingerprint, ROUNDS]
    return trials.once(group_of(rows, "retrieval-time"), of, work, {"pictures": n_images})
