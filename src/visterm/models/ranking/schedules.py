"""How long a training is, and in which parts: as many epochs as held-out images say, or, "open", as it finds itself."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from visterm.core.types import Matrix
from visterm.data.tag_queries import hold_one_out
from visterm.models.epochs import Validation, Weights
from visterm.models.ranking.sources import RankingState, TrainingPass
from visterm.models.stopping import MIN_HELD_OUT, HeldOutFit, hold_out

DOUBLED = 30
"""Epochs after which `max_norm` has doubled. Data with few tags an image are best a little above its start, those
with many near twice that; items with many tags known only by number rank far worse where it stays."""

FINISH = 4  # Epochs on all rows at the end: a second training from the start would take many times as long
MEANS = 2  # Epochs that the best weights count for in the running mean of the epochs at the end
MOST_HELD_TAGS = 2000  # Tags held out of images known by number: enough to see 0.01 in MAP, and quick to rank


class FixedSchedule:
    """Trains on some images, stopped by the others, then on all from the start; with validation images once."""

    def growth(self, epoch: int) -> float:
        """Return the factor of the longest vectors in an epoch of a training that held-out images can stop."""
        return 1.0

    def reached(self, model: Any, weights: Weights) -> float:
        """Return the factor of the longest vectors that learned weights need."""
        return 1.0

    def passes(
        self, model: Any, X: Matrix, positives: sp.csr_array, valid: Validation | None, rng: np.random.Generator
    ) -> Iterator[TrainingPass]:
        """Yield one training after the other; each has ended before the next is asked for."""
        for some, held_out, epochs in model._trainings(X.shape[0], valid, rng):
            rows, tags = (X, positives) if some is None else (X[some], positives[some])
            state = RankingState(model._start(X, positives.shape[1], rng), model.patience)
            measure = model._measure_map(valid if held_out is None else (X[held_out], positives[held_out]))
            yield TrainingPass(rows, tags, state, epochs, measure)
            del state  # the next training needs its memory
            if held_out is not None:
                model._held_out = HeldOutFit(held_out, model._image_rows(X[held_out]), model.tag_rows_)


class OpenSchedule:
    """Training that finds its own length, so that nobody has to know the number of epochs before.

    `Wsabie` says how, with its defaults. These were chosen on held-out rows of photos (visterms, blobs and features of
    a network), of texts and of images known only by number.
    """

    def growth(self, epoch: int) -> float:
        """Return the factor of the longest vectors in an epoch of a training that held-out images can stop."""
        return 1 + (epoch / DOUBLED) ** 2

    def reached(self, model: Any, weights: Weights) -> float:
        """Return the factor of the longest vectors that learned weights need."""
        squares = [float(np.einsum("rc,rc->r", rows, rows).max()) for rows in weights]
        longest = model.max_norm * model.scale_, model.max_norm
        factors = [math.sqrt(square) / float(limit) for square, limit in zip(squares, longest, strict=True)]
        return max(1.0, *factors)

    def passes(
        self, model: Any, X: Matrix, positives: sp.csr_array, valid: Validation | None, rng: np.random.Generator
    ) -> Iterator[TrainingPass]:
        """Yield one training after the other; each has ended before the next is asked for."""
        some, tags, judged, held_out = X, positives, valid, np.empty(0, np.int64)
        by_number = getattr(model, "by_number_", False)
        model.n_held_out_, model._held_out = 0, None
        if valid is None and by_number:
            several = np.count_nonzero(np.diff(positives.indptr) > 1)
            n_held = min(MOST_HELD_TAGS, round(model.share_to_hold_out * X.shape[0]), int(several))
            if n_held >= MIN_HELD_OUT:
                tags, images, one_each, _ = hold_one_out(positives, rng, at_most=n_held)
                judged, model.n_held_out_ = (X[images], one_each), n_held
        elif valid is None:
            learned, held_out = hold_out(X.shape[0], model.share_to_hold_out, rng)
            if held_out.size:
                some, tags, model.n_held_out_ = X[learned], positives[learned], held_out.size
                judged = X[held_out], positives[held_out]
        known = sp.csr_array(judged[0] @ tags) if judged is not None and by_number else None
        measure = model._measure_map(judged, known=known)
        state = RankingState(model._start(X, positives.shape[1], rng), model.patience)
        if measure is not None:
            state.growth = self.growth
        yield TrainingPass(some, tags, state, model.epochs, measure)
        if held_out.size:
            yield from self._finish(model, some, tags, state)
            model._held_out = HeldOutFit(held_out, model._image_rows(X[held_out]), model.tag_rows_)
        if model.n_held_out_:
            yield from self._finish(model, X, positives, state)

    def _finish(self, model: Any, X: Matrix, positives: sp.csr_array, before: RankingState) -> Iterator[TrainingPass]:
        """Go on from the best weights on these rows; the history stays that of the training before."""
        best = model.n_epochs_
        longest = before.growth(max(1, best - model.average + 1))
        weights = tuple(rows.copy() for rows in before.best.weights or before.means)
        state = RankingState(weights, model.patience)
        state.growth, state.slowing = lambda epoch: longest, lambda epoch: 1 - (epoch - 1) / FINISH
        state.mixed, state.training_state = MEANS, before.training_state
        yield TrainingPass(X, positives, state, FINISH, None)
        model.n_epochs_, model.history_ = best, before.history
