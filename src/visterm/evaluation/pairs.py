"""Compare models on held-out pairs of users and items: splits, metrics over all items, and times."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import as_csr, as_generator, check_choice, check_number
from visterm.core.errors import DataError, UserError
from visterm.core.progress import SILENT, Progress
from visterm.core.tables import MODELS
from visterm.data.frames import Framed
from visterm.data.pairs import Pairs, PairSource, positions_of
from visterm.data.tag_queries import hold_one_out
from visterm.kernels.topk import top_k
from visterm.metrics.report import measure
from visterm.metrics.significance import interval_of
from visterm.models.base import Annotator
from visterm.tagging.recommender import Recommender

SPLITS, UNITS = ("leave-one-out", "random", "temporal"), ("user", "item")
LONG_NAMES = {"recall": "r", "precision": "p"}  # Names of metrics in other programs -> our names
LISTED = {"coverage", "popularity"}  # Metrics of the lists alone


@dataclass(frozen=True)
class PairMeasures(Framed):
    """Values of metrics, with 95 % intervals, and the seconds of the fit and of ranking all items for each user."""

    entries: list[dict[str, Any]]

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
    progress: Progress = SILENT,
    **columns: Any,
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
    check_choice(split, "split", SPLITS)
    check_choice(by, "by", UNITS)
    check_number(share, "share", above=0, below=1)
    names = {name: _checked(name) for name in metrics}
    read = Pairs.of(pairs, **columns)
    if test is None:
        train, held_out = _split(read, split, share, as_generator(random_state))
    else:
        train, held_out = read, _only_test(read, Pairs.of(test, **columns))

    cases = _cases(train, held_out, by)
    entries = []
    compared: Sequence[Any] = models if isinstance(models, list | tuple) else [models]
    progress.start("compare models", len(compared))
    for model in compared:
        recommender = model if isinstance(model, Recommender) else Recommender(
            model=model, random_state=random_state, n_jobs=n_jobs
        )  # fmt: skip
        start = time.perf_counter()
        recommender.fit(train)
        fitted = time.perf_counter()
        values = _measure(recommender, cases, names)
        seconds = {"fit_seconds": fitted - start, "rank_seconds": time.perf_counter() - fitted}
        name = MODELS.name_of(recommender.run_.model)
        for metric, measured in values.items():
            value, low, high = interval_of(measured) if measured.size > 1 else (float(measured[0]), None, None)
            entry = {"model": name, "metric": metric, "value": value, "low": low, "high": high, "n": measured.size}
            entries.append(entry | seconds)
        progress.advance(1, name)
    progress.finish()
    return PairMeasures(entries)


@dataclass(frozen=True, eq=False)
class _Cases:
    """Rankings to measure: of users or, by item, of held-out pairs."""

    users: NDArray[np.int64]  # The user of each ranking
    relevant: sp.csr_array  # shape (n_cases, n_items)
    excluded: sp.csr_array  # shape (n_cases, n_items): items that are not ranked
    groups: NDArray[np.int64] | None  # The item of each held-out pair; None by user


def _split(pairs: Pairs, split: str, share: float, rng: np.random.Generator) -> tuple[Pairs, sp.csr_array]:
    """Return the pairs to learn from, and the held-out pairs as a matrix of ones."""
    given = as_csr(pairs.weights > 0)
    if split == "leave-one-out":
        tags = hold_one_out(given, rng)
        held_out = as_csr(given - tags.rest)
    else:
        if split == "temporal":
            if pairs.times is None:
                raise UserError("A temporal split needs times.", setting="time", advice="Name the column: `time`.")
            order = np.asarray(pairs.times[given.nonzero()]).ravel()
            is_held = order > np.quantile(order, 1 - share, method="lower")
        else:
            is_held = rng.random(given.nnz) < share
        held_out = sp.csr_array((is_held.astype(np.float32), given.indices, given.indptr), shape=given.shape)
        held_out = as_csr(held_out)

    weights = as_csr(pairs.weights - pairs.weights.multiply(held_out))
    if not held_out.nnz or not weights.nnz:
        raise DataError(f"There are {given.nnz:,} pairs, too few to hold some out and learn from the others.")
    return pairs.changed(weights), held_out


def _only_test(train: Pairs, test: Pairs) -> sp.csr_array:
    """Return the pairs of the test that are not learned, as a matrix of ones."""
    users, items = positions_of(test.users, train.users, "user"), positions_of(test.items, train.items, "item")
    entries = test.weights.tocoo()
    ones = np.ones(entries.nnz, np.float32)
    held_out = sp.csr_array((ones, (users[entries.row], items[entries.col])), shape=train.weights.shape)
    held_out = as_csr(held_out - held_out.multiply(train.weights > 0))
    if not held_out.nnz:
        raise DataError("All pairs of the test are among those to learn from, so there is nothing to measure.")
    return held_out


def _cases(train: Pairs, held_out: sp.csr_array, by: str) -> _Cases:
    """Return the rankings to measure."""
    seen = as_csr(train.weights > 0)
    if by == "user":
        users = np.flatnonzero(np.diff(held_out.indptr))
        return _Cases(users, as_csr(held_out[users]), as_csr(seen[users]), None)
    users = np.repeat(np.arange(held_out.shape[0]), np.diff(held_out.indptr))
    items, n = held_out.indices.astype(np.int64), held_out.nnz
    relevant = sp.csr_array((np.ones(n, np.float32), items, np.arange(n + 1)), shape=(n, held_out.shape[1]))
    others = as_csr(held_out[users] - relevant)
    return _Cases(users, relevant, as_csr(seen[users] + others), items)


def _checked(name: str) -> tuple[str, int]:
    """Return our name of a metric, and the k of a metric of lists (0 for others)."""
    base, _, k = name.strip().lower().partition("@")
    if "sampled" in base:
        raise UserError(
            "Ranks among sampled items can order models otherwise than ranks among all items (Krichene, Rendle: On "
            "sampled metrics for item recommendation. KDD 2020).",
            setting="metrics", value=name, advice="Take the metric over all items: recall@10, ndcg@10 or mrr.",
        )  # fmt: skip
    if base in LISTED:
        if not k.isdecimal() or int(k) < 1:
            raise UserError(setting="metrics", value=name, expected=f"{base}@k, such as {base}@10")
        return base, int(k)
    return LONG_NAMES.get(base, base) + (f"@{k}" if k else ""), 0


def _measure(
    recommender: Recommender, cases: _Cases, names: dict[str, tuple[str, int]]
) -> dict[str, NDArray[np.float64]]:
    """Return the values of each metric, over users or items."""
    lists = {k: [] for _, k in names.values() if k}  # type: dict[int, list[NDArray[np.int64]]]

    def blocks() -> Iterator[tuple[slice, NDArray[np.float32]]]:
        for rows, scores in recommender.score_blocks(cases.users):
            yield rows, scores
            if lists:
                scores[cases.excluded[rows].nonzero()] = -np.inf
            for k, parts in lists.items():
                parts.append(top_k(scores, min(k, scores.shape[1]))[0])

    ranked = list(dict.fromkeys(ours for ours, k in names.values() if not k)) or ["mrr"]
    measured = measure(blocks, cases.relevant, ranked, exclude=cases.excluded)
    shares = np.bincount(recommender.pairs_.weights.indices, minlength=cases.relevant.shape[1])
    values = {}
    for name, (ours, k) in names.items():
        if not k:
            values[name] = measured[ours] if cases.groups is None else _means(measured[ours], cases.groups)
            continue
        ids = np.concatenate(lists[k])
        value = (
            np.unique(ids).size / shares.size if ours == "coverage" else shares[ids].mean() / recommender.users_.size
        )
        values[name] = np.array([value])
    return values


def _means(values: NDArray[np.float64], groups: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the mean of the values of each group."""
    numbers = np.unique(groups, return_inverse=True)[1]
    means: NDArray[np.float64] = np.bincount(numbers, values) / np.bincount(numbers)
    return means
