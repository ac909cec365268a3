"""Nearest neighbours: the most similar training images, by exact cosine, vote for their tags."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, TypeAlias

import numpy as np
import scipy.sparse as sp

from visterm.core.checks import check_count, check_number, check_size
from visterm.core.learned import Csr, DenseOrCsr, Kind, Number, Whole
from visterm.core.products import dense
from visterm.core.selected_rows import SelectedRows
from visterm.core.threads import one_blas_thread
from visterm.core.types import Floats, Ints, Matrix, RandomState
from visterm.encoders.onnx_graph import GraphSteps
from visterm.kernels.topk import top_k
from visterm.metrics.ranking import average_precisions
from visterm.models.base import Annotator, Limit, row_blocks

Ids: TypeAlias = Ints
Cosines: TypeAlias = Floats

NEIGHBORS = (10, 20, 40, 80, 160)
POWERS = (1.0, 2.0, 4.0, 8.0, 16.0)

CHOICE_ROWS = 1000  # Use at most this many training images, each left out in turn, to choose the settings
MAX_TAGS_BYTES = 2**29  # Maximum size of the training tags in an ONNX graph, one byte per image and tag
TAG_NEIGHBORS, SHRINKAGE = 200, 10.0  # For images known by number: neighbours per tag, see `Knn`
SMALLEST_FLOAT = float(np.finfo(np.float32).tiny)

# Training features of unit length, except for rounding
UNIT_ROWS = DenseOrCsr("float32", ("n_images", "n_features_in_"), least=-1.001, most=1.001, canonical=False)
TAGS_OF_IMAGES = Csr("float32", ("n_images", "n_tags_"), least=0)  # 1 for each tag that a training image has


@dataclass(kw_only=True, eq=False, repr=False)
class VotingAnnotator(Annotator):
    """Lets the `n_neighbors` most similar training images vote for their tags; a new model implements `_neighbors`.

    The similarity is the cosine of the feature rows. The weight of a neighbour's vote is its similarity to the power
    `power` (0 for negative similarities), and a tag's score is its share of the votes: an estimate of P(tag | image),
    with which both images for a tag and tags for an image can be ranked. Explicit negatives are ignored.

    Parameters
    ----------
    n_neighbors : int, optional
        Number of neighbours. More is smoother and slower. None: chosen by leaving training images out.
    power : float, optional
        A higher power gives more weight to the nearest neighbours; 0 gives all the same weight. None: chosen.
    random_state : int, RandomState, Generator or None
        If there are more than 1,000 images, samples 1,000 of them to choose the settings.

    Attributes
    ----------
    n_neighbors_ : int
    power_ : float
        The settings, given or chosen. Of 10 to 160 neighbours and powers of 1 to 16, those are chosen that rank the
        tags of training images best (MAP over images), without each image among its own neighbours.
    rows_ : array or CSR of float32, shape (n_images, n_features)
        Training features, scaled to unit length.
    given_ : csr_array of float32, shape (n_images, n_tags)
        Training tags.
    """

    n_neighbors: int | None = None
    power: float | None = None
    random_state: RandomState = 0

    learned: ClassVar[dict[str, Kind]] = {
        "n_neighbors_": Whole(least=1),
        "power_": Number(least=0),
        "rows_": UNIT_ROWS,
        "given_": TAGS_OF_IMAGES,
    }

    limits: ClassVar[dict[str, Limit]] = {
        "n_neighbors": partial(check_count, otherwise="or None to have it chosen"),
        "power": partial(check_number, least=0, otherwise="or None to have it chosen"),
    }

    def _fit(self, X: Matrix, Y: sp.csr_array, rng: np.random.Generator) -> None:
        self.check_settings()
        self.rows_ = unit_rows(X)
        self.given_ = sp.csr_array(Y > 0, dtype=np.float32)
        self._prepare(rng)
        self.n_neighbors_, self.power_ = self._choose(rng)

    def _image_rows(self, X: Matrix) -> Matrix:
        neighbours = self._neighbors(unit_rows(X), self.n_neighbors_)
        parts = [votes(ids, cosines, self.given_, self.power_) for ids, cosines in neighbours]
        return sp.csr_array(sp.vstack(parts, format="csr"))

    def _prepare(self, rng: np.random.Generator) -> None:
        """Build an index of `rows_`, for models that need more than the rows."""

    @abstractmethod
    def _neighbors(self, X: Matrix, k: int) -> Iterator[tuple[Ids, Cosines]]:
        """Yield the ids and cosines of the k nearest images for each block of unit rows, nearest first, ties by id.

        If there are fewer neighbours, the last ids are -1, with cosine 0.
        """

    def _choose(self, rng: np.random.Generator) -> tuple[int, float]:
        """Return the settings; choose those that are None by leave-one-out on a sample of training images."""
        n = self.rows_.shape[0]
        sizes = NEIGHBORS if self.n_neighbors is None else (self.n_neighbors,)
        powers = POWERS if self.power is None else (self.power,)
        rows = np.sort(rng.permutation(n)[:CHOICE_ROWS])
        tags = self.given_[rows]
        if len(sizes) * len(powers) == 1 or n < 2 or tags.nnz == 0:
            return min(sizes[0], n), float(powers[0])
        sizes = tuple(sorted({min(size, n - 1) for size in sizes}))
        neighbours = list(self._neighbors(self.rows_[rows], sizes[-1] + 1))
        ids = np.concatenate([part for part, _ in neighbours])
        cosines = np.concatenate([part for _, part in neighbours])
        is_other = ids != rows[:, None]  # drop the image itself, or the last neighbour if the image is not among them
        is_other[is_other.all(axis=1), -1] = False
        ids, cosines = (array[is_other].reshape(rows.size, -1) for array in (ids, cosines))
        maps = {}
        for size in sizes:
            for power in powers:
                scores = votes(ids[:, :size], cosines[:, :size], self.given_, power).toarray()
                maps[size, power] = float(np.nanmean(average_precisions(scores, tags)))
        size, power = max(maps, key=maps.__getitem__)
        return size, float(power)


def votes(ids: Ids, cosines: Cosines, image_tags: sp.csr_array, power: float) -> sp.csr_array:
    """Return each tag's share of the votes of the neighbours; 0 if no similarity is above 0."""
    weights = np.where(cosines > 0, np.maximum(cosines, 0) ** np.float32(power), 0).astype(np.float32)
    total = weights.sum(axis=1, keepdims=True)
    weights = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
    return weighted_votes(ids, weights, image_tags)


