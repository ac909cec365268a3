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
from visterm.library.search.judgements import Ids, ManualTags, positions_of, union
from visterm.models.confidence.calibration import Calibration, log_sigmoid
from visterm.models.confidence.cutoffs import expected_f1_cutoff
from visterm.store.current_rows import CurrentRows

if TYPE_CHECKING:
    from visterm.store.tags import ManualJudgements
    from visterm.tagging.tagger import Tagger

Floats: TypeAlias = NDArray[np.floating]

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
            judged = judged.some(positions_of(judged.ids, rows.ids if passing is None else passing) >= 0)
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
        rows, words, leads = self.rows, self.words, judged.leads
        if len(judged.ids) == 0 or words.q is None:
            return (nothing := np.zeros(len(judged.ids), np.float32)), nothing
        is_sparse = sp.issparse(words.rows)
        key = None if is_sparse else ("sums", rows.version, words.rows.tobytes())
        known: tuple[Floats, Floats] | None = self.judgements.remembered(key, [judged])
        if known is not None:
            return known

        n_read = sum(map(len, judged.parts))
        is_sparse = is_sparse or any(sp.issparse(part.rows) for part in rows.parts)
        if is_sparse or len(rows.frames) or n_read > MORE_READ * len(judged.ids):
            scores = rows.products(words.rows, judged.ids)
        else:
            parts = [rows.products_again(words.rows, part) for part in judged.parts]
            scores = np.concatenate(parts)[judged.positions]
        by_model: NDArray[np.float32] = scores @ words.weights
        ranked: Floats = by_model

        if not leads.all():
            columns = list(judged.certain_photos)
            weights, word_rows = words.weights[columns], words.rows[columns]
            signs = np.sign(weights)
            signed_rows = sp.diags_array(signs) @ word_rows if sp.issparse(word_rows) else signs[:, None] * word_rows
            lacking = np.maximum(np.abs(weights) * rows.highest(signed_rows) - scores[:, columns] * weights, 0)
            certain = judged.certain(judged.ids, len(words.weights))
            assert certain is not None  # of photos that do not lead, people said something of a word with scores
            ranked = by_model + np.where(certain[:, columns] & ~leads[:, None], lacking, 0).sum(axis=1)
        if key is not None:
            self.judgements.remember(key, [judged], (by_model, ranked))
        return by_model, ranked

    def confidences(self, calibration: Calibration, ids: Ids, judged: ManualTags) -> NDArray[np.float64]:
        """Return the chance of each of some photos, in any order, that it is what is searched for.

        NaN where nobody knows: of tags that no run has learned, but where people gave them all.
        """
        order = np.argsort(ids)
        in_order = ids[order]
        products = self.rows.products(self.words.rows, in_order)
        odds = self.tagger.word_odds(products, self.words.tags, partial(self.rows.products, ids=in_order))
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
    scores: Floats | None = None  # By which they are ranked, shape (n_judged,); None: by `WordScores.sums`
    n_likely: int | None = None  # Photos above the cut-off; None without one


@dataclass(frozen=True)
class ById:
    """Photos that have tags which no run has learned, without scores."""

    limited: bool  # Whether there is a cut-off, which all of them are above

    def rank(self, scores: WordScores, photos: CandidatePhotos, judged: ManualTags, k: int) -> Ranked:
        """List all photos by id."""
        best = Ranking(photos.ids[None, :], np.zeros((1, len(photos.ids)), np.float32))
        return Ranked(best, judged, n_likely=len(photos.ids) if self.limited else None)


