"""Base class of models over several distances: blocks of features, each with its own distance and scale."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.errors import DataError
from visterm.core.learned import Array, DenseOrCsr, Kind, Listed, Whole
from visterm.core.threads import Team, one_blas_thread, resolve_jobs
from visterm.core.types import Matrix, RandomState
from visterm.kernels import top_k
from visterm.models import BLOCK_BYTES, MAX_FEATURE, TAGS_OF_IMAGES, Annotator, Ids, check_blocks, read_blocks
from visterm_research.models.neighbours.distances import BlockDistances, read_distances

T = TypeVar("T")
Floats = NDArray[np.float32]

SAMPLE_ROWS = 1000  # Use at most this many training images to set the scale of distances and choose settings
MIN_DISTANCE = 1e-38  # Distances below this have no inverse in float32
PART_ROWS = 128  # Maximum number of images that a thread compares at a time


@dataclass(kw_only=True, eq=False, repr=False)
class DistanceAnnotator(Annotator):
    """Learns from the training images that are near in several feature blocks; a new model extends `_fit`.

    Each block has its own distance, divided by the largest distance between a sample of training images and all
    training images, so distances are hardly above 1 (Makadia, Pavlovic, Kumar 2008, section 3.2).

    Parameters
    ----------
    blocks : sequence of int or of (int, int), optional
        Widths of adjacent feature blocks, or their (start, stop) columns. None: one block of all features; in a
        `Tagger`, the blocks of the encoder.
    distances : str or sequence of str
        How blocks are compared: "l1", "l2", "chi2" (for histograms) or "cosine"; one for all blocks, or one per block.
    n_jobs : int, optional
        Number of threads; None or -1 for all cores.
    random_state : int, RandomState, Generator or None
        If there are more than 1,000 images, samples 1,000 of them for the scales of the distances.

    Attributes
    ----------
    rows_ : array or CSR of float32, shape (n_images, n_features)
        Training features.
    given_ : csr_array of float32, shape (n_images, n_tags)
        Tags of the training images.
    scales_ : ndarray of float64, shape (n_blocks,)
        The largest distance in each block.
    """

    blocks: Sequence[Any] | None = None
    distances: str | Sequence[str] = "l2"
    n_jobs: int | None = None
    random_state: RandomState = 0

    learned: ClassVar[dict[str, Kind]] = {
        "rows_": DenseOrCsr("float32", ("n_images", "n_features_in_"), least=-MAX_FEATURE, most=MAX_FEATURE),
        "given_": TAGS_OF_IMAGES,
        "scales_": Array("float64", ("n_blocks",), least=MIN_DISTANCE),
        "blocks_": Listed(Whole(least=1), required=False),
    }
    takes: ClassVar[tuple[str, ...]] = ("blocks",)

    def _fit(self, X: Matrix, Y: sp.csr_array, rng: np.random.Generator) -> None:
        if self.blocks is None and self._side.blocks:
            self.blocks_ = list(self._side.blocks)
        self.check_settings()
        self._cached_rows: Any = None  # the blocks may have changed
        self.rows_ = X
        self.given_ = sp.csr_array(Y > 0, dtype=np.float32)
        self.scales_ = np.ones(len(self._slices()))
        largest = self._near_parts(X[self._sample(rng, SAMPLE_ROWS)], lambda _, D: D.max(axis=(1, 2)))
        scales = np.max(largest, axis=0).astype(np.float64)
        self.scales_ = np.where(scales > 0, scales, 1.0)

    def _check_learned(self) -> None:
        super()._check_learned()
        if len(self._slices()) != len(self.scales_):
            raise DataError(f"scales_ has {len(self.scales_)} blocks; expected {len(self._slices())}, as in blocks")

    def _check_settings(self) -> None:
        check_blocks(self._known_blocks())
        read_distances(self.distances, self._known_blocks())

    def _near_parts(self, X: Matrix, work: Callable[[slice, Floats], T], left_out: Ids | None = None) -> list[T]:
        """Return the results of `work` for each part of the images, in order.

        `work` takes the rows of a part and their scaled distances to all training images, (n_blocks, n_part, n_images).
        `left_out` has the number of the training image in each row of `X`, whose distance to itself is then infinite.
        """
        n, n_blocks = X.shape[0], len(self.scales_)
        step = int(np.clip(BLOCK_BYTES // (4 * n_blocks * self.rows_.shape[0]), 1, PART_ROWS))
        distances = self._block_distances()
        factors = (1 / self.scales_).astype(np.float32)[:, None, None]

        def work_on_part(number: int) -> T:
            rows = slice(number * step, min((number + 1) * step, n))
            D = distances.to(X[rows])
            D *= factors
            if left_out is not None:
                D[:, np.arange(D.shape[1]), left_out[rows]] = np.inf
            return work(rows, D)

        n_parts = -(-n // step)
        with one_blas_thread(), Team(min(resolve_jobs(self.n_jobs), n_parts)) as team:
            return team.run(work_on_part, n_parts)

    def _sample(self, rng: np.random.Generator, max_images: int) -> Ids:
        """Draw up to `max_images` training images, in order."""
        return np.sort(rng.permutation(self.rows_.shape[0])[:max_images])

    def _known_blocks(self) -> Any:
        return getattr(self, "blocks_", None) if self.blocks is None else self.blocks

    def _slices(self) -> list[slice]:
        return read_blocks(self._known_blocks(), self.rows_.shape[1])

    def _block_distances(self) -> BlockDistances:
        """Return the distances to the training rows, which are cached for each fit and each set of rows."""
        if getattr(self, "_cached_rows", None) is not self.rows_:
            self._cached_distances = BlockDistances(
                self.rows_, self._slices(), read_distances(self.distances, self._known_blocks())
            )
            self._cached_rows = self.rows_
        return self._cached_distances


def nearest(distances: Floats, k: int) -> tuple[Ids, Floats]:
    """Return the ids and distances of the k nearest images for each row of distances, nearest first, ties by id."""
    ids, closeness = top_k(np.negative(distances), min(k, distances.shape[1]))
    return ids, -closeness
