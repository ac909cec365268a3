"""A search as weights of words, by inverse document frequency, and the combination of the words' scores."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from visterm.core.checks import as_csr
from visterm.core.types import Matrix

CONFIDENCE = "confidence"

COMBINATIONS = ("sum", "product", CONFIDENCE)
"""Ways to combine the scores of words: the weighted sum; for probabilities the product; for runs with a calibration
the probability that the image matches."""

MIN_PROBABILITY = 1e-9  # Lower bound of probabilities, so no single word can exclude an image


class OutsideWords(NamedTuple):
    """The words of a search that are not tags but can be searched by their word vectors."""

    words: list[str]  # Unique, as typed or added, without words whose weights cancel out
    weights: NDArray[np.float32]  # shape (n_words,), as `Query.weights` has for tags
    rows: NDArray[np.float32]  # shape (n_words, width), in the space of the model's tag rows


@dataclass(frozen=True, slots=True)
class Query:
    """A search as weights of tags."""

    weights: sp.csr_array
    """float32, shape (1, n_tags). Above 0: a word; below 0: a `-word`. A tag that is typed twice counts twice."""
    known: list[str]  # The tags found, in the order typed
    unknown: list[str]  # The words that are not tags and have no word vector
    outside: OutsideWords | None = None
    """Words without training images, which are searched by their word vectors; None without such words."""
    not_learned: Mapping[str, int] = field(default_factory=dict)
    """Tags that people gave to photos but that the run has not learned yet -> 1, or -1 for a `-word`."""
    names: Mapping[str, int] = field(default_factory=dict)
    """Words that are not tags but names of files, folders or cameras, or dates -> 1, or -1 for a `-word`."""


def inverse_frequencies(counts: ArrayLike, n_captions: int) -> NDArray[np.float32]:
    """Return ``-log`` of the share of captions with each word, float32, shape (n_words,) (PAMIR, section IV-A).

    `counts` is the number of captions with each word, out of `n_captions`; 0 is treated as 1. A word in all captions
    has the weight 0.
    """
    counts = np.maximum(np.asarray(counts, np.float64), 1)
    idf: NDArray[np.float32] = np.log(max(float(n_captions), counts.max(initial=1.0)) / counts).astype(np.float32)
    return idf


def weigh_words(words: sp.csr_array, idf: NDArray[np.float32]) -> sp.csr_array:
    """Weight the words of queries by inverse frequency, and scale each query to unit length (PAMIR, section IV-A).

    `words`, shape (n_queries, n_words), is 1 for a word, and -1 for a word that images should not have. If `idf` is 0
    for all words of a query, they get equal weights; a query without words stays empty.
    """
    is_valid = isinstance(words, sp.csr_array) and words.dtype == np.float32 and words.has_canonical_format
    csr = words if is_valid and words.data.all() else as_csr(words)  # no copy for the usual single query
    query_of_entry = np.repeat(np.arange(csr.shape[0]), np.diff(csr.indptr))
    values = csr.data * np.asarray(idf, np.float32)[csr.indices]
    squares = np.bincount(query_of_entry, values.astype(np.float64) ** 2, csr.shape[0])
    if not squares.all():
        values = np.where(squares[query_of_entry] == 0, csr.data, values)
        squares = np.bincount(query_of_entry, values.astype(np.float64) ** 2, csr.shape[0])
    lengths = np.sqrt(np.where(squares > 0, squares, 1.0))
    weighted = copy(csr)  # SciPy's constructor takes longer than all else here
    weighted.data = (values * (1.0 / lengths)[query_of_entry]).astype(np.float32)
    return weighted if weighted.data.all() else as_csr(weighted)


def log_probabilities(P: ArrayLike) -> NDArray[np.float32]:
    """Return ``[log P, log(1 - P)]``, shape (n_images, 2 · n_words); probabilities are at least `MIN_PROBABILITY`."""
    P = np.asarray(P, np.float64)
    logs: NDArray[np.float64] = np.log(np.maximum(np.hstack([P, 1 - P]), MIN_PROBABILITY))
    return logs.astype(np.float32)


def part_signs(weights: Matrix) -> sp.csr_array:
    """Split weights of words, shape (n_queries, n_words), into positive and negative ones: (n_queries, 2 · n_words).

    ``part_signs(W) @ log_probabilities(P).T`` is then the sum of ``w log P`` over the words (w > 0) and of ``|w| log(1
    - P)`` over the `-words` (w < 0): the log of the product of ``P^w`` and ``(1 - P)^|w|``. The result is CSR.
    """
    weights = as_csr(weights)
    return as_csr(sp.hstack([weights.maximum(0), (-weights).maximum(0)], format="csr"))