def weighted_votes(ids: Ids, weights: Cosines, image_tags: sp.csr_array) -> sp.csr_array:
    """Return the summed weights of the neighbours with each tag; an id of -1, with weight 0, means no neighbour."""
    n, k = ids.shape
    starts = np.arange(n + 1) * k
    vote_matrix = sp.csr_array((weights.ravel(), np.maximum(ids, 0).ravel(), starts), shape=(n, image_tags.shape[0]))
    return sp.csr_array(vote_matrix @ image_tags)


def unit_rows(X: Matrix) -> Matrix:
    """Scale rows to unit length, except rows of zeros."""
    if isinstance(X, SelectedRows):
        rows = np.empty(X.shape, np.float32)
        for part in row_blocks(X.shape[0], 4 * X.shape[1]):
            rows[part] = unit_rows(X[part])
        return rows
    squares: Any = sp.csr_array(X).power(2).sum(axis=1) if sp.issparse(X) else np.einsum("ij,ij->i", X, X)
    lengths = np.sqrt(squares)
    scale = np.divide(1, lengths, out=np.zeros_like(lengths), where=lengths > 0).astype(np.float32)
    return sp.csr_array(sp.diags_array(scale) @ X) if sp.issparse(X) else X * scale[:, None]


def nearest_tags(given: sp.csr_array, n_neighbors: int, power: float) -> sp.csr_array:
    """Return the similarities of each tag (a row) to its nearest tags, by the columns of `given`; see `Knn`."""
    n_tags = given.shape[1]
    is_given: Any = sp.csr_array(given > 0, dtype=np.float32)
    lengths = np.maximum(np.sqrt(np.asarray(given.power(2).sum(axis=0), np.float64)), SMALLEST_FLOAT)
    by_tag, is_by_tag = sp.csr_array(given.T), sp.csr_array(is_given.T)
    parts = []
    for tags in row_blocks(n_tags, 4 * n_tags):
        shared = (is_by_tag[tags] @ is_given).toarray()
        cosines = (by_tag[tags] @ given).toarray() / (lengths[tags, None] * lengths)
        similarities = cosines**power * (shared / (shared + SHRINKAGE))
        np.fill_diagonal(similarities[:, tags], 0)
        ids, values = top_k(np.ascontiguousarray(similarities, np.float32), n_neighbors)
        starts = np.arange(len(ids) + 1) * n_neighbors
        parts.append(sp.csr_array((values.ravel(), ids.ravel(), starts), shape=similarities.shape))

    nearest = sp.csr_array(sp.vstack(parts, format="csr"))
    nearest.eliminate_zeros()
    nearest.sort_indices()
    return nearest


