"""Rank photos for a search: by confidence, by the sum of the words' scores, or by the product of probabilities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.errors import UserError
from visterm.core.queries import CONFIDENCE, Query, log_probabilities, part_signs
from visterm.core.types import Matrix, Ranking
from visterm.kernels.topk import top_k
from visterm.learning.part_settings import check_combination
from visterm.library.search.judgements import Ids, ManualTags, positions_of, union
from visterm.models.confidence.calibration import Calibration, expected_f1_cutoff, log_sigmoid
from visterm.store.current_rows import CurrentRows

if TYPE_CHECKING:
    from visterm.store.tags import ManualJudgements
    from visterm.tagging.tagger import Tagger

Floats: TypeAlias = NDArray[np.floating]

MAX_DROPPED = 200
"""With at most this number of rejected photos, a search finds that many more and drops them: faster than a filter."""

MAX_READ_RATIO = 4  # Read the cached rows of all photos with a judged word if at least 1 in 4 of them is needed

GIVEN, ACCEPTED = "person", "accepted"  # Sources of the words of a hit, in JSON

CANDIDATES_PER_PHOTO, MIN_CANDIDATES = 16, 400
"""Number of photos that an index proposes, by the sum of scores, for each of the most likely ones; and in all."""

N_RANGES = 1024  # Number of scores of a word at which its confidence is computed, to bound those between them
ROUNDING_TOLERANCE = 1e-9  # Relative tolerance of bounds

EMPTY_RANKING = Ranking(np.empty((1, 0), np.int64), np.empty((1, 0), np.float32))


class SearchedWords(NamedTuple):
    """The words of a search with scores: tags of the run, then words outside its vocabulary."""

    tags: NDArray[np.int32]  # Columns of the tags
    weights: NDArray[np.float32]  # shape (n_words,): negative for words with ``-``
    rows: Matrix  # shape (n_words, width)
    q: Matrix | None  # Σ weight · row, shape (1, width); None if no word has a score

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
            q = (weights[:, None] * rows).sum(axis=0, keepdims=True)  # faster than @ for a few words
        if outside is None:
            return cls(tags, weights, rows, q)
        dense = rows.toarray() if isinstance(rows, sp.csr_array) else rows
        q = q + (outside.weights @ outside.rows)[None, :]
        return cls(tags, np.concatenate([weights, outside.weights]), np.vstack([dense, outside.rows]), q)


@dataclass(frozen=True, eq=False)
class CandidatePhotos:
    """The photos that a search ranks: those with a row that pass its filter, except rejected photos.

    Attributes
    ----------
    rows : CurrentRows
    passing : ndarray of int64, or None
        Ascending ids of photos that pass the filter; None: all photos with a row.
    left_out : ndarray of int64
        Ascending ids of rejected photos, whether they pass the filter or not.
    """

    rows: CurrentRows
    passing: Ids | None
    left_out: Ids

    @classmethod
    def of(
        cls, rows: CurrentRows, passing: Ids | None, judged: ManualTags, *, limited: bool
    ) -> tuple[CandidatePhotos, ManualTags]:
        """Return the photos to rank, and people's judgements of them; `limited` means that there is a cut-off.

        Unlearned tags have no scores. So if all words are unlearned, only photos with at least one of the words are
        ranked, and with a cut-off only photos with all words.
        """
        if len(judged.ids):
            judged = judged.subset(positions_of(judged.ids, rows.ids if passing is None else passing) >= 0)
        n_unlearned = judged.n_unlearned
        if n_unlearned and (limited or n_unlearned == judged.n_searched):
            n_of_photos = judged.n_unlearned_words
            judged = judged.subset(n_of_photos == n_unlearned if limited else n_of_photos > 0)
            passing = judged.ids
        return cls(rows, passing, judged.left_out), judged

    @property
    def all_ids(self) -> Ids:
        """Ascending ids of the photos that pass the filter, including rejected photos."""
        return self.rows.ids if self.passing is None else self.passing

    @cached_property
    def ids(self) -> Ids:
        """Ascending ids of the photos to rank."""
        return np.setdiff1d(self.all_ids, self.left_out, assume_unique=True) if len(self.left_out) else self.all_ids

    def __len__(self) -> int:
        if self.passing is None and len(self.left_out) == 0:
            return len(self.rows)
        return len(self.all_ids) - int(np.count_nonzero(positions_of(self.left_out, self.all_ids) >= 0))

    def without_left_out(self, ids: Ids, products: Floats) -> tuple[Ids, Floats]:
        """Return ascending ids and their products without rejected photos."""
        if len(self.left_out) == 0:
            return ids, products
        stays = positions_of(ids, self.left_out) < 0
        return ids[stays], products[stays]


@dataclass(frozen=True, eq=False)
class WordScores:
    """Scores of photos for the words of a search; sums of judged photos are cached for repeated searches."""

    tagger: Tagger
    rows: CurrentRows
    words: SearchedWords
    judgements: ManualJudgements

    def sums(self, judged: ManualTags) -> tuple[Floats, Floats]:
        """Return Σ weight · score of the judged photos, shape (n,), and the values by which they are ranked.

        Both are the same for photos that come first because people gave them the words (see `ManualTags.leads`). For
        the other photos, a word that a person gave them counts as much as in the photo with the word's highest score.
        """
        rows, words, leads = self.rows, self.words, judged.leads
        if len(judged.ids) == 0 or words.q is None:
            return (zeros := np.zeros(len(judged.ids), np.float32)), zeros
        is_sparse = sp.issparse(words.rows)
        key = None if is_sparse else ("sums", rows.version, words.rows.tobytes())
        cached: tuple[Floats, Floats] | None = self.judgements.remembered(key, [judged])
        if cached is not None:
            return cached

        n_read = sum(map(len, judged.parts))
        is_sparse = is_sparse or any(sp.issparse(part.rows) for part in rows.parts)
        if is_sparse or len(rows.frames) or n_read > MAX_READ_RATIO * len(judged.ids):
            scores = rows.products(words.rows, judged.ids)
        else:
            parts = [rows.products_with_cached_rows(words.rows, part) for part in judged.parts]
            scores = np.concatenate(parts)[judged.positions]
        model_sums: NDArray[np.float32] = scores @ words.weights
        ranking_values: Floats = model_sums

        if not leads.all():
            columns = list(judged.certain_photos)
            weights, word_rows = words.weights[columns], words.rows[columns]
            signs = np.sign(weights)
            signed_rows = sp.diags_array(signs) @ word_rows if sp.issparse(word_rows) else signs[:, None] * word_rows
            bonus = np.maximum(np.abs(weights) * rows.highest(signed_rows) - scores[:, columns] * weights, 0)
            certain = judged.certain(judged.ids, len(words.weights))
            assert certain is not None  # judged photos that don't come first have a word with scores from a person
            ranking_values = model_sums + np.where(certain[:, columns] & ~leads[:, None], bonus, 0).sum(axis=1)
        if key is not None:
            self.judgements.remember(key, [judged], (model_sums, ranking_values))
        return model_sums, ranking_values

    def confidences(self, calibration: Calibration, ids: Ids, judged: ManualTags) -> NDArray[np.float64]:
        """Return the confidence of each photo that it matches the search; `ids` in any order.

        NaN for searches with unlearned tags, unless people gave all of them to the photo.
        """
        order = np.argsort(ids)
        in_order = ids[order]
        products = self.rows.products(self.words.rows, in_order)
        log_odds = self.tagger.word_odds(products, self.words.tags, partial(self.rows.products, ids=in_order))
        certain = judged.certain(in_order, len(self.words.tags))
        confidences = np.empty(len(ids))
        confidences[order] = np.exp(calibration.log_confidences(log_odds, self.words.weights, certain))
        if judged.n_unlearned:
            confidences[~np.isin(ids, judged.ids[judged.n_unlearned_words == judged.n_unlearned])] = np.nan
        return confidences


class Ranked(NamedTuple):
    """The best photos by score, and the judged photos, which `merge` inserts among them."""

    best: Ranking  # One row; need not include the judged photos
    judged: ManualTags  # Judged photos to insert; other judged photos are ranked like unjudged ones
    scores: Floats | None = None  # Scores of the judged photos, shape (n_judged,); None: from `WordScores.sums`
    n_likely: int | None = None  # Number of photos above the cut-off; None without a cut-off


@dataclass(frozen=True)
class ById:
    """List photos with unlearned tags, without scores."""

    limited: bool  # Whether there is a cut-off, which all photos pass

    def rank(self, scores: WordScores, photos: CandidatePhotos, judged: ManualTags, k: int) -> Ranked:
        """List all photos by id."""
        best = Ranking(photos.ids[None, :], np.zeros((1, len(photos.ids)), np.float32))
        return Ranked(best, judged, n_likely=len(photos.ids) if self.limited else None)


class BySum:
    """Rank photos by Σ weight · score, as in the PAMIR paper."""

    def rank(self, scores: WordScores, photos: CandidatePhotos, judged: ManualTags, k: int) -> Ranked:
        """Find the k (0: all) best photos; none if k judged photos already come first."""
        q, rows, n_out = scores.words.q, photos.rows, len(photos.left_out)
        if 0 < k <= np.count_nonzero(judged.leads):
            judged, best = judged.subset(judged.leads), EMPTY_RANKING
        elif n_out == 0:
            best = rows.search(q, k, among=photos.passing)
        else:
            # Usually few rejected photos are among the best, so a slightly longer ranking is long enough
            longer = rows.search(q, k + min(n_out, MAX_DROPPED), among=photos.passing) if k else EMPTY_RANKING
            best = ranking_at(longer, np.flatnonzero(positions_of(longer.ids[0], photos.left_out) < 0))
            if not k or (best.ids.shape[1] < k and n_out > MAX_DROPPED):
                best = rows.search(q, k, among=photos.ids)

        return Ranked(best, judged)


class ByProduct:
    """Rank photos by Σ weight · log P(word | photo), with log(1 - P) for words with ``-``."""

    def rank(self, scores: WordScores, photos: CandidatePhotos, judged: ManualTags, k: int) -> Ranked:
        """Find the k (0: all) best photos."""
        words, judged = scores.words, judged.subset(judged.leads)
        ids, P = photos.without_left_out(photos.all_ids, scores.rows.products(words.rows, photos.passing))
        certain = judged.certain(ids, len(words.weights))
        if certain is not None:
            P = np.where(certain, words.weights > 0, P)
        logs = (part_signs(words.weights[None, :]) @ log_probabilities(P).T)[0]
        best = _best(ids, logs, k)
        return Ranked(best, judged, logs[np.searchsorted(ids, judged.ids)])


@dataclass(frozen=True)
class ByConfidence:
    """Rank photos by the confidence that they have all words and none with ``-``; optionally with a cut-off."""

    calibration: Calibration
    cutoff: bool = False  # Cut off at the rank with the highest expected F1
    min_confidence: float | None = None  # Cut off below this confidence
    is_default: bool = False  # Ties by score instead of by id; an index may propose the photos, by the sum of scores

    def rank(self, scores: WordScores, photos: CandidatePhotos, judged: ManualTags, k: int) -> Ranked:
        """Find the k (0: all) best photos, or all above the cut-off."""
        words, rows = scores.words, scores.rows
        n_candidates = max(CANDIDATES_PER_PHOTO * k, MIN_CANDIDATES) + len(photos.left_out)
        may_use_index = self.is_default and k and photos.passing is None and (words.weights > 0).all()
        if may_use_index and rows.is_indexed(n_candidates):
            likely = np.sort(rows.search(words.q, n_candidates).ids[0])
            photos = replace(photos, passing=union(likely, judged.ids))
        judged = judged.subset(judged.leads)
        ids, products = photos.all_ids, rows.products(words.rows, photos.passing)
        has_cutoff = self.cutoff or self.min_confidence is not None
        tree = scores.tagger.tree

        if k and not has_cutoff and (tree is None or not tree.has_under(words.tags)):
            # Compute confidences only for photos that come first or may be among the k most likely photos
            certain_positions, n_best = judged.certain_positions(ids), k + len(judged.left_out)
            likely = contenders(self.calibration, products, words.tags, words.weights, n_best, certain_positions)
            needed_positions = union(likely, positions_of(judged.ids, ids))
            ids, products = ids[needed_positions], products[needed_positions]

        ids, products = photos.without_left_out(ids, products)
        products_of = partial(rows.products, ids=None if ids is rows.ids else ids)
        log_odds = scores.tagger.word_odds(products, words.tags, products_of)
        logs = self.calibration.log_confidences(log_odds, words.weights, judged.certain(ids, len(words.tags)))

        if not has_cutoff:
            best = _best(ids, logs, k, *([products @ words.weights] if self.is_default else []))
            return Ranked(best, judged, logs[np.searchsorted(ids, judged.ids)])
        order, values = top_k(np.ascontiguousarray(logs[None, :], np.float32), len(logs))  # takes most of the time
        P = np.exp(logs[order[0]])
        n_likely = expected_f1_cutoff(P) if self.cutoff else len(P)
        if self.min_confidence is not None:
            n_likely = min(n_likely, int(np.count_nonzero(self.min_confidence <= P)))
        best = Ranking(ids[order[:, :n_likely]], values[:, :n_likely])
        judged = judged.subset(positions_of(judged.ids, np.sort(best.ids[0])) >= 0)
        return Ranked(best, judged, logs[np.searchsorted(ids, judged.ids)], n_likely)


def contenders(
    calibration: Calibration,
    scores: Any,
    tags: Any,
    signs: Any,
    k: int,
    certain: Mapping[int, NDArray[np.int64]] | None = None,
) -> NDArray[np.int64]:
    """Return the ascending positions of all images that may have one of the k largest log confidences.

    `certain` maps the number of a word to the positions of images for which people decided that it matches.

    No image is more likely to match than it has the least likely of the words. So images are left out if one of their
    words is less likely than the least likely of any k images; these have the largest sums of calibrated scores.
    """
    n_images, signs = len(scores), np.where(np.asarray(signs) > 0, 1, -1)
    if n_images <= max(4 * k, N_RANGES):
        return np.arange(n_images)
    sums = scores @ (signs * calibration.slope[tags]).astype(np.float32)
    likely = scores[np.argpartition(sums, n_images - k)[n_images - k :]]
    least = calibration.log_confidences(calibration.log_odds(likely, tags), signs).min()
    least -= ROUNDING_TOLERANCE * abs(least)

    may_match = np.ones(n_images, np.bool_)
    for word, (tag, sign, column) in enumerate(zip(tags, signs, scores.T, strict=True)):
        values = np.linspace(column.min(), column.max(), N_RANGES, dtype=np.float64)[::sign]  # the least likely first
        logs = log_sigmoid(sign * calibration.log_odds(values, tag))
        bound = values[max(0, np.searchsorted(logs, least) - 2)]
        matches = column >= bound if sign > 0 else column <= bound
        if certain is not None and word in certain:
            matches[certain[word]] = True
        may_match &= matches
    return np.flatnonzero(may_match)


RankingMethod: TypeAlias = ById | BySum | ByProduct | ByConfidence


class RankingPlan(NamedTuple):
    """How a search ranks photos and computes confidences."""

    method: RankingMethod
    calibration: Calibration | None  # For the confidences of hits; None: no confidences
    untrained: Sequence[str] = ()  # Words without a training image


def plan_ranking(
    tagger: Tagger, query: Query, combine: str | None, *, cutoff: bool, min_confidence: float | None
) -> RankingPlan:
    """Choose how a search ranks photos, see `CatalogueReader.search`.

    Raises UserError if `combine` is "product" but the model's scores are not probabilities; or if confidences are
    needed, but the run has no calibration or a word has no training images.
    """
    has_cutoff, calibration = cutoff or min_confidence is not None, tagger.calibration
    if combine is not None:
        check_combination(combine, tagger.model)
    outside_words = () if query.outside is None else query.outside.words
    tags, weights = query.weights.indices, query.weights.data
    is_learned = len(tags) > 0 or len(outside_words) > 0
    settings = {"combine": None if combine == "sum" else combine, "min_confidence": min_confidence, "cutoff": cutoff}
    setting = next(name for name, value in settings.items() if value is not None)
    if is_learned and has_cutoff and combine not in (None, CONFIDENCE):
        problem = f"A cut-off needs images ranked by confidence, and `combine` is {combine!r}."
        raise UserError(problem, setting="combine", value=combine, advice="Leave one of the two out.")

    if calibration is None and ((is_learned and has_cutoff) or combine == CONFIDENCE):
        advice = f"Fit the run again with at least 20 tagged photos, and index again; or leave `{setting}` out."
        raise UserError(
            f"`{setting}` needs a run with confidences.", setting=setting, value=settings[setting], advice=advice
        )

    if not is_learned:
        return RankingPlan(ById(has_cutoff), None)
    untrained = [*(tagger.vocabulary.tags[tag] for tag in tags[tagger.vocabulary.counts[tags] == 0]), *outside_words]
    if untrained:
        if has_cutoff or combine not in (None, "sum"):
            word_list = ", ".join(f"'{word}'" for word in untrained)
            problem = f"No training image has {word_list}, so confidences for it are unknown."
            advice = f"Leave `{setting}` out: images are then ranked by the sum of scores; or leave the word out."
            raise UserError(problem, setting=setting, value=settings[setting], advice=advice)
        return RankingPlan(BySum(), None, untrained)
    # The likeliest photos of one word have the highest scores, if no tags are under it
    is_alone = len(tags) == 1 and weights[0] > 0 and (tagger.tree is None or not tagger.tree.has_under(tags))
    by_sum = combine == "sum" or (combine is None and not has_cutoff and is_alone)
    if calibration is None or by_sum or combine == "product":
        return RankingPlan(ByProduct() if combine == "product" else BySum(), calibration)
    is_default = combine is None and not has_cutoff
    return RankingPlan(ByConfidence(calibration, cutoff, min_confidence, is_default), calibration)


def merge(ranked: Ranked, sums: tuple[Floats, Floats], k: int) -> tuple[Ranking, list[str | None]]:
    """Insert the judged photos into the ranking.

    Photos of `ManualTags.leads` come first: by number of unlearned words, then of given words, then by score. All other
    judged photos are ranked by score among the unjudged photos. `sums` are the results of `WordScores.sums` for the
    judged photos.

    Returns at most k photos (0: all), and a source per photo: "person" or "accepted" if people tagged it with all the
    words, else None.
    """
    judged, (best, best_scores), (model_sums, ranking_values) = ranked.judged, ranked.best, sums
    scores = ranking_values if ranked.scores is None else ranked.scores
    others = np.flatnonzero(positions_of(best[0], judged.ids) < 0)[: k or None]
    ids, values = best[0, others], best_scores[0, others]
    leads = judged.leads
    if not leads.all():
        ids, values = np.concatenate([judged.ids[~leads], ids]), np.concatenate([scores[~leads], values])
        order = best_by((values, -ids), k)
        ids, values = ids[order], values[order]

    first = np.flatnonzero(leads)
    n_given = judged.n_given[first]
    order = best_by((judged.n_unlearned_words[first], n_given, scores[first], model_sums[first], -judged.ids[first]), k)
    ids = np.concatenate([judged.ids[first[order]], ids])[: k or None]
    values = np.concatenate([scores[first[order]], values])[: k or None]
    sources = [None if n == 0 else GIVEN if n > judged.n_searched else ACCEPTED for n in n_given[order].tolist()]
    return Ranking(ids[None, :], values[None, :].astype(np.float32)), [*sources, *[None] * (len(ids) - len(sources))]


def best_by(keys: Sequence[NDArray[np.number]], k: int) -> Ids:
    """Return the positions of the k (0: all) largest items by the first key, ties by the next key, and so on."""
    positions: list[Ids] = []
    tied, remaining = np.arange(len(keys[0])), k or len(keys[0])
    for key in keys:
        if len(tied) <= remaining:
            break
        values = key[tied]
        threshold = np.partition(values, len(tied) - remaining)[len(tied) - remaining]
        positions.append(tied[values > threshold])
        remaining -= len(positions[-1])
        tied = tied[values == threshold]
    candidates = np.concatenate([*positions, tied]) if positions else tied
    return candidates[np.lexsort([-key[candidates] for key in reversed(keys)])][: k or None]


def ranking_at(ranking: Ranking, positions: Ids) -> Ranking:
    """Return the photos of a ranking at `positions`, in that order."""
    return Ranking(ranking.ids[:, positions], ranking.scores[:, positions])


def _best(ids: Ids, scores: Floats, k: int, *ties: Floats) -> Ranking:
    values = scores.astype(np.float32)
    order = best_by((values, *ties, -ids), k)
    return Ranking(ids[None, order], values[None, order])
