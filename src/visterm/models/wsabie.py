"""WSABIE: a joint embedding of images and tags, trained so that the right tags come out on top."""

from __future__ import annotations

import math
import time
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import check_count, check_number
from visterm.core.errors import DataError
from visterm.core.progress import SILENT, Progress
from visterm.core.threads import Team, one_blas_thread, resolve_jobs
from visterm.core.types import Matrix, RandomState
from visterm.kernels.vectors import limit_norms
from visterm.metrics.ranking import average_precisions
from visterm.models.embedding import EmbeddingAnnotator
from visterm.models.stopping import BestWeights, hold_out
from visterm.models.warp_training import WarpTraining

Validation = tuple[Matrix, sp.csr_array]

SMALLEST_BLOCK = 16
LARGEST_BLOCK = 256


class Wsabie(EmbeddingAnnotator):
    """Joint embedding of images and tags that puts the right tags on top (WARP loss).

    A score is ``(x V) · W_t``: the image features ``x`` are mapped into a space of `dim` numbers and compared there
    with the vector of tag t. Training visits pairs (image, true tag y) in random order, and draws other tags until
    one, ȳ, violates the margin: ``f_ȳ(x) > f_y(x) - 1``. If that took N draws of the M tags that the image does not
    have, the rank of y is about ``k = floor(M / N)``, and a gradient step lowers
    ``(1 + 1/2 + ... + 1/k) · |1 - f_y(x) + f_ȳ(x)|₊``: the sooner a violator turns up, the worse the rank and the
    larger the step. Then the vectors of the features and of the tags are brought back to a length of at most
    `max_norm`.

    This is Algorithm 1 of the paper, with steps in blocks: the pairs of a block are scored and drawn for against the
    weights at its start. Every draw is keyed by the seed, the epoch and the pair, so the weights have the same bytes
    for any `n_jobs`. An image with several tags is as many pairs, and its own tags are never drawn; explicit negatives
    are tags like any other that it does not have. With a single tag there is nothing to rank, and nothing is learned.

    The default settings were chosen on held-out training images of Corel5k, with visterms and with features of a
    network alike; a library of another kind may want its own.

    Parameters
    ----------
    dim : int
        Size of the joint space. More separates rare tags and costs time and memory in proportion.
    learning_rate : float
        Fixed size of the steps. More learns faster and noisier; `average` evens out the noise.
    max_norm : float
        Longest vector of a feature or a tag (C in the paper). More lets scores grow and single features decide: it
        fits the training images better, and new ones only up to a point.
    row_length : float
        The features are taken times one factor that brings the training rows to this length (in the mean square), so
        that their unit does not matter. More lets the vectors of the features learn faster than those of the tags.
    epochs : int
        At most so many rounds over all pairs.
    max_trials : int, optional
        Draws after which a true tag counts as well ranked. None: as many as there are candidates, as in the paper. Less
        is faster where there are many tags.
    average : int
        The weights kept are a running mean over about the last so many epochs (Polyak averaging), which stays within
        `max_norm`. 1 keeps the last weights alone, as the paper does.
    patience : int
        Stop after so many epochs without a better MAP over the validation images. The best weights are kept.
    valid_share : float
        Where `fit` is given no validation rows: the share of the images that is held out to find the best number of
        epochs; then all images are trained on for so many. With 0, or so few images that less than 50 would be held
        out, all `epochs` are run.
    block : int, optional
        Pairs that share one state of the weights. More is faster, less is nearer to the paper's single steps. None: as
        many as there are tags, from 16 to 256, so that few of a block's steps meet in the same tag.
    n_jobs : int, optional
        Threads; None or -1 for all cores.
    random_state : int, RandomState, Generator or None
        Start values, order of the pairs, draws, and held-out images.

    Attributes
    ----------
    image_map_ : ndarray of float32, shape (n_features, dim)
        V of the paper, transposed: the vector of each feature, times `scale_`.
    tag_rows_ : ndarray of float32, shape (n_tags, dim)
        W of the paper, transposed: the vector of each tag.
    scale_ : float
        The factor that `row_length` asks for.
    n_epochs_ : int
        Epochs that the weights stem from.
    history_ : list of dict
        For each epoch: ``epoch``, ``loss`` (mean weighted hinge of the drawn violators), ``map`` (over the validation
        images, None without), ``draws`` (mean number a pair), ``violated`` (share of the pairs that made a step) and
        ``seconds``.

    References
    ----------
    Weston, Bengio, Usunier: Large scale image annotation: learning to rank with joint word-image embeddings. Machine
    Learning 81, 2010; sections 2 and 3, Algorithm 1.
    """

    scale_: float
    n_epochs_: int
    history_: list[dict[str, Any]]

    test_params: ClassVar[dict[str, Any]] = {"dim": 16, "epochs": 30, "learning_rate": 0.005, "block": 128}

    def __init__(
        self,
        *,
        dim: int = 100,
        learning_rate: float = 0.0015,
        max_norm: float = 0.7,
        row_length: float = 6.0,
        epochs: int = 100,
        max_trials: int | None = None,
        average: int = 20,
        patience: int = 10,
        valid_share: float = 0.1,
        block: int | None = None,
        n_jobs: int | None = None,
        random_state: RandomState = 0,
    ) -> None:
        self.dim = dim
        self.learning_rate = learning_rate
        self.max_norm = max_norm
        self.row_length = row_length
        self.epochs = epochs
        self.max_trials = max_trials
        self.average = average
        self.patience = patience
        self.valid_share = valid_share
        self.block = block
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _fit(self, X: Matrix, Y: sp.csr_array, rng: np.random.Generator) -> None:
        self._fit_monitored(X, Y, rng, None, SILENT)

    def _fit_monitored(
        self, X: Matrix, Y: sp.csr_array, rng: np.random.Generator, valid: Validation | None, monitor: Progress
    ) -> None:
        self._check_settings()
        own = sp.csr_array(Y > 0, dtype=np.float32)
        if own.nnz == 0:
            raise DataError("No image has a tag (Y has no value above 0), so there is nothing to learn.")
        self.scale_ = self.row_length / (_mean_length(X) or 1.0)
        if valid is not None:
            self._train(X, own, rng, _judged(*valid), self.epochs, monitor)
            return
        trained, held = hold_out(X.shape[0], self.valid_share, rng)
        if held.size == 0:
            self._train(X, own, rng, None, self.epochs, monitor)
            return
        self._train(X[trained], own[trained], rng, _judged(X[held], Y[held]), self.epochs, monitor)
        history = self.history_
        self._train(X, own, rng, None, self.n_epochs_, monitor)
        self.history_ = history

    def _train(
        self,
        X: Matrix,
        own: sp.csr_array,
        rng: np.random.Generator,
        judged: Validation | None,
        epochs: int,
        monitor: Progress,
    ) -> None:
        """Run epochs until the measure on the judged images no longer improves, and keep the best weights."""
        deviation = np.float32(1 / math.sqrt(X.shape[1]))
        image_map = rng.standard_normal((X.shape[1], self.dim), np.float32) * deviation
        tag_rows = rng.standard_normal((own.shape[1], self.dim), np.float32) * deviation
        limit_norms(image_map, self.max_norm)
        limit_norms(tag_rows, self.max_norm)
        image_map *= np.float32(self.scale_)
        best = BestWeights(self.patience)
        self.history_ = []
        self.image_map_, self.tag_rows_ = image_map.copy(), tag_rows.copy()
        monitor.start("train", epochs)
        try:
            with one_blas_thread(), Team(resolve_jobs(self.n_jobs)) as team:
                training = WarpTraining(
                    X,
                    own,
                    image_map,
                    tag_rows,
                    rate=self.learning_rate,
                    max_norm=self.max_norm,
                    max_trials=self.max_trials or own.shape[1],
                    block=self.block or _block_for(own.shape[1]),
                    scale=self.scale_,
                    rng=rng,
                    team=team,
                )
                for epoch in range(1, epochs + 1):
                    start = time.perf_counter()
                    sums = training.run_epoch()
                    share = np.float32(1 / min(epoch, self.average))
                    self.image_map_ += share * (image_map - self.image_map_)
                    self.tag_rows_ += share * (tag_rows - self.tag_rows_)
                    self._refuse_non_finite()
                    found = None if judged is None else self._measure(judged)
                    self.history_.append(
                        {
                            "epoch": epoch,
                            "loss": sums.loss,
                            "map": found,
                            "draws": sums.draws,
                            "violated": sums.violated,
                            "seconds": time.perf_counter() - start,
                        }
                    )
                    monitor.advance(1, f"loss {sums.loss:.3f}" if found is None else f"MAP {found:.3f}")
                    if found is not None:
                        best.offer(found, self.image_map_, self.tag_rows_)
                        if best.exhausted:
                            break
        finally:
            monitor.finish()
        self.n_epochs_ = best.epoch or epochs
        if best.weights:
            self.image_map_, self.tag_rows_ = best.weights

    def _measure(self, judged: Validation) -> float:
        X, Y = judged
        return float(np.nanmean(average_precisions(self.score_blocks(X), Y)))

    def _check_settings(self) -> None:
        for name in ("dim", "epochs", "average", "patience"):
            check_count(getattr(self, name), name)
        if self.max_trials is not None:
            check_count(self.max_trials, "max_trials", "or None for as many as there are candidates")
        if self.block is not None:
            check_count(self.block, "block", "or None to have it chosen")
        check_number(self.learning_rate, "learning_rate", above=0)
        check_number(self.max_norm, "max_norm", above=0)
        check_number(self.row_length, "row_length", above=0)
        check_number(self.valid_share, "valid_share", least=0, below=1)


def _block_for(n_tags: int) -> int:
    return min(max(n_tags, SMALLEST_BLOCK), LARGEST_BLOCK)


def _mean_length(X: Matrix) -> float:
    """Give the root of the mean squared length of rows."""
    values: NDArray[np.float32] = np.asarray(X.data if sp.issparse(X) else X).reshape(-1)
    return math.sqrt(float(np.einsum("i,i->", values, values, dtype=np.float64)) / X.shape[0])


def _judged(X: Matrix, Y: sp.csr_array) -> Validation | None:
    """Keep the validation images that have a tag; None where there are none."""
    rows = np.flatnonzero(np.diff(sp.csr_array(Y > 0).indptr))
    return (X[rows], Y[rows]) if rows.size else None
