"""What is judged: the relevant entries, and score blocks that can be read twice, checked as they come."""

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
    """The relevant (image, tag) entries as a CSR pattern, and the entries that are not ranked at all."""

    # Shape of the score matrix that is judged
    n_images: int
    n_tags: int
    indptr: NDArray[np.int64]  # shape (n_images + 1,): where each image's relevant entries begin
    tags: NDArray[np.int64]  # shape (n_relevant,): relevant tags, image by image, ascending within an image
    excluded: sp.csr_array | None  # Entries left out of the rankings; none of them is relevant

    @classmethod
    def of(cls, Y: Any, exclude: Any = None) -> Judgements:
        """Judge by a tag matrix `Y`, (n_images, n_tags), array-like or sparse, in which relevant tags are above 0.

        Unknown tags (0) and explicit negatives (below 0) count as not relevant. Entries that are not 0 in `exclude`,
        of the same shape, are left out of the rankings, relevant or not: tags known beforehand, say.
        """
        tags = check_tags(Y, Y.shape[0] if hasattr(Y, "shape") else len(Y))
        relevant = as_csr(tags > 0)
        excluded = None
        if exclude is not None:
            excluded = as_csr(as_csr(exclude) != 0)
            if excluded.shape != tags.shape:
                raise ShapeError(f"exclude has the shape {excluded.shape}; expected that of Y, {tags.shape}.")
            relevant = as_csr(relevant - relevant.multiply(excluded))
        n_images, n_tags = tags.shape
        return cls(n_images, n_tags, relevant.indptr.astype(np.int64), relevant.indices.astype(np.int64), excluded)

    @property
    def images(self) -> NDArray[np.int64]:
        """The image of each relevant entry, shape (n_relevant,)."""
        return np.repeat(np.arange(self.n_images), np.diff(self.indptr))

    def span(self, rows: slice) -> slice:
        """Return where the relevant entries of some rows lie in `tags`."""
        return slice(int(self.indptr[rows.start]), int(self.indptr[rows.stop]))

    def relevant(self, rows: slice) -> sp.csr_array:
        """Return 1 where an entry of some rows is relevant, shape (n_rows, n_tags)."""
        span = self.span(rows)
        tags, starts = self.tags[span], self.indptr[rows.start : rows.stop + 1] - span.start
        return sp.csr_array((np.ones(tags.size, np.float32), tags, starts), shape=(len(starts) - 1, self.n_tags))


class ScoreBlocks:
    """The scores that are judged, as blocks of whole rows; excluded entries are minus infinity.

    `scores` are an array (n_images, n_tags), an iterable of (slice, array), or a callable that returns such an
    iterable. Higher is better; finite. The slice says which images the block's rows are; together the blocks hold every
    image once, in any order. A block may be overwritten once the next is asked for. `judgements` have the shape, and
    the excluded entries.
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
                raise UserError(_WRONG_KIND.format(what=f"scores is a {type(scores).__name__}"))
            self._one_time = iter(scores) is scores

    def first_pass(self) -> Iterator[Block]:
        """Yield what `once` does, for `second_pass`: blocks that are costly or impossible to make twice are kept.

        At most 512 MiB of them are.
        """
        cached: list[Block] = []
        n_bytes = 0
        for rows, block in self.once():
            n_bytes += block.nbytes
            if n_bytes > KEEP_BYTES:
                cached.clear()
                if self._one_time:
                    raise TooLargeError(
                        f"Metrics of words go through the scores twice, and one-time blocks of more than "
                        f"{KEEP_BYTES / 2**30:.1f} GiB are not kept. Pass a callable that gives the blocks anew."
                    )
            elif self._one_time or callable(self._scores):
                cached.append((rows, block.copy()))
            yield rows, block
        self._cached = cached or None

    def second_pass(self) -> Iterator[Block]:
        """Yield the same blocks once more."""
        yield from self.once() if self._cached is None else self._cached

    def once(self) -> Iterator[Block]:
        """Yield (rows, scores) of each block, checked, C order, float32 or float64; a matrix in parts."""
        n_tags, excluded = self._judgements.n_tags, self._judgements.excluded
        seen = np.zeros(self._judgements.n_images, bool)
        blocks: Any = self._scores() if callable(self._scores) else self._scores
        if isinstance(blocks, np.ndarray):
            matrix, step = blocks, max(1, MATRIX_BLOCK_BYTES // (blocks.itemsize * n_tags))
            blocks = ((slice(start, start + step), matrix[start : start + step]) for start in range(0, seen.size, step))
        for item in blocks:
            if not (isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], slice)):
                raise UserError(_WRONG_KIND.format(what=f"scores gives a {type(item).__name__}, not blocks"))
            (start, stop, _), block = item[0].indices(seen.size), np.asarray(item[1])
            expected = stop - start, n_tags
            if block.shape != expected:
                what = f"The score block of images {start} to {stop}"
                raise ShapeError(f"{what} has the shape {block.shape}; expected {expected} (images, tags).")
            if seen[start:stop].any():
                raise ShapeError(f"Image {start + seen[start:stop].argmax()} is in two score blocks; expected once.")
            seen[start:stop] = True
            block = np.ascontiguousarray(block, np.float32 if block.dtype == np.float32 else np.float64)
            row = first_non_finite_row(block)
            if row >= 0:
                raise DataError(
                    f"The scores of image {start + row} hold NaN or infinity, which cannot be ranked. "
                    "Check the features of that image and the weights of the model."
                )
            rows = slice(start, stop)
            if excluded is not None:
                some, block = excluded[rows], block.copy()
                block[np.repeat(np.arange(len(block)), np.diff(some.indptr)), some.indices] = -np.inf
            yield rows, block

        if not seen.all():
            raise ShapeError(
                f"The score blocks hold {seen.sum()} images, but the tags {seen.size}; the first without scores is "
                f"{seen.argmin()}. Pass scores of the same images as tags."
            )
