"""What a search found: hits in their order, and what each of its words gave to a hit's score."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from visterm.core.types import Hit, Matrix
from visterm.core.wording import count_of
from visterm.data.frames import Framed, first_of, pictures


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


def shares_of(names: Sequence[str], weights: Matrix, scores: Matrix, confidences: Matrix) -> list[Share]:
    """Return what each word gave to the score of one image, the largest share first; all are of shape (n_words,)."""
    given = np.asarray(weights * scores, np.float64)
    total = float(np.abs(given).sum()) or 1.0
    found = [
        Share(name, bool(weight > 0), part, part / total, None if np.isnan(confidence) else float(confidence))
        for name, weight, part, confidence in zip(names, weights, given.tolist(), confidences, strict=True)
    ]
    return sorted(found, key=lambda share: -abs(share.share))
