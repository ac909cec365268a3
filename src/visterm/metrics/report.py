"""Compute all requested metrics in one pass over the scores (two if words are queries).

`scorer` wraps a metric for scikit-learn's `scoring=`, in GridSearchCV, cross_val_score and cross_validate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from visterm.core.errors import DataError, UserError
from visterm.core.types import Doubles, MatrixLike
from visterm.metrics.annotation import GivenTags, SiblingTags, TreeTags
from visterm.metrics.ranking import Judgements, ScoreBlocks, Scores, TagRanks, as_matrix
from visterm.metrics.retrieval import ImageRanker
from visterm.metrics.table import RequestedMetric, check_metrics


def evaluate(
    scores: Scores,
    Y: MatrixLike,
    metrics: str | Sequence[str],
    *,
    exclude: MatrixLike | None = None,
    siblings: MatrixLike | None = None,
    tree: MatrixLike | None = None,
) -> dict[str, float]:
    """Compute metrics of scores against the true tags.

    Raises UserError if a metric does not exist, its k is invalid, or it needs siblings or a tree that are missing;
    DataError if shapes do not fit, scores are not finite, or there is nothing to average.

    Parameters
    ----------
    scores : ndarray (n_images, n_tags), blocks, or callable that returns blocks
        Finite; higher is better. Blocks are pairs (slice of rows, array); with a callable, metrics of words can
        read them twice without keeping them.
    Y : array-like or sparse, shape (n_images, n_tags)
        Relevant tags are above 0. Unknown tags (0) and explicit negatives (below 0) are not relevant.
    metrics : str or sequence of str
        Names from `visterm.metrics.table.METRICS`, with ``@k`` if they take a k. Precision at k divides by k, even if
        fewer tags are ranked.
    exclude : array-like or sparse, shape (n_images, n_tags), optional
        Entries that are not 0 are excluded from the rankings, relevant or not.
    siblings : array-like or sparse, shape (n_tags, n_tags), optional
        For ``psib@k``: not 0 if two tags are siblings (`visterm.data.relations.sibling_sets`).
    tree : array-like or sparse, shape (n_tags, n_nodes), optional
        For ``hp@k``, ``hr@k`` and ``hf1@k``: not 0 if a node is the tag or above it
        (`visterm.data.tag_tree.TreeColumns`).

    Returns
    -------
    dict of str to float
        Keys are the names as passed. Ties in scores are broken by the smaller id.
    """
    return means(measure(scores, Y, metrics, exclude=exclude, siblings=siblings, tree=tree))


def measure(
    scores: Scores,
    Y: MatrixLike,
    metrics: str | Sequence[str],
    *,
    exclude: MatrixLike | None = None,
    siblings: MatrixLike | None = None,
    tree: MatrixLike | None = None,
) -> dict[str, Doubles]:
    """Return the values that `evaluate` averages, to compare two models image by image.

    Arrays are float64 with one value per image, or per tag (``word_``, ``tag_p``, ``tag_r``), NaN if nothing is
    relevant; shape (1,) for ``tag_f1`` and ``n_plus``, which are not means.
    """
    judgements = Judgements.of(Y, exclude)
    requested = check_metrics(metrics, siblings=siblings is not None, tree=tree is not None)
    rankers = _rankers(requested.values(), judgements, siblings, tree)
    word_ranker, blocks = rankers.get("word"), ScoreBlocks(scores, judgements)
    for rows, block in blocks.checked_blocks() if word_ranker is None else blocks.first_pass():
        for ranker in rankers.values():
            ranker.add(rows, block)
    if word_ranker is not None:
        for rows, block in blocks.second_pass():
            word_ranker.count(rows, block)
        rankers["word"] = word_ranker.result()
    return {name: metric.values(rankers[metric.kind], k) for name, (metric, k) in requested.items()}


def means(values: dict[str, Doubles]) -> dict[str, float]:
    """Average the values of `measure`, as in `evaluate`; raise `DataError` if there is nothing to average."""
    for name, array in values.items():
        if np.isnan(array).all():
            raise DataError(
                f"{name} has nothing to average: no image has a relevant{' and an irrelevant' * (name == 'auc')} tag. "
                "Evaluate on images with tags that the model knows."
            )
    return {name: float(array[~np.isnan(array)].mean()) for name, array in values.items()}


def _rankers(
    requested: Iterable[RequestedMetric], judgements: Judgements, siblings: MatrixLike | None, tree: MatrixLike | None
) -> dict[str, Any]:
    """Return the objects that collect the evidence for metrics block by block: kind of metric -> object."""
    ks: dict[str, list[int]] = {}
    for metric, k in requested:
        ks.setdefault(metric.kind, []).append(k)
    kinds: dict[str, Callable[[list[int]], Any]] = {
        "image": lambda _: TagRanks.of(judgements),
        "tag": lambda ks: GivenTags(judgements, ks),
        "sibling": lambda ks: SiblingTags(judgements, siblings, ks),
        "tree": lambda ks: TreeTags(judgements, tree, ks),
        "word": lambda _: ImageRanker(judgements),
    }
    return {kind: kinds[kind](kind_ks) for kind, kind_ks in ks.items()}


class scorer:  # noqa: N801, called as a function
    """A metric of ``visterm metrics`` for scikit-learn's `scoring=`.

    You can also call it: ``scorer("p@5")(estimator, X, Y)``. The estimator is a tagger, a model, a pipeline that ends
    with a tagger or model, or any estimator with a `decision_function` that has one column per tag.

    Parameters
    ----------
    metric : str
        A name from ``visterm metrics``, with ``@k`` if it takes a k.

    Examples
    --------
    >>> from sklearn.model_selection import cross_val_score
    >>> cross_val_score(model, X, tags, scoring=visterm.scorer("p@5"))  # doctest: +SKIP
    """

    def __init__(self, metric: str = "map") -> None:
        [self.metric] = check_metrics(metric, siblings=False, tree=False)

    def __call__(self, estimator: object, X: object, y: object = None, **_: object) -> float:
        """Return the metric of an estimator on images with known tags.

        `X` and `y` are as for its `score`; `y` is a matrix (n_images, n_tags) or lists of tags. Raises UserError if the
        estimator has no scores of tags, or `y` has words but it was fitted on a matrix; DataError if there is nothing
        to average.
        """
        judge = getattr(estimator, "judged", None)
        if judge is not None:
            scores, Y, exclude = judge(X, y)
            return evaluate(scores, Y, self.metric, exclude=exclude)[self.metric]
        if not hasattr(estimator, "decision_function"):
            raise UserError(
                f"A {type(estimator).__name__} has no scores of tags. {self!r} measures taggers, models of visterm, "
                "and pipelines that end with one of these."
            )
        return evaluate(estimator.decision_function(X), as_matrix(y, estimator), self.metric)[self.metric]

    def __repr__(self) -> str:
        return f"scorer({self.metric!r})"
