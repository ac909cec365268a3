"""Models that learn in epochs: the one loop that trains, measures, keeps the best weights and stops."""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import check_choice, check_count, check_number
from visterm.core.learned import Array, Kind, Listed, Number, Record, Whole
from visterm.core.progress import Progress, reported
from visterm.core.types import Matrix, RandomState
from visterm.metrics.ranking import rank_tags
from visterm.models.base import Annotator, Limit
from visterm.models.stopping import OPEN, EpochRecord, OnEpoch

Floats: TypeAlias = NDArray[np.float32]
Validation: TypeAlias = tuple[Matrix, sp.csr_array]
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
"""What the history of a training has of each epoch at least."""


class EpochSums(NamedTuple):
    """What one epoch did, as means over its examples."""

    loss: float  # Weighted loss; 0 where nothing violated
    draws: float  # Tags drawn (or scored)
    violated: float  # Share of the examples that made a step


@dataclass(kw_only=True, eq=False)
class TrainingState:
    """How far a training has come: `epoch` is the next one, from 1; `history` has the records of those before.

    Steps shrink to nothing over `slowing` epochs. `means_of_epoch` is what the last epoch did, ``loss`` and what else
    the history keeps; `published` are the weights after it. `best_weights` are a copy of those at `best_value`, the
    best one measured, after `best_epoch` epochs; 0 and none before any.
    """

    epoch: int = 1
    history: list[EpochRecord] = field(default_factory=list)
    slowing: float = math.inf
    means_of_epoch: NamedTuple = field(init=False)
    published: Weights = ()
    best_epoch: int = 0
    best_value: float = -math.inf
    best_weights: Weights = ()

    def offer(self, value: float) -> None:
        """Keep the published weights of the epoch that ends if their value is the best so far; higher is better."""
        weights = self.published
        if value > self.best_value:
            self.best_epoch, self.best_value = self.epoch, value
            if [array.shape for array in self.best_weights] != [array.shape for array in weights]:
                self.best_weights = tuple(np.empty_like(array) for array in weights)
            for kept, array in zip(self.best_weights, weights, strict=True):
                np.copyto(kept, array)  # in the memory of the best ones before: a large table is never held twice


@dataclass(kw_only=True, eq=False, repr=False)
class EpochAnnotator(Annotator):
    """Goes over its images in epochs and stops by validation images: `_epochs`, the same for all such models.

    In memory an epoch is one window that holds everything, streamed features come in several, and a network takes
    batches: each kind of training goes over its own examples.

    Settings are fields of dataclasses, so that a model writes down only its own and those that differ: scikit-learn
    finds all of them in the signature of the constructor that is made. A setting that a model does not have is a
    ``ClassVar`` there. `EmbeddingRanker` and `DeepTagger` describe those of all models that learn in epochs.

    Attributes
    ----------
    tag_rows_ : ndarray of float32, shape (n_tags, width)
    n_epochs_ : int
        Epochs that the weights stem from.
    n_held_out_ : int
        Images that `fit` held out by itself to choose the number of epochs; 0 with validation rows, or where there were
        too few.
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
        """Set the learned attributes from weights as training has them; the arrays may be kept."""

    def _rate(self) -> float:
        """Return the size of the steps before any schedule."""
        return 1.0

    def _epochs(
        self,
        state: TrainingState,
        epochs: int,
        measure: Measure | None,
        *,
        monitor: Progress,
        on_epoch: OnEpoch | None,
        task: str = "train",
        steps: int = 1,
        keep: Callable[[], None] | None = None,
    ) -> Generator[float]:
        """Yield the size of the steps of each epoch, until the measure stops rising or the callback says "stop".

        The caller goes over all examples, sets the learned attributes, and puts into the `state` what the epoch did
        and which weights are published. The `state` also says where to go on from. `measure` measures the published
        weights: more is better. In the end the best weights are published. The monitor shows the `task`, and takes
        `steps` an epoch, or with 0 those of the caller, as many as they are. `keep` is called after each epoch. Close
        the generator, so that the monitor ends with an error.
        """
        self.history_ = state.history
        with reported(monitor, task, epochs * steps or None):
            if steps and state.history:
                monitor.advance(steps * len(state.history))
            while state.epoch <= epochs:
                if state.best_epoch and state.epoch - 1 - state.best_epoch >= self.patience:
                    break
                began = time.perf_counter()
                rate = self._rate() * rate_factor(self.schedule, state.epoch, self.epochs)
                yield rate * (1 - (state.epoch - 1) / state.slowing)
                value = None if measure is None else measure()
                measured, shown = self._measured(value)
                record = epoch_record(state.epoch, state.means_of_epoch._asdict(), measured, began)
                state.history.append(record)
                note = f"loss {record['loss']:.3f}"
                if value is not None:
                    state.offer(value)
                    note = f"{shown}, best {self._measured(state.best_value)[1]} after {state.best_epoch}"
                state.epoch += 1
                monitor.advance(steps, note)
                if keep is not None:
                    keep()
                if on_epoch is not None and on_epoch(record) == "stop":
                    break

        self.n_epochs_ = state.best_epoch or len(state.history)
        if state.best_weights:
            self._publish(*state.best_weights)

    def _measure_map(self, judged: Validation | None, known: sp.csr_array | None = None) -> Measure | None:
        """Return what measures the MAP of the published weights on validation images; None where none has a tag.

        `known` are tags of these images that their rankings leave out, as the model learned from them.
        """
        if judged is None:
            return None
        X, Y = judged
        rows = np.flatnonzero(np.diff(sp.csr_array(Y > 0).indptr))
        if rows.size == 0:
            return None
        Y, known = Y[rows], known if known is None else known[rows]
        X = self._check_features(X[rows])

        def measure() -> float:
            return float(np.nanmean(rank_tags(self._score_checked(X), Y, exclude=known).average_precision()))

        return measure

    def _measured(self, value: float | None) -> tuple[dict[str, float | None], str]:
        """Return what the history says of a measured value, and what the monitor shows."""
        return {"map": value}, "" if value is None else f"MAP {value:.3f}"


def epoch_record(epoch: int, sums: dict[str, float], measured: dict[str, float | None], began: float) -> EpochRecord:
    """Return what the history says of an epoch that began at `began`."""
    loss, *others = sums.items()
    return {"epoch": epoch, **dict([loss]), **measured, **dict(others), "seconds": time.perf_counter() - began}


def rate_factor(schedule: str, epoch: int, epochs: int) -> float:
    """Return the factor of the learning rate in one epoch, counted from 1.

    "constant" and "open" are 1; "inverse" is halved after a tenth of the epochs, then falls as one over their number;
    "cosine" falls to 0 along half a cosine.
    """
    done = (epoch - 1) / epochs
    if schedule in ("constant", OPEN):
        return 1.0
    if schedule == "inverse":
        return 1 / (1 + 10 * done)
    return 0.5 * (1 + math.cos(math.pi * done))


def mean_length(X: Matrix) -> float:
    """Return the root of the mean squared length of rows, as float32, so that dense and sparse rows have the same."""
    values: NDArray[np.float32] = np.asarray(X.data if sp.issparse(X) else X).reshape(-1)
    return float(np.float32(math.sqrt(float(np.einsum("i,i->", values, values, dtype=np.float64)) / X.shape[0])))
