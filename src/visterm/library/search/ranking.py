"""Rank photos for a search: by confidence, by the sum of the words' scores, or by the product of probabilities."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.errors import UserError
from visterm.core.id_sets import NO_IDS, Ids, contains, positions_of, union, without
from visterm.core.queries import CONFIDENCE, Query, log_probabilities, part_signs
from visterm.core.types import Doubles, Matrix, Ranking
from visterm.kernels.topk import top_k
from visterm.learning.part_settings import check_combination
from visterm.library.search.judgements import ManualTags
from visterm.models.confidence.calibration import Calibration, expected_f1_cutoff, log_sigmoid
from visterm.store.current_rows import CurrentRows

if TYPE_CHECKING:
    from visterm.tagging.tagger import Tagger

Floats: TypeAlias = NDArray[np.floating]

MAX_DROPPED = 200
"""With at most this number of rejected photos, a search finds that many more and drops them: faster than a filter."""

MIN_SHARE_IN_PLACE = 0.25  # From this share of photos on, products of all rows in place are faster than of copies

GIVEN, ACCEPTED = "person", "accepted"  # Sources of the words of a hit, in JSON

CANDIDATES_PER_PHOTO, MIN_CANDIDATES = 16, 400
"""Number of photos that an index proposes for each of the most likely ones, see `likely_direction`; and in all."""

MIN_SCREENED = 2000  # The confidences of fewer photos are computed without a choice of those that may be the best
N_LIKELY = 16  # Number of the likeliest sampled photos at which the gradient of the log confidence is computed
GRADIENT_STEP = 1e-3  # As a share of the range of their scores
N_RANGES = 256  # Number of scores of a word at which its confidence is computed, to bound those between them
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
    """The photos that a search ranks: those with a row that pass its filter, except rejected photos."""

    rows: CurrentRows
    passing: Ids | None  # Ascending ids of photos that pass the filter; None: all photos with a row
    left_out: Ids  # Ascending ids of rejected photos, whether they pass the filter or not

    @classmethod
    def of(
        cls, rows: CurrentRows, passing: Ids | None, judged: ManualTags, *, limited: bool
    ) -> tuple[CandidatePhotos, ManualTags]:
        """Return the photos to rank, and people's judgements of them; `limited` means that there is a cut-off.

        Unlearned tags have no scores. So if all words are unlearned, only photos with at least one of the words are
        ranked, and with a cut-off only photos with all words.
        """
        if len(judged.ids):
            judged = judged.subset(contains(rows.ids if passing is None else passing, judged.ids))
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
        return without(self.all_ids, self.left_out)

    def __len__(self) -> int:
        if self.passing is None and len(self.left_out) == 0:
            return len(self.rows)
        return len(self.all_ids) - int(np.count_nonzero(contains(self.all_ids, self.left_out)))

    def without_left_out(self, ids: Ids, products: Floats) -> tuple[Ids, Floats]:
        """Return ascending ids and their products without rejected photos."""
        if len(self.left_out) == 0:
            return ids, products
        stays = ~contains(self.left_out, ids)
        return ids[stays], products[stays]


@dataclass(frozen=True, eq=False)
class WordScores:
    """Scores of photos for the words of a search."""

    tagger: Tagger
    rows: CurrentRows
    words: SearchedWords

    def sums(self, judged: ManualTags) -> tuple[Floats, Floats]:
        """Return Σ weight · score of the judged photos, shape (n,), and the values by which they are ranked.

        Both are the same for photos that come first because people gave them the words (see `ManualTags.leads`). For
        the other photos, a word that a person gave them counts as much as in the photo with the word's highest score.
        """
        rows, words, leads = self.rows, self.words, judged.leads
        if len(judged.ids) == 0 or words.q is None:
            return (zeros := np.zeros(len(judged.ids), np.float32)), zeros
        if len(judged.ids) < MIN_SHARE_IN_PLACE * len(rows):
            scores = rows.products(words.rows, judged.ids)
        else:
            scores = rows.products(words.rows)[positions_of(judged.ids, rows.ids)]
        model_sums: NDArray[np.float32] = scores @ words.weights
        ranking_values: Floats = model_sums

        if not leads.all():
            columns = list(judged.certain_photos)
            weights, word_rows = words.weights[columns], words.rows[columns]
            signs = np.sign(weights)
            signed_rows = sp.diags_array(signs) @ word_rows if sp.issparse(word_rows) else signs[:, None] * word_rows
            highest = rows.sampled_products(signed_rows).max(axis=0, initial=-np.inf)
            bonus = np.maximum(np.abs(weights) * highest - scores[:, columns] * weights, 0)
            certain = judged.certain(judged.ids, len(words.weights))
            assert certain is not None  # judged photos that don't come first have a word with scores from a person
            ranking_values = model_sums + np.where(certain[:, columns] & ~leads[:, None], bonus, 0).sum(axis=1)
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
        """Find the k (0: all) best photos."""
        q, rows, n_out = scores.words.q, photos.rows, len(photos.left_out)
        if n_out == 0:
            best = rows.search(q, k, among=photos.passing)
        else:
            # Usually few rejected photos are among the best, so a slightly longer ranking is long enough
            longer = rows.search(q, k + min(n_out, MAX_DROPPED), among=photos.passing) if k else EMPTY_RANKING
            best = ranking_at(longer, np.flatnonzero(~contains(photos.left_out, longer.ids[0])))
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
    is_default: bool = False  # Ties by score instead of by id; an index may propose the photos

    @property
    def has_cutoff(self) -> bool:
        """Whether there is a cut-off."""
        return self.cutoff or self.min_confidence is not None

    def rank(self, scores: WordScores, photos: CandidatePhotos, judged: ManualTags, k: int) -> Ranked:
        """Find the k (0: all) best photos, or all above the cut-off."""
        words, rows = scores.words, scores.rows
        n_candidates = max(CANDIDATES_PER_PHOTO * k, MIN_CANDIDATES) + len(photos.left_out)
        may_use_index = self.is_default and k and photos.passing is None and (words.weights > 0).all()
        if may_use_index and rows.is_indexed(n_candidates):
            q = words.q if len(words.tags) == 1 else likely_direction(self.calibration, rows, words)
            proposals = [rows.proposed(q, k, n_candidates), *_best_of_certain(scores, photos, judged, k)]
            photos = replace(photos, passing=union(*proposals, judged.ids[judged.leads]))
        judged = judged.subset(judged.leads)
        ids, products = photos.all_ids, rows.products(words.rows, photos.passing)
        tree, is_limited, left_out = scores.tagger.tree, bool(k) and not self.has_cutoff, photos.left_out
        has_all = judged.n_given > judged.n_searched
        needs_no_others = is_limited and not judged.n_unlearned and k <= np.count_nonzero(has_all)
        if needs_no_others:  # photos to which people gave all words come before all others
            judged, left_out = judged.subset(has_all), NO_IDS
            positions = positions_of(judged.ids, ids)
            ids, products = ids[positions], products[positions]

        is_screened = is_limited and len(ids) > max(4 * k, MIN_SCREENED)
        if is_screened and (tree is None or not tree.has_under(words.tags)):
            # Compute confidences only for photos that come first or may be among the k most likely photos
            certain, out = judged.certain(ids, len(words.tags)), positions_of(left_out, ids)
            needed = contenders(self.calibration, products, words.tags, words.weights, k, certain, out[out >= 0])
            needed = needed if needs_no_others else union(needed, positions_of(judged.ids, ids))
            ids, products = ids[needed], products[needed]
            judged = judged.subset(contains(ids, judged.ids))

        ids, products = photos.without_left_out(ids, products)
        products_of = partial(rows.products, ids=None if ids is rows.ids else ids)
        log_odds = scores.tagger.word_odds(products, words.tags, products_of)
        logs = self.calibration.log_confidences(log_odds, words.weights, judged.certain(ids, len(words.tags)))

        if not self.has_cutoff:
            best = _best(ids, logs, k, *([products @ words.weights] if self.is_default else []))
            return Ranked(best, judged, logs[np.searchsorted(ids, judged.ids)])
        order, values = top_k(np.ascontiguousarray(logs[None, :], np.float32), len(logs))  # takes most of the time
        P = np.exp(logs[order[0]])
        n_likely = expected_f1_cutoff(P) if self.cutoff else len(P)
        if self.min_confidence is not None:
            n_likely = min(n_likely, int(np.count_nonzero(self.min_confidence <= P)))
        best = Ranking(ids[order[:, :n_likely]], values[:, :n_likely])
        judged = judged.subset(contains(np.sort(best.ids[0]), judged.ids))
        return Ranked(best, judged, logs[np.searchsorted(ids, judged.ids)], n_likely)


def _best_of_certain(scores: WordScores, photos: CandidatePhotos, judged: ManualTags, k: int) -> Iterator[Ids]:
    """Yield, for each word that is certain for some photos, those of them that are best for the other words."""
    words, n_words = scores.words, len(scores.words.weights)
    n_best = (k if n_words == 2 else CANDIDATES_PER_PHOTO * k) + len(photos.left_out)
    for word, ids in judged.certain_photos.items() if n_words > 1 else ():
        ids = ids[contains(scores.rows.ids, ids)]  # not those that are gone
        if len(ids) > max(n_best, MIN_CANDIDATES):  # of fewer, a choice takes longer than their confidences
            others = np.arange(n_words) != word
            q = words.weights[others] @ words.rows[others]
            ids = np.sort(best_among(scores.rows, q, ids, n_best).ids[0])
        yield ids


def likely_direction(calibration: Calibration, rows: CurrentRows, words: SearchedWords) -> Floats:
    """Return a query row, shape (1, width), with large products for the likeliest photos.

    It is Σ weight · row, or the mean gradient of the log confidence at the likeliest photos of a sample, whichever
    ranks these higher: in the sum, a high score of one word can outweigh low ones of the others.
    """

    def logs(scores: Any) -> Doubles:
        return calibration.log_confidences(calibration.log_odds(scores, words.tags), words.weights)

    def n_above(weights: Any) -> int:
        return int(np.count_nonzero(sample @ weights > (likely @ weights).mean()))

    weights, sample = words.weights, rows.sampled_products(words.rows)
    likely = sample[contenders(calibration, sample, words.tags, weights, N_LIKELY)].astype(np.float64)
    likely = likely[np.argsort(-logs(likely))[:N_LIKELY]]
    steps = GRADIENT_STEP * (likely.std() or 1.0) * np.eye(len(weights))
    values = logs(likely)
    gradient = np.array([(logs(likely + step) - values).mean() for step in steps])
    if gradient.any():
        gradient = (gradient / np.abs(gradient).max()).astype(np.float32)
        weights = min(weights, gradient, key=n_above)
    direction: Floats = (weights @ words.rows)[None, :]
    return direction


def best_among(rows: CurrentRows, q: Matrix, ids: Ids, k: int) -> Ranking:
    """Find the k photos among ascending ids with the largest products; by an index, if it proposes enough of them."""
    n_proposed = 2 * k * len(rows) // max(len(ids), 1)  # has k of them twice over if they are as good as any
    if n_proposed <= max(CANDIDATES_PER_PHOTO * k, MIN_CANDIDATES) and rows.is_indexed(n_proposed):
        proposed = rows.search(q, n_proposed)
        best = ranking_at(proposed, np.flatnonzero(contains(ids, proposed.ids[0]))[:k])
        if best.ids.shape[1] == k:
            return best
    return rows.search(q, k, among=ids)


def contenders(
    calibration: Calibration,
    scores: Any,
    tags: Any,
    signs: Any,
    k: int,
    certain: NDArray[np.bool_] | None = None,
    left_out: Ids = NO_IDS,
) -> NDArray[np.int64]:
    """Return the ascending positions of all images that may have one of the k largest log confidences.

    `certain` is that of `Calibration.log_confidences`; `left_out` are the positions of images that don't count.

    Each word of an image is at most as likely as with the highest score of a range that has the image's score. Images
    are left out if they would be less likely than the least likely of any k images: of those that may be most likely.
    """
    n_images, signs = len(scores), np.where(np.asarray(signs) > 0, 1, -1)
    if n_images - len(left_out) <= max(4 * k, N_RANGES):
        return np.delete(np.arange(n_images), left_out)
    highest = np.empty((len(signs), n_images))
    for word, (tag, sign, column) in enumerate(zip(tags, signs, scores.T, strict=True)):
        first, last = map(float, (column.min(), column.max())[::sign])  # the least likely first
        logs = log_sigmoid(sign * calibration.log_odds(np.linspace(first, last, N_RANGES), tag))
        ranges = (column - first) * ((N_RANGES - 1) / ((last - first) or 1))
        ends = np.append(logs[2:], logs[-1])  # one range further, as ranges are rounded
        np.take(ends, ranges.astype(np.int64), out=highest[word], mode="clip")
    if certain is not None:
        np.copyto(highest, 0.0, where=certain.T)

    bounds = calibration.combine(highest.T, signs)
    bounds[left_out] = -np.inf
    best = np.argpartition(bounds, n_images - k)[n_images - k :]
    is_certain = None if certain is None else certain[best]
    least = calibration.log_confidences(calibration.log_odds(scores[best], tags), signs, is_certain).min()
    return np.flatnonzero(bounds >= least - ROUNDING_TOLERANCE * abs(least))


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


def rank(
    method: RankingMethod, scores: WordScores, photos: CandidatePhotos, judged: ManualTags, k: int
) -> tuple[Ranking, list[str | None], int | None]:
    """Rank at most k photos (0: all) by a method, those that people tagged first.

    Returns the ranking, a source per photo (see `merge`), and the number of photos above the cut-off. If people tagged
    k photos with all words, they are ranked by `SearchedWords.q`, without the others; unless their order depends on
    more: on a cut-off, a ``-word``, an unlearned tag, probabilities, or for several words on moments of videos.
    """
    rows, words, n_words = scores.rows, scores.words, judged.n_searched
    by_sum = isinstance(method, BySum)
    is_simple = by_sum or (isinstance(method, ByConfidence) and not method.has_cutoff)
    is_simple &= not judged.n_unlearned and len(words.weights) == n_words and not (len(rows.frames) and n_words > 1)
    if not is_simple or not 0 < k <= np.count_nonzero(judged.leads):
        ranked = method.rank(scores, photos, judged, k)
        return *merge(ranked, scores.sums(ranked.judged), k), ranked.n_likely

    rankings: list[Ranking] = []
    sources: list[str | None] = []
    for n_given in range(n_words + 1, 0, -1):
        mask = judged.n_given == n_given
        if len(sources) < k and mask.any():
            ids = judged.ids if mask.all() else judged.ids[mask]
            rankings.append(best_among(rows, words.q, ids, k - len(sources)))
            sources += [GIVEN if n_given > n_words else ACCEPTED] * rankings[-1].ids.shape[1]
    ids, values = map(np.hstack, zip(*rankings, strict=True))
    return Ranking(ids, values if by_sum else np.zeros_like(values)), sources, None


def merge(ranked: Ranked, sums: tuple[Floats, Floats], k: int) -> tuple[Ranking, list[str | None]]:
    """Insert the judged photos into the ranking.

    Photos of `ManualTags.leads` come first: by number of unlearned words, then of given words, then by score. All other
    judged photos are ranked by score among the unjudged photos. `sums` are the results of `WordScores.sums` for the
    judged photos.

    Returns at most k photos (0: all), and a source per photo: "person" or "accepted" if people tagged it with all the
    words, else None.
    """
    judged, (best, best_scores), (model_sums, ranking_values) = ranked.judged, ranked.best, sums
    if len(judged.ids) == 0:
        return ranking_at(ranked.best, slice(k or None)), [None] * len(best[0, : k or None])
    scores = ranking_values if ranked.scores is None else ranked.scores
    others = np.flatnonzero(~contains(judged.ids, best[0]))[: k or None]
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


def ranking_at(ranking: Ranking, positions: Ids | slice) -> Ranking:
    """Return the photos of a ranking at `positions`, in that order."""
    return Ranking(ranking.ids[:, positions], ranking.scores[:, positions])


def _best(ids: Ids, scores: Floats, k: int, *ties: Floats) -> Ranking:
    values = scores.astype(np.float32)
    order = best_by((values, *ties, -ids), k)
    return Ranking(ids[None, order], values[None, order])
