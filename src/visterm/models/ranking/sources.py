"""Where a ranking model's pairs come from: memory, or windows on disk, to go on after a kill; one trainer for both."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.errors import StorageError
from visterm.core.progress import Progress
from visterm.core.threads import Team
from visterm.core.types import Matrix
from visterm.models.epochs import EpochSums, Measure, TrainingState, Weights

RunEpoch: TypeAlias = Callable[[float], EpochSums]
Source: TypeAlias = Callable[[Team], RunEpoch]
"""Begins a training with a team of threads, and returns what goes over all pairs once, with steps of a given size."""

SMALLEST_BLOCK = 16
LARGEST_TAG_BLOCK = 256
LARGEST_BLOCK = 4096

BLOCKS_AN_EPOCH = 64  # Of many pairs, a block is this share: larger blocks still lose nothing that one can see


class Training:
    """One training under way: `run_epoch` changes the weights that it was given, epoch by epoch."""

    growth: float = 1.0  # Factor of the longest vectors

    def run_epoch(self, rate: float) -> EpochSums:
        """Visit every example once, with steps of this size."""
        raise NotImplementedError

    def state(self) -> dict[str, NDArray[Any]]:
        """Return what training on other rows goes on with: nothing but the weights, unless a training says more."""
        return {}

    def load_state(self, state: dict[str, NDArray[Any]]) -> None:
        """Take over the `state` that a training before left; an empty one if there was none."""


class TrainingContext(NamedTuple):
    """What a training is given beside data and weights."""

    rng: np.random.Generator
    team: Team
    images: bool  # Whether weights on the image's side move too; else only those of tags
    block: int  # Pairs that share one state of the weights, for models whose `block` is None


class Windows(Protocol):
    """Rows to learn from in windows of bounded size: some go together, and each epoch has its own order of them."""

    n_features: int
    n_tags: int
    n_pairs: int  # Tags that all images have together
    mean_length: float  # Root of the mean squared length of the rows

    def epoch(self, epoch: int, first: int = 0) -> Generator[tuple[Matrix, sp.csr_array]]:
        """Yield features and tags of the windows of an epoch (counted from 1) in its order, from number `first` on.

        What is yielded may be written over by the next.
        """


class Checkpoint(NamedTuple):
    """All that training needs to go on to the same bytes: small facts for JSON, and arrays."""

    facts: dict[str, Any]
    arrays: dict[str, NDArray[Any]]


class RankingState(TrainingState):
    """How far a training has come: weights as it has them, and their running means, which are published.

    `growth` and `slowing` are the factors of the longest vectors and of the steps in an epoch, `mixed` how many epochs
    the means stand for at the start, and `training_state` the `Training.state` that the training before left. Of
    windows, `window` is the next one of the epoch, `seed` keys their draws, and `sums` is what training did on those
    before.
    """

    def __init__(self, weights: Weights, patience: int, seed: int = 0) -> None:
        super().__init__(patience)
        self.weights = weights
        self.means: Weights = tuple(array.copy() for array in weights)
        self.growth: Callable[[int], float] = lambda epoch: 1.0
        self.slowing: Callable[[int], float] = lambda epoch: 1.0
        self.mixed = 0
        self.training_state: dict[str, NDArray[Any]] = {}
        self.seed, self.window, self.sums = seed, 0, np.zeros(4)

    def run_epoch(self, training: Training, rate: float) -> EpochSums:
        """Let a training visit its pairs, as it is time to, and keep what it leaves."""
        training.growth = self.growth(self.epoch)
        sums = training.run_epoch(rate * self.slowing(self.epoch))
        self.training_state = training.state()
        return sums

    def end_epoch(self) -> None:
        """Go on to the first window of the next epoch."""
        super().end_epoch()
        self.window, self.sums = 0, np.zeros(4)

    def checkpoint(self) -> Checkpoint:
        """Return all of it; the arrays are not copies."""
        facts = {
            "seed": self.seed,
            "epoch": self.epoch,
            "window": self.window,
            "sums": self.sums.tolist(),
            "history": self.history,
            "best_epoch": self.best.epoch,
            "best_value": self.best.value if self.best.epoch else None,
        }
        arrays = {f"carried.{name}": array for name, array in self.training_state.items()}
        for kind, weights in {"weights": self.weights, "means": self.means, "best": self.best.weights}.items():
            arrays |= {f"{kind}.{number}": array for number, array in enumerate(weights)}
        return Checkpoint(facts, arrays)

    def resume(self, last: Checkpoint) -> None:
        """Take everything back from a checkpoint."""
        kinds: dict[str, dict[str, NDArray[Any]]] = {"weights": {}, "means": {}, "best": {}, "carried": {}}
        for name, array in last.arrays.items():
            kind, _, rest = name.partition(".")
            kinds[kind][rest] = array
        weights, means, best = (
            tuple(kinds[kind][str(number)] for number in range(len(kinds[kind])))
            for kind in ("weights", "means", "best")
        )
        if [array.shape for array in weights] != [array.shape for array in self.weights]:
            raise StorageError("The checkpoint is of another model: its weights have other shapes. Remove it.")
        facts = last.facts
        self.seed, self.epoch, self.window = facts["seed"], facts["epoch"], facts["window"]
        self.weights, self.means, self.training_state = weights, means, kinds["carried"]
        self.sums, self.history = np.array(facts["sums"], np.float64), list(facts["history"])
        measured = len(self.history) if facts["best_epoch"] else 0
        self.best.resume(facts["best_epoch"], facts["best_value"] or 0.0, measured, best)


class TrainingPass(NamedTuple):
    """One training of a fit in memory: rows and their tags, how far it has come, the most epochs, what it stops by."""

    X: Matrix
    positives: sp.csr_array
    state: RankingState
    epochs: int
    measure: Measure | None


def from_memory(model: Any, each: TrainingPass, rng: np.random.Generator) -> Source:
    """Train a model on pairs that are all in memory, as one window for all epochs."""

    def begin(team: Team) -> RunEpoch:
        context = TrainingContext(rng, team, True, block_for(each.positives.nnz, each.positives.shape[1]))
        training = model._training(each.X, each.positives, each.state.weights, context)
        training.load_state(each.state.training_state)
        return lambda rate: each.state.run_epoch(training, rate)

    return begin


def from_windows(
    model: Any, windows: Windows, state: RankingState, monitor: Progress, keep: Callable[[], None]
) -> Source:
    """Train a model on windows, each a training of its own that goes on with what the one before left.

    An epoch goes through the windows that are left of it; after each, `keep` is called.
    """

    def begin(team: Team) -> RunEpoch:
        def run_epoch(rate: float) -> EpochSums:
            with closing(windows.epoch(state.epoch, state.window)) as parts:
                for X, Y in parts:
                    positives = positive_tags(Y)
                    if positives.nnz:
                        state.sums += _window_sums(model, windows, state, X, positives, rate, team)
                    state.window += 1
                    monitor.advance(1, f"epoch {state.epoch}")
                    keep()
            return EpochSums(*(float(value) for value in state.sums[:3] / max(1.0, state.sums[3])))

        return run_epoch

    return begin


def _window_sums(
    model: Any, windows: Windows, state: RankingState, X: Matrix, positives: sp.csr_array, rate: float, team: Team
) -> NDArray[np.float64]:
    """Go once over the pairs of a window; return what it did, summed over the pairs, and their number."""
    rng = np.random.default_rng([state.seed, state.epoch, state.window])
    # Blocks as if all windows were one, but of no more than half a window's rows: they are copied together.
    block = min(block_for(windows.n_pairs, windows.n_tags), max(LARGEST_TAG_BLOCK, X.shape[0] // 2))
    training = model._training(X, positives, state.weights, TrainingContext(rng, team, True, block))
    training.load_state(state.training_state)
    sums, n_pairs = state.run_epoch(training, rate), positives.nnz
    return np.array([sums.loss * n_pairs, sums.draws * n_pairs, sums.violated * n_pairs, n_pairs])


def positive_tags(Y: sp.csr_array) -> sp.csr_array:
    """Return the tags that images have, as ones."""
    return sp.csr_array(Y > 0, dtype=np.float32)


def block_for(n_pairs: int, n_tags: int) -> int:
    """Choose how many of the pairs of an epoch share one state of the weights."""
    return max(min(max(n_tags, SMALLEST_BLOCK), LARGEST_TAG_BLOCK), min(n_pairs // BLOCKS_AN_EPOCH, LARGEST_BLOCK))


def block_size(block: int, n_pairs: int) -> int:
    """Return the pairs of a block: no more than there are."""
    return min(block, max(1, n_pairs))
