"""Vectors of words that are no tags, moved after those of the tags were learned, so that they keep their relations."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from visterm.core.checks import check_number
from visterm.core.errors import DataError, ShapeError
from visterm.core.threads import one_blas_thread

BLOCK_FLOATS = 2**21  # Relations that are held at a time: 8 MB of each of the few matrices that they are made from
RIDGE = 1e-6  # Of the mean square of the partners' coordinates: directions without any partner stay unmoved
HALVINGS = 20
MAX_PARTNERS = 4096  # Tags, and words, that relations are kept to
MAX_SWEEPS = 100  # Over the words, in each of the steps
TOLERANCE = 1e-5  # A step ends when the sum gains less than this share of what it has gained in all


class Partners(NamedTuple):
    """Words to which relations are kept: before and after, and how much each counts."""

    old: NDArray[np.float32]
    new: NDArray[np.float32]
    weights: NDArray[np.float32]


def move_words(
    old_words: ArrayLike, old_tags: ArrayLike, new_tags: ArrayLike, *, about_means: bool = False, penalty: float = 0.0
) -> NDArray[np.float32]:
    """Move the vectors of words never seen as tags to where they are to tags and words as they were to both before.

    Maximises equation (4) of "Sampled Image Tagging and Retrieval Methods on User Generated Content": over all words d
    that are no tags, and all words m, tags or not::

        Σ_d Σ_m  C_dm log σ(v_d · v_m) + (1 - C_dm) log(1 - σ(v_d · v_m)),     C = σ(old products), equation (3)

    C is never held: blocks of it are made from the old vectors when they are needed, as the paper's footnote says. So
    each sweep takes time in proportion to words × partners × width, and memory for a block.

    What the paper leaves open is done so. C of (4), printed without indices the second time, is C_dm there too. The sum
    is maximised by steps of Newton's method with the bound σ' ≤ 1/4 in place of σ' (Böhning, Lindsay 1988), which need
    no learning rate. Words are first moved for their relations to tags alone, which has one best place for each; in the
    old places the relations among the words hold already, and would hold them there. Then relations among words count
    too. Where tags and words are more than `MAX_PARTNERS`, as many of both are drawn, each standing for several: the
    drawn words are moved together, the others each by itself for its relations to the drawn. Returns float32, (n_words,
    width). Raises ShapeError if the matrices do not fit together; DataError if a number is not finite.

    Parameters
    ----------
    old_words : array-like, shape (n_words, old_width)
        Vectors of the words that are no tags.
    old_tags : array-like, shape (n_tags, old_width)
        Vectors of the tags before training.
    new_tags : array-like, shape (n_tags, width)
        After it; the width may be another.
    about_means : bool
        Whether the mean of the tags' vectors is taken off before: the old one off words and tags, the new one off tags.
        Vectors of text share a part, and trained ones another (how unlikely any tag is), which hide what tells words
        apart. Rows have neither then: they rank images, and words among themselves, and are low beside tags.
    penalty : float
        Of half a vector's square, in the sum; 1 is as much as relations to tags weigh in a direction, in the mean.
        Where tags are few for the numbers of a vector, relations can be kept exactly by going far in directions in
        which tags hardly differ, and images do. Moved by the sum alone, vectors of a sentence network ranked the images
        of held-out words worse than those that had not moved; with penalty 1 about the means they ranked them better.
    """
    old, before, after = _checked(old_words, old_tags, new_tags)
    check_number(penalty, "penalty", least=0)
    if about_means:
        mean = before.mean(axis=0)
        old, before, after = old - mean, before - mean, after - after.mean(axis=0)
    rng = np.random.default_rng(0)
    tags, tag_weight = _drawn(len(before), MAX_PARTNERS, rng)
    word_rows, word_weight = _drawn(len(old), MAX_PARTNERS, rng)
    seen = Partners(before[tags], after[tags], np.full(len(tags), tag_weight, np.float32))
    moved = np.zeros((len(old), after.shape[1]), np.float32)
    with one_blas_thread():
        of_seen = _curvature(seen)  # of thousands of tags it takes longer than all else
        damping = penalty * float(np.trace(of_seen)) / after.shape[1]
        climb = partial(_climb, moved, old, damping)
        climb(seen, of_seen, np.arange(len(moved)), None)
        if len(word_rows):
            climb(seen, of_seen, word_rows, word_weight)
        others = np.setdiff1d(np.arange(len(moved)), word_rows)
        if len(word_rows) and len(others):
            both = _joined(seen, old, moved, word_rows, 2 * word_weight)
            climb(both, _curvature(both), others, None)
    return moved


def _climb(
    moved: NDArray[np.float32],
    old: NDArray[np.float32],
    damping: float,
    seen: Partners,
    of_seen: NDArray[np.float64],
    chosen: NDArray[np.int64],
    word_weight: float | None,
) -> None:
    """Move the chosen words, in place, until the sum of their relations stops growing.

    `word_weight` None: for relations to `seen`, which stays where it is, and so does its curvature `of_seen`. A number:
    for relations among themselves too, each of which counts so much.
    """
    if not len(chosen):
        return
    share, first, before = 1.0, 0.0, -np.inf
    partners = _joined(seen, old, moved, chosen, word_weight) if word_weight is not None else seen
    moving = slice(len(seen.old), None)
    kept = moved[chosen]
    step = np.zeros_like(kept)

    for sweep in range(MAX_SWEEPS + 1):
        if word_weight is not None:
            partners.new[moving] = moved[chosen]
        total, gradients = _sum_and_gradients(moved[chosen], old[chosen], partners, moving)
        if damping:
            total -= damping / 2 * float(np.sum(np.square(moved[chosen]), dtype=np.float64))
            gradients -= np.float32(damping) * moved[chosen]
        if total < before:  # possible only where words move together: the bound holds for each alone
            share /= 2
            if share < 2.0**-HALVINGS:
                moved[chosen] = kept
                return
            moved[chosen] = kept + np.float32(share) * step
            continue
        first = total if sweep == 0 else first
        if sweep == MAX_SWEEPS or (sweep > 0 and total - before <= TOLERANCE * (total - first)):
            return
        before, kept = total, moved[chosen]
        of_moving = Partners(*(matrix[moving] for matrix in partners))
        step = _newton(gradients, of_seen + 4 * _curvature(of_moving), damping)
        moved[chosen] = kept + np.float32(share) * step


def _sum_and_gradients(
    rows: NDArray[np.float32], old: NDArray[np.float32], partners: Partners, moving: slice
) -> tuple[float, NDArray[np.float32]]:
    """Return the sum of equation (4) over some words and all partners, and its gradient for each of the words.

    A relation between two words that both move is in the sum twice, with either as d: so are its gradients.
    """
    total, gradients = 0.0, np.empty_like(rows)
    twice = partners.weights.copy()
    twice[moving] *= 2
    step = max(1, BLOCK_FLOATS // len(partners.new))
    for start in range(0, len(rows), step):
        some = slice(start, start + step)
        with np.errstate(invalid="ignore"):  # some BLAS kernels raise the flag for finite rows; a fit checks its rows
            products = rows[some] @ partners.new.T
        targets = expit(old[some] @ partners.old.T)
        # C log σ(s) + (1 - C) log(1 - σ(s)) = C s - log(1 + e^s)
        terms = targets * products - np.logaddexp(np.float32(0), products)
        total += float(np.sum(terms @ partners.weights, dtype=np.float64))
        gradients[some] = ((targets - expit(products)) * twice) @ partners.new
    return total, gradients


def _newton(gradients: NDArray[np.float32], curvature: NDArray[np.float64], damping: float) -> NDArray[np.float32]:
    """Divide gradients by a bound of the curvature, one matrix for all words.

    In the bound, (a + b)² ≤ 2a² + 2b² doubles a relation of two words that both move, and it is in the sum twice.
    """
    ridge = max(RIDGE * np.trace(curvature) / len(curvature), np.finfo(np.float32).tiny)
    curvature[np.diag_indices_from(curvature)] += ridge + damping
    return np.linalg.solve(curvature, gradients.T.astype(np.float64)).T.astype(np.float32)


def _curvature(partners: Partners) -> NDArray[np.float64]:
    """Bound the curvature of the sum for one word by σ' ≤ 1/4, as if its partners stayed; shape (width, width)."""
    V = partners.new.astype(np.float64)
    return (V.T * partners.weights.astype(np.float64)) @ V / 4


