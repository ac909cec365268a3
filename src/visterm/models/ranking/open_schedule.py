"""The schedule "open": training that finds its own length, so that nobody has to know the number of epochs before."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from visterm.core.checks import check_choice
from visterm.core.types import Matrix
from visterm.data.tag_queries import hold_one_out
from visterm.models.base import Limit
from visterm.models.epochs import OPEN, SCHEDULES, Validation, Weights
from visterm.models.ranking.base import RankingCourse, Stage
from visterm.models.ranking.embedding_ranking import EmbeddingRanker
from visterm.models.ranking.streamed_fit import StreamedFit
from visterm.models.stopping import MIN_HELD_OUT, HeldOutFit, hold_out

DOUBLED = 30
"""Epochs after which `max_norm` has doubled. Data with few tags an image are best a little above its start, those
with many near twice that; items with many tags known only by number rank far worse where it stays."""

FINISH = 4
"""Epochs on all rows at the end, in place of a second training from the start, which takes many times as long."""

MEANS = 2  # Epochs that the best weights count for in the running mean of the epochs at the end
MOST_HELD_TAGS = 2000  # Tags held out of images known by number: enough to see 0.01 in MAP, and quick to rank
FEWEST_TRIALS = 100


@dataclass(kw_only=True, eq=False, repr=False)
class OpenSchedule(EmbeddingRanker, StreamedFit):
    """A joint embedding whose training finds its own length by the schedule "open", unless its settings say otherwise.

    Steps keep their size. What changes is how long vectors may become: `max_norm` grows with the square of the epochs,
    so that these lead from too simple a model to one that fits its images too well, and the best lies between. The
    images held out (of images known by number one tag each of some) find it: training stops once they have ranked no
    better for `patience` epochs. It then goes on from the best weights for four epochs on all rows, in smaller and
    smaller steps, with the longest vectors that were in the running mean. With nothing to stop by, `max_norm` stays as
    it is and all `epochs` are run.

    The settings were chosen on held-out rows of photos (visterms, blobs and features of a network), of texts and of
    images known only by number.
    """

    limits: ClassVar[dict[str, Limit]] = {"schedule": partial(check_choice, choices=(*SCHEDULES, OPEN))}

    learning_rate: float = 0.2
    max_norm: float = 1.15
    row_length: float = 1.0
    average: int = 6
    patience: int = 5
    step: str = "adagrad"
    schedule: str = "open"
    bias: float = 0.7

    @property
    def _holds_out_tags(self) -> bool:
        return self.schedule == OPEN

    def _growth(self, epoch: int) -> float:
        return 1 + (epoch / DOUBLED) ** 2 if self.schedule == OPEN else 1.0

    def _grown(self, weights: Weights) -> float:
        if self.schedule != OPEN:
            return 1.0
        squares = [float(np.einsum("rc,rc->r", rows, rows).max()) for rows in weights]
        longest = self.max_norm * self.scale_, self.max_norm
        return max(1.0, *(math.sqrt(square) / limit for square, limit in zip(squares, longest, strict=True)))

    def _most_trials(self, max_trials: int | None) -> int | None:
        """Return the draws for one pair, at most; with very many tags more of them are worth their time."""
        if max_trials is None and self.schedule == OPEN:
            return max(FEWEST_TRIALS, math.isqrt(self.n_tags_))
        return max_trials

    def _stages(
        self, X: Matrix, positives: sp.csr_array, valid: Validation | None, rng: np.random.Generator
    ) -> Iterator[Stage]:
        if self.schedule != OPEN:
            yield from super()._stages(X, positives, valid, rng)
            return
        some, tags, judged, held = X, positives, valid, np.empty(0, np.int64)
        by_number = getattr(self, "by_number_", False)
        self.n_held_out_, self._held_out = 0, None
        if valid is None and by_number:
            several = np.count_nonzero(np.diff(positives.indptr) > 1)
            n_held = min(MOST_HELD_TAGS, round(self.share_to_hold_out * X.shape[0]), int(several))
            if n_held >= MIN_HELD_OUT:
                tags, images, one_each, _ = hold_one_out(positives, rng, at_most=n_held)
                judged, self.n_held_out_ = (X[images], one_each), n_held
        elif valid is None:
            learned, held = hold_out(X.shape[0], self.share_to_hold_out, rng)
            if held.size:
                some, tags, self.n_held_out_ = X[learned], positives[learned], held.size
                judged = X[held], positives[held]
        known = sp.csr_array(judged[0] @ tags) if judged is not None and by_number else None
        measure = self._measure_map(judged, known=known)
        course = RankingCourse(self._start(X, positives.shape[1], rng), self.patience)
        if measure is not None:
            course.growth = self._growth
        yield Stage(some, tags, course, self.epochs, measure)
        if held.size:
            yield from self._finish(some, tags, course)
            self._held_out = HeldOutFit(held, self._image_rows(X[held]), self.tag_rows_)
        if self.n_held_out_:
            yield from self._finish(X, positives, course)

    def _finish(self, X: Matrix, positives: sp.csr_array, before: RankingCourse) -> Iterator[Stage]:
        """Go on from the best weights on these rows; the history stays that of the training before."""
        best = self.n_epochs_
        longest = before.growth(max(1, best - self.average + 1))
        course = RankingCourse(
            tuple(rows.copy() for rows in before.best.weights or before.means),
            self.patience,
            growth=lambda epoch: longest,
            slowing=lambda epoch: 1 - (epoch - 1) / FINISH,
            mixed=MEANS,
        )
        course.carried = before.carried
        yield Stage(X, positives, course, FINISH, None)
        self.n_epochs_, self.history_ = best, before.history
