"""A faiss index of the first rows of a segment: it proposes a few candidates that include nearly all of the best rows.

Rows are divided into lists around centroids (IVF). Their differences to the centroid are randomly rotated, to spread
the variance, stored with 4 bits per number, and scanned in registers (André, Kermarrec, Le Scouarnec 2015). For a
million rows of width 100, the index takes 60 MB in addition to the 400 MB of the rows, of which only candidates are
read. The number of lists to search and the number of candidates are measured with queries.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import threading
import time
import timeit
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import CorruptFileError, MissingExtraError
from visterm.core.files import open_regular
from visterm.core.writing import whole_file
from visterm.store.current_rows import Part

K = 10  # Number of best rows with which an index is measured
MIN_RECALL = 0.98  # Minimum share of the `K` best rows that an index must find (see `cautious_recall`)
MIN_SPEED_UP = 3.0  # Minimum speed-up over exact search that makes an index worth its space
RESULTS_PER_PROBE = 100  # For each 100 results, as many lists are searched as were measured with `K` results
LISTS_PER_ROOT = 4  # Number of lists, as a multiple of the square root of the number of rows
CANDIDATE_COUNTS = (50, 100, 200, 400)  # Numbers of candidates that are tried
ROWS_PER_ADDITION = 2**16  # Maximum number of rows to add at a time
MAX_TRAINING_ROWS = 2**17
INDEX_SUFFIX = ".faiss"
FaissIndex: TypeAlias = Any  # The package has no type hints
MAGIC = b"IxPT"  # First bytes of faiss files whose index rotates rows before the search


@dataclass(frozen=True, slots=True)
class IndexSettings:
    """Settings of an index, and its measured speed and recall."""

    n_rows: int  # The index covers the first `n_rows` rows
    # Number of lists, and number of lists that are searched
    lists: int
    probed: int
    fetched: int  # Number of candidates for the `K` best rows
    recall: float  # Share of the `K` best rows among the candidates (see `cautious_recall`)
    # Seconds of a query with the index, and of an exact search of the same rows
    seconds: float
    exact_seconds: float

    @property
    def is_useful(self) -> bool:
        """Whether the index is accurate enough and enough faster than an exact search."""
        return self.recall >= MIN_RECALL and self.seconds * MIN_SPEED_UP <= self.exact_seconds


class RowIndex:
    """A faiss index and its settings; see `Candidates`.

    `read` returns the index, for example by `read_index`, and is called on first use, once for all threads: an index of
    a million rows takes hundreds of megabytes.
    """

    def __init__(self, settings: IndexSettings, read: Callable[[], FaissIndex]) -> None:
        self.settings, self.n_rows = settings, settings.n_rows
        self._read, self._reading = read, threading.Lock()
        self._index: FaissIndex = None

    @property
    def faiss_index(self) -> FaissIndex:
        """The index in memory."""
        with self._reading:
            self._index = self._read() if self._index is None else self._index
        return self._index

    def candidates(self, q: NDArray[np.float32], k: int, n: int | None = None) -> NDArray[np.int64]:
        """Return ascending positions of `n` rows (None: as many as were measured) with most of the `k` best rows."""
        settings = self.settings
        n = settings.fetched * max(1, math.ceil(k / K)) if n is None else n
        return self.search_lists(q, min(settings.lists, settings.probed * max(1, math.ceil(k / RESULTS_PER_PROBE))), n)

    def write(self, path: Path) -> None:
        """Write the index to a file atomically, and wait for the disk."""
        with whole_file(path) as temporary:
            _faiss().write_index(self.faiss_index, os.fspath(temporary))

    def search_lists(self, q: NDArray[np.float32], probed: int, fetched: int) -> NDArray[np.int64]:
        """Return the ascending positions of the best `fetched` rows in the nearest `probed` lists."""
        faiss = _faiss()
        parameters = faiss.SearchParametersPreTransform(index_params=faiss.SearchParametersIVF(nprobe=probed))
        with _one_thread(faiss):
            _, positions = self.faiss_index.search(q, min(fetched, self.n_rows), params=parameters)
        best: NDArray[np.int64] = np.sort(positions[0])
        if best.size and best[-1] >= self.n_rows:
            raise CorruptFileError(
                f"An index names row {best[-1]}, but covers {self.n_rows} rows. Index the images again into a new "
                "catalogue."
            )
        return best[np.searchsorted(best, 0) :]  # faiss pads with -1


def read_index(path: Path, settings: IndexSettings, width: int) -> FaissIndex:
    """Read a faiss index that `RowIndex.write` wrote, for rows with `width` values.

    Raises CorruptFileError if it cannot be read or has other rows; MissingExtraError if faiss is not installed.
    """
    faiss = _faiss()
    try:
        with open_regular(path) as file:
            magic = file.read(len(MAGIC))
    except OSError as error:
        raise CorruptFileError(f"{path} cannot be read: {error.strerror or error}.") from error

    if magic != MAGIC:
        raise CorruptFileError(f"{path} is not an index of rows: it begins with {magic!r}; expected {MAGIC!r}.")
    try:
        index = faiss.read_index(os.fspath(path))
    except RuntimeError as error:
        raise CorruptFileError(f"{path} is not an index of rows: {str(error).splitlines()[-1]}") from error

    if (index.ntotal, index.d) != (settings.n_rows, width):
        raise CorruptFileError(f"{path} covers {index.ntotal} rows of {index.d}, not {settings.n_rows} of {width}.")
    return index


def build_index(part: Part, queries: NDArray[np.floating]) -> RowIndex:
    """Build an index of the rows of `part`, whose ids are 0, 1, ..., and measure its best settings.

    `queries`, shape (n_queries, width), should be up to a few hundred typical queries: more give better measurements.
    The property `is_useful` says whether to use the index. Raises MissingExtraError if faiss is not installed.
    """
    faiss = _faiss()
    queries = np.ascontiguousarray(queries, np.float32)
    n, width = len(part), queries.shape[1]
    n_lists = LISTS_PER_ROOT * math.isqrt(n)
    even_width = width + width % 2
    index = faiss.index_factory(width, f"RR{even_width},IVF{n_lists},PQ{even_width}x4fsr", faiss.METRIC_INNER_PRODUCT)
    ivf_index = faiss.extract_index_ivf(index)
    ivf_index.cp.niter, ivf_index.cp.min_points_per_centroid = 10, 1
    training_rows = np.sort(np.random.default_rng(0).permutation(n)[:MAX_TRAINING_ROWS])
    with _one_thread(faiss):
        index.train(part.take(training_rows))
        for start in range(0, n, ROWS_PER_ADDITION):
            index.add(part.take(np.arange(start, min(start + ROWS_PER_ADDITION, n))))

    exact_time = statistics.median(timeit.repeat(lambda: part.best(queries[:1], K), number=1, repeat=5))

    best, trials = part.best(queries, K).ids, []
    for fetched in CANDIDATE_COUNTS:  # with more candidates, fewer lists may be enough
        for probed in probe_counts(n_lists // 2):
            settings = IndexSettings(n, n_lists, probed, fetched, 0.0, 0.0, exact_time)
            row_index, shares, seconds = RowIndex(settings, lambda: index), list[float](), list[float]()
            for q, best_ids in zip(queries[:, None, :], best, strict=True):
                began = time.perf_counter()
                candidates = row_index.search_lists(q, probed, fetched)
                part.best(q, K, candidates)  # as in a real search
                seconds.append(time.perf_counter() - began)
                shares.append(np.isin(best_ids, candidates).mean())
            trials.append(replace(settings, recall=cautious_recall(shares), seconds=statistics.median(seconds)))
            if trials[-1].recall >= MIN_RECALL:
                break
    accurate = [trial for trial in trials if trial.recall >= MIN_RECALL]
    chosen = min(accurate, key=attrgetter("seconds")) if accurate else max(trials, key=attrgetter("recall"))
    return RowIndex(chosen, lambda: index)


def settings_of(facts: str) -> IndexSettings:
    """Read settings from a JSON object with their fields. Raises CorruptFileError if they are invalid."""
    try:
        settings = IndexSettings(**json.loads(facts))
        counts = (settings.n_rows, settings.lists, settings.probed, settings.fetched)
        measurements = (settings.recall, settings.seconds, settings.exact_seconds)
        is_valid = all(type(count) is int and 0 <= count < 2**31 for count in counts) and all(
            type(number) in (int, float) and 0 <= number < math.inf for number in measurements
        )
    except (TypeError, ValueError, RecursionError):
        is_valid = False
    if not is_valid:
        raise CorruptFileError(
            f"The catalogue's record of an index is damaged: {facts[:80]!r}. Restore it from a backup, or index the "
            "images again."
        )
    return settings


def cautious_recall(shares: Sequence[float]) -> float:
    """Return the mean recall of queries minus its standard error, so settings are not chosen by luck."""
    error = np.std(shares, ddof=1) / math.sqrt(len(shares)) if len(shares) > 1 else 0.0
    return max(0.0, float(np.mean(shares) - error))


def probe_counts(max_lists: int) -> Iterator[int]:
    """Yield numbers of lists to search: 4, then 1.25 times the previous number, up to `max_lists`."""
    probed = 4
    while probed <= max_lists:
        yield probed
        probed += probed // 4


def is_installed() -> bool:
    """Return whether faiss is installed."""
    return find_spec("faiss") is not None


@contextmanager
def _one_thread(faiss: ModuleType) -> Iterator[None]:
    """Limit OpenMP to one thread: on a busy machine, its threads wait actively (k-means took 18 times the time)."""
    old_n_threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(old_n_threads)


def _faiss() -> ModuleType:
    try:
        import faiss
    except ImportError as error:
        raise MissingExtraError(
            "An index of rows needs the package 'faiss'. Install it with: pip install 'visterm[faiss]'"
        ) from error
    module: ModuleType = faiss
    return module
