"""Compare models on held-out pairs of users and items: splits, metrics over all items, and times."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Unpack

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import as_csr, as_generator, check_choice, check_number
from visterm.core.errors import DataError, UserError
from visterm.core.progress import SILENT, Progress
from visterm.core.tables import MODELS
from visterm.data.frames import Framed
from visterm.data.pairs import PairColumns, Pairs, PairSource, positions_of
from visterm.metrics.report import measure
from visterm.metrics.significance import interval_of
from visterm.models.base import Annotator
from visterm.tagging.recommender import Recommendations, Recommender

LONG_NAMES = {"recall": "r", "precision": "p"}  # Names of metrics in other programs -> our names
OF_LISTS = ("coverage", "popularity")  # Metrics of all recommended items together


@dataclass(frozen=True)
class PairMeasures(Framed):
    """Values of metrics, with 95 % intervals, and the seconds of the fit and of ranking all items for each user."""

    entries: list[dict[str, object]]

    def rows(self) -> list[dict[str, object]]:
        """Return a row for each model and metric: value, low, high, n, fit_seconds and rank_seconds."""
        return [dict(entry) for entry in self.entries]


def evaluate_pairs(
    pairs: PairSource,
    models: str | Annotator | Recommender | Sequence[str | Annotator | Recommender] = "auto",
    *,
    split: str = "leave-one-out",
    share: float = 0.2,
    test: PairSource | None = None,
    metrics: Sequence[str] = ("recall@10", "ndcg@10", "mrr", "coverage@10", "popularity@10"),
    by: str = "user",
    random_state: int = 0,
    n_jobs: int | None = None,
    progress: Progress | None = None,
    **columns: Unpack[PairColumns],
) -> PairMeasures:
    """Fit models on a part of the pairs, and measure how high they rank the others among all items.

    The items of a user's other pairs are left out of the ranking. Users without pairs to learn from, and items that
    only have held-out pairs, stay: nobody can rank those items well.

    Parameters
    ----------
    pairs : DataFrame, path, sparse matrix or Pairs
        As in `visterm.fit_pairs`.
    models : str, model, recommender, or a sequence of them
        Names of models, or unfitted models or recommenders.
    split : str
        ``"leave-one-out"``: a random pair of each user with two or more; ``"random"``: a `share` of the pairs;
        ``"temporal"``: the latest `share` of all pairs, by the column `time`.
    share : float
    test : DataFrame, path, sparse matrix or Pairs, optional
        Pairs of known users and items to hold out in place of a `split`; pairs that are also in `pairs` don't count.
    metrics : sequence of str
        ``recall@k``, ``precision@k``, ``ndcg@k``, ``mrr``, ``map``, ``auc``; ``coverage@k``, the share of items that
        are recommended to somebody; ``popularity@k``, the mean share of users that have a recommended item.
    by : str
        ``"user"``: means over users; ``"item"``: over items, of the means of their held-out pairs, each ranked without
        the user's other held-out items.
    random_state, n_jobs, progress
        As in `visterm.fit_pairs`; all models learn from the same split.
    **columns
        As in `visterm.fit_pairs`: `user`, `item`, `weight`, `time`, `users`, `items`.

    Returns
    -------
    PairMeasures
        Intervals are of the bootstrap over users or items; coverage and popularity have none.

    Raises
    ------
    UserError
        If a metric is sampled or unknown, or a temporal split has no times.
    DataError
        If nothing is held out.
    """
    check_choice(split, "split", ("leave-one-out", "random", "temporal"))
    check_choice(by, "by", ("user", "item"))
    check_number(share, "share", above=0, below=1)
    names = {name: _checked(name) for name in metrics}
    train = Pairs.of(pairs, **columns)
    if test is None:
        train, held_out = _split(train, split, share, as_generator(random_state))
    else:
        held_out = _held_out(train, Pairs.of(test, **columns))

    entries: list[dict[str, object]] = []
    compared: Sequence[Any] = models if isinstance(models, list | tuple) else [models]
    progress = progress or SILENT
    progress.start("compare models", len(compared))
    for model in compared:
        recommender = model
        if not isinstance(model, Recommender):
            recommender = Recommender(model=model, random_state=random_state, n_jobs=n_jobs)
        start = time.perf_counter()
        recommender.fit(train)
        fitted = time.perf_counter()
        values = _measure(recommender, held_out, names, by)
        seconds = {"fit_seconds": fitted - start, "rank_seconds": time.perf_counter() - fitted}
        name = MODELS.name_of(recommender.model_)
        for metric, measured in values.items():
            value, low, high = interval_of(measured) if measured.size > 1 else (float(measured[0]), None, None)
            entry = {"model": name, "metric": metric, "value": value, "low": low, "high": high, "n": measured.size}
            entries.append(entry | seconds)
        progress.advance(1, name)
    progress.finish()
    return PairMeasures(entries)


def _checked(name: str) -> tuple[str, int]:
    """Return our name of a metric, and the k of a metric of lists (0 for others)."""
    base, _, k = name.strip().lower().partition("@")
    if "sampled" in base:
        raise UserError(
            "Ranks among sampled items can order models otherwise than ranks among all items (Krichene, Rendle: On "
            "sampled metrics for item recommendation. KDD 2020).",
            setting="metrics", value=name, advice="Take the metric over all items: recall@10, ndcg@10 or mrr.",
        )  # fmt: skip
    if base in OF_LISTS:
        if not k.isdecimal() or int(k) < 1:
            raise UserError(setting="metrics", value=name, expected=f"{base}@k, such as {base}@10")
        return base, int(k)
    return LONG_NAMES.get(base, base) + (f"@{k}" if k else ""), 0


def _split(pairs: Pairs, split: str, share: float, rng: np.random.Generator) -> tuple[Pairs, sp.csr_array]:
    """Return the pairs to learn from, and the held-out pairs as a matrix of ones."""
    given = as_csr(pairs.weights > 0)
    if split == "leave-one-out":
        held_out = as_csr(given - (pairs.hold_one_out(rng).rest > 0))
    else:
        if split == "temporal" and pairs.times is None:
            raise UserError("A temporal split needs times.", setting="time", advice="Name the column: `time`.")
        order = rng.random(given.nnz) if pairs.times is None or split == "random" else pairs.times[given.nonzero()]
        is_held_out = order > np.quantile(order, 1 - share, method="lower")
        entries = (is_held_out.astype(np.float32), given.indices, given.indptr)
        held_out = as_csr(sp.csr_array(entries, shape=given.shape))

    weights = as_csr(pairs.weights - pairs.weights.multiply(held_out))
    if not held_out.nnz or not weights.nnz:
        raise DataError(f"There are {given.nnz:,} pairs, too few to hold some out and learn from the others.")
    return replace(pairs, weights=weights, times=None), held_out


def _held_out(train: Pairs, test: Pairs) -> sp.csr_array:
    """Return the pairs of the test that are not learned, as a matrix of ones."""
    users = positions_of(test.users, train.user_rows, "user")
    items = positions_of(test.items, train.item_columns, "item")
    entries = test.weights.tocoo()
    pairs = np.ones(entries.nnz, np.float32), (users[entries.row], items[entries.col])
    held_out = sp.csr_array(pairs, shape=train.weights.shape)
    held_out = as_csr(held_out - held_out.multiply(train.weights > 0))
    if not held_out.nnz:
        raise DataError("All pairs of the test are among those to learn from, so there is nothing to measure.")
    return held_out


def _measure(
    recommender: Recommender, held_out: sp.csr_array, names: dict[str, tuple[str, int]], by: str
) -> dict[str, NDArray[np.float64]]:
    """Return the values of each metric, over users or items."""
    seen = recommender.pairs_.weights
    users, items = np.flatnonzero(np.diff(held_out.indptr)), held_out.indices
    relevant, excluded = as_csr(held_out[users]), as_csr(seen[users])
    if by == "item":  # a ranking for each held-out pair, without the user's other held-out items
        users = held_out.nonzero()[0]
        ones = np.ones(users.size, np.float32), items, np.arange(users.size + 1)
        relevant = sp.csr_array(ones, shape=(users.size, held_out.shape[1]))
        excluded = as_csr(seen[users] + held_out[users] - relevant)

    of_ranks = [ours for ours, k in names.values() if not k]
    ranked = measure(lambda: recommender.score_blocks(users), relevant, of_ranks, exclude=excluded) if of_ranks else {}
    listed_users = recommender.users_[np.unique(users)].tolist()
    lists = {k: recommender.recommend(listed_users, k) for k in {k for _, k in names.values() if k}}
    values = {}
    for name, (ours, k) in names.items():
        if k:
            values[name] = _measure_lists(recommender.pairs_, lists[k], ours)
        elif by == "item":
            numbers = np.unique(items, return_inverse=True)[1]
            values[name] = np.bincount(numbers, ranked[ours]) / np.bincount(numbers)
        else:
            values[name] = ranked[ours]
    return values


def _measure_lists(pairs: Pairs, lists: Recommendations, metric: str) -> NDArray[np.float64]:
    """Return the coverage or the popularity of the items that are recommended to some users, shape (1,)."""
    names, counts = np.unique(lists.items[lists.scores > -np.inf], return_counts=True)
    if metric == "coverage":
        return np.array([names.size / pairs.items.size])
    n_users = np.bincount(pairs.weights.indices, minlength=pairs.items.size)
    shares = n_users[positions_of(names, pairs.item_columns, "item")] / pairs.users.size
    return np.array([np.average(shares, weights=counts)])
