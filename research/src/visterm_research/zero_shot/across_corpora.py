"""Across corpora: learn from one collection and tag another, with tags joined by their names or their vectors."""

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
"""Minimum cosine of the nearest tag to replace a tag without a tag of the same name."""


def join_near(
    source_tags: Sequence[str],
    target_tags: Sequence[str],
    source_vectors: Floats,
    target_vectors: Floats,
    *,
    least_cosine: float = LEAST_COSINE,
) -> JoinedTags:
    """Join tags of the same name, then each other tag with the tag of the nearest vector, if it is near enough.

    Parameters
    ----------
    source_tags, target_tags : sequence of str
        Tags; spellings are compared like those of any tags. A tag of the source may match several tags of the target.
    source_vectors, target_vectors : ndarray of float32, shape (n_tags, width)
        Vectors of the same kind. A row of zeros is a tag without a vector, which is not near to any tag.
    least_cosine : float

    Raises
    ------
    ShapeError
        If the numbers of tags and vectors differ.
    """
    by_name = join_tags(Vocabulary(source_tags), target_tags)
    for side, tags, vectors in (("source", source_tags, source_vectors), ("target", target_tags, target_vectors)):
        if len(vectors) != len(tags):
            raise ShapeError(f"The {side} has {len(tags)} tags, but {len(vectors)} vectors; expected one per tag.")
    cosines = _unit(target_vectors) @ _unit(source_vectors).T
    is_near = ~by_name.is_by_name & (cosines.max(axis=1) >= least_cosine)
    return JoinedTags(np.where(is_near, cosines.argmax(axis=1), by_name.run_columns), by_name.is_by_name)


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
        Problems with features of the same encoder, which doesn't learn, such as a network.
    model : str
        A name from ``visterm models``.
    settings : mapping
    vectors : mapping of "source" and "target" to ndarray of float32, shape (n_tags, width), optional
        Vectors of the same kind: the start vectors of the model's tags, which are also used to join tags.
    least_cosine : float
    seed : int
    on : {"test", "valid"}
    n_jobs : int, optional

    Returns
    -------
    dict of str to dict of str to float
        Results for each way to join tags. "name": only tags of the target that the source also has are ranked.
        "vector": tags that are near to a tag of the source are also ranked, by its scores. "words": all tags of the
        target are ranked; tags that the source does not have get rows from their vectors (`tag_rows_from`). "vector"
        and "words" need `vectors`. ``p@5``, ``r@5`` and their ``f1`` are over all images with a tag, and all tags of
        an image are right, ranked or not; ``tags`` is the number of ranked tags, and ``share`` their share of the
        images' tags.

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
    same_names = join_tags(Vocabulary(source.tags), target.tags)
    if not same_names.is_by_name.any():
        raise DataError(f"{source.name} and {target.name} have no tag of the same name, so nothing joins them.")
    start = {} if vectors is None else {"word_vectors": vectors["source"]}
    accepted = inspect.signature(MODELS.load(model)).parameters
    common_settings = {"valid_share": 0.0, "random_state": seed, "n_jobs": n_jobs}
    params = {name: value for name, value in common_settings.items() if name in accepted} | start | dict(settings)
    fitted_model = MODELS.create(model, **params).fit(source.train.X, source.train.Y)
    scores = np.asarray(fitted_model.decision_function(rows.X), np.float32)
    results = {"name": _measure_ranking(scores[:, same_names.run_columns], same_names.is_by_name, rows)}
    if vectors is not None:
        near_tags = join_near(source.tags, target.tags, vectors["source"], vectors["target"], least_cosine=least_cosine)
        results["vector"] = _measure_ranking(scores[:, near_tags.run_columns], near_tags.run_columns != NONE, rows)
        word_scores = scores[:, same_names.run_columns]
        unnamed = np.flatnonzero(~same_names.is_by_name)
        if unnamed.size:
            word_scores[:, unnamed] = (
                fitted_model.image_rows(rows.X) @ fitted_model.tag_rows_from(vectors["target"][unnamed]).T
            )
        results["words"] = _measure_ranking(word_scores, np.ones(len(target.tags), np.bool_), rows)
    return results


def _measure_ranking(scores: Floats, is_ranked: NDArray[np.bool_], rows: Rows) -> dict[str, float]:
    """Measure the first five of the ranked tags; other tags of an image count as missed."""
    hidden = sp.csr_array(np.broadcast_to(~is_ranked, scores.shape))
    right = sp.csr_array(rows.Y > 0)
    counts = np.asarray(right.sum(axis=1), np.float64).ravel()
    values = measure(scores, right, ["p@5"], exclude=hidden)["p@5"]
    has_tag = counts > 0
    hits = 5 * np.nan_to_num(values[has_tag])  # NaN: none of the image's tags is ranked
    p, r = float(np.mean(hits / 5)), float(np.mean(hits / counts[has_tag]))
    n_ranked_tags = np.asarray(right[:, np.flatnonzero(is_ranked)].sum(), np.float64)
    return {
        "p@5": p,
        "r@5": r,
        "f1": 2 * p * r / (p + r) if p + r else 0.0,
        "tags": float(is_ranked.sum()),
        "share": float(n_ranked_tags / counts.sum()),
    }


def _unit(vectors: Floats) -> Floats:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    rows: Floats = (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)
    return rows
