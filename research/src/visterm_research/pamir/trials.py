"""Fits judged by queries: settings by the validation queries, chosen ones by the test queries; each kept on record."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.combining import log_probabilities, part_signs
from visterm.core.digests import jsonable, key_of
from visterm.core.errors import DivergedError
from visterm.core.progress import Progress, Titled
from visterm.core.tables import MODELS
from visterm.core.types import Matrix
from visterm.data.tag_queries import Queries
from visterm.metrics.queries import measure_queries, rank_queries
from visterm_research.comparison.arms import Settings
from visterm_research.comparison.record import Record, Records
from visterm_research.pamir.rows import SearchRows

FORMAT = 1
"""Of the stored results; raised when what they hold changes."""

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


class SearchTrials:
    """All fits of the comparison: looked up where they are finished, made where not.

    Parameters
    ----------
    folder : Path
        Where results are kept.
    seed : int
    n_jobs : int, optional
    check_time : callable
        Called before every fit; raises where the time is over.
    progress : Progress
    small : mapping
        Settings in place of others, for quick runs, where a model has them.
    """

    def __init__(
        self,
        folder: Path,
        *,
        seed: int,
        n_jobs: int | None,
        check_time: Callable[[], None],
        progress: Progress,
        small: Mapping[str, Any],
    ) -> None:
        self.seed = seed
        self.check_time = check_time
        self.n_jobs = n_jobs
        self._progress = progress
        self._small = small
        self._records = Records(folder)

    def validate(self, rows: SearchRows, model: str, settings: Settings) -> Record:
        """Fit a setting, and give its record: AvgP over the validation queries, seconds, and what it chose itself.

        ``avgp`` is None where training diverged.
        """

        def work() -> Record:
            try:
                fitted, seconds = self._fit(rows, model, settings)
            except DivergedError as error:
                return {"avgp": None, "diverged": str(error), "seconds": None, "learned": {}}
            avgp = validation_avgp(fitted, rows.valid.X, rows.valid_queries)
            return {"avgp": avgp, "seconds": seconds, "learned": learned_settings(fitted)}

        of = [rows.fingerprint, model, settings]
        return self.once(group_of(rows, "valid"), of, work, {"model": model, **settings})

    def judge(self, rows: SearchRows, model: str, settings: Settings, shown: Sequence[int]) -> Judged:
        """Fit a chosen setting and rank the test pictures by the test queries, unless that is on record.

        Parameters
        ----------
        shown : sequence of int
            Queries whose best pictures are kept.
        """
        group = group_of(rows, "test")
        key = key_of(FORMAT, rows.fingerprint, rows.test_fingerprint, model, settings, self.seed, list(shown))
        record, values = self._records.get(group, key), self._records.get_values(group, key)
        if record is None or values is None:
            self.check_time()
            fitted, seconds = self._fit(rows, model, settings)
            S = _scores(fitted, rows.X_test)
            values = measure_queries(_ranked(S, rows.test_queries))
            if getattr(fitted, "probabilities", False):
                queries = Queries(part_signs(rows.test_queries.words), rows.test_queries.relevant)
                product = measure_queries(_ranked(log_probabilities(S), queries))
                values |= {f"{PRODUCT}{name}": array for name, array in product.items()}
            values["top"] = _best(S, rows.test_queries.words[list(shown)])
            self._records.put_values(group, key, values)
            means = {name: float(np.nanmean(array)) for name, array in values.items() if name != "top"}
            self._records.put(group, key, {"model": model, "settings": settings, "seconds": seconds, "means": means})
        top: Any = values["top"]
        return Judged({name: array for name, array in values.items() if name != "top"}, np.asarray(top, np.int64))

    def once(self, group: str, of: Sequence[Any], work: Callable[[], Record], told: Mapping[str, Any]) -> Record:
        """Give the result of some work, or of when it was done before.

        Parameters
        ----------
        group : str
            Where it is kept.
        of : sequence
            What it depends on besides the seed.
        work : callable
        told : mapping
            Kept beside the result, for people.

        Raises
        ------
        OutOfTimeError
            If it would have to begin after the end of the time.
        """
        key = key_of(FORMAT, *of, self.seed)
        record = self._records.get(group, key)
        if record is None:
            self.check_time()
            record = {"of": jsonable(dict(told)), **jsonable(work())}
            self._records.put(group, key, record)
        return record

    def make(self, model: str, settings: Mapping[str, Any], *, n_jobs: int | None = None) -> Any:
        """Make a model with its settings, the seed and threads."""
        accepted = inspect.signature(MODELS.load(model)).parameters
        shared = {"random_state": self.seed, "n_jobs": n_jobs or self.n_jobs}
        return MODELS.create(
            model, **{**{key: shared[key] for key in shared if key in accepted}, **settings, **self._less(accepted)}
        )

    def _less(self, accepted: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in self._small.items() if name in accepted}

    def _fit(self, rows: SearchRows, model: str, settings: Settings) -> tuple[Any, float]:
        made = self.make(model, settings)
        task = f"{rows.pictures.name}, {rows.features.label}, {model}"
        began = time.perf_counter()
        made.fit(rows.train.X, rows.train.Y, valid=(rows.valid.X, rows.valid.Y), monitor=Titled(self._progress, task))
        return made, time.perf_counter() - began


def group_of(rows: SearchRows, part: str) -> str:
    """Name where results on some rows are kept."""
    return f"{rows.pictures.name}-{rows.features.slug}/{part}"


def validation_avgp(model: Any, X: Matrix, queries: Queries) -> float:
    """Give the mean average precision of a model over weighed queries and the pictures judged for them."""
    return float(np.nanmean(measure_queries(_ranked(_scores(model, X), queries))["AvgP"]))


def learned_settings(model: Any) -> dict[str, float]:
    """Give the settings that a model chose for itself as it was fitted; a number for each tag as their median."""
    found = {name: getattr(model, f"{name}_", None) for name in LEARNED}
    found["epochs"] = getattr(model, "n_epochs_", None)
    return {name: float(np.median(value)) for name, value in found.items() if value is not None}


def _scores(model: Any, X: Matrix) -> NDArray[np.float32]:
    return np.concatenate([block for _, block in model.score_blocks(X)])


def _ranked(S: NDArray[np.float32], queries: Queries) -> Any:
    return rank_queries(S, queries.words, queries.relevant)


def _best(S: NDArray[np.float32], words: sp.csr_array) -> Any:
    """Give the best pictures of some queries, the smaller number first where scores are equal."""
    scores = np.asarray(words @ S.T)
    return np.argsort(-scores, axis=1, kind="stable")[:, :SHOWN].astype(np.float64)
