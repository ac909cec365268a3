"""Part-of relations of tags: check them, suggest them from similar wholes, and turn them into quadruplets."""

from __future__ import annotations

from itertools import compress
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from visterm.core.checks import as_csr, as_generator, check_count, check_size
from visterm.core.errors import DataError, ShapeError
from visterm.core.types import Ints, MatrixLike, RandomState

MAX_SIMILARITY_BYTES = 2 << 30


class QuadrupletBlock(NamedTuple):
    """n quadruplets (I_o, L_o, I_p, L_p): four int64 arrays of shape (n,), rows and columns of Y."""

    object_images: Ints
    objects: Ints
    part_images: Ints
    parts: Ints


class Quadruplets:
    """A random stream of the quadruplets of related tags: any image of the whole with any image of the part.

    This is the proxy supervision of the paper: images have tags, relations join tags, and a picture of a car and a
    picture of any wheel make an example, although the wheel is not that car's. An image with both tags is never paired
    with itself. Raises ShapeError if the relations are not pairs of columns of Y; DataError if a tag is part of itself,
    or no relation has images of both its tags.

    Quadruplet `i` depends only on `i` and the seed.

    Parameters
    ----------
    Y : array-like or sparse, shape (n_images, n_tags)
        Above 0: the image has the tag.
    relations : array-like of int, shape (n_relations, 2)
        Tag columns (part, whole). Duplicates count once.
    random_state : int, RandomState, Generator or None
        Random state of the draws.

    Attributes
    ----------
    relations : ndarray of int64, shape (n, 2)
        The relations with quadruplets, sorted. A draw picks a relation uniformly, then one of its quadruplets.
    counts : ndarray of int64, shape (n,)
        Number of quadruplets of each relation.

    References
    ----------
    Mesnil et al.: Learning semantic representations of objects and their parts. Machine Learning, 2014; sections 4.3.1
    and 4.3.2.

    Examples
    --------
    >>> Quadruplets([[1, 0], [1, 0], [0, 1]], [(1, 0)]).count
    2
    """

    def __init__(self, Y: MatrixLike, relations: ArrayLike, *, random_state: RandomState = 0) -> None:
        by_tag = (as_csr(Y) > 0).tocsc()
        by_tag.sort_indices()
        pairs = check_relations(relations, by_tag.shape[1])
        candidates = [_sides(by_tag, part_tag, whole_tag) for part_tag, whole_tag in pairs]
        counts = np.array([s.wholes.size * s.parts.size - s.n_shared for s in candidates], np.int64)
        self.relations = pairs[counts > 0]
        self.counts = counts[counts > 0]
        if not self.counts.size:
            raise DataError(
                f"None of the {len(pairs)} part-of relations has images of both its tags, so there are no quadruplets. "
                "Pass relations between tags that images have."
            )

        usable = list(compress(candidates, counts))
        self._wholes, self._first_whole = _concatenate([sides.wholes for sides in usable])
        self._parts, self._first_part = _concatenate([sides.parts for sides in usable])
        self._n_shared = np.array([sides.n_shared for sides in usable], np.int64)
        self._cumulated = np.cumsum(np.full(self.counts.size, 1 / self.counts.size))
        self._key = as_generator(random_state).integers(2**63, size=2).astype(np.uint64)

    @property
    def count(self) -> int:
        """The number of different quadruplets."""
        return sum(int(count) for count in self.counts)

    def draw(self, n: int) -> QuadrupletBlock:
        """Return the first quadruplets of the stream; raises UserError if `n` is not a whole number of 1 or more."""
        check_count(n, "n")
        bits = np.random.Philox(key=self._key)  # one count gives four numbers, enough for one quadruplet
        relation_draw, pair_draw = np.random.Generator(bits).random((int(n), 4)).T[:2]
        relation = np.minimum(np.searchsorted(self._cumulated, relation_draw, side="right"), self.counts.size - 1)
        n_parts = self._first_part[relation + 1] - self._first_part[relation]
        n_shared = self._n_shared[relation]
        index = np.minimum((pair_draw * self.counts[relation]).astype(np.int64), self.counts[relation] - 1)
        # Pairs are ordered by the whole's image, then the part's. Images with both tags come first on both sides; their
        # rows are shorter, because an image is not paired with itself.
        n_in_short_rows = n_shared * (n_parts - 1)
        is_short = index < n_in_short_rows
        offset = np.where(is_short, index, index - n_in_short_rows)
        row, column = np.divmod(offset, np.where(is_short, n_parts - 1, n_parts))
        column += is_short & (column >= row)
        row += np.where(is_short, 0, n_shared)
        return QuadrupletBlock(
            self._wholes[self._first_whole[relation] + row],
            self.relations[relation, 1],
            self._parts[self._first_part[relation] + column],
            self.relations[relation, 0],
        )


