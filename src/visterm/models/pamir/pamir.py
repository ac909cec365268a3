"""PAMIR: one linear scorer per word, trained on queries to rank relevant images above others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from scipy.special import expit, logit

from visterm.core.checks import as_csr, check_choice, check_count, check_tags, count_rows
from visterm.core.errors import DataError, ShapeError
from visterm.core.learned import Kind, Whole
from visterm.core.progress import SILENT, Progress
from visterm.core.queries import inverse_frequencies, weigh_words
from visterm.core.threads import Team, one_blas_thread, resolve_jobs
from visterm.core.types import Matrix, MatrixLike
from visterm.data.tag_queries import MAX_SUBSETS, Queries, queries_of_tags
from visterm.metrics.retrieval import TOP_IMAGES, gains_of, rank_queries
from visterm.models.base import Limit, row_blocks
from visterm.models.epochs import Floats, Measure, Validation, Weights
from visterm.models.linear.base import with_ones
from visterm.models.pamir.triplet_training import TOP_LOSSES, TopTripletTraining, TripletTraining
from visterm.models.ranking.linear_ranking import LinearRanker
from visterm.models.ranking.ranker import Images
from visterm.models.ranking.training import RankingState, Training, TrainingContext, positive_tags
from visterm.models.stopping import HeldOutFit, OnEpoch

LOSSES = ("triplet", *TOP_LOSSES)

INTERCEPT_IMAGES = 1024  # Maximum number of training images that set intercepts: more hardly change them
BISECTION_STEPS = 32  # Number of bisection steps for each intercept: ten digits
BLOCK_TAGS = 2048  # Number of tags processed at a time, to limit the memory


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
            self._learn(X, positive_tags(Y), queries, rng, validation, monitor or SILENT, on_epoch)
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

    def _fit_monitored(
        self,
        X: Matrix,
        Y: sp.csr_array,
        rng: np.random.Generator,
        valid: Validation | None,
        monitor: Progress,
        on_epoch: OnEpoch | None,
    ) -> None:
        self.check_settings()
        positives = positive_tags(Y)
        idf = _idf(positives)
        judged = None if valid is None else JudgedImages(valid[0], self._queries_of(positive_tags(valid[1]), idf, rng))
        self._learn(X, positives, self._queries_of(positives, idf, rng), rng, judged, monitor, on_epoch)

    def _learn(
        self,
        X: Matrix,
        positives: sp.csr_array,
        queries: Queries,
        rng: np.random.Generator,
        validation: JudgedImages | None,
        monitor: Progress,
        on_epoch: OnEpoch | None,
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
                self._train(training, state, epochs, self._measure_queries(valid), team, monitor, on_epoch)
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
