"""All the metrics that a user names, of images that come in parts: in memory that does not grow with their number.

Means over images, and counts of the tags given to them, add up part by part. Where tags are queries that rank all
images, the relevant entries lie in files and the images come twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.metrics.annotation import GivenTags
from visterm.metrics.blocks import Block, Judgements, ScoreBlocks
from visterm.metrics.comparison import interval_of
from visterm.metrics.ranking import TagRanker
from visterm.metrics.report import nothing_to_average
from visterm.metrics.retrieval import StoredImageRanker
from visterm.metrics.siblings import SiblingTags
from visterm.metrics.significance import Interval, Moments
from visterm.metrics.table import check_metrics

Part: TypeAlias = "tuple[sp.csr_array, Callable[[], Iterable[Block]]]"
"""Tags of some images, and what gives the blocks of their scores, which are float32."""


class PartMeasures:
    """Measures images part by part; `metrics` and `siblings` are those of `visterm.metrics.evaluate`.

    `shape` counts images and tags over all parts; `n_relevant`, int64 of shape (n_tags,), the images that have each
    tag, over all parts. The folder is for the files of metrics of words.
    """

    def __init__(
        self,
        metrics: Sequence[str],
        shape: tuple[int, int],
        n_relevant: NDArray[np.int64],
        folder: Path,
        siblings: Any = None,
    ) -> None:
        self._wanted = check_metrics(metrics, siblings=siblings is not None, tree=False)
        self._shape, self._n_relevant = shape, n_relevant
        kinds = {metric.of for metric, _ in self._wanted.values()}
        self._ks = {
            kind: sorted({k for metric, k in self._wanted.values() if metric.of == kind}) for kind in ("tag", "sibling")
        }
        none = Judgements(0, shape[1], np.zeros(1, np.int64), np.empty(0, np.int64), None)
        self._given = GivenTags(none, self._ks["tag"]) if "tag" in kinds else None
        self._near = SiblingTags(none, siblings, self._ks["sibling"]) if "sibling" in kinds else None
        self._words = StoredImageRanker(folder, n_relevant, shape[0]) if "word" in kinds else None
        self._of_images = {
            name: Moments() for name, (metric, _) in self._wanted.items() if metric.of in ("image", "sibling")
        }
        self._ranks_tags, self._seen = "image" in kinds, 0

    @property
    def twice(self) -> bool:
        """Whether `add_again` must go through the images a second time before the measures are known."""
        return self._words is not None

    def add(self, part: Part) -> None:
        """Measure the next images."""
        Y, blocks = part
        judgements = Judgements.of(Y)
        tags = TagRanker(judgements) if self._ranks_tags else None
        given = None if self._given is None else GivenTags(judgements, self._ks["tag"])
        near = None if self._near is None else self._near.of_others(judgements)
        for rows, block in ScoreBlocks(blocks, judgements).once():
            for ranker in (tags, given, near):
                if ranker is not None:
                    ranker.add(rows, block)
            if self._words is not None:
                self._words.gather(self._seen + rows.start, block, judgements.relevant(rows))
        if given is not None and self._given is not None:
            self._given.add_counts(given)
        evidence: dict[str, Any] = {"image": None if tags is None else tags.result(), "sibling": near}
        for name, moments in self._of_images.items():
            metric, k = self._wanted[name]
            moments.add(metric.values(evidence[metric.of], k))
        self._seen += judgements.n_images

    def add_again(self, parts: Iterable[Part]) -> None:
        """Go through all images a second time, in the same order."""
        if self._words is None:
            return
        self._words.sort()
        first = 0
        for Y, blocks in parts:
            for rows, block in ScoreBlocks(blocks, Judgements.of(Y)).once():
                self._words.count(first + rows.start, block)
            first += Y.shape[0]

    def of_tags(self, name: str) -> NDArray[np.float64]:
        """Return the values of the tags (shape (1,) where a metric is no mean), of a metric that is not of images."""
        metric, k = self._wanted[name]
        return metric.values(self._given if metric.of == "tag" else self._words, k)

    def interval(self, name: str) -> Interval:
        """Return the value of a metric and its 95 % interval: bootstrapped over tags, over images as in `Moments`.

        Raises DataError if there is nothing to average.
        """
        moments = self._of_images.get(name)
        if moments is not None and moments.n:
            return moments.interval()
        values = self.of_tags(name) if moments is None else np.empty(0)
        if np.isnan(values).all():
            raise nothing_to_average(name, self._shape, int(self._n_relevant.sum()))
        return interval_of(values)
