"""Fits judged by queries: settings by the validation queries, chosen ones by the test queries; each kept on record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.digests import key_of
from visterm.core.errors import DivergedError
from visterm.core.query_weights import log_probabilities, part_signs
from visterm.core.types import Matrix
from visterm.data.tag_queries import Queries
from visterm.metrics.queries import measure_queries, rank_queries
from visterm_research.comparison.arms import Settings
from visterm_research.comparison.record import Record
from visterm_research.comparison.trials import FORMAT, Trials
from visterm_research.pamir.rows import SearchRows

SHOWN = 5
"""Best pictures of a query that are kept for Figures 4 and 5."""

PRODUCT = "product "
"""Before a measure: words combined by the product of their probabilities, where a model gives some."""

LEARNED = ("epochs", "alpha", "beta", "C", "bandwidth", "mu", "n_neighbors", "power")
"""Settings that a model may choose for itself."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Judged:
    """A setting on the test queries of one division.

    Attributes
    ----------
    values : dict of str to ndarray, shape (n_queries,)
        ``AvgP``, ``BEP`` and ``P10``; with `PRODUCT` before them too, if the model gives probabilities.
    top : ndarray of int64, shape (n_shown, SHOWN)
        The best pictures of the queries to be shown.
    """

    values: dict[str, Floats] = field(repr=False)
    top: NDArray[np.int64] = field(repr=False)


def validate(trials: Trials, rows: SearchRows, model: str, settings: Settings) -> Record:
    """Fit a setting, and return its record: AvgP over the validation queries, seconds, and what it chose itself.

    ``avgp`` is None where training diverged.
    """

    def work() -> Record:
        try:
            fitted, seconds = _fitted(trials, rows, model, settings)
        except DivergedError as error:
            return {"avgp": None, "diverged": str(error), "seconds": None, "learned": {}}
        avgp = validation_avgp(fitted, rows.valid.X, rows.valid_queries)
        return {"avgp": avgp, "seconds": seconds, "learned": learned_settings(fitted)}

    of = [rows.fingerprint, model, settings]
    return trials.once(group_of(rows, "valid"), of, work, {"model": model, **settings})


def judge(trials: Trials, rows: SearchRows, model: str, settings: Settings, shown: Sequence[int]) -> Judged:
    """Fit a chosen setting and rank the test pictures by the test queries, unless that is on record.

    Parameters
    ----------
    shown : sequence of int
        Queries whose best pictures are kept.
    """

    def work() -> tuple[Record, dict[str, Any]]:
        trials.check_time()
        fitted, seconds = _fitted(trials, rows, model, settings)
        S = _scores(fitted, rows.X_test)
        values: dict[str, Any] = measure_queries(_ranked(S, rows.test_queries))
        if getattr(fitted, "probabilities", False):
            queries = Queries(part_signs(rows.test_queries.words), rows.test_queries.relevant)
            product = measure_queries(_ranked(log_probabilities(S), queries))
            values |= {f"{PRODUCT}{name}": array for name, array in product.items()}
        means = {name: float(np.nanmean(array)) for name, array in values.items()}
        values["top"] = _best(S, rows.test_queries.words[list(shown)])
        return {"model": model, "settings": settings, "seconds": seconds, "means": means}, values

    key = key_of(FORMAT, rows.fingerprint, rows.test_fingerprint, model, settings, trials.seed, list(shown))
    _, found = trials.record_values(group_of(rows, "test"), key, work)
    values = dict(found)
    top = np.asarray(values.pop("top"), np.int64)
    return Judged(values, top)


def _fitted(trials: Trials, rows: SearchRows, model: str, settings: Settings) -> tuple[Any, float]:
    made = trials.make(model, settings)
    task = f"{rows.pictures.name}, {rows.features.label}, {model}"
    return made, trials.fit(made, rows.train, rows.valid, task)


def group_of(rows: SearchRows, part: str) -> str:
    """Name where results on some rows are kept."""
    return f"{rows.pictures.name}-{rows.features.slug}/{part}"


def validation_avgp(model: Any, X: Matrix, queries: Queries) -> float:
    """Return the mean average precision of a model over weighed queries and the pictures judged for them."""
    return float(np.nanmean(measure_queries(_ranked(_scores(model, X), queries))["AvgP"]))


def learned_settings(model: Any) -> dict[str, float]:
    """Return the settings that a model chose for itself as it was fitted; a number for each tag as their median."""
    found = {name: getattr(model, f"{name}_", None) for name in LEARNED}
    found["epochs"] = getattr(model, "n_epochs_", None)
    return {name: float(np.median(value)) for name, value in found.items() if value is not None}


def _scores(model: Any, X: Matrix) -> NDArray[np.float32]:
    return np.concatenate([block for _, block in model.score_blocks(X)])


def _ranked(S: NDArray[np.float32], queries: Queries) -> Any:
    return rank_queries(S, queries.words, queries.relevant)


def _best(S: NDArray[np.float32], words: sp.csr_array) -> Any:
    """Return the best pictures of some queries, the smaller number first where scores are equal."""
    scores = np.asarray(words @ S.T)
    return np.argsort(-scores, axis=1, kind="stable")[:, :SHOWN].astype(np.float64)
