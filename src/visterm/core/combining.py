"""Several words of a search as a product of probabilities: a sum of logs, written as one inner product again."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import as_csr

CONFIDENCE = "confidence"

COMBINATIONS = ("sum", "product", CONFIDENCE)
"""How words may be combined: by the weighted sum of their scores, where these are probabilities by their product, and
where a run has a calibration by how likely an image is meant."""

LEAST = 1e-9
"""Probabilities below this count as this: no word alone shall decide that an image is never shown."""


def log_probabilities(P: NDArray[Any]) -> NDArray[np.float32]:
    """Return the logs of having each word and of not having it, side by side.

    Parameters
    ----------
    P : ndarray, shape (n_images, n_words)
        P(word | image).

    Returns
    -------
    ndarray of float32, shape (n_images, 2 · n_words)
        ``[log P, log(1 - P)]``, of probabilities from `LEAST` on.
    """
    P = np.asarray(P, np.float64)
    logs: NDArray[np.float64] = np.log(np.maximum(np.hstack([P, 1 - P]), LEAST))
    return logs.astype(np.float32)


def part_signs(weights: Any) -> sp.csr_array:
    """Return weights of words as those of having and of not having them, so that their products with logs are scores.

    ``part_signs(W) @ log_probabilities(P).T`` is ``Σ w log P`` over the wanted words (w > 0) and ``Σ |w| log(1 - P)``
    over the others: the log of the product of ``P^w`` and ``(1 - P)^|w|``.

    Parameters
    ----------
    weights : array-like or sparse, shape (n_queries, n_words)
        Above 0: wanted; below 0: not wanted.

    Returns
    -------
    csr_array of float32, shape (n_queries, 2 · n_words)
    """
    weights = as_csr(weights)
    return as_csr(sp.hstack([weights.maximum(0), (-weights).maximum(0)], format="csr"))
