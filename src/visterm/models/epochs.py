"""Models that learn in epochs: the common loop that trains, measures, keeps the best weights and stops."""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp

from visterm.core.checks import check_choice, check_count, check_number
from visterm.core.learned import Array, Kind, Listed, Number, Record, Whole
from visterm.core.progress import reported
from visterm.core.types import Floats, Matrix, RandomState
from visterm.metrics.ranking import rank_tags
from visterm.models.base import Annotator, Limit
from visterm.models.stopping import OPEN, EpochRecord, Judged, Watch

Weights: TypeAlias = tuple[Floats, ...]
Measure: TypeAlias = Callable[[], float]

SCHEDULES = ("constant", "inverse", "cosine")

HISTORY = Listed(
    Record(
        {
            "epoch": Whole(least=1),
            "loss": Number(),
            "map": Number(or_none=True),
            "seconds": Number(least=0, or_none=True, required=False),
        }
    )
)
"""The required fields of each epoch in the history of a training."""


class EpochSums(NamedTuple):
    """The results of one epoch, as means over its examples."""

    loss: float  # Weighted loss; 0 for examples without a violation
    draws: float  # Number of tags drawn (or scored)
    violated: float  # Share of the examples with a step


@dataclass(kw_only=True, eq=False)
class TrainingState:
    """The state of a training: `epoch` is the next epoch, from 1; `history` has the records of the epochs before it.

    The learning rate falls to 0 over `slowing` epochs. `means_of_epoch` are the results of the last epoch, ``loss`` and
    other fields of the history; `published` are the weights after it. `best_weights` are a copy of the weights with the
    best measured value, `best_value`, after `best_epoch` epochs; empty, and 0, before any measurement.
    """

    epoch: int = 1
    history: list[EpochRecord] = field(default_factory=list)
    slowing: float = math.inf
    means_of_epoch: dict[str, float] = field(default_factory=dict)
    published: Weights = ()
    best_epoch: int = 0
    best_value: float = -math.inf
    best_weights: Weights = ()

    def offer(self, value: float) -> None:
        """Copy the published weights if their value is the best so far; higher is better."""
        if value > self.best_value:
            self.best_epoch, self.best_value = self.epoch, value
            self.best_weights = ()  # first free the memory of the previous ones, as tables may be large
            self.best_weights = tuple(array.copy() for array in self.published)


