"""How many threads, and the rule that keeps two pools from spinning against each other."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from typing import Self, TypeVar

from threadpoolctl import threadpool_limits

from visterm.core.errors import UserError

T = TypeVar("T")


def resolve_jobs(n_jobs: int | None) -> int:
    """Give the number of threads that is meant: None or -1 is all cores that this process may use."""
    if n_jobs is None or n_jobs == -1:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if isinstance(n_jobs, bool) or n_jobs < 1:
        raise UserError(f"n_jobs is {n_jobs!r}; expected a whole number of 1 or more, or -1 for all cores.")
    return int(n_jobs)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Hold BLAS (and OpenMP of other libraries) to one thread: our own threads do the sharing, and bytes stay equal."""
    with threadpool_limits(1):
        yield


class Team:
    """A few threads, the caller's among them, that share out the parts of one job after the other.

    Parameters
    ----------
    size : int
        Threads; with 1 all parts run in the caller's, in order.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._pool = ThreadPoolExecutor(size - 1, thread_name_prefix="visterm") if size > 1 else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def run(self, part: Callable[[int], T], n_parts: int) -> list[T]:
        """Run ``part(0)`` .. ``part(n_parts - 1)``, each in whichever thread is free, and give the results in order.

        The first error of a part is raised when all threads have stopped.
        """
        if self._pool is None or n_parts < 2:
            return [part(i) for i in range(n_parts)]
        results: dict[int, T] = {}
        numbers = count()

        def work() -> None:
            while (i := next(numbers)) < n_parts:
                results[i] = part(i)

        others = [self._pool.submit(work) for _ in range(min(self.size, n_parts) - 1)]
        try:
            work()
        finally:
            errors = [other.exception() for other in others]
        for error in errors:
            if error is not None:
                raise error
        return [results[i] for i in range(n_parts)]
