"""Searches of a catalogue: by words, by another picture, or by what images are; all of them among filtered images."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import check_k, check_number
from visterm.core.errors import UserError
from visterm.core.queries import CONFIDENCE, Query, log_probabilities, part_signs
from visterm.core.types import Matrix, Ranking
from visterm.core.vocabulary import tag_key
from visterm.kernels.topk import top_k
from visterm.library.expansion import Group, expand
from visterm.library.found import Found, Listing, chosen_of
from visterm.library.hand_tagged import (
    Remembered,
    WordScores,
    best_by_sum,
    hand_tagged,
    places_of,
    ranked_places,
    without,
)
from visterm.library.like import ImageLike, ranked_by_likeness
from visterm.models.confidence.calibration import Calibration
from visterm.models.confidence.cutoffs import expected_f1_cutoff
from visterm.store.filters import PREDICTED_FROM, Filter
from visterm.store.sorting import COLUMNS, check_sort
from visterm.tagging.part_settings import check_combination
from visterm.tagging.typed_queries import typed_query

if TYPE_CHECKING:
    from visterm.store.current_rows import CurrentRows
    from visterm.tagging.tagger import Tagger

Ids = NDArray[np.int64]

BEST = 200  # Images without confidences that are listed in another order than by how well they match
MOST_SORTED = 5000  # Images with confidences that are sorted


class Searchable(Listing):
    """A catalogue, searched by its run."""

    _searches: Remembered | None = None

    @property
    def _remembered(self) -> Remembered:
        """What people said of the words of the last searches."""
        if self._searches is None:
            self._searches = {}
        return self._searches

    def refresh(self) -> bool:
        """Look whether the run is still the one that made the rows; return whether another one was opened."""
        raise NotImplementedError

    def search(
        self,
        words: str | Sequence[str],
        k: int = 10,
        *,
        combine: str | None = None,
        cutoff: bool = False,
        min_confidence: float | None = None,
        among: Filter | None = None,
        sort: str | None = None,
    ) -> Found:
        """Find photos by words: those with the largest Σ weight(word) · score(word), or most likely to be meant.

        Weights are those of `Tagger.query_weights`: by inverse document frequency; a word with ``-`` subtracts. A word
        that is no tag counts by its vector, where the run was fitted with `word_vectors` that have one.

        What a person said counts at once. Photos that have all the words by hand come first: those to which all were
        given, then those where some were accepted, each by score. The others follow by score; a word that a person
        gave or accepted counts in them as certain, and so does a `-word` that a person rejected: its chance is 1, and
        in a sum it counts as much as in the photos where it counts most (of some thousand, evenly spaced).
        Photos of which a word was rejected, or that
        have a `-word` by hand, are left out. A tag that no run has learned yet has no score: photos that have it come
        before those that have it not, and if all words (but for `-word`) are such, only photos with one are found.

        Parameters
        ----------
        words : str or sequence of str
            As typed (``snow tree -people "polar bear"``), or one tag an entry.
        k : int
            How many images; 0 means all.
        combine : {"sum", "product", "confidence"}, optional
            None: "confidence" where a word has a ``-`` or a cut-off is asked for and the run has a calibration, else
            "sum", as the PAMIR paper ranks. "confidence": by `Calibration.log_confidences`, where a word with ``-``
            counts by how likely it is there; in a sum the images with the least of it come first, whatever else they
            show. With a word that is no tag, None is always "sum": nothing is known of how likely such a word is.
            "product", of models whose scores are probabilities: the images with the largest
            ``Σ weight(word) · log P(word | image)``, and for a word with ``-`` the log of ``1 - P``. An image has to
            have a little of each word; one word alone cannot bring it up.
        cutoff : bool
            Leave out the images below the rank at which F1 is expected to be largest (`expected_f1_cutoff`).
        min_confidence : float, optional
            Leave out the images that are less likely to be meant; from 0 to below 1.
        among : Filter, optional
            Search only images that pass: by tags, folder, date, size, type and review.
        sort : {"chance", "taken", "oldest", "name", "added"}, optional
            None: "chance", the best first. Another order lists images that are at least as likely as `min_confidence`
            (None: 0.5) to be meant, without confidences the `BEST` best: sorted otherwise, all others would stand
            between them.

        Raises
        ------
        UnknownNameError
            If no word is a tag of the run or of a photo, or has a place among them.
        UserError
            If the model's scores are no probabilities, but their product is asked for; or the run has no calibration,
            or a word no training images, but confidences are needed.
        StorageError
            If a word is no tag, and the file of the run's word vectors is gone or has changed.
        """
        check_sort(sort)
        self.refresh()
        tagger, limited = self.tagger, cutoff or min_confidence is not None
        if min_confidence is not None:
            check_number(min_confidence, "min_confidence", least=0, below=1)
        check_k(k, 0)
        shown, k = k, MOST_SORTED if sort in COLUMNS else k
        query = self.query_weights(words)
        learned = query.weights.nnz > 0 or query.outside is not None
        q: Any = None
        calibration = _calibration(tagger, combine, limited=limited and learned)
        rows = self.stored.current_rows()
        meant = query.weights.indices, query.weights.data  # the tags; above 0 those that images should show
        word_rows = tagger.tag_rows(meant[0])
        ids = None if not among else self._passing(among, rows)
        hand = hand_tagged(self.stored, tagger.vocabulary, query, self.tree, self._remembered)
        if len(hand.ids):
            hand = hand.among(rows.ids if ids is None else ids)
        n_new = sum(sign > 0 for sign in query.not_learned.values())
        if n_new and (limited or n_new == hand.n_searched):  # nobody knows how likely new words are elsewhere
            hand = hand.some(hand.n_new == n_new if limited else hand.n_new > 0)
            ids = hand.ids
        n_found = _count(rows, ids, hand.left_out)
        if learned:
            q = _weighed(query, word_rows)
            if query.outside is not None:
                q = q + (query.outside.weights @ query.outside.rows)[None, :]
        n_likely = None
        own: NDArray[Any]
        scores: NDArray[Any]
        logs: NDArray[Any]
        tags = [tagger.vocabulary.tags[tag] for tag in meant[0][tagger.vocabulary.counts[meant[0]] == 0]]
        untrained = [*tags, *(() if query.outside is None else query.outside.words)]
        if untrained:
            _refuse_confidences(untrained, combine, limited=limited)
            calibration, combine = None, "sum"
        elif combine is None:
            uncertain = limited or bool((query.weights.data < 0).any())
            combine = CONFIDENCE if uncertain and calibration is not None else "sum"
        word_scores = WordScores(rows, query, word_rows)
        if not learned:  # tags that the run does not know: without scores
            there = without(ids, hand.left_out, rows)
            found, own = Ranking(there[None, :], np.zeros((1, len(there)), np.float32)), np.zeros(len(hand.ids))
            scores, calibration, n_likely = own, None, len(there)
        elif combine == "sum":
            if enough := 0 < k <= np.count_nonzero(hand.leads):
                hand = hand.some(hand.leads)
            found = _NOTHING if enough else best_by_sum(rows, q, k, ids, hand.left_out)
            own, scores = word_scores.sums(hand)
        else:
            products, ids = rows.products(word_rows, ids), rows.ids if ids is None else ids
            hand = hand.some(hand.leads)  # the others are ranked as all are
            alone = tagger.tree is None or not tagger.tree.has_under(meant[0])
            if combine == CONFIDENCE and calibration is not None and k and not limited and alone:
                kept = ranked_places(calibration, products, query, hand, ids, k)  # the others need no confidences
                ids, products = ids[kept], products[kept]
            if len(hand.left_out):
                stays = places_of(ids, hand.left_out) < 0
                ids, products = ids[stays], products[stays]
            certain = hand.certain(ids, len(meant[0]))
            if combine == CONFIDENCE and calibration is not None:
                odds = tagger.word_odds(
                    products, meant[0], partial(rows.products, ids=None if ids is rows.ids else ids)
                )
                logs = calibration.log_of_odds(odds, meant[1], certain)
                found, n_likely = _likeliest(ids, logs, k, cutoff, min_confidence)
                hand = hand.among(np.sort(found.ids[0])) if limited else hand
            else:
                if certain is not None:
                    products = np.where(certain, meant[1] > 0, products)
                logs = (part_signs(query.weights.data[None, :]) @ log_probabilities(products).T)[0]
                found = _best(ids, logs, check_k(k, len(logs)))
            scores = logs[np.searchsorted(ids, hand.ids)]
            own = word_scores.sums(hand)[0]
        found, sources = hand.rank(found, scores, own, k)
        chances = None
        if calibration is not None:
            chances = word_scores.chances(tagger, found.ids[0], hand)
            if n_new:
                chances[~np.isin(found.ids[0], hand.ids[hand.n_new == n_new])] = np.nan
        if n_likely is not None and limited:
            n_found = n_likely
        if sort in COLUMNS:
            chosen = np.arange(found.ids.shape[1])
            if not limited:
                if chances is None or np.isnan(chances).all():
                    chosen = chosen[:BEST]
                else:
                    chosen = np.flatnonzero(chances >= PREDICTED_FROM)
            n_found, chosen = len(chosen), self._sorted(found, chosen, sort, shown)
            found, sources = chosen_of(found, chosen), [sources[place] for place in chosen]
            chances = None if chances is None else chances[chosen]
        hits = self._hits(found, chances, sources, q=q)
        return Found(hits, query.unknown, n_likely if limited else None, untrained, n_found)

    def query_weights(self, words: str | Sequence[str]) -> Query:
        """Return what was typed as weights, see `Tagger.query_weights`; tags that photos have here are words, too."""
        if not isinstance(words, Iterable):
            raise UserError(f"words is {words!r}; expected a text such as 'snow tree -people', or one tag an entry.")
        others = self.tagger.dictionary.not_tags(words)
        held = self.stored.held(others) if others else {}
        if others and (tree := self.tree):
            paths = {key: tree.paths_of(key) for key in others}
            there = self.stored.held([tag_key(path) for found in paths.values() for path in found])
            for key, found in paths.items():
                held = {name: path for path in found if tag_key(path) in there for name in (key, tag_key(path))} | held
        return typed_query(self.tagger, words, held)

    def like(self, image: ImageLike, k: int = 10, *, among: Filter | None = None, sort: str | None = None) -> Found:
        """Find photos that look like another: by the cosine of their rows in the run's space.

        Parameters
        ----------
        image : path, uint8 array (height, width, 3), or int
            A photo, which is encoded if the catalogue does not have it; or the id of one of the catalogue, or its name.
            One of the catalogue is not among its own results.
        k : int
            How many images; 0 means all.
        among : Filter, optional
            Search only images that pass.
        sort : {"chance", "taken", "oldest", "name", "added"}, optional
            None: "chance", the most similar first. Another order lists the `BEST` most similar.

        Raises
        ------
        DataError
            If the catalogue has no such image, and it is no file either; or it cannot be read.
        """
        check_sort(sort)
        self.refresh()
        check_k(k, 0)
        tagger, ids, rows = self.tagger, None, self.stored.current_rows()
        if among:
            ids = self._passing(among, rows)
        found, row = ranked_by_likeness(tagger, self.stored, image, BEST if sort in COLUMNS else k, ids)
        n_found = len(rows) if ids is None else len(ids)
        if sort in COLUMNS:
            n_found = found.ids.shape[1]
            found = chosen_of(found, self._sorted(found, np.arange(n_found), sort, k))
        return Found(self._hits(found, q=row), [], n_found=n_found)

    def expand(
        self, words: str | Sequence[str], how: str, k: int = 10, *, n_groups: int = 5, **limits: Any
    ) -> list[Group]:
        """Find photos of the parts of what a search is for, or of its siblings, tag by tag; see `expansion.expand`."""
        return expand(
            self.tagger,
            self.query_weights(words),
            how,
            lambda tag: self.search([tag], k, **limits).hits,
            n_groups=n_groups,
        )


def _calibration(tagger: Tagger, combine: str | None, *, limited: bool) -> Calibration | None:
    """Return the calibration of the run, and refuse a search that needs one where there is none."""
    if combine is not None:
        check_combination(combine, tagger.model)
    if limited and combine not in (None, CONFIDENCE):
        raise UserError(
            f"A cut-off is for images ranked by confidence, and combine is {combine!r}. Leave one of the two out."
        )
    if tagger.calibration is None and (limited or combine == CONFIDENCE):
        what = "combine=confidence" if combine == CONFIDENCE else "A cut-off (--cutoff, --min-confidence)"
        raise UserError(
            f"{what} needs a run with confidences. Fit it again with at least 100 tagged photos, "
            "and index again; or leave the option out."
        )
    return tagger.calibration


_NOTHING = Ranking(np.empty((1, 0), np.int64), np.empty((1, 0), np.float32))


def _count(rows: CurrentRows, ids: Ids | None, left_out: Ids) -> int:
    """Count images (None: all) but for those that are left out."""
    if ids is None and len(left_out) == 0:
        return len(rows)
    there = rows.ids if ids is None else ids
    return len(there) - int(np.count_nonzero(places_of(left_out, there) >= 0))


def _best(ids: Ids, scores: NDArray[Any], k: int) -> Ranking:
    """Return the images with the largest scores."""
    places, best = top_k(np.ascontiguousarray(scores[None, :], np.float32), k)
    return Ranking(ids[places], best)


def _likeliest(
    ids: Ids, logs: NDArray[np.float64], k: int, cutoff: bool, min_confidence: float | None
) -> tuple[Ranking, int]:
    """Rank images by the logs of their confidences: the best, or all above the cut-off; and how many these are."""
    # All are put in order only for a cut-off: that takes most of such a search's time.
    limited = cutoff or min_confidence is not None
    places, scores = top_k(
        np.ascontiguousarray(logs[None, :], np.float32), len(logs) if limited else check_k(k, len(logs))
    )
    P = np.exp(logs[places[0]])
    n_likely = expected_f1_cutoff(P) if cutoff else len(P)
    if min_confidence is not None:
        n_likely = min(n_likely, int(np.count_nonzero(min_confidence <= P)))
    return Ranking(ids[places[:, :n_likely]], scores[:, :n_likely]), n_likely


def _refuse_confidences(untrained: Sequence[str], combine: str | None, *, limited: bool) -> None:
    """Refuse a search by confidences of words without training images, of which there are none."""
    if limited or combine not in (None, "sum"):
        listed = ", ".join(f"'{word}'" for word in untrained)
        what = f"combine={combine!r}" if combine not in (None, "sum") else "a cut-off"
        raise UserError(
            f"No training image has {listed}, so nothing is known of how likely an image is to show it, and {what} "
            "cannot be used. Leave it out: images are then ranked by the sum of scores; or leave the word out."
        )


def _weighed(query: Query, word_rows: Matrix) -> Matrix:
    """Return the row that images are searched by, (1, width), of the rows of a query's words."""
    weights = query.weights.data
    if isinstance(word_rows, sp.csr_array):
        return sp.csr_array(weights[None, :]) @ word_rows
    row: NDArray[np.float32] = (weights[:, None] * word_rows).sum(axis=0, keepdims=True)  # a few words: quicker than @
    return row
