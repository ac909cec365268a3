"""Measures of labelling with one right answer: of an image, of a pair of images, or of the label that a pair lacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visterm.core.checks import check_count
from visterm.core.errors import DataError, ShapeError
from visterm.metrics.ranking import Ranks, ratio

KS = (1, 10)
"""Where Tables 3 to 5 of Mesnil et al. (2013) look."""


def measure_answers(ranks: Any, ks: Sequence[int] = KS) -> dict[str, NDArray[np.float64]]:
    """Return the paper's measures of each example, from the rank of its only right answer (sections 6.1 and 6.2).

    A table shows their means. Two models are compared by their values of the same examples
    (`visterm.metrics.significance`); quadruplets that share images are not independent, so for intervals take the means
    of groups, one a relation or an object's image (`group_means`).

    Parameters
    ----------
    ranks : array-like of int, shape (n,)
        1 is best.
    ks : sequence of int
        Where to look for `p@k`.

    Returns
    -------
    dict of str to ndarray of float64, shape (n,)
        ``p@k`` for each k, 1 / k if the answer is among the first k, so that a mean of p@10 is at most 10 %; ``MAP``,
        1 / rank, which is the average precision where one answer is right; ``mean rank``, the rank.

    Raises
    ------
    ShapeError
        If there is not one rank an example.
    DataError
        If a rank is not a whole number of 1 or more.

    Examples
    --------
    >>> measure_answers([1, 4])["MAP"].mean()
    np.float64(0.625)
    """
    found = np.asarray(ranks)
    if found.ndim != 1:
        raise ShapeError(
            f"ranks has {found.ndim} dimensions; expected 1, the rank of the right answer of each example."
        )
    if found.size and (found.dtype.kind not in "iu" or found.min() < 1):
        wrong = f"of type {found.dtype}" if found.dtype.kind not in "iu" else f"{found.min()} among others"
        raise DataError(f"ranks are {wrong}; expected whole numbers of 1 or more, 1 for the best.")
    for k in ks:
        check_count(k, "k")
    answers = np.arange(found.size)
    lists = Ranks(found.size, answers, answers, found.astype(np.int64))
    measures = {f"p@{k}": lists.precision(k) for k in ks}
    return {**measures, "MAP": lists.reciprocal_rank(), "mean rank": found.astype(np.float64)}


def chance_measures(n_candidates: int, ks: Sequence[int] = KS) -> dict[str, float]:
    """Return the means of `measure_answers` that are expected where the right answer is at a random one of some places.

    Examples
    --------
    >>> chance_measures(4, ks=[2])
    {'p@2': 0.25, 'MAP': 0.5208333333333333, 'mean rank': 2.5}
    """
    check_count(n_candidates, "n_candidates")
    every = measure_answers(np.arange(1, n_candidates + 1), ks)
    return {name: float(values.mean()) for name, values in every.items()}


def group_means(values: Any, groups: Any) -> NDArray[np.float64]:
    """Return the mean of the values of each group, in the order of the groups' sorted names.

    Parameters
    ----------
    values : array-like, shape (n,)
        As of `measure_answers`.
    groups : array-like, shape (n,) or (n, m)
        The group of each value: the number of an object's image, or its relation as a row of two.

    Raises
    ------
    ShapeError
        If there is not one group a value.
    """
    numbers, names = np.asarray(values, np.float64), np.asarray(groups)
    if numbers.ndim != 1 or names.shape[:1] != numbers.shape:
        raise ShapeError(
            f"values has shape {numbers.shape}, groups {names.shape}; expected a vector of values and a group for each."
        )
    group = np.unique(names, axis=0, return_inverse=True)[1].ravel()
    return ratio(np.bincount(group, numbers), np.bincount(group))
