"""How a search ranks photos: by the sum of its words' scores, by their product, or by how likely each is meant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import check_k
from visterm.core.errors import UserError
from visterm.core.queries import CONFIDENCE, Query, log_probabilities, part_signs
from visterm.core.types import Matrix, Ranking
from visterm.kernels.topk import top_k
from visterm.learning.part_settings import check_combination
from visterm.library.search.judgements import MOST_PHOTOS, Ids, ManualTags, positions_of, union
from visterm.models.confidence.calibration import Calibration, log_sigmoid
from visterm.models.confidence.cutoffs import expected_f1_cutoff
from visterm.store.current_rows import CurrentRows

if TYPE_CHECKING:
    from visterm.store.judgements import ManualJudgements
    from visterm.tagging.tagger import Tagger

Floats: TypeAlias = NDArray[Any]

FEW = 200
"""Rejected photos up to which a search finds that many more, and drops them: quicker than a choice of all others."""

MORE_READ = 4  # A copy of all photos of the words is read where a search asks for more than one in so many of them

GIVEN, ACCEPTED = "person", "accepted"  # Where all the words of a hit come from, as it stands in JSON

STEPS = 1024  # Ranges of a word's scores within which confidences are bounded by those at the ends
TINY = np.finfo(np.float64).tiny
SLACK = 1e-9  # Of bounds, for their rounding

NOTHING = Ranking(np.empty((1, 0), np.int64), np.empty((1, 0), np.float32))


class SearchedWords(NamedTuple):
    """The words of a search that have scores: tags of the run, then words outside of its vocabulary."""

    tags: NDArray[np.int32]  # Columns of the tags
    weights: NDArray[np.float32]  # shape (n_words,): below 0 of a word with ``-``
    rows: Matrix  # shape (n_words, width)
    q: Matrix | None  # Σ weight · row, shape (1, width); None where no word has a score

    @classmethod
    def of(cls, tagger: Tagger, query: Query) -> SearchedWords:
        """Look up the rows of a query's words."""
        tags, weights, outside = query.weights.indices, query.weights.data, query.outside
        rows = tagger.tag_rows(tags)
        if not len(tags) and outside is None:
            return cls(tags, weights, rows, None)
        if isinstance(rows, sp.csr_array):
            q: Matrix = sp.csr_array(weights[None, :]) @ rows
        else:
            q = (weights[:, None] * rows).sum(axis=0, keepdims=True)  # a few words: quicker than @
        if outside is None:
            return cls(tags, weights, rows, q)
        dense = rows.toarray() if isinstance(rows, sp.csr_array) else rows
        q = q + (outside.weights @ outside.rows)[None, :]
        return cls(tags, np.concatenate([weights, outside.weights]), np.vstack([dense, outside.rows]), q)


@dataclass(frozen=True, eq=False)
class CandidatePhotos:
    """The photos that a search ranks: those with a row that pass its filter, but for those to leave out.

    Attributes
    ----------
    rows : CurrentRows
    passing : ndarray of int64, or None
        Ids, in order; None: all photos with a row.
    left_out : ndarray of int64
        Ids, in order; they need not be among the others.
    """

    rows: CurrentRows
    passing: Ids | None
    left_out: Ids

    @classmethod
    def of(
        cls, rows: CurrentRows, passing: Ids | None, judged: ManualTags, *, limited: bool
    ) -> tuple[CandidatePhotos, ManualTags]:
        """Return the photos to rank, and what people said of these; `limited`, if there is a cut-off.

        Nobody knows how likely tags that no run has learned are elsewhere. So if all words are such, only photos with
        one are found, and above a cut-off only those with all.
        """
        if len(judged.ids):
            judged = judged.among(rows.ids if passing is None else passing)
        n_new = judged.n_unlearned
        if n_new and (limited or n_new == judged.n_searched):
            judged = judged.some(judged.n_new == n_new if limited else judged.n_new > 0)
            passing = judged.ids
        return cls(rows, passing, judged.left_out), judged

    @property
    def every(self) -> Ids:
        """Ids in order, also of those to leave out."""
        return self.rows.ids if self.passing is None else self.passing

    @cached_property
    def ids(self) -> Ids:
        """Ids in order."""
        return np.setdiff1d(self.every, self.left_out, assume_unique=True) if len(self.left_out) else self.every

    def __len__(self) -> int:
        if self.passing is None and len(self.left_out) == 0:
            return len(self.rows)
        return len(self.every) - int(np.count_nonzero(positions_of(self.left_out, self.every) >= 0))

    def best(self, q: Matrix, k: int) -> Ranking:
        """Return the k (0: all) with the largest products with a row, (1, width)."""
        n_out = len(self.left_out)
        if n_out == 0:
            return self.rows.search(q, k, among=self.passing)
        for n in [2 * k, k + n_out][: 1 + (n_out <= FEW)] if k else ():  # few are among the best, mostly
            ranking = self.rows.search(q, n, among=self.passing)
            kept = np.flatnonzero(positions_of(ranking.ids[0], self.left_out) < 0)
            if len(kept) >= k or ranking.ids.shape[1] < n or n == k + n_out:
                return chosen_of(ranking, kept)
        return self.rows.search(q, k, among=self.ids)

    def without_left_out(self, ids: Ids, products: Floats) -> tuple[Ids, Floats]:
        """Return ids in order, and what stands beside them, but for the photos to leave out."""
        if len(self.left_out) == 0:
            return ids, products
        stays = positions_of(ids, self.left_out) < 0
        return ids[stays], products[stays]


