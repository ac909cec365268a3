"""How many threads, and the rule that keeps two pools from spinning against each other."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import threadpool_limits

from visterm.core.errors import UserError


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
