"""Why a search found an image: what each of its words gave to the score, and how likely the image shows it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import scipy.sparse as sp

from visterm.core.types import Matrix
from visterm.models.confidence.calibration import log_sigmoid

if TYPE_CHECKING:
    from visterm.library.catalogue import Catalogue


class Share(NamedTuple):
    """What one word of a search gave to the score of an image."""

    word: str
    wanted: bool  # False of a word with ``-``
    score: float
    """Weight times score of the word: of all words they sum to Σ weight · score, by which images are ranked unless
    confidences or products are asked for."""
    share: float
    """Of the sum of what all words gave, each without its sign; below 0 where the word spoke against the image."""
    confidence: float | None
    """The chance that the image shows the word, with ``-`` or without; None where nothing is known of it."""


def search_shares(catalogue: Catalogue, words: str | Sequence[str], image_ids: Sequence[int]) -> list[list[Share]]:
    """Take the scores of images apart by the words of a search.

    Returns for each image, which has a row of the current run, what each word gave, the largest share first. Raises
    UnknownNameError if no word is a tag of the run, or has a place among them; DataError if an image has no row.
    """
    if not len(image_ids):
        return []
    tagger = catalogue.tagger
    query = catalogue.query_weights(words)
    columns, weights = query.weights.indices, query.weights.data
    n = len(columns)
    one_by_one = sp.csr_array((np.ones(n, np.float32), columns, np.arange(n + 1)), shape=(n, query.weights.shape[1]))
    scores = np.empty((len(image_ids), 0), np.float32)
    if n:
        scores = catalogue.stored.products(tagger.model.query_rows(one_by_one), image_ids)
    confidences = np.full(scores.shape, np.nan)
    if tagger.calibration is not None and n:
        odds = tagger.word_odds(scores, columns, partial(catalogue.stored.products, ids=image_ids))
        confidences = np.exp(log_sigmoid(odds))
    names = [tagger.vocabulary.tags[column] for column in columns]
    if query.outside is not None:
        names += query.outside.words
        outside = catalogue.stored.products(query.outside.rows, image_ids)
        scores = np.hstack([scores, outside])
        confidences = np.hstack([confidences, np.full(outside.shape, np.nan)])
        weights = np.concatenate([weights, query.outside.weights])
    return [_shares(names, weights, *row) for row in zip(scores, confidences, strict=True)]


def _shares(names: list[str], weights: Matrix, scores: Matrix, confidences: Matrix) -> list[Share]:
    given = np.asarray(weights * scores, np.float64)
    total = float(np.abs(given).sum()) or 1.0
    found = [
        Share(name, bool(weight > 0), part, part / total, None if np.isnan(confidence) else float(confidence))
        for name, weight, part, confidence in zip(names, weights, given.tolist(), confidences, strict=True)
    ]
    return sorted(found, key=lambda share: -abs(share.share))