@dataclass(frozen=True, eq=False)
class WordScores:
    """What photos score for the words of a search; sums of judged photos are remembered, as searches are repeated."""

    tagger: Tagger
    rows: CurrentRows
    words: SearchedWords
    judgements: ManualJudgements

    def sums(self, judged: ManualTags) -> tuple[Floats, Floats]:
        """Return Σ weight · score of the photos of which people said something, (n,), and what they are ranked by.

        That is the same for those that lead. In that of others, words of which a person said what is asked for count as
        much as in the photos where they count most.
        """
        words, leads = self.words, judged.leads
        if len(judged.ids) == 0:
            return (nothing := np.empty(0, np.float32)), nothing
        key = None if sp.issparse(words.rows) else ("sums", self.rows.version, words.rows.tobytes())
        known: tuple[Floats, Floats] | None = self.judgements.remembered(key, [judged])
        if known is not None:
            return known

        scores = self._judged_scores(judged)
        by_model: NDArray[np.float32] = scores @ words.weights
        ranked: Floats = by_model
        if not leads.all():
            some = list(judged.certain_photos)
            rows, weights = words.rows[some], words.weights[some]
            signs = np.sign(weights)
            highest = self.rows.highest(sp.diags_array(signs) @ rows if sp.issparse(rows) else signs[:, None] * rows)
            lacking = np.maximum(np.abs(weights) * highest - scores[:, some] * weights, 0)
            certain = judged.certain(judged.ids, len(words.weights))
            assert certain is not None  # of photos that do not lead, people said something of a word with scores
            ranked = by_model + np.where(certain[:, some] & ~leads[:, None], lacking, 0).sum(axis=1)
        if key is not None and len(judged.ids) <= MOST_PHOTOS:
            self.judgements.remember(key, [judged], (by_model, ranked))
        return by_model, ranked

    def _judged_scores(self, judged: ManualTags) -> NDArray[np.float32]:
        """Return the scores of the photos of which people said something, (n, n_words)."""
        rows, word_rows, n_read = self.rows, self.words.rows, sum(map(len, judged.parts))
        is_sparse = sp.issparse(word_rows) or sp.issparse(rows.rows(rows.row_ids[:1]))
        if is_sparse or len(rows.frames) or n_read > MORE_READ * len(judged.ids):
            return rows.products(word_rows, judged.ids)
        values = [rows.products_again(word_rows, part) for part in judged.parts]
        return np.concatenate(values)[judged.positions]

    def odds(self, products: Floats, ids: Ids | None) -> NDArray[np.float64]:
        """Return the log odds of each word for photos (None: all), whose products with its row are given."""
        return self.tagger.word_odds(products, self.words.tags, partial(self.rows.products, ids=ids))

    def confidences(self, calibration: Calibration, ids: Ids, judged: ManualTags) -> NDArray[np.float64]:
        """Return the chance of each of some photos, in any order, that it is what is searched for.

        NaN where nobody knows: of tags that no run has learned, but where people gave them all.
        """
        order = np.argsort(ids)
        in_order = ids[order]
        odds = self.odds(self.rows.products(self.words.rows, in_order), in_order)
        certain = judged.certain(in_order, len(self.words.tags))
        confidences = np.empty(len(ids))
        confidences[order] = np.exp(calibration.log_of_odds(odds, self.words.weights, certain))
        if judged.n_unlearned:
            confidences[~np.isin(ids, judged.ids[judged.n_new == judged.n_unlearned])] = np.nan
        return confidences


