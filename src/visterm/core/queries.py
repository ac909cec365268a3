"""A search as weights of words: the rarer a word, the more it weighs (normalised idf), and how scores combine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from visterm.core.checks import as_csr
from visterm.core.types import Matrix

CONFIDENCE = "confidence"

COMBINATIONS = ("sum", "product", CONFIDENCE)
"""How words may be combined: by the weighted sum of their scores, where these are probabilities by their product, and
where a run has a calibration by how likely an image is meant."""

LEAST = 1e-9  # Probabilities below this count as this: no single word may keep an image from ever being shown


class OutsideWords(NamedTuple):
    """The words of a search that are no tags, but have a place among them, made of their vectors."""

    words: list[str]  # Each once, as it was typed or added; those that cancel themselves out are left out
    weights: NDArray[np.float32]  # shape (n_words,): as those of tags
    rows: NDArray[np.float32]  # shape (n_words, width): as those of tags, in the model's space


@dataclass(frozen=True, slots=True)
class Query:
    """A search as weights of tags."""

    weights: sp.csr_array
    """float32, shape (1, n_tags). Above 0: a word; below 0: a `-word`. A tag named twice weighs twice."""
    known: list[str]  # The tags found, in the order typed
    unknown: list[str]  # The words that are no tag, and have no place among them
    outside: OutsideWords | None = None
    """Words without training images that count all the same; None where all that count are tags."""
    not_learned: Mapping[str, int] = field(default_factory=dict)
    """Tags that people gave to photos and no run knows yet, with 1, or -1 for a `-word`."""


def inverse_frequencies(counts: ArrayLike, n_captions: int) -> NDArray[np.float32]:
    """Return ``-log`` of the share of captions that have each word, float32 (n_words,) (PAMIR, section IV-A).

    `counts` are the captions that have each word, of `n_captions`. A word that none has counts as in one; of a word
    that all have the weight is 0.
    """
    counts = np.maximum(np.asarray(counts, np.float64), 1)
    idf: NDArray[np.float32] = np.log(max(float(n_captions), counts.max(initial=1.0)) / counts).astype(np.float32)
    return idf


def weigh_words(words: sp.csr_array, idf: NDArray[np.float32]) -> sp.csr_array:
    """Weigh the words of queries by their inverse frequencies, each query to unit length (PAMIR, section IV-A).

    `words`, (n_queries, n_words), is 1 where the query has the word, -1 where it asks for images without. Where `idf`
    is 0 for all words of a query, they get equal weights; a query without words stays empty.
    """
    right = isinstance(words, sp.csr_array) and words.dtype == np.float32 and words.has_canonical_format
    plain = words if right and words.data.all() else as_csr(words)  # most queries come one by one, and are made so
    owner = np.repeat(np.arange(plain.shape[0]), np.diff(plain.indptr))
    values = plain.data * np.asarray(idf, np.float32)[plain.indices]
    silent = np.bincount(owner, values.astype(np.float64) ** 2, plain.shape[0]) == 0
    values = np.where(silent[owner], plain.data, values)
    squares = np.bincount(owner, values.astype(np.float64) ** 2, plain.shape[0])
    lengths = np.sqrt(np.where(squares > 0, squares, 1.0))
    weights = (values * (1.0 / lengths)[owner]).astype(np.float32)
    weighted = sp.csr_array((weights, plain.indices, plain.indptr), shape=plain.shape)
    return weighted if weights.all() else as_csr(weighted)


def log_probabilities(P: ArrayLike) -> NDArray[np.float32]:
    """Return ``[log P, log(1 - P)]``, (n_images, 2 · n_words), of probabilities P(word | image) from `LEAST` on."""
    P = np.asarray(P, np.float64)
    logs: NDArray[np.float64] = np.log(np.maximum(np.hstack([P, 1 - P]), LEAST))
    return logs.astype(np.float32)


def part_signs(weights: Matrix) -> sp.csr_array:
    """Return weights of words as those of having and of not having them, so that their products with logs are scores.

    ``part_signs(W) @ log_probabilities(P).T`` is ``Σ w log P`` over the words (w > 0) and ``Σ |w| log(1 - P)`` over the
    others: the log of the product of ``P^w`` and ``(1 - P)^|w|``. `weights` are (n_queries, n_words), the result is
    CSR, (n_queries, 2 · n_words).
    """
    weights = as_csr(weights)
    return as_csr(sp.hstack([weights.maximum(0), (-weights).maximum(0)], format="csr"))
