"""What a search found: hits in their order, and what each of its words gave to a hit's score."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from visterm.core.types import Hit, Matrix
from visterm.core.wording import count_of
from visterm.data.frames import Framed, first_of, pictures
from visterm.library.search.ranking import SearchedWords
from visterm.models.confidence.calibration import log_sigmoid

if TYPE_CHECKING:
    from visterm.library.catalogue import Catalogue


class _Found(NamedTuple):
    hits: list[Hit]  # With the id of each image in the catalogue
    unknown: list[str]
    n_likely: int | None = None  # Images of the catalogue above the cut-off, shown or not; None without a cut-off
    untrained: Sequence[str] = ()
    """Words that count without a training image, by their vectors; with such the hits have no confidence."""
    n_found: int | None = None  # Images that were listed or ranked in all, shown or not


class Found(Framed, _Found):
    """The images that a search found, best first, and the words that are no tag.

    As a DataFrame (`to_pandas`, `to_polars`) it has a row for each hit, with what is known of any of them as columns.
    """

    __slots__ = ()

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each hit."""
        return [hit.as_dict() for hit in self.hits]

    def __repr__(self) -> str:
        unknown = f", unknown={self.unknown}" if self.unknown else ""
        return f"Found({count_of(len(self.hits), 'photo')}: {first_of(self.hits)}{unknown})"

    def _repr_html_(self) -> str:
        """Show the photos in a notebook."""
        sure = ((hit, "" if hit.confidence is None else f"{hit.confidence:.0%}") for hit in self.hits)
        return pictures(((hit.path, hit.image, line) for hit, line in sure), len(self.hits))


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
    tagger, rows = catalogue.tagger, catalogue.stored.current_rows()
    query = catalogue.query_weights(words)
    searched = SearchedWords.of(tagger, query)
    names = [tagger.vocabulary.tags[column] for column in searched.tags]
    names += [] if query.outside is None else query.outside.words
    scores, n_tags = rows.products(searched.rows, image_ids), len(searched.tags)
    confidences = np.full(scores.shape, np.nan)
    if tagger.calibration is not None and n_tags:
        odds = tagger.word_odds(scores[:, :n_tags], searched.tags, partial(rows.products, ids=image_ids))
        confidences[:, :n_tags] = np.exp(log_sigmoid(odds))
    return [_shares(names, searched.weights, *row) for row in zip(scores, confidences, strict=True)]


def _shares(names: list[str], weights: Matrix, scores: Matrix, confidences: Matrix) -> list[Share]:
    given = np.asarray(weights * scores, np.float64)
    total = float(np.abs(given).sum()) or 1.0
    found = [
        Share(name, bool(weight > 0), part, part / total, None if np.isnan(confidence) else float(confidence))
        for name, weight, part, confidence in zip(names, weights, given.tolist(), confidences, strict=True)
    ]
    return sorted(found, key=lambda share: -abs(share.share))
