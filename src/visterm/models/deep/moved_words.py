"""Move the vectors of words that are not tags after training moved the tags, to keep the relations between them."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from visterm.core.threads import one_blas_thread
from visterm.core.types import Doubles, Floats, Ints

BLOCK_FLOATS = 2**21  # Number of relations in memory at a time: 8 MB for each of a few matrices
RIDGE = 1e-6  # Added to the curvature, as a share of its mean diagonal; words don't move in directions without partners
MAX_HALVINGS = 20
MAX_PARTNERS = 4096  # Maximum number of tags, and of words that move together, whose relations are kept
MAX_SWEEPS = 100  # Maximum number of passes over the words in each call of `_maximise`
TOLERANCE = 1e-5  # `_maximise` ends when a pass gains less than this share of the total gain


class Partners(NamedTuple):
    """Words whose relations are kept: old and new vectors, and the weight of each word."""

    old: Floats
    new: Floats
    weights: Floats


def move_words(
    old_words: ArrayLike, old_tags: ArrayLike, new_tags: ArrayLike, *, about_means: bool = False, penalty: float = 0.0
) -> Floats:
    """Move the vectors of words that are not tags so that their relations to tags and words stay the same.

    Maximises equation (4) of "Sampled Image Tagging and Retrieval Methods on User Generated Content": over all words d
    that are not tags, and all words m, tags or not::

        Σ_d Σ_m  C_dm log σ(v_d · v_m) + (1 - C_dm) log(1 - σ(v_d · v_m)),     C = σ(old products), equation (3)

    C is never stored: blocks of it are computed from the old vectors when needed, as in the paper's footnote. A pass
    takes time in proportion to words × partners × width, and memory for a block.

    Some details are our choice. In (4), the second C, printed without indices, is C_dm, too. The sum is maximised by
    Newton steps with the bound σ' ≤ 1/4 in place of σ' (Böhning, Lindsay 1988), which need no learning rate. At first
    only relations to tags count, which have a unique optimum; relations between words already hold at the old vectors,
    and would keep the words from moving. Then the relations between words count, too. If there are more than
    `MAX_PARTNERS` tags, this number of them is drawn, each with a larger weight; more words are moved in groups of this
    size. Returns float32, (n_words, width).

    Parameters
    ----------
    old_words : array-like, shape (n_words, old_width)
        Vectors of the words that are not tags.
    old_tags : array-like, shape (n_tags, old_width)
        Vectors of the tags before training, at least one.
    new_tags : array-like, shape (n_tags, width)
        Vectors of the tags after training; the width may differ.
    about_means : bool
        Whether to subtract the means of the tags' vectors first: the old mean from words and old tags, the new mean
        from new tags. Text vectors have a common part, and trained vectors another one (how unlikely any tag is), which
        hide the differences between words. The moved rows lack the common part: they rank images, and words against
        each other, but have low scores compared with tags.
    penalty : float
        Weight of half the squared vectors, which is subtracted from the sum; 1 is the mean weight of the relations to
        tags per direction. With few tags for the width of the vectors, words could keep all relations by large moves in
        directions in which tags hardly differ, but images do. Without a penalty, moved vectors of a sentence network
        ranked the images of held-out words worse than before; with penalty 1 about the means, they ranked them better.
    """
    old, before, after = (np.asarray(matrix, np.float32) for matrix in (old_words, old_tags, new_tags))
    if about_means:
        mean = before.mean(axis=0)
        old, before, after = old - mean, before - mean, after - after.mean(axis=0)

    tags = np.arange(len(before))
    if len(tags) > MAX_PARTNERS:
        tags = np.sort(np.random.default_rng(0).choice(len(before), MAX_PARTNERS, replace=False))
    tag_partners = Partners(before[tags], after[tags], np.full(len(tags), len(before) / len(tags), np.float32))
    new_words = np.zeros((len(old), after.shape[1]), np.float32)
    with one_blas_thread():
        tag_curvature = _curvature(tag_partners)  # with thousands of tags, this takes most of the time
        penalty_weight = penalty * float(np.trace(tag_curvature)) / after.shape[1]
        maximise = partial(_maximise, new_words, old, penalty_weight)
        for start in range(0, len(old), MAX_PARTNERS):
            ids = np.arange(start, min(start + MAX_PARTNERS, len(old)))
            for among_words in (False, True):
                maximise(tag_partners, tag_curvature, ids, among_words)
    return new_words


def _maximise(
    new_words: Floats,
    old_words: Floats,
    damping: float,
    fixed: Partners,
    fixed_curvature: Doubles,
    ids: Ints,
    among_words: bool,
) -> None:
    """Move the words `ids`, rows of `new_words`, in place until the sum of their relations stops growing.

    Relations to the partners `fixed` count, with the curvature `fixed_curvature`, and those `among_words`, if asked.
    """
    step_share, first_total, previous_total = 1.0, 0.0, -np.inf
    partners = fixed
    if among_words:
        moving = Partners(old_words[ids], new_words[ids], np.ones(len(ids), np.float32))
        partners = Partners(*map(np.concatenate, zip(fixed, moving, strict=True)))
    moving_slice = slice(len(fixed.old), None)
    previous_rows = new_words[ids]
    step = np.zeros_like(previous_rows)

    for sweep in range(MAX_SWEEPS + 1):
        if among_words:
            partners.new[moving_slice] = new_words[ids]
        total, gradients = _sum_and_gradients(new_words[ids], old_words[ids], partners, moving_slice)
        if damping:
            total -= damping / 2 * float(np.sum(np.square(new_words[ids]), dtype=np.float64))
            gradients -= np.float32(damping) * new_words[ids]
        if total < previous_total:  # only possible if words move together: the bound holds for each word alone
            step_share /= 2
            if step_share < 2.0**-MAX_HALVINGS:
                new_words[ids] = previous_rows
                return
            new_words[ids] = previous_rows + np.float32(step_share) * step
            continue
        first_total = total if sweep == 0 else first_total
        if sweep == MAX_SWEEPS or (sweep > 0 and total - previous_total <= TOLERANCE * (total - first_total)):
            return
        previous_total, previous_rows = total, new_words[ids]
        # Relations of two moving words count four times: (a + b)² ≤ 2a² + 2b², and they are in the sum twice
        curvature = fixed_curvature + 4 * _curvature(Partners(*(matrix[moving_slice] for matrix in partners)))
        ridge = max(RIDGE * np.trace(curvature) / len(curvature), np.finfo(np.float32).tiny)
        curvature[np.diag_indices_from(curvature)] += ridge + damping
        step = np.linalg.solve(curvature, gradients.T.astype(np.float64)).T.astype(np.float32)
        new_words[ids] = previous_rows + np.float32(step_share) * step


def _sum_and_gradients(rows: Floats, old: Floats, partners: Partners, moving_slice: slice) -> tuple[float, Floats]:
    """Return the sum of equation (4) over words `rows` and all partners, and its gradient for each of the words.

    A relation between two words that both move is in the sum twice, with either word as d, and so are its gradients.
    """
    total, gradients = 0.0, np.empty_like(rows)
    gradient_weights = partners.weights.copy()
    gradient_weights[moving_slice] *= 2
    step = max(1, BLOCK_FLOATS // len(partners.new))
    for start in range(0, len(rows), step):
        chunk = slice(start, start + step)
        with np.errstate(invalid="ignore"):  # some BLAS kernels set the flag even for finite rows
            products = rows[chunk] @ partners.new.T
        targets = expit(old[chunk] @ partners.old.T)
        # C log σ(s) + (1 - C) log(1 - σ(s)) = C s - log(1 + e^s)
        terms = targets * products - np.logaddexp(np.float32(0), products)
        total += float(np.sum(terms @ partners.weights, dtype=np.float64))
        gradients[chunk] = ((targets - expit(products)) * gradient_weights) @ partners.new
    return total, gradients


def _curvature(partners: Partners) -> Doubles:
    """Return a bound of the curvature of a word's sum, by σ' ≤ 1/4 with fixed partners; shape (width, width)."""
    V = partners.new.astype(np.float64)
    return (V.T * partners.weights.astype(np.float64)) @ V / 4