@dataclass(kw_only=True, eq=False, repr=False)
class Knn(VotingAnnotator):
    """Lets the `n_neighbors` most similar training images vote for their tags.

    Settings, votes, scores and learned attributes are those of `VotingAnnotator`; the neighbours are exact.

    For images known by number, which have no similar images, tags are neighbours of tags: ``score(i, t) = Σ_s y_is
    c_st``, where ``c_st`` is the cosine of two columns of the tag matrix (to the power `power`; None: 1), shrunk by
    ``n_st / (n_st + 10)`` with the number of images that have both. It is 0 unless s is among the `n_neighbors` (None:
    200) nearest tags of t. With weights of pairs, they are the values of the matrix.

    Attributes
    ----------
    tag_rows_ : csr_array of float32, shape (n_tags, n_tags)
        Only for images known by number: row t has the similarities of the neighbours of t.

    References
    ----------
    The exact neighbours that Weston, Bengio, Usunier 2010 (section 6.4) compare with approximate neighbours. For images
    known by number: Sarwar, Karypis, Konstan, Riedl: Item-based collaborative filtering. WWW 2001.
    """

    learned: ClassVar[dict[str, Kind]] = {"tag_rows_": Csr("float32", ("n_tags_", "n_tags_"), least=0, required=False)}
    test_params: ClassVar[Mapping[str, object]] = {}
    reads_parts: ClassVar[bool] = True
    uses_pair_weights: ClassVar[bool] = True

    def fold_in(self, Y: sp.csr_array) -> Matrix:
        """Return the rows of images with the tags or weights `Y`: `Y` itself, see `FoldsIn`."""
        return sp.csr_array(Y, dtype=np.float32)

    def _fit(self, X: Matrix, Y: sp.csr_array, rng: np.random.Generator) -> None:
        if not getattr(self, "by_number_", False):
            super()._fit(X, Y, rng)
            return
        self.check_settings()
        self.rows_, self.given_ = unit_rows(X), self.weighted(Y)
        self.n_neighbors_ = min(self.n_neighbors or TAG_NEIGHBORS, Y.shape[1])
        self.power_ = 1.0 if self.power is None else float(self.power)
        self.tag_rows_ = nearest_tags(self.given_, self.n_neighbors_, self.power_)

    def _image_rows(self, X: Matrix) -> Matrix:
        return sp.csr_array(sp.csr_array(X) @ self.given_) if hasattr(self, "tag_rows_") else super()._image_rows(X)

    def write_steps(self, steps: GraphSteps, x: str) -> str:
        """Add the steps from features to scores, see `WritesSteps`; the graph has the training features and tags.

        Raises TooLargeError if the array of training tags is too large.
        """
        k = min(self.n_neighbors_, self.rows_.shape[0])
        check_size(math.prod(self.given_.shape), MAX_TAGS_BYTES, "Tags of training images", "Fit the model ridge.")
        similarities, ids = steps.top(steps.affine(steps.unit(x, self.n_features_in_), dense(self.rows_).T), k)
        shares = steps.add("Pow", steps.add("Max", similarities, 0.0), self.power_)
        shares = steps.add("Where", steps.add("Greater", similarities, 0.0), shares, np.zeros(1))
        shares = steps.add("Div", shares, steps.add("Max", steps.affine(shares, np.ones((k, 1))), SMALLEST_FLOAT))
        tags = steps.add("Cast", steps.add("Gather", self.given_.toarray() > 0, ids, axis=0), to_type=np.float32)
        tag_shares = steps.add("MatMul", steps.add("Reshape", shares, np.array([-1, 1, k])), tags)
        return str(steps.add("Reshape", tag_shares, np.array([-1, self.n_tags_])))

    def _neighbors(self, X: Matrix, k: int) -> Iterator[tuple[Ids, Cosines]]:
        n = self.rows_.shape[0]
        for rows in row_blocks(X.shape[0], 4 * n):
            with one_blas_thread():
                cosines = dense(X[rows] @ self.rows_.T)
            yield top_k(np.ascontiguousarray(cosines, np.float32), min(k, n))
