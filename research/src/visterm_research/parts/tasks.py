"""The three tasks of the objects-and-parts paper, and the one with known relations: ranks of the right answers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from visterm.core.pairs import ranks_of_pairs
from visterm.core.types import Matrix
from visterm.data.quadruplets import QuadrupletBlock
from visterm_research.papers.objects_and_parts import ANNOTATION, LABELLING, TRIPLET

TASKS = (ANNOTATION, LABELLING, TRIPLET)

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


def all_scores(model: Any, X: Matrix) -> Floats:
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