def _joined(
    seen: Partners, old: NDArray[np.float32], moved: NDArray[np.float32], words: NDArray[np.int64], weight: float
) -> Partners:
    return Partners(
        np.concatenate([seen.old, old[words]]),
        np.concatenate([seen.new, moved[words]]),
        np.concatenate([seen.weights, np.full(len(words), weight, np.float32)]),
    )


def _drawn(n: int, at_most: int, rng: np.random.Generator) -> tuple[NDArray[np.int64], float]:
    """Draw which of n are partners, in order; return them, and how many each stands for."""
    if n <= at_most:
        return np.arange(n), 1.0
    return np.sort(rng.choice(n, at_most, replace=False)), n / at_most


def _checked(old_words: ArrayLike, old_tags: ArrayLike, new_tags: ArrayLike) -> tuple[NDArray[np.float32], ...]:
    named = {"old_words": old_words, "old_tags": old_tags, "new_tags": new_tags}
    matrices = {name: np.asarray(matrix, np.float32) for name, matrix in named.items()}
    for name, matrix in matrices.items():
        if matrix.ndim != 2:
            raise ShapeError(f"{name} has {matrix.ndim} dimensions; expected 2, a row a word.")
        if not np.isfinite(matrix).all():
            raise DataError(f"{name} has infinite or undefined numbers.")
    words, old, new = matrices.values()
    if words.shape[1] != old.shape[1]:
        raise ShapeError(f"old_words has {words.shape[1]} columns, old_tags {old.shape[1]}; expected as many.")
    if len(old) != len(new) or not len(old):
        raise ShapeError(f"old_tags has {len(old)} rows, new_tags {len(new)}; expected one a tag in both, 1 or more.")
    return words, old, new
