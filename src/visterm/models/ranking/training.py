"""A training of a ranking model under way: what it is given, how far it has come, and what is kept of it on disk."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.errors import StorageError
from visterm.core.threads import Team
from visterm.core.types import Matrix
from visterm.models.epochs import EpochSums, Measure, TrainingState, Weights

Arrays: TypeAlias = dict[str, NDArray[Any]]

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

    def state(self) -> Arrays:
        """Return what training on other rows goes on with: nothing but the weights, unless a training says more."""
        return {}

    def load_state(self, state: Arrays) -> None:
        """Go on with the `state` that an earlier training left."""


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
    arrays: Arrays


class Checkpoints(Protocol):
    """Where the states of a training are kept, to go on from after a kill."""

    def last(self) -> Checkpoint | None:
        """Return the last state kept, or None."""

    def offer(self, make: Callable[[], Checkpoint]) -> None:
        """Keep what `make` returns, if it is time to."""


@dataclass(kw_only=True, eq=False)
class RankingState(TrainingState):
    """How far a training has come: weights as it has them, and their running means, which are published.

    The longest vectors begin at `growth` times the setting, and are that much longer again after `doubled` epochs.
    `mixed` is how many epochs the means stand for at the start, and
    `training_state` the `Training.state` that the training before left. Of windows, `window` is the next one of the
    epoch, `seed` keys their draws, and `sums` is what training did on those before.
    """

    weights: Weights
    means: Weights = ()
    growth: float = 1.0
    doubled: float = math.inf
    mixed: int = 0
    training_state: Arrays = field(default_factory=dict)
    seed: int = 0
    window: int = 0
    sums: NDArray[np.float64] = field(default_factory=lambda: np.zeros(4))

    def __post_init__(self) -> None:
        self.means = tuple(array.copy() for array in self.weights)

    def growth_in(self, epoch: int) -> float:
        """Return the factor of the longest vectors in an epoch."""
        return self.growth + (epoch / self.doubled) ** 2

    def checkpoint(self) -> Checkpoint:
        """Return all of it; the arrays are not copies."""
        facts = {
            "seed": self.seed,
            "epoch": self.epoch,
            "window": self.window,
            "sums": self.sums.tolist(),
            "history": self.history,
            "best_epoch": self.best_epoch,
            "best_value": self.best_value if self.best_epoch else None,
        }
        arrays = {f"carried.{name}": array for name, array in self.training_state.items()}
        for kind, weights in {"weights": self.weights, "means": self.means, "best": self.best_weights}.items():
            arrays |= {f"{kind}.{number}": array for number, array in enumerate(weights)}
        return Checkpoint(facts, arrays)

    def resume(self, last: Checkpoint) -> None:
        """Go on from a checkpoint."""
        kinds: dict[str, Arrays] = {"weights": {}, "means": {}, "best": {}, "carried": {}}
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
        if facts["best_epoch"]:
            self.best_epoch, self.best_value, self.best_weights = facts["best_epoch"], facts["best_value"], best


class TrainingPass(NamedTuple):
    """One training of a fit in memory: rows and their tags, how far it has come, the most epochs, what it stops by."""

    X: Matrix
    positives: sp.csr_array
    state: RankingState
    epochs: int
    measure: Measure | None


def positive_tags(Y: sp.csr_array) -> sp.csr_array:
    """Return the tags that images have, as ones."""
    return sp.csr_array(Y > 0, dtype=np.float32)


def block_for(n_pairs: int, n_tags: int) -> int:
    """Choose how many of the pairs of an epoch share one state of the weights."""
    return max(min(max(n_tags, SMALLEST_BLOCK), LARGEST_TAG_BLOCK), min(n_pairs // BLOCKS_AN_EPOCH, LARGEST_BLOCK))
