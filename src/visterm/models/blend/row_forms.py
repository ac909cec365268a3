"""Forms of feature rows for a blend: as they are, with length 1, or tf-idf with length 1; the best is chosen."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from visterm.core.threads import one_blas_thread
from visterm.core.types import Floats, Matrix
from visterm.metrics.ranking import average_precisions
from visterm.models.linear.normal_equations import mean_square_norm
from visterm.models.linear.ridge import choose_penalty

PLAIN, UNIT, TFIDF = ROW_FORMS = ("plain", "unit", "tfidf")
SAME_LENGTH = 0.01  # Rows whose lengths differ by less than this share of the mean count as equally long


def feature_weights(X: Matrix, form: str) -> Floats | None:
    """Return the weights of features for `weighted_rows`; None for the form "plain".

    For "tfidf" they are ``1 + log((1 + n) / (1 + n_t))``, if n_t of n rows have feature t.
    """
    if form == PLAIN:
        return None
    if form == UNIT:
        return np.ones(X.shape[1], np.float32)
    n_with = np.bincount(sp.csr_array(X).indices, minlength=X.shape[1])
    return np.asarray(1 + np.log((1 + X.shape[0]) / (1 + n_with)), np.float32)


def row_factors(X: Matrix, weights: Floats) -> Floats:
    """Return the factor of each row, shape (n, 1), that gives the weighted row the length 1; 1 for rows of zeros."""
    squares = np.square(weights, dtype=np.float64)
    lengths = np.sqrt(np.asarray((sp.csr_array(X).power(2) if sp.issparse(X) else np.square(X)) @ squares))
    return np.asarray(1 / np.where(lengths > 0, lengths, 1), np.float32)[:, None]


def weighted_rows(X: Matrix, weights: Floats | None) -> Matrix:
    """Return rows times the weights of their features, with length 1; without weights, the rows as they are."""
    if weights is None:
        return X
    factors = row_factors(X, weights)
    if not sp.issparse(X):
        return X * factors * weights
    rows: Any = X
    return sp.csr_array(rows.multiply(factors).multiply(weights), dtype=np.float32)


def choose_form(X: Matrix, Y: sp.csr_array, seed: int) -> str:
    """Return the form of sparse rows with the best leave-one-out MAP of ridge regression, on at most 2,000 images.

    Arrays, and rows that are equally long, stay as they are.
    """
    if not sp.issparse(X):
        return PLAIN
    lengths = np.sqrt(np.asarray(sp.csr_array(X).power(2).sum(axis=1)).ravel())
    if lengths.std() <= SAME_LENGTH * lengths.mean():
        return PLAIN
    given = sp.csr_array(Y > 0, dtype=np.float32)
    values = {}
    for form in ROW_FORMS:
        rows = weighted_rows(X, feature_weights(X, form))
        with one_blas_thread():
            choice = choose_penalty(rows, given, mean_square_norm(rows), np.random.default_rng(seed))
        tagged = choice.rows.size and given[choice.rows].nnz
        values[form] = float(np.nanmean(average_precisions(choice.predicted, given[choice.rows]))) if tagged else 0.0
    return max(values, key=values.__getitem__)
