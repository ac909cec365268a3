"""The tasks of the objects-and-parts paper: ranks of the only right answer, and measures of these ranks."""

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
"""Name of the task whose candidates are only the relations (Table 5)."""

KS = (1, 10)
"""Values of k for p@k in Tables 3 to 5 of Mesnil et al. (2013)."""

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


def all_scores(model: Annotator, X: Matrix) -> Floats:
    """Return the scores of all labels for images, shape (n_images, n_tags)."""
    return np.concatenate([block for _, block in model.score_blocks(X)])


def pair_terms(model: Any, n_tags: int, words: bool) -> Floats:
    """Return the part of the score that depends only on the labels, [whole, part]; zeros unless words are used."""
    if not words:
        return np.zeros((n_tags, n_tags), np.float32)
    terms: Floats = model.pair_scores(words=True)
    return terms


def task_ranks(S: Floats, F: Floats, examples: QuadrupletBlock, n_jobs: int | None = None) -> dict[str, Ints]:
    """Rank the right answers of all tasks among all labels, 1 for the best, ties by the smaller label.

    Image annotation and triplets have two answers per quadruplet: the object's label, then the part's. Without words
    (F = 0), both tasks are the same, as in the paper.

    Parameters
    ----------
    S : ndarray of float32, shape (n_images, n_tags)
        Scores of labels for images.
    F : ndarray of float32, shape (n_tags, n_tags)
        The part of the score that depends only on the labels, [whole, part].
    examples : QuadrupletBlock
        Quadruplets of rows of S.

    Returns
    -------
    dict of str to ndarray of int64
        Ranks by task: shape (2 n,), objects before parts; for part-object labelling (n,).
    """
    A, B = S[examples.object_images], S[examples.part_images]
    objects, parts = examples.objects, examples.parts
    image_ranks = [ranks_of(A, objects), ranks_of(B, parts)]
    triplet_ranks = [ranks_of(A + F.T[parts], objects), ranks_of(B + F[objects], parts)]
    return {
        ANNOTATION: np.concatenate(image_ranks),
        LABELLING: ranks_of_pairs(A, B, F, objects, parts, n_jobs) + 1,
        TRIPLET: np.concatenate(triplet_ranks),
    }


def known_ranks(S: Floats, F: Floats, examples: QuadrupletBlock, relations: Ints) -> Ints:
    """Rank the right pairs of labels among the relations (section 6.5), 1 for the best, ties by the first relation.

    Parameters
    ----------
    relations : ndarray of int64, shape (n, 2)
        Candidates (part, whole), sorted; those of the examples are among them.
    """
    parts, wholes = relations.T
    scores = S[examples.object_images][:, wholes] + S[examples.part_images][:, parts] + F[wholes, parts]
    index_of = {(int(part), int(whole)): number for number, (part, whole) in enumerate(relations)}
    right = [index_of[int(part), int(whole)] for part, whole in zip(examples.parts, examples.objects, strict=True)]
    return ranks_of(scores, np.array(right, np.int64))


def ranks_of(scores: Any, answers: Ints) -> Ints:
    """Return the rank of one column per row, `answers`, 1 for the largest score, ties by the smaller column."""
    answer_scores = np.take_along_axis(scores, answers[:, None], axis=1)
    ties_before = (scores == answer_scores) & (np.arange(scores.shape[1]) < answers[:, None])
    ranks: Ints = 1 + ((scores > answer_scores) | ties_before).sum(axis=1, dtype=np.int64)
    return ranks


def relation_of_each(task: str, examples: QuadrupletBlock) -> Ints:
    """Return the relation (part, whole) of each answer of a task, shape (n or 2 n, 2)."""
    relations = np.stack([examples.parts, examples.objects], axis=1)
    return relations if task not in (ANNOTATION, TRIPLET) else np.concatenate([relations, relations])


def measure_answers(ranks: Any, ks: Sequence[int] = KS) -> dict[str, NDArray[np.float64]]:
    """Return the paper's measures of each example, from the rank of its only right answer (sections 6.1 and 6.2).

    A table shows their means. Two models are compared by their values for the same examples
    (`visterm.metrics.significance`). Quadruplets that share images are not independent, so use the means of groups for
    intervals, with one group per relation or image of an object (`group_means`).

    Parameters
    ----------
    ranks : array-like of int, shape (n,)
        1 is best.
    ks : sequence of int
        Values of k for `p@k`.

    Returns
    -------
    dict of str to ndarray of float64, shape (n,)
        ``p@k`` for each k, 1 / k if the answer is among the first k, so that a mean of p@10 is at most 10 %; ``MAP``,
        1 / rank, which is the average precision if one answer is right; ``mean rank``, the rank.

    Raises
    ------
    ShapeError
        If `ranks` is not a vector, with one rank per example.
    DataError
        If a rank is not a whole number of 1 or more.

    Examples
    --------
    >>> measure_answers([1, 4])["MAP"].mean()
    np.float64(0.625)
    """
    array = np.asarray(ranks)
    if array.ndim != 1:
        raise ShapeError(
            f"ranks has {array.ndim} dimensions; expected 1, the rank of the right answer of each example."
        )
    if array.size and (array.dtype.kind not in "iu" or array.min() < 1):
        problem = f"of type {array.dtype}" if array.dtype.kind not in "iu" else f"{array.min()} among others"
        raise DataError(f"ranks are {problem}; expected whole numbers of 1 or more, 1 for the best.")
    for k in ks:
        check_count(k, "k")
    answers = np.arange(array.size)
    lists = Ranks(array.size, answers, answers, array.astype(np.int64))
    measures = {f"p@{k}": lists.precision(k) for k in ks}
    return {**measures, "MAP": lists.reciprocal_rank(), "mean rank": array.astype(np.float64)}


def chance_measures(n_candidates: int, ks: Sequence[int] = KS) -> dict[str, float]:
    """Return the expected means of `measure_answers` if the right answer has a random rank among the candidates.

    Examples
    --------
    >>> chance_measures(4, ks=[2])
    {'p@2': 0.25, 'MAP': 0.5208333333333333, 'mean rank': 2.5}
    """
    check_count(n_candidates, "n_candidates")
    all_ranks = measure_answers(np.arange(1, n_candidates + 1), ks)
    return {name: float(values.mean()) for name, values in all_ranks.items()}


def group_means(values: Any, groups: Any) -> NDArray[np.float64]:
    """Return the mean of the values of each group, in the order of the groups' sorted names.

    Parameters
    ----------
    values : array-like, shape (n,)
        Values, for example of `measure_answers`.
    groups : array-like, shape (n,) or (n, m)
        The group of each value: the number of an object's image, or its relation as a row of two.

    Raises
    ------
    ShapeError
        If the numbers of groups and values differ.
    """
    numbers, names = np.asarray(values, np.float64), np.asarray(groups)
    if numbers.ndim != 1 or names.shape[:1] != numbers.shape:
        raise ShapeError(
            f"values has shape {numbers.shape}, groups {names.shape}; expected a vector of values and a group for each."
        )
    group = np.unique(names, axis=0, return_inverse=True)[1].ravel()
    return ratio(np.bincount(group, numbers), np.bincount(group))