class Ranked(NamedTuple):
    """The best photos by score, and those that people judged, which `merge` puts at their places among them."""

    best: Ranking  # In one row; the photos that people judged need not be among them
    judged: ManualTags  # Those that have a place of their own; the others are ranked as all are
    # shape (n_judged,): by which they are ranked, and by the model alone, by which equal ones are
    scores: Floats
    by_model: Floats
    n_likely: int | None = None  # Photos above the cut-off; None without one


@dataclass(frozen=True)
class ById:
    """Photos that have tags which no run has learned, without scores."""

    limited: bool  # Whether there is a cut-off, which all of them are above

    def rank(self, scores: WordScores, photos: CandidatePhotos, judged: ManualTags, k: int) -> Ranked:
        """List all photos by id."""
        nothing = np.zeros(len(judged.ids))
        best = Ranking(photos.ids[None, :], np.zeros((1, len(photos.ids)), np.float32))
        return Ranked(best, judged, nothing, nothing, len(photos.ids) if self.limited else None)


class BySum:
    """Photos by Σ weight · score, as the PAMIR paper ranks."""

    def rank(self, scores: WordScores, photos: CandidatePhotos, judged: ManualTags, k: int) -> Ranked:
        """Find the k (0: all) best photos, which may be none where enough that people judged come before them."""
        if enough := 0 < k <= np.count_nonzero(judged.leads):
            judged = judged.some(judged.leads)
        best = NOTHING if enough else photos.best(scores.words.q, k)
        by_model, ranked = scores.sums(judged)
        return Ranked(best, judged, ranked, by_model)


class ByProduct:
    """Photos by Σ weight · log P(word | photo), and for a word with ``-`` by the log of 1 - P."""

    def rank(self, scores: WordScores, photos: CandidatePhotos, judged: ManualTags, k: int) -> Ranked:
        """Find the k (0: all) best photos."""
        words, judged = scores.words, judged.some(judged.leads)
        ids, P = photos.without_left_out(photos.every, scores.rows.products(words.rows, photos.passing))
        certain = judged.certain(ids, len(words.weights))
        if certain is not None:
            P = np.where(certain, words.weights > 0, P)
        logs = (part_signs(words.weights[None, :]) @ log_probabilities(P).T)[0]
        best = _best(ids, logs, k)
        return Ranked(best, judged, logs[np.searchsorted(ids, judged.ids)], scores.sums(judged)[0])


@dataclass(frozen=True)
class ByConfidence:
    """Photos by how likely they have all words and none with ``-``: all above a cut-off, or the best."""

    calibration: Calibration
    cutoff: bool = False  # At the rank at which F1 is expected to be largest
    min_confidence: float | None = None  # At this confidence

    def rank(self, scores: WordScores, photos: CandidatePhotos, judged: ManualTags, k: int) -> Ranked:
        """Find the k (0: all) best photos, or all above the cut-off."""
        words, judged = scores.words, judged.some(judged.leads)
        ids, products = photos.every, scores.rows.products(words.rows, photos.passing)
        limited = self.cutoff or self.min_confidence is not None
        tree = scores.tagger.tree
        if k and not limited and (tree is None or not tree.has_under(words.tags)):
            # The others need no confidences: they are neither among the k most likely ones, nor do they lead
            certain, n_likely = judged.certain_positions(ids), k + len(judged.left_out)
            likely = contenders(self.calibration, products, words.tags, words.weights, n_likely, certain)
            kept = union(likely, positions_of(judged.ids, ids))
            ids, products = ids[kept], products[kept]
        ids, products = photos.without_left_out(ids, products)
        odds = scores.odds(products, None if ids is scores.rows.ids else ids)
        logs = self.calibration.log_of_odds(odds, words.weights, judged.certain(ids, len(words.tags)))
        if not limited:
            best = _best(ids, logs, k)
            return Ranked(best, judged, logs[np.searchsorted(ids, judged.ids)], scores.sums(judged)[0])
        best, n_likely = self._likeliest(ids, logs)
        judged = judged.among(np.sort(best.ids[0]))
        return Ranked(best, judged, logs[np.searchsorted(ids, judged.ids)], scores.sums(judged)[0], n_likely)

    def _likeliest(self, ids: Ids, logs: NDArray[np.float64]) -> tuple[Ranking, int]:
        """Rank all photos above the cut-off; return how many these are, too.

        All are put in order only for a cut-off: that takes most of such a search's time.
        """
        order, scores = top_k(np.ascontiguousarray(logs[None, :], np.float32), len(logs))
        P = np.exp(logs[order[0]])
        n_likely = expected_f1_cutoff(P) if self.cutoff else len(P)
        if self.min_confidence is not None:
            n_likely = min(n_likely, int(np.count_nonzero(self.min_confidence <= P)))
        return Ranking(ids[order[:, :n_likely]], scores[:, :n_likely]), n_likely


