"""Weights of the words of a query: the rarer a word in the captions, the more it says (normalised idf)."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import as_csr


def inverse_frequencies(counts: Any, n_captions: int) -> NDArray[np.float32]:
    """Give ``-log`` of the share of captions that have each word (PAMIR, section IV-A).

    Parameters
    ----------
    counts : array-like of int, shape (n_words,)
        Captions that have the word; a word that none has counts as in one.
    n_captions : int
        Captions in all; at least as many as the most frequent word is in.

    Returns
    -------
    ndarray of float32, shape (n_words,)
        0 for a word that all captions have.
    """
    counts = np.maximum(np.asarray(counts, np.float64), 1)
    idf: NDArray[np.float32] = np.log(max(float(n_captions), counts.max(initial=1.0)) / counts).astype(np.float32)
    return idf


def weigh_words(words: Any, idf: NDArray[np.float32]) -> sp.csr_array:
    """Weigh the words of queries by their inverse frequencies, each query to unit length (PAMIR, section IV-A).

    Parameters
    ----------
    words : array-like or sparse, shape (n_queries, n_words)
        1 where the query has the word, -1 where it asks for images without.
    idf : ndarray of float32, shape (n_words,)
        Not negative. Where it is 0 for all words of a query, they weigh alike.

    Returns
    -------
    csr_array of float32, shape (n_queries, n_words)
        Rows of unit length; a query without words stays empty.
    """
    plain = as_csr(words)
    weighed = as_csr(plain * idf[None, :])
    silent = (np.diff(weighed.indptr) == 0) & (np.diff(plain.indptr) > 0)
    if silent.any():
        weighed = as_csr(weighed + plain * silent[:, None].astype(np.float32))
    return as_csr(weighed / np.sqrt(_squares(weighed))[:, None])


def _squares(rows: sp.csr_array) -> NDArray[np.float64]:
    """Give the squared lengths of rows, 1 for empty ones."""
    owner = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    sums = np.bincount(owner, rows.data.astype(np.float64) ** 2, minlength=rows.shape[0])
    return np.where(sums > 0, sums, 1.0)
