"""How many threads, one BLAS thread while ours share the work, and the teams that share it."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from functools import cache, lru_cache
from itertools import islice
from typing import Any, Self, TypeVar

from threadpoolctl import ThreadpoolController

from visterm.core.errors import UserError

S = TypeVar("S")
T = TypeVar("T")
_limits = threading.local()


def resolve_jobs(n_jobs: int | None) -> int:
    """Return a number of threads: None or -1 means all cores that this process, and thread, may use.

    ``OMP_NUM_THREADS`` in the environment says how many these are at most, as it does for BLAS.
    """
    if n_jobs is None or n_jobs == -1:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        allowed = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
        if allowed.isdecimal() and int(allowed):
            cores = min(cores, int(allowed))
        return min(cores, getattr(_limits, "most", cores))
    if isinstance(n_jobs, bool) or n_jobs < 1:
        raise UserError(setting="n_jobs", value=n_jobs, expected="a whole number of 1 or more, or -1 for all cores")
    return int(n_jobs)


def limit_this_thread(n_jobs: int) -> None:
    """Let "all cores" mean `n_jobs` for the calling thread from now on, one of a pool that shares the cores."""
    _limits.most = n_jobs


def one_blas_thread() -> AbstractContextManager[object]:
    """Limit BLAS (and OpenMP of other libraries) to one thread: our threads share the work, and results stay equal."""
    limit: AbstractContextManager[object] = _libraries(len(sys.modules)).limit(limits=1)
    return limit


@lru_cache(maxsize=1)
def _libraries(n_modules: int) -> ThreadpoolController:
    """Find the libraries that have threads; again only after imports, as it takes longer than a small product."""
    return ThreadpoolController()


class Team:
    """`size` threads, the caller's among them, that share the parts of one job after the other.

    The caller takes parts from the front and the others from the back, so that the next job of the same shape finds its
    parts in each processor's cache; on a busy machine, where the others come late or not at all, the caller does all.
    With one thread, parts run in order.

    `apart` keeps the others off the caller's processor, where the system allows it. That is for jobs of a millisecond
    after a rest: Linux wakes threads on the processor of whoever calls them, and moves them only after some
    milliseconds.
    """

    def __init__(self, size: int, *, apart: bool = False) -> None:
        self.size = size
        self._others = OtherProcessors() if apart else None
        enter = self._others.enter if self._others else None
        self._pool = ThreadPoolExecutor(size - 1, "visterm", enter) if size > 1 else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def run(self, part: Callable[[int], T], n_parts: int) -> list[T]:
        """Run ``part(0)`` .. ``part(n_parts - 1)``, each in whichever thread is free, and return the results in order.

        The first error of a part is raised when no part runs any more.
        """
        if self._pool is None or n_parts < 2:
            return list(map(part, range(n_parts)))
        waiting = deque(range(n_parts))
        results: dict[int, T] = {}

        def work(take: Callable[[], int]) -> None:
            try:
                while waiting:
                    try:
                        i = take()
                    except IndexError:  # another thread was quicker
                        return
                    results[i] = part(i)
            finally:
                waiting.clear()

        if self._others is not None:
            self._others.keep_from_here()
        others = [self._pool.submit(work, waiting.pop) for _ in range(min(self.size, n_parts) - 1)]
        try:
            work(waiting.popleft)
        finally:
            started = [other for other in others if not other.cancel()]
            wait(started)

        for other in started:
            other.result()
        return [results[i] for i in range(n_parts)]


def map_ahead(
    work: Callable[[S], T], items: Iterable[S], n_threads: int = 1, ahead: int = 1, name: str = "visterm-reads"
) -> Generator[T]:
    """Yield ``work(item)`` of each item, in order; threads called `name` are at most `ahead` items before the caller.

    An error is raised when its item's turn comes. Closing the generator early ends the threads.
    """
    coming = iter(items)
    pool = ThreadPoolExecutor(n_threads, thread_name_prefix=name)
    try:
        waiting = deque(pool.submit(work, item) for item in islice(coming, ahead))
        while waiting:
            result = waiting.popleft().result()
            waiting.extend(pool.submit(work, item) for item in islice(coming, 1))
            yield result
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@cache
def standing_team(size: int) -> Team:
    """Return a team that stands ready for ever, for jobs that take less time than starting a thread would (100 µs)."""
    return Team(size, apart=True)


class OtherProcessors:
    """Keeps threads off the processor of their caller, if the system can do it; only places change, never results."""

    def __init__(self) -> None:
        self._threads: list[int] = []
        self._placed = (-1, 0)
        can_place = hasattr(os, "sched_setaffinity")
        self._processor = getattr(ctypes.CDLL(None), "sched_getcpu", None) if can_place else None

    def enter(self) -> None:
        """Count the calling thread among the threads."""
        self._threads.append(threading.get_native_id())

    def keep_from_here(self) -> None:
        """Let the threads run on any processor but this one, of those that the caller may use."""
        if self._processor is None:
            return
        here = self._processor(), len(self._threads)
        if here == self._placed:
            return
        system: Any = os  # Linux, the only one that has these functions
        elsewhere = system.sched_getaffinity(0) - {here[0]}
        try:
            for thread in self._threads if elsewhere else []:
                system.sched_setaffinity(thread, elsewhere)
        except OSError:  # a sandbox that forbids it
            self._processor = None
        self._placed = here


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=standing_team.cache_clear)


def end_with_standard_input() -> None:
    """End this process at once, whatever it does, when its standard input ends: a pipe of the process above it."""

    def wait_and_end() -> None:
        while os.read(0, 1024):  # not sys.stdin, whose lock this thread would hold at the end
            pass
        os._exit(1)

    threading.Thread(target=wait_and_end, daemon=True).start()
