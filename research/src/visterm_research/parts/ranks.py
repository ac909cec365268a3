"""The tasks of the objects-and-parts paper: ranks of the one right answer, and the measures made of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visterm.core.checks import check_count
from visterm.core.errors import DataError, ShapeError
from visterm.core.types import Matrix
from visterm.metrics import Ranks, ratio
from visterm.models import Annotator, QuadrupletBlock, ranks_of_pairs

ANNOTATION, LABELLING, TRIPLET = "Image annotation", "Part-object labelling", "Triplet"
TASKS = (ANNOTATION, LABELLING, TRIPLET)

KNOWN = "among known relations"
"""In place of a task: candidates are the relations alone (Table 5)."""

KS = (1, 10)
"""Where Tables 3 to 5 of Mesnil et al. (2013) look."""

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


def all_scores(model: Annotator, X: Matrix) -> Floats:
    """Return the scores of all labels for images, shape (n_images, n_tags)."""
    return np.concatenate([block for _, block in model.score_blocks(X)])


def pair_terms(model: Any, n_tags: int, words: bool) -> Floats:
    """Return what a pair of labels adds, whole and part: nothing, unless words count."""
    if not words:
        return np.zeros((n_tags, n_tags), np.float32)
    found: Floats = model.pair_scores(words=True)
    return found


def task_ranks(S: Floats, F: Floats, examples: QuadrupletBlock, n_jobs: int | None = None) -> dict[str, Ints]:
    """Rank the right answers of all tasks among all labels, 1 for the best; equal scores: the smaller label first.

    Image annotation and triplets ask twice of a quadruplet: for the object's label, then for the part's. Without words
    (F = 0) the two are the same, as in the paper.

    Parameters
    ----------
    S : ndarray of float32, shape (n_images, n_tags)
        Scores of labels for images.
    F : ndarray of float32, shape (n_tags, n_tags)
        What a pair of labels adds: whole, part.
    examples : QuadrupletBlock
        Of rows of S.

    Returns
    -------
    dict of str to ndarray of int64
        By task: shape (2 n,), objects before parts; of part-object labelling (n,).
    """
    A, B = S[examples.object_images], S[examples.part_images]
    objects, parts = examples.objects, examples.parts
    alone = [ranks_of(A, objects), ranks_of(B, parts)]
    beside = [ranks_of(A + F.T[parts], objects), ranks_of(B + F[objects], parts)]
    return {
        ANNOTATION: np.concatenate(alone),
        LABELLING: ranks_of_pairs(A, B, F, objects, parts, n_jobs) + 1,
        TRIPLET: np.concatenate(beside),
    }


def known_ranks(S: Floats, F: Floats, examples: QuadrupletBlock, relations: Ints) -> Ints:
    """Rank the right pairs of labels among relations alone (section 6.5), 1 for the best; equal scores: the first one.

    Parameters
    ----------
    relations : ndarray of int64, shape (n, 2)
        Candidates (part, whole), sorted; those of the examples are among them.
    """
    parts, wholes = relations.T
    scores = S[examples.object_images][:, wholes] + S[examples.part_images][:, parts] + F[wholes, parts]
    place = {(int(part), int(whole)): number for number, (part, whole) in enumerate(relations)}
    right = [place[int(part), int(whole)] for part, whole in zip(examples.parts, examples.objects, strict=True)]
    return ranks_of(scores, np.array(right, np.int64))


def ranks_of(scores: Any, answers: Ints) -> Ints:
    """Return the rank of one column of each row, 1 for the largest score; equal ones: the smaller column first."""
    own = np.take_along_axis(scores, answers[:, None], axis=1)
    before = (scores == own) & (np.arange(scores.shape[1]) < answers[:, None])
    ranks: Ints = 1 + ((scores > own) | before).sum(axis=1, dtype=np.int64)
    return ranks


def relation_of_each(task: str, examples: QuadrupletBlock) -> Ints:
    """Return the relation (part, whole) of each answer of a task, shape (n or 2 n, 2)."""
    relations = np.stack([examples.parts, examples.objects], axis=1)
    return relations if task not in (ANNOTATION, TRIPLET) else np.concatenate([relations, relations])


def measure_answers(ranks: Any, ks: Sequence[int] = KS) -> dict[str, NDArray[np.float64]]:
    """Return the paper's measures of each example, from the rank of its only right answer (sections 6.1 and 6.2).

    A table shows their means. Two models are compared by their values of the same examples
    (`visterm.metrics.significance`); quadruplets that share images are not independent, so for intervals take the means
    of groups, one a relation or an object's image (`group_means`).

    Parameters
    ----------
    ranks : array-like of int, shape (n,)
        1 is best.
    ks : sequence of int
        Where to look for `p@k`.

    Returns
    -------
    dict of str to ndarray of float64, shape (n,)
        ``p@k`` for each k, 1 / k if the answer is among the first k, so that a mean of p@10 is at most 10 %; ``MAP``,
        1 / rank, which is the average precision where one answer is right; ``mean rank``, the rank.

    Raises
    ------
    ShapeError
        If there is not one rank an example.
    DataError
        If a rank is not a whole number of 1 or more.

    Examples
    --------
    >>> measure_answers([1, 4])["MAP"].mean()
    np.float64(0.625)
    """
    found = np.asarray(ranks)
    if found.ndim != 1:
        raise ShapeError(
            f"ranks has {found.ndim} dimensions; expected 1, the rank of the right answer of each example."
        )
    if found.size and (found.dtype.kind not in "iu" or found.min() < 1):
        wrong = f"of type {found.dtype}" if found.dtype.kind not in "iu" else f"{found.min()} among others"
        raise DataError(f"ranks are {wrong}; expected whole numbers of 1 or more, 1 for the best.")
    for k in ks:
        check_count(k, "k")
    answers = np.arange(found.size)
    lists = Ranks(found.size, answers, answers, found.astype(np.int64))
    measures = {f"p@{k}": lists.precision(k) for k in ks}
    return {**measures, "MAP": lists.reciprocal_rank(), "mean rank": found.astype(np.float64)}


def chance_measures(n_candidates: int, ks: Sequence[int] = KS) -> dict[str, float]:
    """Return the means of `measure_answers` that are expected where the right answer is at a random one of some places.

    Examples
    --------
    >>> chance_measures(4, ks=[2])
    {'p@2': 0.25, 'MAP': 0.5208333333333333, 'mean rank': 2.5}
    """
    check_count(n_candidates, "n_candidates")
    every = measure_answers(np.arange(1, n_candidates + 1), ks)
    return {name: float(values.mean()) for name, values in every.items()}


def group_means(values: Any, groups: Any) -> NDArray[np.float64]:
    """Return the mean of the values of each group, in the order of the groups' sorted names.

    Parameters
    ----------
    values : array-like, shape (n,)
        As of `measure_answers`.
    groups : array-like, shape (n,) or (n, m)
        The group of each value: the number of an object's image, or its relation as a row of two.

    Raises
    ------
    ShapeError
        If there is not one group a value.
    """
    numbers, names = np.asarray(values, np.float64), np.asarray(groups)
    if numbers.ndim != 1 or names.shape[:1] != numbers.shape:
        raise ShapeError(
            f"values has shape {numbers.shape}, groups {names.shape}; expected a vector of values and a group for each."
        )
    group = np.unique(names, axis=0, return_inverse=True)[1].ravel()
    return ratio(np.bincount(group, numbers), np.bincount(group))
