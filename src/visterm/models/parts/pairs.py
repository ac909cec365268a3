"""Find the exact best pairs of tags of an object and its part, and the exact ranks of known pairs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from visterm.core.checks import check_k, check_magnitude
from visterm.core.errors import DataError, ShapeError
from visterm.core.threads import resolve_jobs, standing_team
from visterm.core.types import PairRanking
from visterm.kernels.pairs import PairTerms, pair_ranks, pair_terms, top_pairs

Floats: TypeAlias = NDArray[np.float32]

MAX_VALUE = 1e37  # The sum of three such numbers doesn't overflow float32
EXAMPLES_PER_PART = 16  # Constant, so the parts don't depend on the number of threads


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
) -> NDArray[np.int64]:
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
        raise ShapeError(
            f"A has the shape {A.shape}, B {B.shape}; expected (n, {n_tags}) for both, as F has {n_tags} tags."
        )
    _check_finite("A", A)
    _check_finite("B", B)
    return A, B, terms


def _check_finite(name: str, values: Floats) -> None:
    if not np.isfinite(values).all():
        raise DataError(f"{name} contains NaN or infinity; expected finite numbers.")
    check_magnitude(values, MAX_VALUE, name)


def known_tags(name: str, tag_ids: ArrayLike, n: int, n_tags: int) -> NDArray[np.int64]:
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
