"""What is judged: the relevant entries, and score blocks that can be gone through twice, checked as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import as_csr, check_tags
from visterm.core.errors import DataError, ShapeError, TooLargeError, UserError
from visterm.kernels.ranks import first_non_finite_row

Block: TypeAlias = "tuple[slice, NDArray[Any]]"

Scores: TypeAlias = "NDArray[Any] | Iterable[Block] | Callable[[], Iterable[Block]]"

KEEP_BYTES = 2**29

MATRIX_BLOCK_BYTES = 2**25

_WRONG_KIND = (
    "{what}; expected a NumPy array (n_images, n_tags), pairs (slice of rows, array), "
    "or a callable that gives such pairs."
)


@dataclass(frozen=True, slots=True)
class Judgements:
    """The relevant (image, tag) entries as a CSR pattern, and the entries that are not ranked at all.

    Attributes
    ----------
    n_images, n_tags : int
        Shape of the score matrix that is judged.
    indptr : ndarray of int64, shape (n_images + 1,)
        Where each image's relevant entries begin.
    tags : ndarray of int64, shape (n_relevant,)
        Relevant tags, image by image, ascending within an image.
    excluded : csr_array or None
        Entries left out of the rankings; none of them is relevant.
    """

    n_images: int
    n_tags: int
    indptr: NDArray[np.int64]
    tags: NDArray[np.int64]
    excluded: sp.csr_array | None

    @classmethod
    def of(cls, Y: Any, exclude: Any = None) -> Judgements:
        """Judge by a tag matrix.

        Parameters
        ----------
        Y : array-like or sparse, shape (n_images, n_tags)
            Above 0: relevant. Unknown tags (0) and explicit negatives (below 0) are alike not relevant.
        exclude : array-like or sparse, shape (n_images, n_tags), optional
            Entries that are not 0 are left out of the rankings, relevant or not: tags known beforehand, say.

        Raises
        ------
        ShapeError
            If the two have different shapes.
        DataError
            If `Y` is not numeric, or not finite.
        """
        given = check_tags(Y, Y.shape[0] if hasattr(Y, "shape") else len(Y))
        relevant = as_csr(given > 0)
        excluded = None
        if exclude is not None:
            excluded = as_csr(as_csr(exclude) != 0)
            if excluded.shape != given.shape:
                raise ShapeError(f"exclude has the shape {excluded.shape}; expected that of Y, {given.shape}.")
            relevant = as_csr(relevant - relevant.multiply(excluded))
        n_images, n_tags = given.shape
        return cls(n_images, n_tags, relevant.indptr.astype(np.int64), relevant.indices.astype(np.int64), excluded)

    @property
    def images(self) -> NDArray[np.int64]:
        """The image of each relevant entry, shape (n_relevant,)."""
        return np.repeat(np.arange(self.n_images), np.diff(self.indptr))

    def span(self, rows: slice) -> slice:
        """Return where the relevant entries of some rows lie in `tags`."""
        return slice(int(self.indptr[rows.start]), int(self.indptr[rows.stop]))


class ScoreBlocks:
    """The scores that are judged, as blocks of whole rows; excluded entries are minus infinity.

    Parameters
    ----------
    scores : ndarray (n_images, n_tags), or iterable of (slice, ndarray), or callable that gives such an iterable
        Higher is better; finite. The slice says which images the block's rows are; together the blocks hold every
        image once, in any order. A block may be overwritten once the next is asked for.
    judgements : Judgements
        Gives the shape, and the excluded entries.
    """

    def __init__(self, scores: Scores, judgements: Judgements) -> None:
        self._scores = scores
        self._judgements = judgements
        self._kept: list[Block] | None = None
        self._one_time = False
        if isinstance(scores, np.ndarray):
            self._check_shape(scores.shape)
        elif not callable(scores):
            if not isinstance(scores, Iterable) or hasattr(scores, "tocsr"):
                raise UserError(_WRONG_KIND.format(what=f"scores is a {type(scores).__name__}"))
            self._one_time = iter(scores) is scores

    def go_through(self, *, again: bool) -> Iterator[Block]:
        """Yield (rows, scores), C order, float32 or float64.

        Parameters
        ----------
        again : bool
            Whether `go_again` will be called: blocks that are dear or impossible to make twice are then kept, as long
            as they take no more than 512 MiB.
        """
        keep = again and (self._one_time or callable(self._scores))
        kept: list[Block] = []
        n_bytes = 0
        for rows, block in self._blocks():
            if keep:
                n_bytes += block.nbytes
                keep = n_bytes <= KEEP_BYTES
                if keep:
                    kept.append((rows, block.copy()))
                else:
                    kept.clear()
            if self._one_time and again and not keep:
                raise TooLargeError(
                    f"Metrics of words go through the scores twice, and one-time blocks of more than "
                    f"{KEEP_BYTES / 2**30:.1f} GiB are not kept. Pass a callable that gives the blocks anew."
                )
            yield rows, block
        self._kept = kept if keep else None

    def go_again(self) -> Iterator[Block]:
        """Yield the same blocks once more."""
        yield from self._blocks() if self._kept is None else self._kept

    def _blocks(self) -> Iterator[Block]:
        seen = np.zeros(self._judgements.n_images, bool)
        for item in self._source():
            if not (isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], slice)):
                raise UserError(_WRONG_KIND.format(what=f"scores gives a {type(item).__name__}, not blocks"))
            rows, block = item[0], np.asarray(item[1])
            rows = self._check_rows(rows, block, seen)
            yield rows, self._without_excluded(rows, self._check_values(rows, block))
        if not seen.all():
            raise ShapeError(
                f"The score blocks hold {seen.sum()} images, but the tags {seen.size}; the first without scores is "
                f"{seen.argmin()}. Pass scores of the same images as tags."
            )

    def _source(self) -> Iterable[Block]:
        if callable(self._scores):
            return self._scores()
        if not isinstance(self._scores, np.ndarray):
            return self._scores
        matrix = self._scores
        n_images, n_tags = matrix.shape
        step = max(1, MATRIX_BLOCK_BYTES // (matrix.itemsize * n_tags))
        starts = range(0, n_images, step)
        return ((slice(start, start + step), matrix[start : start + step]) for start in starts)

    def _check_rows(self, rows: slice, block: NDArray[Any], seen: NDArray[np.bool_]) -> slice:
        start, stop, _ = rows.indices(seen.size)
        if block.ndim != 2 or block.shape != (stop - start, self._judgements.n_tags):
            raise ShapeError(
                f"The score block of images {start} to {stop} has the shape {block.shape}; "
                f"expected {(stop - start, self._judgements.n_tags)} (images, tags)."
            )
        if seen[start:stop].any():
            raise ShapeError(f"Image {start + seen[start:stop].argmax()} is in two score blocks; expected once.")
        seen[start:stop] = True
        return slice(start, stop)

    def _check_shape(self, shape: tuple[int, ...]) -> None:
        expected = (self._judgements.n_images, self._judgements.n_tags)
        if shape != expected:
            raise ShapeError(f"The scores have the shape {shape}, but the tags {expected} (images, tags).")

    def _check_values(self, rows: slice, block: NDArray[Any]) -> NDArray[Any]:
        block = np.ascontiguousarray(block, np.float32 if block.dtype == np.float32 else np.float64)
        row = first_non_finite_row(block)
        if row >= 0:
            raise DataError(
                f"The scores of image {rows.start + row} hold NaN or infinity, which cannot be ranked. "
                "Check the features of that image and the weights of the model."
            )
        return block

    def _without_excluded(self, rows: slice, block: NDArray[Any]) -> NDArray[Any]:
        if self._judgements.excluded is None:
            return block
        excluded = self._judgements.excluded[rows]
        block = block.copy()
        block[np.repeat(np.arange(block.shape[0]), np.diff(excluded.indptr)), excluded.indices] = -np.inf
        return block
