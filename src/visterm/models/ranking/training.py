"""The training of a ranking model: its inputs, its state, its checkpoints, and rows of new tags."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp
from safetensors import safe_open

from visterm.core.errors import StorageError
from visterm.core.persist import save_arrays
from visterm.core.products import dense
from visterm.core.threads import Team
from visterm.core.types import Arrays, Doubles, Floats, Matrix
from visterm.core.writing import whole_file
from visterm.kernels.rows import Rows, dense_rows, sparse_rows
from visterm.models.base import row_blocks
from visterm.models.epochs import EpochSums, TrainingState, Weights

MIN_BLOCK = 16
MAX_TAG_BLOCK = 256
MAX_BLOCK = 4096

BLOCKS_PER_EPOCH = 64  # Number of blocks if there are many pairs; larger blocks were not measurably worse either
POSITIVE_WEIGHT = 10.0  # Of 1 to 30 the best on validation rows, judged by old and new tags together
PENALTY = 1e-3  # As a share of the mean square of a component of the image rows; 1e-4 to 1e-1 differ little
DIRECT_WIDTH = 3000  # With wider rows, conjugate gradients solve the system without forming it
CG_TOLERANCE = 1e-5
CG_ITERATIONS = 500
CHECKPOINT_SECONDS = 20.0  # Minimum seconds between checkpoints, and at least 20 times as long as a checkpoint takes
CHECKPOINT = "checkpoint.safetensors"


class Training:
    """One training of a model: `run_epoch` changes the weights that the constructor was given."""

    growth: float = 1.0  # Factor of the maximum norm of vectors

    def run_epoch(self, rate: float) -> EpochSums:
        """Visit every example once, with the learning rate `rate`."""
        raise NotImplementedError

    def state(self) -> Arrays:
        """Return the arrays, besides the weights, that a training on other rows continues from; none by default."""
        return {}

    def load_state(self, state: Arrays) -> None:
        """Continue from the `state` of an earlier training."""


class TrainingContext(NamedTuple):
    """The inputs of a training other than data and weights."""

    rng: np.random.Generator
    team: Team
    trains_images: bool  # Whether the weights of the image side change, too; otherwise only those of tags
    block: int  # Number of pairs that use the same weights, for models whose `block` is None


class Windows(Protocol):
    """Training rows in windows of bounded size; each epoch has its own order of the windows."""

    n_features: int
    n_tags: int
    n_pairs: int  # Total number of tags of all images
    mean_length: float  # Root of the mean squared length of the rows

    def epoch(self, epoch: int, first: int = 0) -> Generator[tuple[Matrix, sp.csr_array]]:
        """Yield features and tags of the windows of an epoch (counted from 1), starting with window `first`.

        The next window may overwrite the arrays of the previous window.
        """


class Checkpoint(NamedTuple):
    """Everything that training needs to continue to the same bytes: `facts`, which are values for JSON, and arrays."""

    facts: dict[str, Any]
    arrays: Arrays


class FileCheckpoints:
    """Saves the last checkpoint in a folder, at least `checkpoint_seconds` after the previous one; 0 saves all.

    `key` is a hash of the data, the settings and the windows: checkpoints with another hash are ignored. `resumed`
    tells whether `last` returned a checkpoint.
    """

    def __init__(self, folder: Path, key: str, checkpoint_seconds: float = CHECKPOINT_SECONDS) -> None:
        self._file, self._key, self._seconds = folder / CHECKPOINT, key, checkpoint_seconds
        self._next = time.monotonic() + checkpoint_seconds
        self.resumed = False

    def last(self) -> Checkpoint | None:
        """Return the last checkpoint of the same data and settings, or None."""
        if not self._file.exists():
            return None
        with safe_open(self._file, framework="numpy") as file:
            metadata = file.metadata() or {}
            if metadata.get("of") != self._key:
                return None
            self.resumed = True
            return Checkpoint(json.loads(metadata["facts"]), {name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118

    def offer(self, make: Callable[[], Checkpoint]) -> None:
        """Write a checkpoint if enough time has passed; if interrupted, the previous checkpoint stays valid."""
        start = time.monotonic()
        if start < self._next:
            return
        checkpoint = make()
        with whole_file(self._file) as temporary:
            save_arrays(temporary, checkpoint.arrays, {"of": self._key, "facts": json.dumps(checkpoint.facts)})
        end = time.monotonic()
        self._next = end + max(self._seconds, 20 * (end - start) if self._seconds else 0.0)


@dataclass(kw_only=True, eq=False)
class RankingState(TrainingState):
    """The state of a training: its weights, and their running means, which are published.

    Learning rates are multiplied by `rate`. The maximum norm is the setting times `growth` at the start, and times
    `growth` + 1 after `doubling_epochs` epochs. At the start, the means count as `mean_epochs` epochs; `training_state`
    is the `Training.state` of the previous training. With windows, `window` is the next window of the epoch, `seed` the
    seed of the windows' draws, and `sums` the results of the previous windows of the epoch.
    """

    weights: Weights
    means: Weights = ()
    growth: float = 1.0
    rate: float = 1.0
    doubling_epochs: float = math.inf
    mean_epochs: int = 0
    training_state: Arrays = field(default_factory=dict)
    seed: int = 0
    window: int = 0
    sums: Doubles = field(default_factory=lambda: np.zeros(4))

    def __post_init__(self) -> None:
        self.means = tuple(array.copy() for array in self.weights)

    def growth_in(self, epoch: int) -> float:
        """Return the factor of the maximum norm in an epoch."""
        return self.growth + (epoch / self.doubling_epochs) ** 2

    def checkpoint(self) -> Checkpoint:
        """Return the state as a checkpoint; the arrays are not copied."""
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

    def resume(self, checkpoint: Checkpoint) -> None:
        """Restore the state from a checkpoint."""
        kinds: dict[str, Arrays] = {"weights": {}, "means": {}, "best": {}, "carried": {}}
        for name, array in checkpoint.arrays.items():
            kind, _, array_name = name.partition(".")
            kinds[kind][array_name] = array
        weights, means, best = (
            tuple(kinds[kind][str(number)] for number in range(len(kinds[kind])))
            for kind in ("weights", "means", "best")
        )
        if [array.shape for array in weights] != [array.shape for array in self.weights]:
            raise StorageError("The checkpoint belongs to another model: its weights have other shapes. Remove it.")
        facts = checkpoint.facts
        self.seed, self.epoch, self.window = facts["seed"], facts["epoch"], facts["window"]
        self.weights, self.means, self.training_state = weights, means, kinds["carried"]
        self.sums, self.history = np.array(facts["sums"], np.float64), list(facts["history"])
        if facts["best_epoch"]:
            self.best_epoch, self.best_value, self.best_weights = facts["best_epoch"], facts["best_value"], best


def image_rows(U: Matrix) -> Rows:
    """Return a view of image rows, dense or CSR, in the form for kernels."""
    csr: Any = U
    rows: Rows = sparse_rows(csr.data, csr.indices, csr.indptr) if sp.issparse(U) else dense_rows(U)
    return rows


def positive_tags(Y: sp.csr_array) -> sp.csr_array:
    """Return a matrix with ones for the tags that images have."""
    return sp.csr_array(Y > 0, dtype=np.float32)


def block_for(n_pairs: int, n_tags: int) -> int:
    """Return the default number of pairs that use the same weights."""
    return max(min(max(n_tags, MIN_BLOCK), MAX_TAG_BLOCK), min(n_pairs // BLOCKS_PER_EPOCH, MAX_BLOCK))


def fit_new_tags(U: Matrix, V: Floats, positives: sp.csr_array) -> Floats:
    """Return rows for new tags, shape (n_new, width), for fixed image rows `U`, (n_images, width).

    Stored entries of `positives`, (n_images, n_new), are the images' new tags; `V` are the rows of the old tags. The
    row of a new tag is the mean of the old ones, plus the solution of ``min_w Σ_i c_i (u_i · w - r_i)² + λ |w|²``. For
    an image with the new tag, r_i is the distance from the mean score of the old tags to the best one, and c_i is
    `POSITIVE_WEIGHT`; for other images, r_i is 0 and c_i is 1.

    References
    ----------
    Hu, Koren, Volinsky: Collaborative filtering for implicit feedback datasets. ICDM 2008; Eq. 4 and 5.
    """
    from scipy.linalg import solve

    mean, width = V.mean(axis=0, dtype=np.float64), V.shape[1]
    has_tag = np.flatnonzero(np.diff(positives.indptr))
    gains = np.zeros(U.shape[0])
    gains[has_tag] = _best_scores(U[has_tag], V - mean.astype(np.float32))
    squares = float(sp.csr_array(U).power(2).sum() if sp.issparse(U) else np.einsum("ij,ij->", U, U, dtype=np.float64))
    penalty = PENALTY * squares / width or 1.0
    gram = None
    if width <= DIRECT_WIDTH:
        gram = dense(U.T @ U).astype(np.float64)
        gram[np.diag_indices(width)] += penalty

    by_tag, rows = sp.csr_array(positives.T), np.empty((positives.shape[1], width), np.float32)
    for tag in range(len(rows)):
        images = by_tag.indices[by_tag.indptr[tag] : by_tag.indptr[tag + 1]]
        u = dense(U[images]).astype(np.float64)
        target = POSITIVE_WEIGHT * (gains[images] @ u)
        if gram is not None:
            solution = solve(gram + (POSITIVE_WEIGHT - 1) * (u.T @ u), target, assume_a="pos")
        else:
            solution = _solve_wide(U, u, penalty, target)
        rows[tag] = mean + solution
    return rows


def _solve_wide(U: Matrix, u: Doubles, penalty: float, target: Doubles) -> Doubles:
    from scipy.sparse.linalg import LinearOperator, cg

    def product(w: Doubles) -> Doubles:
        return np.asarray(U.T @ (U @ w) + (POSITIVE_WEIGHT - 1) * (u.T @ (u @ w)) + penalty * w)

    operator = LinearOperator((target.size, target.size), matvec=product, dtype=np.float64)
    solution: Doubles = cg(operator, target, rtol=CG_TOLERANCE, maxiter=CG_ITERATIONS)[0]
    return solution


def _best_scores(U: Matrix, V: Floats) -> Floats:
    parts = [np.asarray(U[rows] @ V.T).max(axis=1) for rows in row_blocks(U.shape[0], 4 * len(V))]
    return np.concatenate(parts) if parts else np.empty(0, np.float32)