def contenders(
    calibration: Calibration,
    scores: Any,
    tags: Any,
    signs: Any,
    k: int,
    certain: Mapping[int, NDArray[np.int64]] | None = None,
) -> NDArray[np.int64]:
    """Return the places, in order, of all images that may have one of the k largest log confidences.

    `certain` has, by the number of a word, the places of images of which it is certain.

    A confidence rises with the score. So it is computed at the ends of `STEPS` ranges of each word's scores, and
    bounds those in between; images whose upper bound lies below the lower bounds of k others are left out.
    """
    n_images, n_words = scores.shape
    if n_images <= max(4 * k, STEPS):
        return np.arange(n_images)
    bounds, totals, worst = (np.zeros((2, n_images)) for _ in range(3))  # lower and upper bounds of sums, and of minima
    for word, sign, column in zip(range(n_words), signs, np.asarray(scores, np.float64).T, strict=True):
        least = column.min()
        step = max((column.max() - least) / STEPS, TINY)
        odds = calibration.odds(least + np.arange(-1, STEPS + 3) * step, tags[word])  # a step to spare on either side
        logs = log_sigmoid(odds if sign > 0 else -odds)
        cell = ((column - least) / step).astype(np.int64)
        both = np.stack([np.minimum(logs[:-3], logs[3:]), np.maximum(logs[:-3], logs[3:])])[:, cell]
        if certain is not None and word in certain:
            both[:, certain[word]] = 0.0
        if sign > 0:
            totals += both
            np.minimum(worst, both, out=worst)
        else:
            bounds += both
    lower, upper = bounds + (1 - calibration.together) * totals + calibration.together * worst
    kth = np.partition(lower, n_images - k)[n_images - k]
    return np.flatnonzero(upper >= kth - SLACK * abs(kth))


WayToRank: TypeAlias = ById | BySum | ByProduct | ByConfidence


class RankingPlan(NamedTuple):
    """How a search ranks photos, and which of its numbers are chances."""

    way: WayToRank
    calibration: Calibration | None  # By which hits have confidences; None: they have none
    untrained: Sequence[str] = ()  # Words that count without a training image


