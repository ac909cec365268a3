"""Number of threads, limits for BLAS threads, and teams of threads that share the parts of a job."""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from functools import cache, lru_cache
from itertools import islice
from typing import Self, TypeVar

from threadpoolctl import ThreadpoolController

from visterm.core.errors import UserError

S = TypeVar("S")
T = TypeVar("T")
_limits = threading.local()


def resolve_jobs(n_jobs: int | None) -> int:
    """Return a number of threads: None or -1 means all cores that this process and thread may use.

    The environment variable ``OMP_NUM_THREADS`` limits the number, as it does for BLAS.
    """
    if n_jobs is None or n_jobs == -1:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        omp_limit = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
        if omp_limit.isdecimal() and int(omp_limit):
            cores = min(cores, int(omp_limit))
        return min(cores, getattr(_limits, "n_jobs", cores))
    if isinstance(n_jobs, bool) or n_jobs < 1:
        raise UserError(setting="n_jobs", value=n_jobs, expected="a whole number of 1 or more, or -1 for all cores")
    return int(n_jobs)


def limit_this_thread(n_jobs: int) -> None:
    """Let "all cores" mean at most `n_jobs` in the calling thread, for thread pools that share the cores."""
    _limits.n_jobs = n_jobs


def one_blas_thread() -> AbstractContextManager[object]:
    """Limit BLAS and OpenMP to one thread, as visterm's own threads share the work and results stay reproducible."""
    limit: AbstractContextManager[object] = _libraries(len(sys.modules)).limit(limits=1)
    return limit


@lru_cache(maxsize=1)
def _libraries(n_modules: int) -> ThreadpoolController:
    """Find the libraries with thread pools; cached until a module is imported, as the search takes long."""
    return ThreadpoolController()


class Team:
    """`size` threads, including the caller's, that share the parts of a job.

    The caller takes parts from the front and the other threads from the back, so each processor still has its parts in
    its cache when the next job has the same shape. If the other threads start late on a busy machine, the caller runs
    their parts as well. With one thread, parts run in order.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._pool = ThreadPoolExecutor(size - 1, "visterm") if size > 1 else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def run(self, run_part: Callable[[int], T], n_parts: int) -> list[T]:
        """Run ``run_part(0)`` .. ``run_part(n_parts - 1)`` in the threads, and return the results in order.

        If a part raises an error, it is raised again after all running parts have ended.
        """
        if self._pool is None or n_parts < 2:
            return list(map(run_part, range(n_parts)))
        pending = deque(range(n_parts))
        results: dict[int, T] = {}

        def work(next_part: Callable[[], int]) -> None:
            try:
                while pending:
                    try:
                        i = next_part()
                    except IndexError:  # another thread was quicker
                        return
                    results[i] = run_part(i)
            finally:
                pending.clear()

        futures = [self._pool.submit(work, pending.pop) for _ in range(min(self.size, n_parts) - 1)]
        try:
            work(pending.popleft)
        finally:
            running = [future for future in futures if not future.cancel()]
            wait(running)

        for future in running:
            future.result()
        return [results[i] for i in range(n_parts)]


def map_ahead(
    work: Callable[[S], T], items: Iterable[S], n_threads: int = 1, ahead: int = 1, name: str = "visterm-reads"
) -> Generator[T]:
    """Yield ``work(item)`` for each item, in order, computed by threads up to `ahead` items in advance.

    `name` is the prefix of the threads' names. An error is raised in place of its item's result. Closing the generator
    ends the threads.
    """
    remaining = iter(items)
    pool = ThreadPoolExecutor(n_threads, thread_name_prefix=name)
    try:
        pending = deque(pool.submit(work, item) for item in islice(remaining, ahead))
        while pending:
            result = pending.popleft().result()
            pending.extend(pool.submit(work, item) for item in islice(remaining, 1))
            yield result
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@cache
def standing_team(size: int) -> Team:
    """Return a permanent team of this size, for jobs that are shorter than starting a thread (100 µs)."""
    return Team(size)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=standing_team.cache_clear)


def end_with_standard_input() -> None:
    """End this process immediately when its standard input, a pipe from the parent process, is closed."""

    def wait_and_end() -> None:
        while os.read(0, 1024):  # not sys.stdin: this thread would still hold its lock at exit
            pass
        os._exit(1)

    threading.Thread(target=wait_and_end, daemon=True).start()
