"""Objects and their parts: an embedding of images and tags that also learns part-of relations between tags."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from visterm.core.checks import check_flag, check_k, check_magnitude, check_number
from visterm.core.errors import DataError, ShapeError, UserError
from visterm.core.estimator import check_fitted
from visterm.core.learned import Array, Kind, Listed, Whole
from visterm.core.threads import resolve_jobs, standing_team
from visterm.core.types import Floats, Ints, Matrix, MatrixLike, PairRanking
from visterm.kernels.pairs import PairTerms, pair_ranks, pair_terms, top_pairs
from visterm.kernels.topk import top_k
from visterm.models.base import Limit
from visterm.models.epochs import Measure, Weights
from visterm.models.parts.related_training import RelatedImages, RelatedTraining, RowLayout
from visterm.models.parts.relations import Quadruplets, check_relations, listed_and_suggested
from visterm.models.ranking.embedding_ranking import DRAW_LIMITS, EmbeddingRanker
from visterm.models.ranking.image_sides import StepSettings
from visterm.models.ranking.training import Training, TrainingContext
from visterm.models.ranking.warp import Objective, rank_weights
from visterm.models.stopping import Judged

MAX_VALUE = 1e37  # The sum of three such numbers doesn't overflow float32
EXAMPLES_PER_PART = 16  # Constant, so the parts don't depend on the number of threads
VALIDATION_QUADRUPLETS = 2000
IMPOSSIBLE_SCORE = np.float32(-1e30)
MAX_PAIR_TAGS = 20_000  # Maximum number of tags to compute the scores of all pairs of tags at once: 1.6 GB


def label_terms(F: ArrayLike) -> PairTerms:
    """Check the label-label term `F`, (n_tags, n_tags), and compute its bounds, for use in many calls.

    Rows are tags of the object, columns tags of the part. Raises ShapeError if `F` is not square, or has no tags;
    DataError if a value is NaN, infinite or above 1e37.
    """
    F = np.ascontiguousarray(F, np.float32)
    if F.ndim != 2 or F.shape[0] != F.shape[1] or F.shape[0] == 0:
        raise ShapeError(f"F has the shape {F.shape}; expected (n_tags, n_tags), a value for each pair of tags.")
    _check_finite("F", F)
    terms: PairTerms = pair_terms(F)
    return terms


def best_pairs(A: ArrayLike, B: ArrayLike, F: ArrayLike | PairTerms, k: int, n_jobs: int | None = None) -> PairRanking:
    """Rank pairs of an object's tag i and a part's tag j by ``(A[:, i] + B[:, j]) + F[i, j]``.

    It is the score f_q of Mesnil et al. (2013), section 3. `A` and `B`, (n, n_tags), score each tag for the object's
    image and for the part's image; `F` is the label-label term, (n_tags, n_tags), or the result of `label_terms`. A tag
    with itself is a pair, too.

    Returns the k best pairs of each row (0: all), shape (n, min(k, number of pairs)); ties by the smaller object tag,
    then the smaller part tag. The bytes are those of sorting all scores, and don't depend on `n_jobs` or other rows.
    Raises ShapeError if the shapes do not match; DataError if a value is not finite, or above 1e37; UserError if `k` or
    `n_jobs` is invalid.
    """
    A, B, terms = _check_scores(A, B, F)
    n, n_tags = A.shape
    k = check_k(k, n_tags * n_tags)
    ids, scores = np.empty((n, k), np.int64), np.empty((n, k), np.float32)
    if k > 0:
        _in_parts(lambda start, stop: top_pairs(A, B, terms, start, stop, ids, scores), n, n_jobs)
    return PairRanking(ids % n_tags, ids // n_tags, scores)


def ranks_of_pairs(
    A: ArrayLike,
    B: ArrayLike,
    F: ArrayLike | PairTerms,
    objects: ArrayLike,
    parts: ArrayLike,
    n_jobs: int | None = None,
) -> Ints:
    """Return the rank, from 0, of the pair of tags `objects` and `parts` of each row in the order of `best_pairs`.

    Raises the same errors as `best_pairs`, and DataError if a tag doesn't exist.
    """
    A, B, terms = _check_scores(A, B, F)
    i, j = known_tags("objects", objects, *A.shape), known_tags("parts", parts, *A.shape)
    ranks = np.empty(len(A), np.int64)
    _in_parts(lambda start, stop: pair_ranks(A, B, terms, i, j, start, stop, ranks), len(A), n_jobs)
    return ranks


def _check_scores(A: ArrayLike, B: ArrayLike, F: ArrayLike | PairTerms) -> tuple[Floats, Floats, PairTerms]:
    terms = F if isinstance(F, PairTerms) else label_terms(F)
    A, B = (np.ascontiguousarray(scores, np.float32) for scores in (A, B))
    n_tags = len(terms.F)
    if A.ndim != 2 or A.shape != B.shape or A.shape[1] != n_tags:
        raise ShapeError(f"A has the shape {A.shape}, B {B.shape}; expected (n, {n_tags}) for both, the tags of F.")
    _check_finite("A", A)
    _check_finite("B", B)
    return A, B, terms


def _check_finite(name: str, values: Floats) -> None:
    if not np.isfinite(values).all():
        raise DataError(f"{name} contains NaN or infinity; expected finite numbers.")
    check_magnitude(values, MAX_VALUE, name)


def known_tags(name: str, tag_ids: ArrayLike, n: int, n_tags: int) -> Ints:
    """Return the tags of n rows as int64; raises ShapeError without one per row, DataError if one is unknown."""
    tags = np.asarray(tag_ids)
    if tags.shape != (n,) or not (np.issubdtype(tags.dtype, np.integer) or n == 0):
        raise ShapeError(f"{name} has the shape {tags.shape} and type {tags.dtype}; expected ({n},) whole numbers.")
    outside = tags[(tags < 0) | (tags >= n_tags)]
    if outside.size:
        raise DataError(f"{name} has the tag {outside[0]}; expected 0 to {n_tags - 1}.")
    return np.ascontiguousarray(tags, np.int64)


def _in_parts(work: Callable[[int, int], None], n: int, n_jobs: int | None) -> None:
    n_parts = -(-n // EXAMPLES_PER_PART)
    team = standing_team(max(1, min(resolve_jobs(n_jobs), n_parts)))
    team.run(lambda part: work(part * EXAMPLES_PER_PART, min(n, (part + 1) * EXAMPLES_PER_PART)), n_parts)


@dataclass(kw_only=True, eq=False, repr=False)
class ObjectsAndParts(EmbeddingRanker):
    """Joint embedding of images and tags in which parts and their wholes are near each other, too.

    A picture of an object with the label o and a picture of its part with the label p have the score

    ``f(I_o, o, I_p, p) = f_I(I_o, o) + f_I(I_p, p) + α f_L(o, p)``

    where ``f_I(I, t) = (x A) · v_t`` scores a label for an image, and ``f_L(o, p) = W_o · W_p`` the relation of two
    labels. It learns only from tagged images and from relations between tags: a picture of a wheel need not show a
    wheel of that car, and parts need not be marked in pictures ("proxy supervision"). Training is that of section
    4.3.3, see `RelatedTraining`; the violation is ``f(x̃) + 1 > f(x)``, the reverse of the paper's step 4.
    Without relations this is `wsabie` with the paper's weights of ranks, 1 for every true tag that is not on top.

    Parameters
    ----------
    part_of : array-like of int, shape (n_relations, 2), or None
        Columns of two tags: the part and its whole.
    shared : bool
        Whether tags have the same vector for images and for other tags (V = W). "Unshared" (False) labels images
        slightly better, as the vectors of a car and a wheel need not be similar.
    directed : bool
        Whether tags have different vectors as a whole and as a part: a wheel may then be a part of a car without a car
        being a part of a wheel, ``f_L(o, p) = W_o · P_p``. Not in the paper.
    alpha : float
        Weight of f_L. The paper has 0.1; with 1, held-out relations of drawn objects and labels of parts were better,
        and labels of images equally good.
    negative_weight : float
        Share of the steps that push apart the vectors of two tags that are not known to be related. 1 as in the paper,
        where a missing relation counts as an error: held-out relations of drawn objects then ranked below unrelated
        pairs. With 0.1 they rank above unrelated pairs, and known relations are slightly less precise. With 0, vectors
        are only pulled together.
    listed : float
        Number added to f_L for relations in `part_of`, which the vectors alone may learn too weakly. 0 as in the paper.
    suggested : float
        Share of `listed` that is added for an unknown relation that all tags similar to the whole have, at most 1; less
        if fewer have it, see `listed_and_suggested`. With 0, `listed` makes unknown relations harder to find.
    siblings : array-like of int, shape (n_pairs, 2), or None
        Tags of the same kind, which count as similar; other tags are similar to wholes with which they share parts.
    weight : str
        The cost of a true tag on rank k, see `rank_weights`; "top" as in the paper.
    truncate : int
        See `weight`.
    max_trials : int
        γ: number of draws after which a true tag counts as well ranked. The rank after N draws is floor(γ / N).
    image_learning_rate : float, optional
        Learning rate of A; None: that of the tags.
    dim, learning_rate, max_norm, row_length, epochs, average, patience, valid_share, schedule, init_scale
        As in `EmbeddingRanker`.
    block, n_jobs, random_state
        As in `EmbeddingRanker`; a block is a mini-batch whose steps are summed.

    Attributes
    ----------
    tag_rows_ : ndarray of float32, shape (n_tags, dim)
        V (U of the paper).
    relation_rows_ : ndarray of float32, shape (n_tags, 0, dim or 2 dim)
        W, followed by the vectors of parts; without the vectors that are the same as `tag_rows_`.
    part_of_ : ndarray of int64, shape (n_relations, 2)
        The training relations.
    history_ : list of dict
        With relations, ``map`` is None, and there is ``mean_rank``: the mean rank of the true pair of labels among all
        pairs, over quadruplets of validation images; the weights with the lowest mean rank are kept.

    References
    ----------
    Mesnil, Bordes, Weston, Chechik, Bengio: Learning semantic representations of objects and their parts. Machine
    Learning 94, 2014; sections 3, 4.3 and 6.
    """

    limits: ClassVar[dict[str, Limit]] = DRAW_LIMITS | {
        "shared": check_flag,
        "directed": check_flag,
        "alpha": partial(check_number, least=0),
        "negative_weight": partial(check_number, least=0, most=1),
        "listed": partial(check_number, least=0),
        "suggested": partial(check_number, least=0),
        "image_learning_rate": partial(check_number, above=0, otherwise="or None for the tags'"),
    }

    learned: ClassVar[dict[str, Kind]] = {
        "part_of_": Array("int64", ("n_relations", 2), least=0, below="n_tags_", empty=True),
        "relation_rows_": Array("float32", ("n_tags_", None), empty=True),
        "siblings_": Listed(Listed(Whole(), 2), required=False),
    }
    takes: ClassVar[tuple[str, ...]] = ("part_of", "siblings")

    _measures_ranks = False

    part_of: ArrayLike | None = None
    shared: bool = True
    directed: bool = False
    alpha: float = 1.0
    negative_weight: float = 0.1
    listed: float = 0.0
    suggested: float = 3.0
    siblings: ArrayLike | None = None
    weight: str = "top"
    truncate: int = 10
    max_trials: int = 100
    image_learning_rate: float | None = None
    step: ClassVar[str] = "sgd"  # type: ignore[misc]
    l2: ClassVar[float] = 0.0  # type: ignore[misc]
    bias: ClassVar[float] = 0.0  # type: ignore[misc]
    standardize: ClassVar[bool] = False  # type: ignore[misc]
    relation_rows_: Floats = field(init=False)
    fit_stream: ClassVar[None] = None  # type: ignore[assignment]  # it learns in memory only

    def annotate_pairs(
        self,
        X_object: MatrixLike,
        X_part: MatrixLike,
        k: int = 5,
        *,
        objects: ArrayLike | None = None,
        parts: ArrayLike | None = None,
        words: bool = True,
        offset: float = 0.0,
        possible: ArrayLike | None = None,
    ) -> PairRanking:
        """Label images of objects together with images of their parts.

        Returns the exact best pairs of labels, shape (n, k) or less, best first. Raises ShapeError if the inputs have
        different numbers of rows, or `objects` or `parts` is not one label per row.

        Parameters
        ----------
        X_object, X_part : array-like or sparse, shape (n, n_features)
            Row i of the second shows a part of what row i of the first shows.
        k : int
            Number of pairs of labels; 0 means all.
        objects, parts : array-like of int, shape (n,), optional
            Known labels of the objects or of the parts; only the other label is then ranked ("triplet").
        words : bool
            Whether to use f_L ("image-word"), or only the images ("image").
        offset : float
            λ, added to the score of pairs with a training relation: with a large value, only these pairs are returned
            (section 6.5).
        possible : array-like of bool, shape (n_tags, n_tags), optional
            Whether a whole (row) can have a part (column); impossible pairs come last, with scores of about -1e30.
            None: all pairs are possible, even a tag with itself, as in the paper.
        """
        A, B = (self._scores(self._image_rows(self._check_features(X))) for X in (X_object, X_part))
        if len(A) != len(B):
            raise ShapeError(f"There are {len(A)} images of objects and {len(B)} of parts; expected the same number.")
        F = self.pair_scores(words=words, offset=offset)
        if possible is not None:
            F = np.where(possible, F, IMPOSSIBLE_SCORE)
        if objects is None and parts is None:
            return best_pairs(A, B, F, k, self.n_jobs)
        if objects is not None and parts is not None:
            raise UserError(
                "Both labels are given, so no label remains to be ranked.",
                setting="parts", value=parts, expected="None, or None for `objects`",
            )  # fmt: skip

        S, relation_terms = (B, F) if parts is None else (A, F.T)
        labels, name = (objects, "objects") if parts is None else (parts, "parts")
        tags = known_tags(name, np.asarray(labels), len(A), self.n_tags_)
        ids, scores = top_k(np.ascontiguousarray(S + relation_terms[tags]), check_k(k, self.n_tags_))
        scores += np.take_along_axis(A if parts is None else B, tags[:, None], axis=1)
        known_labels = np.repeat(tags[:, None], ids.shape[1], axis=1)
        return PairRanking(ids, known_labels, scores) if parts is None else PairRanking(known_labels, ids, scores)

    def relation_scores(self, wholes: ArrayLike) -> Floats:
        """Return f_L of wholes, shape (n,), and all tags as their parts, shape (n, n_tags)."""
        check_fitted(self)
        tags = np.atleast_1d(np.asarray(wholes))
        as_whole, as_part = self._relation_vectors()
        whole_tags = known_tags("wholes", tags, len(tags), self.n_tags_)
        scores = as_whole[whole_tags] @ as_part.T
        if (certainties := self._known_and_suggested()) is not None:
            scores += certainties[whole_tags].toarray()
        return scores

    def pair_scores(self, *, words: bool = True, offset: float = 0.0) -> Floats:
        """Return the part of a score that depends only on the tags, [whole, part], shape (n_tags, n_tags).

        See `annotate_pairs` for the parameters.
        """
        check_fitted(self)
        if self.n_tags_ > MAX_PAIR_TAGS:
            raise UserError(
                f"Pairs of {self.n_tags_:,} tags would take {4e-9 * self.n_tags_**2:,.1f} GB; up to {MAX_PAIR_TAGS:,} "
                "tags can be paired. Leave out rare tags, or those without relations."
            )

        scores = np.zeros((self.n_tags_, self.n_tags_), np.float32)
        if words:
            as_whole, as_part = self._relation_vectors()
            np.matmul(as_whole, as_part.T, out=scores)
            if (certainties := self._known_and_suggested()) is not None:
                scores += certainties.toarray()
            scores *= np.float32(self.alpha)
        scores[self.part_of_[:, 1], self.part_of_[:, 0]] += np.float32(offset)
        return scores

    def add_tags(self, X: MatrixLike, Y_new: MatrixLike) -> Self:
        """Learn the rows of new tags, which have no relations; see `PairRanker.add_tags`."""
        super().add_tags(X, Y_new)
        zeros = np.zeros((self.n_tags_ - len(self.relation_rows_), self.relation_rows_.shape[1]), np.float32)
        self.relation_rows_ = np.concatenate([self.relation_rows_, zeros])
        return self

    def _check_learned(self) -> None:
        super()._check_learned()
        width, expected = self.relation_rows_.shape[1], self._layout().width - self.dim
        if width != expected:
            raise DataError(f"relation_rows_ has {width} columns; expected {expected}, by dim, shared and directed")

    def _layout(self) -> RowLayout:
        whole = 0 if self.shared else self.dim
        return RowLayout(self.dim, whole, whole + self.dim if self.directed else whole)

    def _relation_vectors(self) -> tuple[Floats, Floats]:
        layout, rows = self._layout(), np.hstack([self.tag_rows_, self.relation_rows_])
        return rows[:, layout.whole :][:, : self.dim], rows[:, layout.part :][:, : self.dim]

    def _known_and_suggested(self) -> sp.csr_array | None:
        """Return what f_L adds for known and suggested relations, [whole, part], as a sparse matrix, or None."""
        if not self.listed or not len(self.part_of_):
            return None
        terms = listed_and_suggested(self.part_of_, self._known_siblings(self.n_tags_), self.n_tags_, self.suggested)
        return (self.listed * terms).astype(np.float32)

    def _known_siblings(self, n_tags: int) -> Ints:
        siblings = getattr(self, "siblings_", None) if self.siblings is None else self.siblings
        return check_relations([] if siblings is None else siblings, n_tags)

    def _start(self, X: Matrix, n_tags: int, rng: np.random.Generator) -> Weights:
        part_of, siblings = self.known("part_of"), self._side.siblings
        self.part_of_ = check_relations([] if part_of is None else part_of, n_tags)
        if self.listed and siblings is not None and np.size(siblings):
            self.siblings_ = np.asarray(siblings).tolist()  # `_known_and_suggested` needs them
        self._known_siblings(n_tags)  # raises an error for invalid tags before training
        image_map, tag_rows = super()._start(X, n_tags, rng)
        deviation = np.float32(1 / np.sqrt(self.dim))  # not that of images, whose sums over features reduce the noise
        relation_rows = [self._normal_rows(n_tags, deviation, rng) for _ in range(self._layout().width // self.dim - 1)]
        return image_map, np.ascontiguousarray(np.hstack([tag_rows, *relation_rows]))

    def _resume(self) -> Weights:
        return self.image_map_.copy(), np.hstack([self.tag_rows_, self.relation_rows_])

    def _publish(self, *weights: Floats, images: bool = True) -> None:
        self.image_map_, rows = weights
        self.tag_rows_ = np.ascontiguousarray(rows[:, : self.dim])
        self.relation_rows_ = np.ascontiguousarray(rows[:, self.dim :])

    def _objective(self, n_tags: int) -> Objective:
        weights = rank_weights(self.weight, max(n_tags, self.max_trials), self.truncate)
        return Objective(weights, self.max_trials, rank_numerator=self.max_trials)

    def _training(self, X: Matrix, positives: sp.csr_array, weights: Weights, context: TrainingContext) -> Training:
        image_map, tag_rows = weights
        steps = StepSettings(min(self.block or context.block, max(1, positives.nnz)), self.max_norm)
        rate_factor = 1.0 if self.image_learning_rate is None else self.image_learning_rate / self.learning_rate
        side = RelatedImages(
            X, image_map, tag_rows, steps, layout=self._layout(), alpha=self.alpha, rate_factor=rate_factor,
            scale=self.scale_, n_jobs=context.team.size, trainable=context.trains_images,
        )  # fmt: skip
        return RelatedTraining(
            side, positives, tag_rows, self._objective(len(tag_rows)), steps,
            pairs=self.part_of_, negative_weight=self.negative_weight, rng=context.rng, team=context.team,
        )  # fmt: skip

    def _measured(self, value: float | None) -> tuple[dict[str, float | None], str]:
        if not self._measures_ranks:
            return super()._measured(value)
        mean_rank = None if value is None else -value
        text = "" if mean_rank is None else f"mean rank {mean_rank:,.1f} of {self.n_tags_**2:,} pairs"
        return {"map": None, "mean_rank": mean_rank}, text

    def _measure_map(self, judged: Judged, known: sp.csr_array | None = None) -> Measure | None:
        """Return the measure of the weights: with relations, the negative mean rank of pairs of labels."""
        self._measures_ranks = False
        if judged is None or not len(self.part_of_):
            return super()._measure_map(judged, known)
        X, Y = judged
        try:
            drawn = Quadruplets(Y, self.part_of_).draw(VALIDATION_QUADRUPLETS)
        except DataError:  # no relation has validation images of both tags
            return super()._measure_map(judged, known)
        self._measures_ranks = True
        rows, position = np.unique([drawn.object_images, drawn.part_images], return_inverse=True)
        images = self._check_features(X[rows])  # score each image once, even if it is in many quadruplets
        wholes, parts = position.reshape(2, -1)

        def mean_rank() -> float:
            scores, terms = self._scores(self._image_rows(images)), self.pair_scores()
            ranks = ranks_of_pairs(scores[wholes], scores[parts], terms, drawn.objects, drawn.parts, self.n_jobs)
            return -float(np.mean(ranks))

        return mean_rank
