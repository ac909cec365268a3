"""Across corpora: learn from one collection, tag the images of another, tags joined by their names or their vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visterm.app.reproduce.problem import Problem

LEAST_COSINE = 0.7
"""From which on the nearest tag stands for one that has no namesake."""


@dataclass(frozen=True)
class JoinedTags:
    """Which tag of the first corpus stands for which of the second.

    Attributes
    ----------
    ours : ndarray of int64, shape (n_target_tags,)
        The number of the source's tag, or -1.
    by : list of str
        "name", "vector" or "none", for each target tag.
    """

    ours: NDArray[np.int64]
    by: list[str]


def join_tags(
    source_tags: Sequence[str],
    target_tags: Sequence[str],
    source_vectors: NDArray[np.float32] | None = None,
    target_vectors: NDArray[np.float32] | None = None,
    *,
    least_cosine: float = LEAST_COSINE,
) -> JoinedTags:
    """Join tags of the same name, then, with vectors, each other one to the tag nearest to it by cosine, if near."""
    raise NotImplementedError


def across_corpora(
    source: Problem,
    target: Problem,
    model: str,
    settings: Mapping[str, Any],
    vectors: Mapping[str, NDArray[np.float32]] | None = None,
    *,
    seed: int = 0,
    on: str = "test",
    n_jobs: int | None = 1,
) -> dict[str, dict[str, float]]:
    """Learn from the training rows of one problem and measure on rows of another, whose features are of the same kind.

    Parameters
    ----------
    source, target : Problem
    model : str
        As in ``visterm models``.
    settings : mapping
    vectors : mapping of "source" and "target" to ndarray of float32, shape (n_tags, width), optional
        Of the same kind; start values of the model's tags, by which tags are joined too. A target tag without a
        partner then gets a row by `tag_rows_from`.
    seed : int
    on : {"test", "valid"}
    n_jobs : int, optional

    Returns
    -------
    dict of str to dict of str to float
        For each way to join, "name", "vector" (names first) and "words" (a row for every target tag from its vector):
        ``p@5``, ``r@5``, ``f1@5`` over all images with a tag, all target tags right; ``tags`` that were joined.
    """
    raise NotImplementedError