def plan_ranking(
    tagger: Tagger, query: Query, combine: str | None, *, cutoff: bool, min_confidence: float | None
) -> RankingPlan:
    """Choose how a search ranks photos, see `CatalogueReader.search`.

    Raises UserError if the model's scores are no probabilities, but their product is asked for; or the run has no
    calibration, or a word no training images, but confidences are needed.
    """
    limited, calibration = cutoff or min_confidence is not None, tagger.calibration
    if combine is not None:
        check_combination(combine, tagger.model)
    outside = () if query.outside is None else query.outside.words
    tags, weights = query.weights.indices, query.weights.data
    is_learned = len(tags) > 0 or len(outside) > 0
    if is_learned and limited and combine not in (None, CONFIDENCE):
        raise UserError(
            f"A cut-off is for images ranked by confidence, and combine is {combine!r}. Leave one of the two out."
        )
    if calibration is None and ((is_learned and limited) or combine == CONFIDENCE):
        what = "combine=confidence" if combine == CONFIDENCE else "A cut-off (--cutoff, --min-confidence)"
        raise UserError(
            f"{what} needs a run with confidences. Fit it again with at least 20 tagged photos, "
            "and index again; or leave the option out."
        )
    if not is_learned:
        return RankingPlan(ById(limited), None)
    untrained = [*(tagger.vocabulary.tags[tag] for tag in tags[tagger.vocabulary.counts[tags] == 0]), *outside]
    if untrained:
        _refuse_confidences(untrained, combine, limited=limited)
        return RankingPlan(BySum(), None, untrained)
    uncertain = limited or combine == CONFIDENCE or (combine is None and bool((weights < 0).any()))
    if uncertain and calibration is not None:
        return RankingPlan(ByConfidence(calibration, cutoff, min_confidence), calibration)
    return RankingPlan(ByProduct() if combine == "product" else BySum(), calibration)


def _refuse_confidences(untrained: Sequence[str], combine: str | None, *, limited: bool) -> None:
    if limited or combine not in (None, "sum"):
        listed = ", ".join(f"'{word}'" for word in untrained)
        what = f"combine={combine!r}" if combine not in (None, "sum") else "a cut-off"
        raise UserError(
            f"No training image has {listed}, so nothing is known of how likely an image is to show it, and {what} "
            "cannot be used. Leave it out: images are then ranked by the sum of scores; or leave the word out."
        )


def merge(ranked: Ranked, k: int) -> tuple[Ranking, list[str | None]]:
    """Put the photos of which people said something at their places among all others.

    Those that lead come first: those with most new words, then those with all words (with more of them given before
    those with fewer), by score. The others are among all others, by score.

    Returns at most k photos (0: all), and beside each "person" or "accepted" if it has all the words by hand, else
    None.
    """
    judged, scores, (best, best_scores) = ranked.judged, ranked.scores, ranked.best
    if len(judged.ids) == 0:
        return Ranking(best[:, : k or None], best_scores[:, : k or None]), [None] * len(best[0, : k or None])
    others = np.flatnonzero(positions_of(best[0], judged.ids) < 0)[: k or None]
    ids, values = best[0, others], best_scores[0, others]
    leads = judged.leads
    if not leads.all():
        ids, values = np.concatenate([judged.ids[~leads], ids]), np.concatenate([scores[~leads], values])
        order = best_by((values, -ids), k)
        ids, values = ids[order], values[order]
    first = np.flatnonzero(leads)
    by_model, n_given = ranked.by_model[first], judged.n_given[first]
    order = best_by((judged.n_new[first], n_given, scores[first], by_model, -judged.ids[first]), k)
    ids = np.concatenate([judged.ids[first[order]], ids])[: k or None]
    values = np.concatenate([scores[first[order]], values])[: k or None]
    sources = [None if n == 0 else GIVEN if n > judged.n_searched else ACCEPTED for n in n_given[order].tolist()]
    return Ranking(ids[None, :], values[None, :].astype(np.float32)), [*sources, *[None] * (len(ids) - len(sources))]


def best_by(keys: Sequence[Floats], k: int) -> Ids:
    """Return the positions of the k largest (0: all) by the first key, of equal ones by the next, and so on."""
    sure: list[Ids] = []
    tied, remaining = np.arange(len(keys[0])), k or len(keys[0])
    for key in keys:
        if len(tied) <= remaining:
            break
        values = key[tied]
        least = np.partition(values, len(tied) - remaining)[len(tied) - remaining]
        sure.append(tied[values > least])
        remaining -= len(sure[-1])
        tied = tied[values == least]
    some = np.concatenate([*sure, tied]) if sure else tied
    return some[np.lexsort([-key[some] for key in reversed(keys)])][: k or None]


def chosen_of(ranking: Ranking, positions: NDArray[Any]) -> Ranking:
    """Return photos of a ranking in another order, by their positions."""
    return Ranking(ranking.ids[:, positions], ranking.scores[:, positions])


def _best(ids: Ids, scores: Floats, k: int) -> Ranking:
    order, best = top_k(np.ascontiguousarray(scores[None, :], np.float32), check_k(k, len(scores)))
    return Ranking(ids[order], best)
