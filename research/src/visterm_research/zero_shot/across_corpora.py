"""Across corpora: learn from one collection, tag the images of another, tags joined by their names or their vectors."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.errors import DataError, ShapeError
from visterm.core.vocabulary import Vocabulary
from visterm.evaluation import NONE, JoinedTags, join_tags
from visterm.metrics import measure
from visterm.models import MODELS
from visterm_research.comparison.problem import Problem, Rows
from visterm_research.zero_shot.arms import rows_of

Floats = NDArray[np.float32]

LEAST_COSINE = 0.6
"""From which on the nearest tag stands for one that has no namesake."""


def join_near(
    source_tags: Sequence[str],
    target_tags: Sequence[str],
    source_vectors: Floats,
    target_vectors: Floats,
    *,
    least_cosine: float = LEAST_COSINE,
) -> JoinedTags:
    """Join tags of the same name, then each other one to the tag whose vector is nearest to its own, if near.

    Parameters
    ----------
    source_tags, target_tags : sequence of str
        Spellings are compared as those of tags are. One tag of the source may stand for several of the target.
    source_vectors, target_vectors : ndarray of float32, shape (n_tags, width)
        Of one kind. A row of zeros is a tag without a vector, which is near to none.
    least_cosine : float

    Raises
    ------
    ShapeError
        If there is not a vector for each tag.
    """
    named = join_tags(Vocabulary(source_tags), target_tags)
    for what, tags, vectors in (("source", source_tags, source_vectors), ("target", target_tags, target_vectors)):
        if len(vectors) != len(tags):
            raise ShapeError(f"The {what} has {len(tags)} tags, but {len(vectors)} vectors; expected one a tag.")
    cosines = _unit(target_vectors) @ _unit(source_vectors).T
    near = ~named.by_name & (cosines.max(axis=1) >= least_cosine)
    return JoinedTags(np.where(near, cosines.argmax(axis=1), named.ours), named.by_name)


def across_corpora(
    source: Problem,
    target: Problem,
    model: str,
    settings: Mapping[str, Any],
    vectors: Mapping[str, Floats] | None = None,
    *,
    least_cosine: float = LEAST_COSINE,
    seed: int = 0,
    on: str = "test",
    n_jobs: int | None = 1,
) -> dict[str, dict[str, float]]:
    """Learn from the training rows of one problem and measure on rows of another, whose features are of the same kind.

    Parameters
    ----------
    source, target : Problem
        With features of one encoder that learns nothing, such as a network.
    model : str
        As in ``visterm models``.
    settings : mapping
    vectors : mapping of "source" and "target" to ndarray of float32, shape (n_tags, width), optional
        Of one kind: those that the model's tags start with, by which tags are joined too.
    least_cosine : float
    seed : int
    on : {"test", "valid"}
    n_jobs : int, optional

    Returns
    -------
    dict of str to dict of str to float
        For each way to join tags. "name": the target's tags that the source has too are ranked. "vector": those too
        that one of the source's is near to, with its scores. "words": all the target's tags are ranked; those without
        a namesake have rows from their vectors (`tag_rows_from`). The last two only with `vectors`. ``p@5``, ``r@5``
        and ``f1`` of the two, over all images with a tag, where each of an image's tags is right, ranked or not;
        ``tags``, how many are ranked, and ``share``, of what the images have.

    Raises
    ------
    ShapeError
        If the features of the two have different widths.
    DataError
        If the two have no tag of the same name.
    """
    rows = rows_of(target, on)
    if source.train.X.shape[1] != rows.X.shape[1]:
        raise ShapeError(
            f"The images of {source.name} have {source.train.X.shape[1]} features, those of {target.name} "
            f"{rows.X.shape[1]}. Encode both with the same encoder."
        )
    named = join_tags(Vocabulary(source.tags), target.tags)
    if not named.by_name.any():
        raise DataError(f"{source.name} and {target.name} have no tag of the same name, so nothing joins them.")
    start = {} if vectors is None else {"word_vectors": vectors["source"]}
    accepted = inspect.signature(MODELS.load(model)).parameters
    shared = {"valid_share": 0.0, "random_state": seed, "n_jobs": n_jobs}
    params = {name: value for name, value in shared.items() if name in accepted} | start | dict(settings)
    fitted = MODELS.create(model, **params).fit(source.train.X, source.train.Y)
    scores = np.asarray(fitted.decision_function(rows.X), np.float32)
    found = {"name": _judged(scores[:, named.ours], named.by_name, rows)}
    if vectors is not None:
        near = join_near(source.tags, target.tags, vectors["source"], vectors["target"], least_cosine=least_cosine)
        found["vector"] = _judged(scores[:, near.ours], near.ours != NONE, rows)
        words = scores[:, named.ours]
        others = np.flatnonzero(~named.by_name)
        if others.size:
            words[:, others] = fitted.image_rows(rows.X) @ fitted.tag_rows_from(vectors["target"][others]).T
        found["words"] = _judged(words, np.ones(len(target.tags), np.bool_), rows)
    return found


def _judged(scores: Floats, ranked: NDArray[np.bool_], rows: Rows) -> dict[str, float]:
    """Measure the first five of the ranked tags; tags that are not ranked are missed by all images that have them."""
    hidden = sp.csr_array(np.broadcast_to(~ranked, scores.shape))
    right = sp.csr_array(rows.Y > 0)
    counts = np.asarray(right.sum(axis=1), np.float64).ravel()
    values = measure(scores, right, ["p@5"], exclude=hidden)["p@5"]
    has = counts > 0
    hits = 5 * np.nan_to_num(values[has])  # NaN: none of the image's tags is ranked
    p, r = float(np.mean(hits / 5)), float(np.mean(hits / counts[has]))
    within = np.asarray(right[:, np.flatnonzero(ranked)].sum(), np.float64)
    return {
        "p@5": p,
        "r@5": r,
        "f1": 2 * p * r / (p + r) if p + r else 0.0,
        "tags": float(ranked.sum()),
        "share": float(within / counts.sum()),
    }


def _unit(vectors: Floats) -> Floats:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    rows: Floats = (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)
    return rows
