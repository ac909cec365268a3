"""Compare models on held-out pairs of users and items: splits, metrics over all items, and times."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Unpack

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import as_csr, as_generator, check_choice, check_number, identity_rows
from visterm.core.errors import DataError, UserError
from visterm.core.progress import SILENT, Progress
from visterm.core.tables import MODELS
from visterm.data.frames import Framed
from visterm.data.pairs import PairColumns, Pairs, PairSource, positions_of
from visterm.data.tag_queries import hold_one_out
from visterm.kernels.topk import top_k
from visterm.metrics.report import measure
from visterm.metrics.significance import interval_of
from visterm.models.base import Annotator
from visterm.tagging.recommender import Recommender

LONG_NAMES = {"recall": "r", "precision": "p"}  # Names of metrics in other programs -> our names
OF_LISTS = ("coverage", "popularity")  # Metrics of all recommended items together


@dataclass(frozen=True)
class PairMeasures(Framed):
    """Values of metrics, with 95 % intervals, and the seconds of the fit and of ranking all items for each user."""

    entries: list[dict[str, object]]

    def rows(self) -> list[dict[str, object]]:
        """Return a row for each model and metric: value, low, high, n, fit_seconds and rank_seconds."""
        return list(self.entries)


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

    Raises UserError if a metric is sampled or unknown, or a temporal split has no times; DataError if nothing is held
    out.
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
        start, recommender = time.perf_counter(), copy(model)
        if not isinstance(model, Recommender):
            recommender = Recommender(model=model, random_state=random_state, n_jobs=n_jobs)
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
            "Ranks among sampled items can order models differently from ranks among all items (Krichene, Rendle: On "
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
    weights = pairs.weights
    if split == "leave-one-out":
        rest = hold_one_out(weights, rng).rest
    else:
        if split == "temporal" and pairs.times is None:
            raise UserError("A temporal split needs times.", setting="time", advice="Name the column: `time`.")
        order: Any = rng.random(weights.nnz) if split == "random" else pairs.times
        is_learned = order <= np.quantile(order, 1 - share, method="lower")
        rest = as_csr(sp.csr_array((weights.data * is_learned, weights.indices, weights.indptr), shape=weights.shape))
    held_out = as_csr(weights - rest) > 0
    if not held_out.nnz or not rest.nnz:
        raise DataError(f"There are {weights.nnz:,} pairs, too few to hold some out and learn from the others.")
    return replace(pairs, weights=rest, times=None), as_csr(held_out)


def _held_out(train: Pairs, test: Pairs) -> sp.csr_array:
    """Return the pairs of the test that are not learned, as a matrix of ones."""
    users = identity_rows(train.users.size)[positions_of(test.users, train, "user")]
    items = identity_rows(train.items.size)[positions_of(test.items, train, "item")]
    pairs = as_csr(users.T @ (test.weights > 0) @ items)
    held_out = as_csr(pairs - pairs.multiply(train.weights > 0))
    if not held_out.nnz:
        raise DataError("All test pairs are also training pairs, so there is nothing to measure.")
    return held_out


def _measure(
    recommender: Recommender, held_out: sp.csr_array, names: dict[str, tuple[str, int]], by: str
) -> dict[str, NDArray[np.float64]]:
    """Return the values of each metric, over users or items; the scores are computed once."""
    pairs = recommender.pairs_
    users, items = np.flatnonzero(np.diff(held_out.indptr)), held_out.indices
    relevant, excluded = held_out[users], pairs.weights[users]
    if by == "item":  # a ranking for each held-out pair, without the user's other held-out items
        users = held_out.nonzero()[0]
        ones = np.ones(users.size, np.float32), items, np.arange(users.size + 1)
        relevant = sp.csr_array(ones, shape=(users.size, held_out.shape[1]))
        excluded = as_csr(pairs.weights[users] + held_out[users] - relevant)

    n_listed = {k: np.zeros(pairs.items.size, np.int64) for _, k in names.values() if k}
    is_first = np.diff(users, prepend=-1) > 0  # each user has one list of recommended items

    def blocks() -> Iterator[tuple[slice, NDArray[np.float32]]]:
        """Yield the scores, and then count how often each item is among the k best of a user."""
        for rows, scores in recommender.score_blocks(users):
            yield rows, scores
            if not n_listed:
                continue
            scores = scores[is_first[rows]] if by == "item" else scores
            scores[pairs.weights[users[rows][is_first[rows]]].tocoo().coords] = -np.inf
            for k, counts in n_listed.items():
                ids, best = top_k(scores, min(k, counts.size))
                counts += np.bincount(ids[best > -np.inf], minlength=counts.size)

    ranked = measure(blocks, relevant, [ours for ours, k in names.values() if not k] or "mrr", exclude=excluded)
    n_users = np.bincount(pairs.weights.indices, minlength=pairs.items.size)
    values = {}
    for name, (ours, k) in names.items():
        if ours == "coverage":
            values[name] = np.array([(n_listed[k] > 0).mean()])
        elif ours == "popularity":
            values[name] = np.array([np.average(n_users / pairs.users.size, weights=n_listed[k])])
        elif by == "item":
            numbers = np.unique(items, return_inverse=True)[1]
            values[name] = np.bincount(numbers, ranked[ours]) / np.bincount(numbers)
        else:
            values[name] = ranked[ours]
    return values
