"""PAMIR: one linear scorer per word, trained on queries to rank relevant images above others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import expit, logit

from visterm.core.checks import as_csr, check_choice, check_count, check_tags, count_rows
from visterm.core.errors import DataError, ShapeError
from visterm.core.learned import Kind, Whole
from visterm.core.progress import SILENT, Progress
from visterm.core.queries import inverse_frequencies, weigh_words
from visterm.core.threads import Team, one_blas_thread, resolve_jobs
from visterm.core.types import Doubles, Floats, Ints, Matrix, MatrixLike
from visterm.data.tag_queries import MAX_SUBSETS, Queries, queries_of_tags
from visterm.kernels.passive_aggressive import JudgedQueries, rank_triplets, rank_violators
from visterm.metrics.retrieval import TOP_IMAGES, gains_of, rank_queries
from visterm.models.base import Limit, row_blocks
from visterm.models.epochs import EpochSums, Measure, Weights
from visterm.models.linear.base import with_ones
from visterm.models.ranking.linear_ranking import LinearRanker
from visterm.models.ranking.ranker import Images
from visterm.models.ranking.training import RankingState, Training, TrainingContext, image_rows, positive_tags
from visterm.models.stopping import HeldOutFit, Judged, OnEpoch, Watch

P10_RANKS = 10  # Number of ranks that count for "p10"
TOP_LOSSES = ("p10", "warp", "ndcg")
LOSSES = ("triplet", *TOP_LOSSES)

INTERCEPT_IMAGES = 1024  # Maximum number of training images that set intercepts: more hardly change them
BISECTION_STEPS = 32  # Number of bisection steps for each intercept: ten digits
BLOCK_TAGS = 2048  # Number of tags processed at a time, to limit the memory


class TripletTraining(Training):
    """The state of one training on queries: the relevant images, and the weights.

    `X` has a constant column for the bias, which never changes because both images have it. `weights`, (n_queries,
    n_words), are the weights of words; stored entries of the canonical `relevant`, (n_queries, n_images), are relevant
    images; `tag_rows`, (n_words, width), are changed in place; `rng` draws the seed of the draws. `n_pairs`, the number
    of pairs of a usable query and a relevant image, is the number of triplets per epoch.

    Queries without words, without relevant images, or with only relevant images are not usable: they rank nothing.
    """

    def __init__(
        self, X: Matrix, weights: sp.csr_array, relevant: sp.csr_array, tag_rows: Floats, *, rng: np.random.Generator
    ) -> None:
        self._store_queries(weights, relevant, rng)
        self._rows, self._n_images, self._W = image_rows(X), X.shape[0], tag_rows
        self._scratch = np.zeros(tag_rows.shape[1], np.float32)

    def run_epoch(self, rate: float) -> EpochSums:
        """Draw one triplet per pair of query and relevant image; `rate` is the maximum step."""
        loss, n_moved = self.run(self.n_pairs, rate)
        n = max(1, self.n_pairs)
        return EpochSums(loss / n, 1.0, n_moved / n)

    def run(self, n_steps: int, rate: float) -> tuple[float, int]:
        """Draw `n_steps` triplets; return the sum of their losses, and the number of triplets with a step."""
        loss, n_moved = self._steps(n_steps, rate)
        self._epoch += 1
        return float(loss), int(n_moved)

    def _store_queries(self, weights: sp.csr_array, relevant: sp.csr_array, rng: np.random.Generator) -> None:
        """Store the usable queries, and draw the seed of the draws."""
        usable = np.flatnonzero(self._has_order(relevant) & (np.diff(weights.indptr) > 0))
        weights, relevant = as_csr(weights[usable]), as_csr(relevant[usable])
        starts = weights.indptr.astype(np.int64), relevant.indptr.astype(np.int64)
        self._queries = JudgedQueries(starts[0], weights.indices, weights.data, starts[1], relevant.indices)
        self._gains = relevant.data
        self.n_pairs = int(relevant.nnz)
        self._seed = int(rng.integers(2**62))
        self._epoch = 0

    def _has_order(self, relevant: sp.csr_array) -> NDArray[np.bool_]:
        """Return for each query whether images differ in relevance."""
        n_relevant = np.diff(relevant.indptr)
        return np.asarray((n_relevant > 0) & (n_relevant < relevant.shape[1]))

    def _steps(self, n_steps: int, rate: float) -> tuple[float, int]:
        total, n_moved = rank_triplets(
            n_steps, self._queries, self._rows, self._n_images, rate, (self._seed, self._epoch), self._W, self._scratch
        )
        return total, n_moved


class TopTripletTraining(TripletTraining):
    """`TripletTraining` with violating images, and steps that are weighted by the rank of the relevant image.

    With the loss "ndcg", the values of `relevant` are gains. After `max_trials` draws without a violation, a relevant
    image counts as well ranked.
    """

    def __init__(
        self,
        X: Matrix,
        weights: sp.csr_array,
        relevant: sp.csr_array,
        tag_rows: Floats,
        *,
        loss: str,
        max_trials: int,
        rng: np.random.Generator,
    ) -> None:
        super().__init__(X, weights, relevant, tag_rows, rng=rng)
        gains = self._gains if loss == "ndcg" else np.ones_like(self._gains)
        shares = np.ones(len(self._queries.r_start) - 1)
        if loss == "ndcg":  # a query's pairs are drawn evenly, but their changes of nDCG are summed
            shares = np.diff(self._queries.r_start) / ideal_gains(self._queries.r_start, gains)
        self._rank_costs = gains, shares.astype(np.float32), rank_weights(loss, X.shape[0])
        self._max_trials = max_trials
        self._n_trials = 0

    def run_epoch(self, rate: float) -> EpochSums:
        """Draw one triplet per pair of query and relevant image; `rate` is the maximum step."""
        return super().run_epoch(rate)._replace(draws=self._n_trials / max(1, self.n_pairs))

    def _has_order(self, relevant: sp.csr_array) -> NDArray[np.bool_]:
        has_order = super()._has_order(relevant)
        for query in np.flatnonzero(~has_order & (np.diff(relevant.indptr) > 0)):
            has_order[query] = np.ptp(relevant.data[relevant.indptr[query] : relevant.indptr[query + 1]]) > 0
        return has_order

    def _steps(self, n_steps: int, rate: float) -> tuple[float, int]:
        total, n_moved, self._n_trials = rank_violators(
            n_steps, self._queries, *self._rank_costs, self._rows, self._n_images, self._max_trials, rate,
            (self._seed, self._epoch), self._W, self._scratch,
        )  # fmt: skip
        return total, n_moved


def rank_weights(loss: str, n_images: int) -> Floats:
    """Return the weight, 0 to 1, of a relevant image that r images outrank, for r from 0 to `n_images`.

    "p10": ``min(r, 10) / 10``, the same for all ranks below the tenth (Usunier et al., α of the first ten ranks).
    "warp": ``Σ_{i ≤ r} 1 / i``, as a share of the largest (WSABIE, Eq. 3). "ndcg": ``D(1) - D(r + 1)`` with the
    discount ``D(i) = 1 / log2(1 + i)``: LambdaRank's change of nDCG by a swap with the first image, because nothing but
    an order is known: p- ranks above p+.
    """
    r = np.arange(n_images + 1)
    if loss == "p10":
        weights = np.minimum(r, P10_RANKS) / P10_RANKS
    elif loss == "warp":
        weights = np.concatenate(([0.0], np.cumsum(1 / r[1:])))
        weights /= weights[-1]
    else:
        weights = 1 - 1 / np.log2(2 + r)
    return np.asarray(weights, np.float32)


def ideal_gains(starts: Ints, gains: Floats) -> Doubles:
    """Return the ideal discounted gain of each query q, whose gains are ``gains[starts[q]:starts[q + 1]]``."""
    queries = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    order = np.lexsort((-gains, queries))
    ranks = np.arange(len(gains)) - starts[queries]
    return np.asarray(np.bincount(queries, gains[order] / np.log2(2 + ranks), minlength=len(starts) - 1), np.float64)


class JudgedImages(NamedTuple):
    """Images, and queries with their relevant images among them."""

    X: Matrix
    queries: Queries


@dataclass(kw_only=True, eq=False, repr=False)
class Pamir(LinearRanker):
    """One weight vector per word, trained on queries so that relevant images score above the others.

    A query is a row of weights of its words, an image p is mapped to text by ``f(p) = (w_1 · p, ..., w_T · p)``, and
    the score is ``q · f(p)``. Triplets are drawn: a query, an image p+ that is relevant to it, and an image p- that is
    not. If the loss ``l = |1 - q · f(p+) + q · f(p-)|₊`` is above 0, the smallest step that makes it 0 is taken, up to
    the length `aggressiveness`: ``w_t += τ q_t (p+ - p-)`` for the words t of the query. An epoch has one triplet for
    each pair of a query and a relevant image; training ends when the mean average precision over the queries of
    validation images no longer rises.

    `fit` makes the queries from the tags (every set of up to `max_words` tags of an image, weighted by idf);
    `fit_queries` takes queries. The bias of a tag does not change the order of images. It is set at the end, so that
    the tags of an image can be compared: scores are log odds, which are right on average on training images.

    The losses "p10", "warp" and "ndcg" optimise the top of the ranking, where people look (section VI). After q and p+,
    images are drawn until an image p- scores above the score of p+ minus 1; the number of draws estimates the rank of
    p+, and the maximum step is `aggressiveness` times the cost of this rank: "p10", the share of the first ten ranks
    above p+; "warp", WSABIE's weight; "ndcg", the loss of discounted gain compared with the first rank, as a share of
    the query's ideal gain. With "ndcg", `R` of `fit_queries` has gains, and p- is any image with less gain.

    Each step needs the weights after the previous step, so training uses one thread: `n_jobs` is for annotation only.

    Parameters
    ----------
    loss : {"triplet", "p10", "warp", "ndcg"}
        The cost of mistakes; "triplet" is the paper's. The others take several times as long.
    max_trials : int
        With the losses "p10", "warp" and "ndcg": number of draws after which a relevant image counts as well ranked.
    aggressiveness : float
        Maximum step (c), for features of mean length 1. More adapts more to each triplet.
    max_words : int or None
        Maximum number of words of the queries that `fit` makes; None: all tags of an image (as in the paper).
    max_subsets : int
        If there are more sets of two or more tags, counted image by image, `fit` draws a sample of this size.
    epochs : int
        Maximum number of epochs.
    average : int
        The weights are the mean over about this many of the last epochs; 1: only the last epoch (as in the paper).
    row_length, patience, valid_share, schedule, n_jobs, random_state
        As in `EmbeddingRanker`; the schedule changes `aggressiveness`.

    Attributes
    ----------
    tag_rows_, scale_
        As in `LinearRanker`.
    n_queries_ : int
        Number of training queries.
    history_ : list of dict
        As in `PairRanker`; ``map`` is the mean average precision over the queries of validation images (with
        ``loss="ndcg"``, the mean nDCG10), and the other means are over the triplets.

    References
    ----------
    Grangier, Bengio: A discriminative kernel-based model to rank images from text queries. PAMI 30, 2008; sections
    III-B to III-D, IV-A and V-A; section VI suggests losses of the top.
    Usunier, Buffoni, Gallinari: Ranking with ordered weighted pairwise classification. ICML 2009 ("p10").
    Burges, Ragno, Le: Learning to rank with nonsmooth cost functions. NIPS 2006 ("ndcg").
    """

    limits: ClassVar[dict[str, Limit]] = {
        "loss": partial(check_choice, choices=LOSSES),
        "max_trials": check_count,
        "max_words": partial(check_count, otherwise="or None for all tags of an image"),
        "max_subsets": check_count,
    }

    test_params: ClassVar[Mapping[str, object]] = {"epochs": 20}

    learned: ClassVar[dict[str, Kind]] = {"n_queries_": Whole(least=1, required=False)}

    loss: str = "triplet"
    max_trials: int = 100
    aggressiveness: float = 0.1
    max_words: int | None = 3
    max_subsets: int = MAX_SUBSETS
    epochs: int = 200
    fit_stream: ClassVar[None] = None  # type: ignore[assignment]  # it learns in memory only

    def fit_queries(
        self,
        X: MatrixLike | None,
        Q: MatrixLike,
        R: MatrixLike,
        *,
        valid: tuple[MatrixLike, MatrixLike, MatrixLike] | None = None,
        monitor: Progress | None = None,
        on_epoch: OnEpoch | None = None,
    ) -> Self:
        """Learn from queries and their relevant images, from the start each time it is called.

        For the bias of a tag, an image that is relevant to a query counts as having the query's words. Raises
        ShapeError if the shapes do not match; DataError if no query has a relevant image, or a value is not finite;
        DivergedError if training ends in infinity or NaN.

        Parameters
        ----------
        X : array-like or sparse, shape (n_images, n_features), or None
            Image features. None: images known only by number.
        Q : array-like or sparse, shape (n_queries, n_tags)
            Weights of the words, as `visterm.core.queries.weigh_words` returns them; below 0: a `-word`.
        R : array-like or sparse, shape (n_queries, n_images)
            Above 0: relevant; with ``loss="ndcg"`` the number is the gain. All other images count as not relevant.
        valid : tuple (X, Q, R), optional
            Validation images and queries for early stopping. Without them a share of the images is held out.
        monitor : Progress, optional
            Shows each epoch.
        on_epoch : callable, optional
            As in `fit`.
        """
        queries = _check_queries(Q, R, X)
        tagged = as_csr(sp.csr_array(queries.relevant.T) @ (queries.words > 0).astype(np.float32))
        with self._fitting(X, tagged) as (X, Y, rng, _):
            self.check_settings()
            validation = None
            if valid is not None:
                X_valid = self._check_features(valid[0])
                validation = JudgedImages(X_valid, _check_queries(valid[1], valid[2], X_valid))
                if validation.queries.words.shape[1] != Y.shape[1]:
                    raise ShapeError(
                        f"The validation Q has {validation.queries.words.shape[1]} tags, the training Q {Y.shape[1]}."
                    )
            self._learn(X, positive_tags(Y), queries, rng, validation, Watch(monitor or SILENT, on_epoch))
        return self

    def partial_fit(self, X: MatrixLike, Y: MatrixLike, *, images: bool = True) -> Self:
        """Train for one epoch on triplets of more images and their tags, made as in `fit`.

        Parameters and errors are those of `PairRanker.partial_fit`. The mean score of each tag over the new images
        doesn't change, so a few images don't make a tag more or less frequent.
        """
        previous_rows = self.tag_rows_ if hasattr(self, "tag_rows_") else None
        super().partial_fit(X, Y, images=images)
        X = self._check_features(X)
        if previous_rows is None:
            set_intercepts(self.tag_rows_, X, positive_tags(check_tags(Y, X.shape[0])))
        else:
            mean = np.asarray(X.mean(axis=0), np.float64).ravel()
            mean_changes = (self.tag_rows_[:, :-1].astype(np.float64) - previous_rows[:, :-1]) @ mean
            self.tag_rows_[:, -1] = previous_rows[:, -1] - mean_changes
        return self

    def _fit_monitored(self, X: Matrix, Y: sp.csr_array, rng: np.random.Generator, valid: Judged, watch: Watch) -> None:
        self.check_settings()
        positives = positive_tags(Y)
        idf = _idf(positives)
        judged = None if valid is None else JudgedImages(valid[0], self._queries_of(positive_tags(valid[1]), idf, rng))
        self._learn(X, positives, self._queries_of(positives, idf, rng), rng, judged, watch)

    def _learn(
        self,
        X: Matrix,
        positives: sp.csr_array,
        queries: Queries,
        rng: np.random.Generator,
        validation: JudgedImages | None,
        watch: Watch,
    ) -> None:
        """Learn the weights from queries, then the bias from the tags that images have."""
        if queries.relevant.nnz == 0:
            raise DataError("No image is relevant to a query, or has a tag (above 0), so there is nothing to learn.")
        self._scale_features(X)
        self.n_queries_ = len(queries)

        for training_ids, held_out, epochs in self._trainings(X.shape[0], validation, rng):
            valid = validation if held_out is None else JudgedImages(X[held_out], queries.among(held_out))
            state = RankingState(weights=self._start(X, positives.shape[1], rng))
            training_queries = queries if training_ids is None else queries.among(training_ids)
            training = self._triplets(X, training_ids, training_queries, state.weights[0], rng)
            with one_blas_thread(), Team(resolve_jobs(self.n_jobs)) as team:
                self._train(training, state, epochs, self._measure_queries(valid), team, watch)
            del state, training  # the next training needs their memory
            if held_out is not None:
                set_intercepts(self.tag_rows_, X[training_ids], positives[training_ids])
                self._held_out = HeldOutFit(held_out, with_ones(X[held_out]), self.tag_rows_)
        set_intercepts(self.tag_rows_, X, positives)

    def _triplets(
        self, X: Matrix, images: Images | None, queries: Queries, weights: Floats, rng: np.random.Generator
    ) -> Training:
        """Make the training on `images` (None: all); columns of ``queries.relevant`` are positions in `images`."""
        words, relevant = queries.words, queries.relevant
        X = self._scaled(X if images is None else X[images])
        if self.loss == "triplet":
            return TripletTraining(X, words, relevant, weights, rng=rng)
        return TopTripletTraining(X, words, relevant, weights, loss=self.loss, max_trials=self.max_trials, rng=rng)

    def _measure_queries(self, validation: JudgedImages | None) -> Measure | None:
        """Return a function that measures the weights on validation queries (AvgP, or nDCG10 for "ndcg"), or None."""
        if validation is None or validation.queries.relevant.nnz == 0:
            return None
        X, queries = validation.X, validation.queries.among(np.arange(validation.X.shape[0]))

        def blocks() -> Iterator[tuple[slice, Floats]]:
            for rows in row_blocks(X.shape[0], 4 * self.n_tags_):
                yield rows, self._scores(with_ones(X[rows]))

        def measure() -> float:
            ranks = rank_queries(blocks, queries.words, queries.relevant)
            if self.loss == "ndcg":
                return float(ranks.graded_ndcg(TOP_IMAGES, gains_of(ranks, queries.relevant)).mean())
            return float(ranks.average_precision().mean())

        return measure

    def _queries_of(self, positives: sp.csr_array, idf: Floats, rng: np.random.Generator) -> Queries:
        queries = queries_of_tags(positives, max_words=self.max_words, max_subsets=self.max_subsets, random_state=rng)
        return Queries(weigh_words(queries.words, idf), queries.relevant)

    def _rate(self) -> float:
        return self.aggressiveness

    def _training(self, X: Matrix, positives: sp.csr_array, weights: Weights, context: TrainingContext) -> Training:
        queries = self._queries_of(positives, _idf(positives), context.rng)
        return self._triplets(X, None, queries, weights[0], context.rng)


def _idf(positives: sp.csr_array) -> Floats:
    return inverse_frequencies(np.bincount(positives.indices, minlength=positives.shape[1]), positives.shape[0])


def _check_queries(Q: MatrixLike, R: MatrixLike, X: MatrixLike | None) -> Queries:
    weights, relevant = as_csr(Q), as_csr(R)
    relevant = as_csr(relevant.multiply(relevant > 0))
    for name, matrix in (("Q", weights), ("R", relevant)):
        if not np.isfinite(matrix.data).all():
            raise DataError(f"{name} contains NaN or infinity; expected finite numbers.")
    n_images = relevant.shape[1] if X is None else count_rows(X)
    if relevant.shape[1] != n_images:
        raise ShapeError(f"R judges {relevant.shape[1]} images, but X has {n_images}; expected one column per image.")
    return Queries(weights, relevant)


def set_intercepts(rows: Floats, X: Matrix, positives: sp.csr_array) -> None:
    """Set the biases, the last column of tag rows (n_tags, n_features + 1), to match the frequencies of the tags.

    The bias of a tag is the maximum-likelihood intercept of a logistic model with fixed scores: the mean of
    ``σ(score + bias)`` is the share of images with the tag. Half an image is added to the images with the tag and half
    an image to the others, so that tags of no image or of all images have finite biases. `X` and `positives` are those
    of the training images.
    """
    n_images = X.shape[0]
    shares = (np.bincount(positives.indices, minlength=positives.shape[1]) + 0.5) / (n_images + 1.0)
    sample = X[np.unique(np.linspace(0, n_images - 1, min(n_images, INTERCEPT_IMAGES)).round().astype(np.int64))]
    with one_blas_thread():
        for start in range(0, len(rows), BLOCK_TAGS):
            part = slice(start, start + BLOCK_TAGS)
            scores, share = np.asarray(sample @ rows[part, :-1].T, np.float64), shares[part]
            low, high = logit(share) - scores.max(axis=0), logit(share) - scores.min(axis=0)
            for _ in range(BISECTION_STEPS):
                middle = (low + high) / 2
                too_many = expit(scores + middle).mean(axis=0) > share
                high, low = np.where(too_many, middle, high), np.where(too_many, low, middle)
            rows[part, -1] = (low + high) / 2
