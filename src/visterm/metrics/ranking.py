"""Relevance judgements, blocks of scores, and measures of ranked lists by the ranks of their relevant entries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import all_finite, as_csr, check_tags
from visterm.core.errors import DataError, ShapeError, TooLargeError, UserError
from visterm.core.types import Doubles, Ints, MatrixLike
from visterm.core.vocabulary import Vocabulary
from visterm.data.frames import lists_of_tags
from visterm.kernels.topk import rank_in_rows

_RECALL_TOLERANCE = 1e-9  # Recalls are rounded fractions: 3 / 10 counts as 0.3

Numbers: TypeAlias = "NDArray[np.integer | np.floating]"

Block: TypeAlias = "tuple[slice, NDArray[np.floating]]"

Scores: TypeAlias = "NDArray[np.floating] | Iterable[Block] | Callable[[], Iterable[Block]]"

MAX_CACHE_BYTES = 2**29

MATRIX_BLOCK_BYTES = 2**25

SCORES_EXPECTED = "an array (n_images, n_tags), pairs (slice of rows, array), or a callable that returns such pairs"


@dataclass(frozen=True, slots=True)
class Judgements:
    """The relevant (image, tag) entries as a CSR pattern, and the entries excluded from rankings."""

    # Shape of the score matrix
    n_images: int
    n_tags: int
    indptr: Ints  # shape (n_images + 1,): where each image's relevant entries begin
    # Images and tags of the relevant entries, shape (n_relevant,), image by image, tags ascending within an image
    images: Ints
    tags: Ints
    excluded: sp.csr_array | None  # Entries excluded from the rankings; they are not relevant

    @classmethod
    def of(cls, Y: Any, exclude: MatrixLike | None = None) -> Judgements:
        """Create judgements from a tag matrix `Y`, (n_images, n_tags), array-like or sparse; above 0 is relevant.

        Unknown tags (0) and explicit negatives (below 0) are not relevant. Non-zero entries of `exclude`, of the same
        shape, are excluded from the rankings, relevant or not, for example tags that are known in advance.
        """
        tags = check_tags(Y, Y.shape[0] if hasattr(Y, "shape") else len(Y))
        relevant = as_csr(tags > 0)
        excluded = None
        if exclude is not None:
            excluded = as_csr(as_csr(exclude) != 0)
            if excluded.shape != tags.shape:
                raise ShapeError(setting="exclude", value=excluded.shape, expected=f"the shape of Y, {tags.shape}")
            relevant = as_csr(relevant - relevant.multiply(excluded))
        indptr = relevant.indptr.astype(np.int64)
        images = np.repeat(np.arange(tags.shape[0]), np.diff(indptr))
        n_images, n_tags = tags.shape
        return cls(n_images, n_tags, indptr, images, relevant.indices.astype(np.int64), excluded)

    def span(self, rows: slice) -> slice:
        """Return the slice of `tags` with the relevant entries of `rows`."""
        return slice(int(self.indptr[rows.start]), int(self.indptr[rows.stop]))

    def relevant(self, rows: slice) -> sp.csr_array:
        """Return a matrix, shape (n_rows, n_tags), with 1 for the relevant entries of `rows`."""
        span = self.span(rows)
        tags, starts = self.tags[span], self.indptr[rows.start : rows.stop + 1] - span.start
        return sp.csr_array((np.ones(tags.size, np.float32), tags, starts), shape=(len(starts) - 1, self.n_tags))


class ScoreBlocks:
    """Scores as blocks of whole rows, checked; excluded entries are minus infinity.

    `scores` is an array (n_images, n_tags), an iterable of (slice, array), or a callable that returns such an iterable.
    Higher is better; scores are finite. The slice of a block says which images its rows belong to; together the blocks
    have every image once, in any order. A block may be overwritten when the next one is requested. `judgements` define
    the shape and the excluded entries.
    """

    def __init__(self, scores: Scores, judgements: Judgements) -> None:
        self._scores = scores
        self._judgements = judgements
        self._cached: list[Block] | None = None
        self._one_time = False
        if isinstance(scores, np.ndarray):
            expected = (judgements.n_images, judgements.n_tags)
            if scores.shape != expected:
                raise ShapeError(f"The scores have the shape {scores.shape}, but the tags {expected} (images, tags).")
        elif not callable(scores):
            if not isinstance(scores, Iterable) or hasattr(scores, "tocsr"):
                raise UserError(setting="scores", value=type(scores).__name__, expected=SCORES_EXPECTED)
            self._one_time = iter(scores) is scores

    def first_pass(self) -> Iterator[Block]:
        """Yield the blocks, and cache those that are costly or impossible to compute again, for `second_pass`.

        Caches at most 512 MiB.
        """
        cached: list[Block] = []
        n_bytes = 0
        for rows, block in self.checked_blocks():
            n_bytes += block.nbytes
            if n_bytes > MAX_CACHE_BYTES:
                cached.clear()
                if self._one_time:
                    raise TooLargeError(
                        f"Metrics of words read the scores twice, and one-time blocks of more than "
                        f"{MAX_CACHE_BYTES / 2**30:.1f} GiB are not cached. Pass a callable that returns the blocks."
                    )
            elif self._one_time or callable(self._scores):
                cached.append((rows, block.copy()))
            yield rows, block
        self._cached = cached or None

    def second_pass(self) -> Iterator[Block]:
        """Yield the same blocks once more."""
        yield from self.checked_blocks() if self._cached is None else self._cached

    def checked_blocks(self) -> Iterator[Block]:
        """Check the blocks and yield (rows, scores) in C order, float32 or float64; a matrix is split into blocks."""
        n_tags, excluded = self._judgements.n_tags, self._judgements.excluded
        scored = np.zeros(self._judgements.n_images, bool)
        blocks: Any = self._scores() if callable(self._scores) else self._scores
        if isinstance(blocks, np.ndarray):
            matrix, step = blocks, max(1, MATRIX_BLOCK_BYTES // (blocks.itemsize * n_tags))
            blocks = ((slice(i, i + step), matrix[i : i + step]) for i in range(0, scored.size, step))

        for item in blocks:
            if not (isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], slice)):
                problem = f"`scores` returns a {type(item).__name__}, not blocks."
                raise UserError(problem, setting="scores", value=type(item).__name__, expected=SCORES_EXPECTED)
            (start, stop, _), block = item[0].indices(scored.size), np.asarray(item[1])
            expected = stop - start, n_tags
            if block.shape != expected:
                label = f"The score block of images {start} to {stop}"
                raise ShapeError(f"{label} has the shape {block.shape}; expected {expected} (images, tags).")
            if scored[start:stop].any():
                raise ShapeError(f"Image {start + scored[start:stop].argmax()} is in two score blocks; expected once.")
            scored[start:stop] = True
            block = np.ascontiguousarray(block, np.float32 if block.dtype == np.float32 else np.float64)
            if not all_finite(block):
                row = start + int(np.isfinite(block).all(axis=1).argmin())
                raise DataError(
                    f"The scores of image {row} have NaN or infinity, which cannot be ranked. "
                    "Check the features of that image and the weights of the model."
                )
            rows = slice(start, stop)
            if excluded is not None:
                block = block.copy()
                block[excluded[rows].nonzero()] = -np.inf
            yield rows, block

        if not scored.all():
            raise ShapeError(
                f"The score blocks have {scored.sum()} images, but the tags {scored.size}; the first without scores is "
                f"{scored.argmin()}. Pass scores of the same images as tags."
            )


@dataclass(frozen=True, slots=True)
class Ranks:
    """The ranks of the relevant entries of ranked lists, from which all measures are computed.

    Measures of a list are NaN if it has no relevant entry. `k` is at least 1 and may be larger than a list.
    """

    n_lists: int  # Number of ranked lists: images, or tags used as queries
    lists: Ints  # shape (n_relevant,): the list of each relevant entry
    items: Ints  # shape (n_relevant,): the relevant item of the list: a tag, or an image
    ranks: Ints  # shape (n_relevant,): 1 is best; ties are broken by the smaller item

    @property
    def n_relevant(self) -> Ints:
        """Number of relevant entries of each list, shape (n_lists,)."""
        return np.bincount(self.lists, minlength=self.n_lists)

    def hits(self, k: int) -> Ints:
        """Return the number of relevant entries among the first k of each list, shape (n_lists,)."""
        return np.bincount(self.lists[self.ranks <= k], minlength=self.n_lists)

    def precision(self, k: int) -> Doubles:
        """Return hits divided by k, even if the list is shorter than k."""
        return ratio(self.hits(k), np.where(self.n_relevant > 0, k, 0))

    def recall(self, k: int) -> Doubles:
        """Return hits divided by the number of relevant entries."""
        return ratio(self.hits(k), self.n_relevant)

    def r_precision(self) -> Doubles:
        """Return precision at the number of relevant entries: the break-even point, where it equals recall."""
        n_relevant = self.n_relevant
        lists_of_hits = self.lists[self.ranks <= n_relevant[self.lists]]
        return ratio(np.bincount(lists_of_hits, minlength=self.n_lists), n_relevant)

    def f1(self, k: int) -> Doubles:
        """Return the harmonic mean of precision and recall at k: 2 hits / (k + relevant entries); 0 without hits."""
        n_relevant = self.n_relevant
        return ratio(2 * self.hits(k), np.where(n_relevant > 0, k + n_relevant, 0))

    def average_precision(self) -> Doubles:
        """Return the mean, over the relevant entries, of the precision at their ranks."""
        lists, precision, _ = self._curve()
        return ratio(np.bincount(lists, precision, minlength=self.n_lists), self.n_relevant)

    def interpolated_precision(self, recalls: Sequence[float]) -> Doubles:
        """Return, for each list and level of recall, the best precision at that recall or more.

        Shape (n_lists, n_recalls), NaN if a list has no relevant entry. At 0, 0.1, ..., 1 these are the eleven
        points of a precision-recall curve, which may be averaged over lists.
        """
        lists, precision, recall = self._curve()
        best_precision = np.zeros((self.n_lists, len(recalls)))
        for column, level in enumerate(recalls):
            reaches_level = recall >= level - _RECALL_TOLERANCE
            np.maximum.at(best_precision[:, column], lists[reaches_level], precision[reaches_level])
        return np.where(self.n_relevant[:, None] > 0, best_precision, np.nan)

    def _curve(self) -> tuple[Ints, Doubles, Doubles]:
        """Return the list, precision and recall at each relevant entry, list by list in order of rank."""
        order = np.lexsort((self.ranks, self.lists))
        n_relevant, lists = self.n_relevant, self.lists[order]
        position = np.arange(1, order.size + 1) - (np.cumsum(n_relevant) - n_relevant)[lists]
        return lists, position / self.ranks[order], position / n_relevant[lists]

    def reciprocal_rank(self) -> Doubles:
        """Return 1 / the rank of the first relevant entry."""
        best_reciprocal = np.zeros(self.n_lists)
        np.maximum.at(best_reciprocal, self.lists, 1 / self.ranks)
        return ratio(best_reciprocal, np.minimum(self.n_relevant, 1))

    def ndcg(self, k: int) -> Doubles:
        """Return the discounted gain, Σ 1 / log2(1 + rank) over the hits at k, divided by the maximum possible."""
        return self.graded_ndcg(k, np.ones(self.ranks.size))

    def graded_ndcg(self, k: int, gains: Doubles) -> Doubles:
        """Return `ndcg` for relevant entries with different `gains`, shape (n_relevant,)."""
        in_top = self.ranks <= k
        gain = np.bincount(self.lists[in_top], gains[in_top] / np.log2(1 + self.ranks[in_top]), minlength=self.n_lists)
        order = np.lexsort((-gains, self.lists))
        first_position = np.cumsum(self.n_relevant) - self.n_relevant
        position = np.arange(1, order.size + 1) - first_position[self.lists[order]]
        ideal_gain = np.where(position <= k, gains[order] / np.log2(1 + position), 0.0)
        return ratio(gain, np.bincount(self.lists[order], ideal_gain, minlength=self.n_lists))


def ratio(numerator: Numbers, denominator: Numbers) -> Doubles:
    """Divide element by element; NaN if the denominator is 0."""
    result = np.full(numerator.shape, np.nan)
    np.divide(numerator, denominator, out=result, where=denominator > 0)
    return result


@dataclass(frozen=True, slots=True)
class TagRanks(Ranks):
    """Ranks of the relevant tags of images, filled in block by block, with additional data for AUC."""

    indptr: Ints  # shape (n_lists + 1,): where each image's relevant entries begin
    mid_ranks: Doubles  # shape (n_relevant,): as `ranks`, but equal scores share the mean of their ranks
    n_ranked: Ints  # shape (n_lists,): number of ranked tags per image, without the excluded ones

    @classmethod
    def of(cls, judgements: Judgements) -> TagRanks:
        """Return empty ranks of the relevant tags, to be filled by `add`."""
        n_ranked, n_relevant = np.full(judgements.n_images, judgements.n_tags), judgements.tags.size
        if judgements.excluded is not None:
            n_ranked -= np.diff(judgements.excluded.indptr)
        lists = judgements.n_images, judgements.images, judgements.tags
        return cls(*lists, np.zeros(n_relevant, np.int64), judgements.indptr, np.zeros(n_relevant), n_ranked)

    def add(self, rows: slice, block: NDArray[np.floating]) -> None:
        """Rank the tags of the images `rows` by their scores."""
        indptr = self.indptr[rows.start : rows.stop + 1]
        span = slice(indptr[0], indptr[-1])
        rank_in_rows(block, indptr - indptr[0], self.items[span], self.ranks[span], self.mid_ranks[span])

    def auc(self) -> Doubles:
        """Return the share of an image's pairs (relevant, irrelevant tag) in the right order; a tie counts as half.

        NaN if an image has no such pair. Computed from the mid-ranks, as in the Mann-Whitney U test.
        """
        n_relevant = self.n_relevant
        n_below = np.bincount(self.lists, self.n_ranked[self.lists] - self.mid_ranks, minlength=self.n_lists)
        relevant_pairs = n_relevant * (n_relevant - 1) / 2
        return ratio(n_below - relevant_pairs, n_relevant * (self.n_ranked - n_relevant))


def rank_tags(scores: Scores, Y: MatrixLike, *, exclude: MatrixLike | None = None) -> TagRanks:
    """Rank the relevant tags of each image within its row of scores; ties are broken by the smaller tag id.

    Parameters and errors are those of `visterm.metrics.evaluate`.
    """
    judgements = Judgements.of(Y, exclude)
    ranks = TagRanks.of(judgements)
    for rows, block in ScoreBlocks(scores, judgements).checked_blocks():
        ranks.add(rows, block)
    return ranks


def average_precisions(scores: Scores, relevant: MatrixLike, *, exclude: MatrixLike | None = None) -> Doubles:
    """Return the average precision of the tags of each image; their mean is MAP over images.

    Parameters and errors are those of `rank_tags`.

    Returns
    -------
    ndarray of float64, shape (n_images,)
        NaN if an image has no relevant tag.

    Examples
    --------
    >>> average_precisions(np.array([[0.9, 0.5, 0.1]]), [[0, 1, 1]]).round(3)
    array([0.583])
    """
    return rank_tags(scores, relevant, exclude=exclude).average_precision()


def as_matrix(y: Any, estimator: object) -> MatrixLike:
    """Return lists of tags as a matrix (n_images, n_tags) with an estimator's columns; a matrix unchanged.

    Raises UserError if the estimator was fitted on a matrix, so that its columns have no words.
    """
    lists = lists_of_tags(y)
    if lists is None:
        return y
    words = getattr(estimator, "classes_", None)
    if words is None:
        raise UserError("Tags are words, but this model was fitted on a matrix: pass a matrix, or fit on lists.")
    return Vocabulary(words).encode(lists)
