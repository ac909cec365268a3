"""An index by faiss of the first rows of a segment: it names few rows, which hold nearly all of the best.

Rows are sorted into lists around centres (IVF), and of each its difference to the centre is kept in 4 bits a number,
after a random rotation that gives each number an equal share, and scanned in registers (André, Kermarrec, Le Scouarnec
2015). A million rows of width 100 take 60 MB beside the 400 of the rows, which are read for those named only. How many
lists are looked into and how many rows are named is measured on queries when the index is made.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import CorruptFileError, MissingExtraError
from visterm.core.files import open_regular
from visterm.core.products import top_k_products
from visterm.core.writing import whole_file

K = 10
RECALL = 0.98  # Share of the K best to be found, by `surely_found`, so that other queries find as many
PAYS = 3.0  # How many times faster than exact search it has to be, to be worth its space
MOST = 100  # Results up to which it is used; more are found exactly
LISTS = 4  # Lists of rows, times the square root of the number of rows
FETCHED = (50, 100, 200, 400)
AT_ONCE = 2**16
TRAINING_ROWS = 2**17
INDEX_SUFFIX = ".faiss"
FaissIndex: TypeAlias = Any  # The package says nothing of its types
MAGIC = b"IxPT"  # The first bytes of a file by faiss that turns rows before it looks for them, as ours do


@dataclass(frozen=True, slots=True)
class IndexSettings:
    """Settings of an index, and what was measured."""

    n_rows: int  # Rows covered, from the first on
    # Lists of rows, and how many of them are looked into
    lists: int
    probed: int
    fetched: int  # Rows named for the `K` best
    recall: float  # Share of the `K` best that were among them (`surely_found`)
    # Time of a query by the index, and of an exact search of the same rows
    seconds: float
    exact_seconds: float

    @property
    def pays(self) -> bool:
        """Whether it finds enough, enough faster."""
        return self.recall >= RECALL and self.seconds * PAYS <= self.exact_seconds

    @property
    def merit(self) -> tuple[bool, float]:
        """What settings are compared by: those that find enough by their time, and others by what they find."""
        enough = self.recall >= RECALL
        return enough, -self.seconds if enough else self.recall


class RowIndex:
    """A faiss index and its settings; see `Candidates`.

    One on disk (`RowIndex.on_disk`) is read when it is first used; without faiss every search is exact.
    """

    def __init__(self, index: FaissIndex, settings: IndexSettings) -> None:
        self._index, self.settings, self.n_rows = index, settings, settings.n_rows
        self._read: Callable[[], FaissIndex] = lambda: index
        self._reading = threading.Lock()

    @classmethod
    def on_disk(cls, path: Path, settings: IndexSettings, width: int) -> Self:
        """Return the index that `write` put into a file, for rows of a width."""
        row_index = cls(None, settings)
        row_index._read = partial(read_index, path, settings, width)
        return row_index

    def candidates(self, q: NDArray[np.float32], k: int) -> NDArray[np.int64] | None:
        """Return places of rows, ascending, that hold most of the `k` best; None where an exact search is better."""
        if k > MOST or not is_installed():
            return None
        with self._reading:
            self._index = self._read() if self._index is None else self._index
        return self.named(q, self.settings.probed, (self.settings.fetched * max(1, math.ceil(k / K))))

    def write(self, path: Path) -> None:
        """Write it as a file, on disk when this returns; a kill leaves none, or a whole one."""
        with whole_file(path) as temporary:
            _faiss().write_index(self._index, os.fspath(temporary))

    def named(self, q: NDArray[np.float32], probed: int, fetched: int) -> NDArray[np.int64]:
        """Return the places, ascending, of the best `fetched` rows of `probed` lists."""
        faiss = _faiss()
        parameters = faiss.SearchParametersPreTransform(index_params=faiss.SearchParametersIVF(nprobe=probed))
        with _one_thread(faiss):
            _, places = self._index.search(q, min(fetched, self.n_rows), params=parameters)
        best: NDArray[np.int64] = np.sort(places[0])
        if best.size and best[-1] >= self.n_rows:
            raise CorruptFileError(
                f"An index names row {best[-1]}, but covers {self.n_rows} rows. Index the images again into a new "
                "catalogue."
            )
        return best[np.searchsorted(best, 0) :]  # faiss fills up with -1


def read_index(path: Path, settings: IndexSettings, width: int) -> FaissIndex:
    """Read a faiss index that `RowIndex.write` wrote, for rows of a width.

    Raises CorruptFileError if it cannot be read, or is of other rows; MissingExtraError if faiss is not installed.
    """
    faiss = _faiss()
    try:
        with open_regular(path) as file:
            magic = file.read(len(MAGIC))
    except OSError as error:
        raise CorruptFileError(f"{path} cannot be read: {error.strerror or error}.") from error

    if magic != MAGIC:
        raise CorruptFileError(f"{path} is no index of rows: it begins with {magic!r}; expected {MAGIC!r}.")
    try:
        index = faiss.read_index(os.fspath(path))
    except RuntimeError as error:
        raise CorruptFileError(f"{path} is no index of rows: {str(error).splitlines()[-1]}") from error
    if (index.ntotal, index.d) != (settings.n_rows, width):
        raise CorruptFileError(
            f"{path} covers {index.ntotal} rows of {index.d} numbers; expected {settings.n_rows} of {width}."
        )
    return index


def build_index(U: NDArray[np.float32], queries: NDArray[np.float32]) -> RowIndex:
    """Make an index of rows, (n_rows, width), and measure on queries, (n_queries, width), whether it pays.

    Queries should be like those of real searches: the more the better, up to some hundreds. The index's `settings` say
    whether it pays. Raises MissingExtraError if faiss is not installed.
    """
    faiss = _faiss()
    n, width = U.shape
    n_lists = LISTS * math.isqrt(n)
    even = width + width % 2
    index = faiss.index_factory(width, f"RR{even},IVF{n_lists},PQ{even}x4fsr", faiss.METRIC_INNER_PRODUCT)
    inner = faiss.extract_index_ivf(index)
    inner.cp.niter, inner.cp.min_points_per_centroid = 10, 1
    drawn = np.sort(np.random.default_rng(0).permutation(n)[:TRAINING_ROWS])
    with _one_thread(faiss):
        index.train(np.ascontiguousarray(U[drawn]))
        for start in range(0, n, AT_ONCE):
            index.add(np.ascontiguousarray(U[start : start + AT_ONCE]))
    queries = np.ascontiguousarray(queries, np.float32)

    exact = median_seconds(lambda: top_k_products(queries[:1], U, K))

    def search(q: NDArray[np.float32], trial: IndexSettings) -> NDArray[np.int64]:
        named = RowIndex(index, trial).named(q, trial.probed, trial.fetched)
        top_k_products(q, U, K, 1, among=named)  # which a search does too
        return named

    trials = [  # naming more rows may need fewer lists
        [IndexSettings(n, n_lists, probed, fetched, 0.0, 0.0, exact) for probed in growing(n_lists // 2)]
        for fetched in FETCHED
    ]
    return RowIndex(index, best_settings(search, trials, queries, top_k_products(queries, U, K).ids))


def settings_of(facts: str) -> IndexSettings:
    """Read settings from JSON, a field a key. Raises CorruptFileError if it is something else."""
    try:
        settings = IndexSettings(**json.loads(facts))
        counts = (settings.n_rows, settings.lists, settings.probed, settings.fetched)
        shares = (settings.recall, settings.seconds, settings.exact_seconds)
        sound = all(type(count) is int and 0 <= count < 2**31 for count in counts) and all(
            type(share) in (int, float) and 0 <= share < math.inf for share in shares
        )
    except (TypeError, ValueError, RecursionError):
        sound = False
    if not sound:
        raise CorruptFileError(
            f"What the catalogue notes of an index is damaged: {facts[:80]!r}. Restore it from a backup, or index the "
            "images again."
        )
    return settings


def surely_found(shares: Sequence[float]) -> float:
    """Return the mean of what queries found, less its standard error: the first setting that does is often lucky."""
    error = np.std(shares, ddof=1) / math.sqrt(len(shares)) if len(shares) > 1 else 0.0
    return max(0.0, float(np.mean(shares) - error))


def growing(most: int) -> Iterator[int]:
    """Yield 4 and each time half more, up to `most`: how many lists are looked into."""
    probed = 4
    while probed <= most:
        yield probed
        probed += probed // 2


def is_installed() -> bool:
    """Return whether faiss can be used."""
    try:
        _faiss()
    except MissingExtraError:
        return False
    return True


def median_seconds(call: Callable[[], object], times: int = 5) -> float:
    """Return the median of the seconds that a call takes."""
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def best_settings(
    search: Callable[[NDArray[np.float32], IndexSettings], NDArray[np.int64]],
    trials: Iterable[Iterable[IndexSettings]],
    queries: NDArray[np.float32],
    best: NDArray[np.int64],
) -> IndexSettings:
    """Measure settings, and return the fastest of those that find nearly all of the best, else what finds most.

    Of each row of `trials`, with more and more lists, those that come after the first that finds enough are not tried.
    `search` returns ids for a query, (1, width); `best` are those of an exact search, (n_queries, k).
    """
    chosen: IndexSettings | None = None
    for more_lists in trials:
        for trial in more_lists:
            shares, seconds = [], []
            for q, these in zip(queries[:, None, :], best, strict=True):
                start = time.perf_counter()
                ids = search(q, trial)
                seconds.append(time.perf_counter() - start)
                shares.append(np.isin(these, ids).mean())
            trial = replace(trial, recall=surely_found(shares), seconds=statistics.median(seconds))
            chosen = trial if chosen is None or trial.merit > chosen.merit else chosen
            if trial.recall >= RECALL:
                break
    assert chosen is not None
    return chosen


@contextmanager
def _one_thread(faiss: ModuleType) -> Iterator[None]:
    """Hold OpenMP to one thread: on a busy machine its threads spin for each other (k-means took 18 times as long)."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


def _faiss() -> ModuleType:
    try:
        import faiss
    except ImportError as error:
        raise MissingExtraError(
            "An index of rows needs the package 'faiss'. Install it with: pip install 'visterm[faiss]'"
        ) from error
    module: ModuleType = faiss
    return module