def check_relations(relations: ArrayLike, n_tags: int, setting: str | None = None) -> Ints:
    """Return relations (part, whole) as int64, sorted and without duplicates, shape (n, 2).

    Raises ShapeError if they are not pairs of whole numbers from 0 to `n_tags` - 1; DataError if a tag is part of
    itself. `setting` is the name of the relations in errors.
    """
    array = np.asarray(relations)
    if array.size == 0:
        return np.empty((0, 2), np.int64)
    if array.ndim != 2 or array.shape[1] != 2 or array.dtype.kind not in "iu":
        raise ShapeError(
            f"Relations have shape {array.shape} and type {array.dtype}.",
            setting=setting, value=array.shape,
            expected="pairs of tag columns: (part, whole), or (tag, ancestor) in a tree",
        )  # fmt: skip

    if array.min() < 0 or array.max() >= n_tags:
        wrong = array.min() if array.min() < 0 else array.max()
        expected = f"0 to {n_tags - 1}, the columns of Y"
        raise ShapeError(f"Relations name tag column {wrong}.", setting=setting, value=int(wrong), expected=expected)
    self_relations = np.flatnonzero(array[:, 0] == array[:, 1])
    if self_relations.size:
        raise DataError(f"Tag column {array[self_relations[0], 0]} is part of itself. Leave such relations out.")
    return np.unique(array.astype(np.int64), axis=0)


class _Sides(NamedTuple):
    """The images of a relation's whole and part; images with both tags come first, in the same order on both sides."""

    wholes: Ints
    parts: Ints
    n_shared: int


def _sides(by_tag: sp.csc_array, part_tag: int, whole_tag: int) -> _Sides:
    columns = (by_tag.indices[slice(*by_tag.indptr[tag : tag + 2])] for tag in (whole_tag, part_tag))
    wholes, parts = (images.astype(np.int64) for images in columns)
    both = np.intersect1d(parts, wholes, assume_unique=True)
    if not both.size:
        return _Sides(wholes, parts, 0)
    others = [np.setdiff1d(side, both, assume_unique=True) for side in (wholes, parts)]
    return _Sides(np.concatenate((both, others[0])), np.concatenate((both, others[1])), both.size)


def _concatenate(arrays: list[Ints]) -> tuple[Ints, Ints]:
    return np.concatenate(arrays), np.cumsum([0, *(array.size for array in arrays)])


def listed_and_suggested(pairs: Ints, siblings: Ints, n_tags: int, weight: float) -> sp.csr_array:
    """Return how certain it is that each tag is a part of each whole: 1 for known relations, at most 1 for suggestions.

    Wholes are similar if they are siblings with known parts; for a whole without such siblings, if they share parts
    with it, weighted by the cosine of the lists of parts. An unknown part gets `weight` times the share of the similar
    wholes that have it, up to 1.

    `pairs`, (n, 2), are known relations (part, whole), at least one; `siblings`, (m, 2), are tags of the same kind, in
    any order. Returns CSR of float64, (n_tags, n_tags), whose rows are wholes. Raises TooLargeError if the pairs of
    similar wholes could take more than 2 GiB.
    """
    listed = sp.csr_array((np.ones(len(pairs)), (pairs[:, 1], pairs[:, 0])), shape=(n_tags, n_tags))
    suggested = weight * (_similarity(listed, siblings) @ listed)
    certainties = sp.csr_array(suggested.minimum(1.0).maximum(listed))
    certainties.setdiag(0)
    certainties.eliminate_zeros()
    certainties.sort_indices()
    return certainties


def _similarity(listed: sp.csr_array, siblings: Ints) -> sp.csr_array:
    """Return the similarity of other wholes to each whole; rows sum to 1, or to 0 if no whole is similar."""
    n_parts = np.diff(listed.indptr)
    n_wholes = np.bincount(listed.indices).astype(np.int64)
    check_size(
        16 * int((n_wholes**2).sum()),
        MAX_SIMILARITY_BYTES,
        f"The similarity of {int((n_parts > 0).sum())} wholes, up to {n_wholes.max()} with the same part,",
        "Leave out the most common parts, or set listed to 0.",
    )
    sibling_pairs = np.concatenate([siblings, siblings[:, ::-1]])
    sibling_pairs = np.unique(sibling_pairs[n_parts[sibling_pairs[:, 1]] > 0], axis=0)
    sibling_matrix = sp.csr_array((np.ones(len(sibling_pairs)), tuple(sibling_pairs.T)), shape=listed.shape)
    scaled = sp.diags_array(1 / np.sqrt(np.maximum(n_parts, 1))) @ listed
    cosines = sp.csr_array(scaled @ scaled.T)
    cosines.setdiag(0)
    has_no_siblings = np.diff(sibling_matrix.indptr) == 0
    similarity = sibling_matrix + sp.diags_array(has_no_siblings.astype(np.float64)) @ cosines
    sums = np.asarray(similarity.sum(axis=1)).ravel()
    return sp.diags_array(np.divide(1, sums, out=np.zeros_like(sums), where=sums > 0)) @ similarity
