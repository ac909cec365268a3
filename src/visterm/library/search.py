"""Searches of a catalogue: by words, by another picture, or by what images are; all of them among filtered images."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import check_k, check_number
from visterm.core.errors import UserError
from visterm.core.query_weights import CONFIDENCE, log_probabilities, part_signs
from visterm.core.remote import real_path
from visterm.core.types import Hit, Ranking
from visterm.kernels.topk import top_k
from visterm.library.feedback import as_known
from visterm.models.confidence.calibration import Calibration
from visterm.models.confidence.cutoffs import expected_f1_cutoff
from visterm.store.filters import Filter
from visterm.tagging.parts import check_combination
from visterm.tagging.typed_queries import query_row

if TYPE_CHECKING:
    from visterm.store.searched import Searched
    from visterm.tagging.tagger import Tagger

Ids = NDArray[np.int64]

FEW = 200
"""Images left out up to which a search finds so many more, and drops them."""


class Found(NamedTuple):
    """The images that a search found, best first, and the words that are no tag.

    Attributes
    ----------
    hits : list of Hit
        With the id of each image in the catalogue.
    unknown : list of str
    n_likely : int or None
        Images of the catalogue above the cut-off, shown or not; None where none was asked for.
    untrained : sequence of str
        Words that count without a training image, by their vectors; with such the hits have no confidence.
    """

    hits: list[Hit]
    unknown: list[str]
    n_likely: int | None = None
    untrained: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class How:
    """How a search by words goes, see `Catalogue.search`."""

    combine: str | None = None
    cutoff: bool = False
    min_confidence: float | None = None

    @property
    def limited(self) -> bool:
        """Whether only images above a cut-off are wanted."""
        return self.cutoff or self.min_confidence is not None


class Search:
    """Searches rows of a run by its words.

    Parameters
    ----------
    tagger : Tagger
        The run that made the rows.
    searched : Searched
        One catalogue, or several of that run.
    """

    def __init__(self, tagger: Tagger, searched: Searched) -> None:
        self._tagger, self.searched = tagger, searched

    def by_words(self, words: str | Sequence[str], k: int, how: How, among: Filter | None) -> Found:
        """Find images by words; see `Catalogue.search`."""
        if how.min_confidence is not None:
            check_number(how.min_confidence, "min_confidence", least=0, below=1)
        check_k(k, 0)
        calibration = self._calibration(how)
        query = self._tagger.query_weights(words)
        ids, rejected = self.among(among), self._rejected(query.weights)
        if query.outside is not None:
            _refuse_confidences(query.outside.words, how)
            found = self.best(query_row(self._tagger.model, query), k, ids, rejected)
            return Found(self.hits(found), query.unknown, untrained=query.outside.words)
        combine = how.combine
        if combine is None:
            uncertain = how.limited or bool((query.weights.data < 0).any())
            combine = CONFIDENCE if uncertain and calibration is not None else "sum"
        n_likely = None
        if combine == CONFIDENCE and calibration is not None:
            ids = self._left(ids, rejected)
            found, n_likely = _likeliest(ids, self._log_confidences(calibration, query.weights, ids), k, how)
        elif combine == "product":
            found = self._by_product(query.weights, k, self._left(ids, rejected))
        else:
            found = self.best(self._tagger.model.query_rows(query.weights), k, ids, rejected)
        chances = None
        if calibration is not None:
            chances = np.exp(self._log_confidences(calibration, query.weights, found.ids[0]))
        return Found(self.hits(found, chances), query.unknown, n_likely if how.limited else None)

    def listed(self, among: Filter | None, k: int, after: int) -> Found:
        """List images that pass a filter, by id; see `Catalogue.browse`."""
        ids = self.searched.find(self._spelled(among) if among else Filter())
        ids = ids[np.searchsorted(ids, after, "right") :]
        ids = ids[: check_k(k, len(ids))]
        return Found(self.hits(Ranking(ids[None, :], np.zeros((1, len(ids)), np.float32))), [])

    def best(self, q: Any, k: int, ids: Ids | None, left_out: Ids) -> Ranking:
        """Find the images with the largest products with one query row, but for some (sorted)."""
        if len(left_out) == 0:
            return self.searched.search(q, k, among=ids)
        if k == 0 or len(left_out) > FEW:
            return self.searched.search(q, k, among=self._left(ids, left_out))
        found = self.searched.search(q, k + len(left_out), among=ids)  # a stream of all rows is quicker than a choice
        kept = np.flatnonzero(~np.isin(found.ids[0], left_out))[:k]
        return Ranking(found.ids[:, kept], found.scores[:, kept])

    def hits(self, found: Ranking, chances: NDArray[np.float64] | None = None) -> list[Hit]:
        """Return the images of the first query of a ranking, with names and places."""
        scores = found.scores[0].tolist()
        likely: list[float | None] = [None] * len(scores) if chances is None else chances.tolist()
        return [
            Hit(one.name, score, chance, id=one.id, path=one.path, catalogue=one.catalogue)
            for one, score, chance in zip(self.searched.where(found.ids[0].tolist()), scores, likely, strict=True)
        ]

    def _rejected(self, weights: sp.csr_array) -> Ids:
        """Return the images of which a person has said that a word is not there, in order: they do not come back."""
        return self.searched.rejected([self._tagger.vocabulary.tags[i] for i in weights.indices[weights.data > 0]])

    def _left(self, ids: Ids | None, left_out: Ids) -> Ids:
        there = self.searched.searchable() if ids is None else ids
        return there if len(left_out) == 0 else np.setdiff1d(there, left_out, assume_unique=True)

    def among(self, wanted: Filter | None) -> Ids | None:
        """Return the images with a row that pass a filter; None where it asks for nothing."""
        if not wanted:
            return None
        found = self.searched.find(self._spelled(wanted))
        return np.intersect1d(found, self.searched.searchable(), assume_unique=True)

    def _spelled(self, wanted: Filter) -> Filter:
        """Return a filter with tags as the run spells them, and the folder in full, links followed."""

        def all_spelled(tags: Iterable[str]) -> tuple[str, ...]:
            return tuple(as_known(self._tagger.vocabulary, tag) for tag in tags)

        return replace(
            wanted,
            tags=all_spelled(wanted.tags),
            without=all_spelled(wanted.without),
            predicted=all_spelled(wanted.predicted),
            folder=None if wanted.folder is None else real_path(wanted.folder),
        )

    def _log_confidences(
        self, calibration: Calibration, weights: sp.csr_array, ids: Ids | None = None
    ) -> NDArray[np.float64]:
        """Return the logs of the confidences of images (None: of all) for one query."""
        rows = _one_by_one(weights)
        scores = self.searched.products(self._tagger.model.query_rows(rows), ids)
        return calibration.log_confidences(scores, weights.indices, weights.data)

    def _calibration(self, how: How) -> Calibration | None:
        """Return the calibration of the run, and refuse a search that needs one where there is none."""
        if how.combine is not None:
            check_combination(how.combine, self._tagger.model)
        if how.limited and how.combine not in (None, CONFIDENCE):
            raise UserError(
                f"A cut-off is for images ranked by confidence, and combine is {how.combine!r}. "
                "Leave one of the two out."
            )
        if self._tagger.calibration is None and (how.limited or how.combine == CONFIDENCE):
            raise UserError(
                "This catalogue's run has no calibration, so nothing is known of how likely an image is what the "
                "search is for. Fit the run anew (visterm fit, of 100 or more images with tags, without "
                "--no-calibration), and index again."
            )
        return self._tagger.calibration

    def _by_product(self, weights: sp.csr_array, k: int, ids: Ids) -> Ranking:
        """Find the images with the largest product of probabilities, from those of each word alone."""
        P = self.searched.products(self._tagger.model.query_rows(_one_by_one(weights)), ids)
        scores = part_signs(weights.data[None, :]) @ log_probabilities(P).T
        best = Ranking(*top_k(np.ascontiguousarray(scores), check_k(k, len(P))))
        return Ranking(ids[best.ids], best.scores)


def _likeliest(ids: Ids, logs: NDArray[np.float64], k: int, how: How) -> tuple[Ranking, int]:
    """Rank images by the logs of their confidences, and say how many of all are above the cut-off."""
    k = check_k(k, len(logs))
    # All are put in order only where it is asked how many are likely: that takes most of such a search's time.
    places, scores = top_k(np.ascontiguousarray(logs[None, :], np.float32), len(logs) if how.limited else k)
    P = np.exp(logs[places[0]])
    n_likely = expected_f1_cutoff(P) if how.cutoff else len(P)
    if how.min_confidence is not None:
        n_likely = min(n_likely, int(np.count_nonzero(how.min_confidence <= P)))
    shown = min(k, n_likely)
    return Ranking(ids[places[:, :shown]], scores[:, :shown]), n_likely


def _refuse_confidences(untrained: Sequence[str], how: How) -> None:
    """Refuse a search by what is not known of words without training images."""
    if how.limited or how.combine not in (None, "sum"):
        listed = ", ".join(f"'{word}'" for word in untrained)
        asked = f"combine={how.combine!r}" if how.combine not in (None, "sum") else "a cut-off"
        raise UserError(
            f"No training image has {listed}, so nothing is known of how likely an image is to show it, and {asked} "
            "cannot be used. Leave it out: images are then ranked by the sum of scores; or leave the word out."
        )


def _one_by_one(weights: sp.csr_array) -> sp.csr_array:
    """Return each word of a query as a query of its own, weighing 1."""
    n = weights.nnz
    return sp.csr_array((np.ones(n, np.float32), weights.indices, np.arange(n + 1)), shape=(n, weights.shape[1]))