class BySum:
    """Photos by Σ weight · score, as the PAMIR paper ranks."""

    def rank(self, scores: WordScores, photos: CandidatePhotos, judged: ManualTags, k: int) -> Ranked:
        """Find the k (0: all) best photos, which may be none where enough that people judged come before them."""
        q, rows, n_out = scores.words.q, photos.rows, len(photos.left_out)
        if 0 < k <= np.count_nonzero(judged.leads):
            judged, best = judged.some(judged.leads), NOTHING
        elif n_out == 0:
            best = rows.search(q, k, among=photos.passing)
        else:
            # Few of those to leave out are among the best, mostly: a longer ranking without them is long enough
            for n in [2 * k, k + n_out][: 1 + (n_out <= FEW)] if k else ():
                ranking = rows.search(q, n, among=photos.passing)
                kept = np.flatnonzero(positions_of(ranking.ids[0], photos.left_out) < 0)
                if len(kept) >= k or ranking.ids.shape[1] < n or n == k + n_out:
                    best = Ranking(ranking.ids[:, kept], ranking.scores[:, kept])
                    break
            else:
                best = rows.search(q, k, among=photos.ids)

        return Ranked(best, judged)


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
        return Ranked(best, judged, logs[np.searchsorted(ids, judged.ids)])


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
        products_of = partial(scores.rows.products, ids=None if ids is scores.rows.ids else ids)
        odds = scores.tagger.word_odds(products, words.tags, products_of)
        logs = self.calibration.log_of_odds(odds, words.weights, judged.certain(ids, len(words.tags)))
        if not limited:
            best = _best(ids, logs, k)
            return Ranked(best, judged, logs[np.searchsorted(ids, judged.ids)])
        best, n_likely = self._likeliest(ids, logs)
        judged = judged.some(positions_of(judged.ids, np.sort(best.ids[0])) >= 0)
        return Ranked(best, judged, logs[np.searchsorted(ids, judged.ids)], n_likely)

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
    settings = {"combine": None if combine == "sum" else combine, "min_confidence": min_confidence, "cutoff": cutoff}
    needs = next(setting for setting, value in settings.items() if value is not None)
    if is_learned and limited and combine not in (None, CONFIDENCE):
        problem = f"A cut-off is for images ranked by confidence, and `combine` is {combine!r}."
        raise UserError(problem, setting="combine", value=combine, advice="Leave one of the two out.")
    if calibration is None and ((is_learned and limited) or combine == CONFIDENCE):
        advice = f"Fit it again with at least 20 tagged photos, and index again; or leave `{needs}` out."
        raise UserError(f"`{needs}` needs a run with confidences.", setting=needs, value=settings[needs], advice=advice)

    if not is_learned:
        return RankingPlan(ById(limited), None)
    untrained = [*(tagger.vocabulary.tags[tag] for tag in tags[tagger.vocabulary.counts[tags] == 0]), *outside]
    if untrained:
        if limited or combine not in (None, "sum"):
            listed = ", ".join(f"'{word}'" for word in untrained)
            problem = f"No training image has {listed}, so nothing is known of how likely an image is to show it."
            advice = f"Leave `{needs}` out: images are then ranked by the sum of scores; or leave the word out."
            raise UserError(problem, setting=needs, value=settings[needs], advice=advice)
        return RankingPlan(BySum(), None, untrained)
    uncertain = limited or combine == CONFIDENCE or (combine is None and bool((weights < 0).any()))
    if uncertain and calibration is not None:
        return RankingPlan(ByConfidence(calibration, cutoff, min_confidence), calibration)
    return RankingPlan(ByProduct() if combine == "product" else BySum(), calibration)


def merge(ranked: Ranked, sums: tuple[Floats, Floats], k: int) -> tuple[Ranking, list[str | None]]:
    """Put the photos of which people said something at their places among all others.

    Those that lead come first: those with most new words, then those with all words (with more of them given before
    those with fewer), by score. The others are among all others, by score. `sums` are what `WordScores.sums` returned
    for them.

    Returns at most k photos (0: all), and beside each "person" or "accepted" if it has all the words by hand, else
    None.
    """
    judged, (best, best_scores), (by_model, by_sum) = ranked.judged, ranked.best, sums
    scores = by_sum if ranked.scores is None else ranked.scores
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
    n_given = judged.n_given[first]
    order = best_by((judged.n_new[first], n_given, scores[first], by_model[first], -judged.ids[first]), k)
    ids = np.concatenate([judged.ids[first[order]], ids])[: k or None]
    values = np.concatenate([scores[first[order]], values])[: k or None]
    sources = [None if n == 0 else GIVEN if n > judged.n_searched else ACCEPTED for n in n_given[order].tolist()]
    return Ranking(ids[None, :], values[None, :].astype(np.float32)), [*sources, *[None] * (len(ids) - len(sources))]


def best_by(keys: Sequence[NDArray[np.number]], k: int) -> Ids:
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
    candidates = np.concatenate([*sure, tied]) if sure else tied
    return candidates[np.lexsort([-key[candidates] for key in reversed(keys)])][: k or None]


def chosen_of(ranking: Ranking, positions: Ids) -> Ranking:
    """Return photos of a ranking in another order, by their positions."""
    return Ranking(ranking.ids[:, positions], ranking.scores[:, positions])


def _best(ids: Ids, scores: Floats, k: int) -> Ranking:
    order, best = top_k(np.ascontiguousarray(scores[None, :], np.float32), check_k(k, len(scores)))
    return Ranking(ids[order], best)
