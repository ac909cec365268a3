"""All the metrics that a user names, in one pass over the scores (two where words are queries)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import DataError
from visterm.metrics.annotation import GivenTags
from visterm.metrics.blocks import Judgements, ScoreBlocks, Scores
from visterm.metrics.hierarchy import TreeTags
from visterm.metrics.ranking import Ranks, TagRanker, TagRanks
from visterm.metrics.retrieval import ImageRanker
from visterm.metrics.siblings import SiblingTags
from visterm.metrics.table import Wanted, check_metrics

Evidence: TypeAlias = TagRanks | GivenTags | Ranks | SiblingTags | TreeTags


def evaluate(
    scores: Scores, Y: Any, metrics: str | Sequence[str], *, exclude: Any = None, siblings: Any = None, tree: Any = None
) -> dict[str, float]:
    """Compute metrics of scores against the tags that people gave.

    Raises UserError if a metric does not exist, its k cannot be used, or it needs siblings or a tree and there is none;
    DataError if shapes do not fit, scores are not finite, or there is nothing to average.

    Parameters
    ----------
    scores : ndarray (n_images, n_tags), blocks, or callable that gives blocks
        Higher is better; finite. Blocks are pairs (slice of rows, array); a callable lets metrics of words go through
        them twice without keeping them.
    Y : array-like or sparse, shape (n_images, n_tags)
        Above 0: relevant. Unknown tags (0) and explicit negatives (below 0) are alike not relevant.
    metrics : str or sequence of str
        Names as `visterm.metrics.table.METRICS` lists them, with ``@k`` where they take it. Precision at k divides
        by k, also where fewer are ranked.
    exclude : array-like or sparse, shape (n_images, n_tags), optional
        Entries that are not 0 are left out of the rankings, relevant or not.
    siblings : array-like or sparse, shape (n_tags, n_tags), optional
        Which tags are siblings, for ``psib@k``: not 0 where they are (`visterm.data.relations.sibling_sets`).
    tree : array-like or sparse, shape (n_tags, n_nodes), optional
        For ``hp@k``, ``hr@k`` and ``hf1@k``: not 0 where a node is the tag, or above it
        (`visterm.data.tag_tree.TreeColumns`).

    Returns
    -------
    dict of str to float
        By the names as they were given. Ties in scores are broken by the smaller id.
    """
    judgements = Judgements.of(Y, exclude)
    return means(_measure(scores, judgements, metrics, siblings, tree), judgements)


def measure(
    scores: Scores, Y: Any, metrics: str | Sequence[str], *, exclude: Any = None, siblings: Any = None, tree: Any = None
) -> dict[str, NDArray[np.float64]]:
    """Return the values that `evaluate` averages, to compare two models image by image.

    These are float64 with one value an image, or a tag (``word_``, ``tag_p``, ``tag_r``), NaN where nothing is
    relevant; shape (1,) for ``tag_f1`` and ``n_plus``, which are no means.
    """
    return _measure(scores, Judgements.of(Y, exclude), metrics, siblings, tree)


def means(values: dict[str, NDArray[np.float64]], judgements: Judgements) -> dict[str, float]:
    """Average what `measure` gave, as `evaluate` does; raise `DataError` if there is nothing to average."""
    found = {}
    for name, array in values.items():
        defined = array[~np.isnan(array)]
        if defined.size == 0:
            shape = judgements.n_images, judgements.n_tags
            raise nothing_to_average(name, shape, judgements.tags.size, excluded=judgements.excluded is not None)
        found[name] = float(defined.mean())
    return found


def _measure(
    scores: Scores, judgements: Judgements, metrics: str | Sequence[str], siblings: Any, tree: Any
) -> dict[str, NDArray[np.float64]]:
    wanted = check_metrics(metrics, siblings=siblings is not None, tree=tree is not None)
    evidence = _collect(scores, judgements, list(wanted.values()), siblings, tree)
    return {name: metric.values(evidence[metric.of], k) for name, (metric, k) in wanted.items()}


def _collect(
    scores: Scores, judgements: Judgements, wanted: list[Wanted], siblings: Any, tree: Any
) -> dict[str, Evidence]:
    """Go through the scores once, or twice for words, and gather only what these metrics need."""
    kinds = {metric.of for metric, _ in wanted}
    ks = {kind: {k for metric, k in wanted if metric.of == kind} for kind in kinds}
    tags = TagRanker(judgements) if "image" in kinds else None
    given = GivenTags(judgements, ks["tag"]) if "tag" in kinds else None
    near = SiblingTags(judgements, siblings, ks["sibling"]) if "sibling" in kinds else None
    above = TreeTags(judgements, tree, ks["tree"]) if "tree" in kinds else None
    images = ImageRanker(judgements) if "word" in kinds else None
    blocks = ScoreBlocks(scores, judgements)
    for rows, block in blocks.once() if images is None else blocks.first_time():
        for ranker in (tags, given, near, above):
            if ranker is not None:
                ranker.add(rows, block)
        if images is not None:
            images.gather(rows, block)
    evidence: dict[str, Evidence] = {} if tags is None else {"image": tags.result()}
    if given is not None:
        evidence["tag"] = given
    if near is not None:
        evidence["sibling"] = near
    if above is not None:
        evidence["tree"] = above
    if images is not None:
        for rows, block in blocks.go_again():
            images.count(rows, block)
        evidence["word"] = images.result()
    return evidence


def nothing_to_average(name: str, shape: tuple[int, int], n_relevant: int, *, excluded: bool = False) -> DataError:
    """Return the error of a metric that is not defined for any of the images or tags."""
    lacks = "no image has a relevant tag" if n_relevant == 0 else "no image has a relevant and another tag"
    left_out = " once the excluded entries are left out" if excluded else ""
    return DataError(
        f"{name} has nothing to average: of {shape[0]} images and {shape[1]} tags, {lacks}{left_out}. "
        "Evaluate on images that people have tagged, with the tags that the model knows."
    )