@dataclass(kw_only=True, eq=False, repr=False)
class EpochAnnotator(Annotator):
    """Trains in epochs, with early stopping by validation images: `_epochs` is the same for all such models.

    Each kind of training iterates over its own examples: in memory, an epoch is one window with all images; streamed
    features come in several windows; and a network uses batches.

    Settings are dataclass fields, and a model only declares new settings and different defaults: scikit-learn finds all
    settings in the signature of the generated constructor. To remove a setting of a base class, a model declares it as
    ``ClassVar``. `EmbeddingRanker` and `DeepTagger` describe the settings of all models that learn in epochs.

    Attributes
    ----------
    tag_rows_ : ndarray of float32, shape (n_tags, width)
    n_epochs_ : int
        Number of epochs behind the weights.
    n_held_out_ : int
        Number of images that `fit` held out to choose the number of epochs; 0 with validation rows, or if there were
        too few images.
    history_ : list of dict
        For each epoch: ``epoch``, ``loss``, ``map`` (over the validation images, None without) and ``seconds``.
    """

    epochs: int = 100
    patience: int = 10
    valid_share: float = 0.1
    schedule: str = "constant"
    n_jobs: int | None = None
    random_state: RandomState = 0

    tag_rows_: Floats = field(init=False)
    n_epochs_: int = field(init=False)
    n_held_out_: int = field(init=False)
    history_: list[EpochRecord] = field(init=False)

    learned: ClassVar[dict[str, Kind]] = {
        "tag_rows_": Array("float32", ("n_tags_", "width")),
        "n_epochs_": Whole(),
        "n_held_out_": Whole(required=False),
        "history_": HISTORY,
    }

    limits: ClassVar[dict[str, Limit]] = {
        "epochs": check_count,
        "patience": check_count,
        "valid_share": partial(check_number, least=0, below=1),
        "schedule": partial(check_choice, choices=SCHEDULES),
    }

    @abstractmethod
    def _publish(self, *weights: Floats) -> None:
        """Set the learned attributes from the weights of training, possibly without a copy."""

    def _rate(self) -> float:
        """Return the learning rate before the schedule's factor."""
        return 1.0

    def _epochs(
        self,
        state: TrainingState,
        epochs: int,
        measure: Measure | None,
        run_epoch: Callable[[float], None],
        *,
        watch: Watch,
        task: str = "train",
        steps: int = 1,
        after_epoch: Callable[[], None] | None = None,
    ) -> None:
        """Run epochs until the measure stops rising or the callback returns "stop", and publish the best weights.

        `run_epoch` takes the learning rate, trains on all examples, publishes the weights, and sets the results of the
        epoch in `state`, which also tells where to start. `measure` measures the published weights; higher is better.
        Progress shows the `task`, and advances by `steps` per epoch; with 0, `run_epoch` advances it.
        """
        self.history_ = state.history
        with reported(watch.monitor, task, epochs * steps or None):
            if steps and state.history:
                watch.monitor.advance(steps * len(state.history))
            while state.epoch <= epochs:
                if state.best_epoch and state.epoch - 1 - state.best_epoch >= self.patience:
                    break
                start = time.perf_counter()
                rate = self._rate() * rate_factor(self.schedule, state.epoch, self.epochs)
                run_epoch(rate * (1 - (state.epoch - 1) / state.slowing))
                value = None if measure is None else measure()
                measured, value_text = self._measured(value)
                record = epoch_record(state.epoch, state.means_of_epoch, measured, start)
                state.history.append(record)
                note = f"loss {record['loss']:.3f}"
                if value is not None:
                    state.offer(value)
                    note = f"{value_text}, best {self._measured(state.best_value)[1]} after {state.best_epoch}"
                state.epoch += 1
                watch.monitor.advance(steps, note)
                if after_epoch is not None:
                    after_epoch()
                if watch.on_epoch is not None and watch.on_epoch(record) == "stop":
                    break

        self.n_epochs_ = state.best_epoch or len(state.history)
        if state.best_weights:
            self._publish(*state.best_weights)

    def _measure_map(self, valid: Judged, known: sp.csr_array | None = None) -> Measure | None:
        """Return a function that measures the MAP of the published weights on validation images with tags, or None.

        `known` are training tags of the validation images, which are left out of the rankings.
        """
        if valid is None:
            return None
        X, Y = valid
        rows = np.flatnonzero(np.diff(sp.csr_array(Y > 0).indptr))
        if rows.size == 0:
            return None
        Y, known = Y[rows], known if known is None else known[rows]
        X = self._check_features(X[rows])

        def measure() -> float:
            return float(np.nanmean(rank_tags(self._score_checked(X), Y, exclude=known).average_precision()))

        return measure

    def _measured(self, value: float | None) -> tuple[dict[str, float | None], str]:
        """Return a measured value for the history, and as a text for the monitor."""
        return {"map": value}, "" if value is None else f"MAP {value:.3f}"


def epoch_record(epoch: int, sums: dict[str, float], measured: dict[str, float | None], start: float) -> EpochRecord:
    """Return the history's record of an epoch that started at `start`."""
    loss, *others = sums.items()
    return {"epoch": epoch, **dict([loss]), **measured, **dict(others), "seconds": time.perf_counter() - start}


def rate_factor(schedule: str, epoch: int, epochs: int) -> float:
    """Return the factor of the learning rate in an epoch, counted from 1.

    "constant" and "open" are 1; "inverse" is 1 / (1 + 10 t) after a share t of the epochs; "cosine" falls to 0 along
    half a cosine.
    """
    done = (epoch - 1) / epochs
    if schedule in ("constant", OPEN):
        return 1.0
    if schedule == "inverse":
        return 1 / (1 + 10 * done)
    return 0.5 * (1 + math.cos(math.pi * done))


def mean_length(X: Matrix) -> float:
    """Return the root of the mean squared length of rows, rounded to float32: the same for dense and sparse rows."""
    values: Floats = np.asarray(X.data if sp.issparse(X) else X).reshape(-1)
    return float(np.float32(math.sqrt(float(np.einsum("i,i->", values, values, dtype=np.float64)) / X.shape[0])))
