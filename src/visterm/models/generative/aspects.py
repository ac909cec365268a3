"""The EM steps of PLSA on sparse counts: P(word | image) = Σ_z P(z | image) P(word | z)."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Floats = NDArray[np.float64]

DENSE_FROM = 0.02
"""Share of stored counts from which on all products through BLAS are faster than those at the stored places."""

BLOCK_FLOATS = 2**22
"""Numbers of a block of products, or of the rows gathered for them."""


def refit_images(counts: sp.csr_array, images: Floats, words: Floats) -> Floats:
    """Move P(z|p) by one step of EM, P(w|z) kept.

    Parameters
    ----------
    counts : csr_array of float64, shape (n_images, n_words)
        n(p, w).
    images : ndarray of float64, shape (n_images, n_aspects)
        P(z|p): rows of sum 1.
    words : ndarray of float64, shape (n_words, n_aspects)
        P(w|z): columns of sum 1.

    Returns
    -------
    ndarray of float64, shape (n_images, n_aspects)
        ``P(z|p) ∝ Σ_w n(p, w) P(z|p, w)``. An image of which no word has a probability stays as it was.
    """
    expected = images * (_ratios(counts, images, words) @ words)
    sums = expected.sum(axis=1, keepdims=True)
    moved: Floats = np.divide(expected, sums, out=images.copy(), where=sums > 0)
    return moved


def refit_words(counts: sp.csr_array, images: Floats, words: Floats) -> Floats:
    """Move P(w|z) by one step of EM, P(z|p) kept: ``P(w|z) ∝ Σ_p n(p, w) P(z|p, w)``.

    Parameters are those of `refit_images`; an aspect that no image has stays as it was.
    """
    expected = words * (_ratios(counts, images, words).T @ images)
    sums = expected.sum(axis=0, keepdims=True)
    moved: Floats = np.divide(expected, sums, out=words.copy(), where=sums > 0)
    return moved


def _ratios(counts: sp.csr_array, images: Floats, words: Floats) -> Any:
    """Return n(p, w) / P(w|p) at the stored counts; 0 for words without a probability, which no aspect explains."""
    chances = _products_at(counts, images, words)
    ratios = np.divide(counts.data, chances, out=np.zeros_like(chances), where=chances > 0)
    return sp.csr_array((ratios, counts.indices, counts.indptr), shape=counts.shape)


def _products_at(counts: sp.csr_array, images: Floats, words: Floats) -> Floats:
    """Return the entries of ``images · wordsᵀ`` where counts are stored."""
    values = np.empty(counts.nnz)
    rows = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    if counts.nnz >= DENSE_FROM * counts.shape[0] * counts.shape[1]:
        step = max(1, BLOCK_FLOATS // counts.shape[1])
        for first in range(0, counts.shape[0], step):
            stored = slice(*counts.indptr[[first, min(first + step, counts.shape[0])]])
            products = images[first : first + step] @ words.T
            values[stored] = products[rows[stored] - first, counts.indices[stored]]
        return values
    step = max(1, BLOCK_FLOATS // images.shape[1])
    for start in range(0, counts.nnz, step):
        stored = slice(start, start + step)
        np.einsum("ek,ek->e", images[rows[stored]], words[counts.indices[stored]], out=values[stored])
    return values
