"""Bounded work in a few threads, and counts that all processes of a service share."""

from __future__ import annotations

import asyncio
import math
import mmap
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from visterm.core.threads import limit_this_thread

if TYPE_CHECKING:
    from visterm.web.errors import HttpError

P = ParamSpec("P")
R = TypeVar("R")

BUSY_SECONDS = 1  # Seconds that a refused client should wait; the queues empty faster
SLOW_SECONDS = 0.4  # If requests wait longer, fewer may wait
Tell = Callable[..., None]
"""Sends a message to the process that runs jobs: the name of a method, and its arguments."""

FIXED_COUNTS = ("connections", "taken", "jobs", "unstored", "body", "thumbnails")
"""Counts with a fixed column; others get the next free column, in the same order in all processes."""

N_COUNTS = 32  # Maximum number of gauges, and of counters
ROW_LENGTH = 2 * N_COUNTS


def busy(why: str) -> HttpError:
    """Return the error 503 for a request that exceeds a bound."""
    from visterm.web.errors import HttpError  # here, as the process that supervises the others starts without it

    message = f"The service is busy: {why}. Try again in {BUSY_SECONDS} s."
    return HttpError(503, message, headers={"retry-after": str(BUSY_SECONDS)})


class Work:
    """Threads for one kind of work, such as "search", with a bound on the requests that run and wait together.

    A request beyond the bound, which holds for all processes that share `figures`, is answered 503 at once; so is one
    that has waited `patience_seconds` for a thread. If requests have to wait longer than `SLOW_SECONDS`, further ones
    are refused while this process has `slow_bound` of them. A thread computes on one core, which suits many best.
    `waiting` counts the requests running and waiting now, `n_refused` those that were refused.
    """

    def __init__(
        self,
        name: str,
        threads: int,
        bound: int,
        *,
        slow_bound: float = math.inf,
        patience_seconds: float = math.inf,
        figures: Figures | None = None,
    ) -> None:
        self.name, self.bound, self._patience_seconds = name, bound, patience_seconds
        self._slow_bound, self._waited_seconds = slow_bound, 0.0
        figures = figures or Figures()
        self.waiting, self.n_refused = figures.gauge(name), figures.counter(name)
        self._threads = ThreadPoolExecutor(
            threads, thread_name_prefix=f"visterm-{name}", initializer=limit_this_thread, initargs=(1,)
        )

    async def run(self, do: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a function in one of the threads, and return its result.

        Raises HttpError (503) if the bound is reached, or the request has waited too long for a thread.
        """
        arrival = time.monotonic()

        def do_in_time() -> R:
            if self.note_start(arrival) > self._patience_seconds:
                raise self._busy()
            return do(*args, **kwargs)

        with self.slot():
            return await self.do(do_in_time)

    async def do(self, do: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a function in one of the threads, inside `slot`; it sees who sent the request."""
        context = copy_context()
        return await asyncio.get_running_loop().run_in_executor(self._threads, lambda: context.run(do, *args, **kwargs))

    def note_start(self, arrival: float) -> float:
        """Note that a request that arrived at this time (`time.monotonic`) got a thread; return how long it waited."""
        waited = self._waited_seconds = time.monotonic() - arrival
        return waited

    @contextmanager
    def slot(self) -> Iterator[None]:
        """Count one more request that runs or waits. Raises HttpError (503) if there are too many."""
        is_slow = self._waited_seconds > SLOW_SECONDS  # known of this process only, so its own queue counts
        if self.waiting.total >= self.bound or (is_slow and self.waiting.value >= self._slow_bound):
            raise self._busy()
        self.waiting.value += 1
        try:
            yield
        finally:
            self.waiting.value -= 1
            if self.waiting.value == 0:
                self._waited_seconds = 0.0  # the next one need not wait

    def _busy(self) -> HttpError:
        self.n_refused.value += 1
        return busy(f"{self.waiting.total} requests for {self.name} are running or waiting")

    def close(self) -> None:
        """Stop the threads after the calls that they are running."""
        self._threads.shutdown(wait=True, cancel_futures=True)


class SharedCount:
    """A count of this process, and its sum over all processes of a service."""

    def __init__(self, numbers: memoryview, row: int, column: int) -> None:
        self._numbers, self._index, self._all = numbers, row * ROW_LENGTH + column, slice(column, None, ROW_LENGTH)

    @property
    def value(self) -> int:
        """The count of this process."""
        return int(self._numbers[self._index])

    @value.setter
    def value(self, value: int) -> None:
        self._numbers[self._index] = value

    @property
    def total(self) -> int:
        """The sum over all processes."""
        return sum(self._numbers[self._all])


class Figures:
    """The counts of a service of `n_rows` processes, of which this one writes those of `row`.

    `file` is the descriptor of the file that they share; None: this is the only process.
    """

    def __init__(self, n_rows: int = 1, row: int = 0, file: int | None = None) -> None:
        if file is not None and os.fstat(file).st_size == 0:
            os.write(file, bytes(8 * ROW_LENGTH * n_rows))
        shared = bytearray(8 * ROW_LENGTH) if file is None else mmap.mmap(file, 8 * ROW_LENGTH * n_rows)
        self._numbers = memoryview(shared).cast("q")
        self._row, self._names = row, list(FIXED_COUNTS)

    def gauge(self, name: str, row: int | None = None) -> SharedCount:
        """Return a count that can fall, such as the number of waiting requests."""
        return SharedCount(self._numbers, self._row if row is None else row, self._column(name))

    def counter(self, name: str) -> SharedCount:
        """Return a count that only grows, and continues after a process has died."""
        return SharedCount(self._numbers, self._row, N_COUNTS + self._column(name))

    def forget(self, row: int) -> None:
        """Set the gauges of a process that died to 0."""
        for index in range(row * ROW_LENGTH, row * ROW_LENGTH + N_COUNTS):
            self._numbers[index] = 0

    def _column(self, name: str) -> int:
        if name not in self._names:
            self._names.append(name)
            assert len(self._names) <= N_COUNTS
        return self._names.index(name)


@dataclass(frozen=True)
class Member:
    """One process of a service.

    `tell` sends messages to the process that runs jobs, `supervisor`; None: this process runs them. `metrics` is the
    folder in which all processes store their counts of requests; None: in memory.
    """

    figures: Figures = field(default_factory=Figures)
    n_workers: int = 1
    tell: Tell | None = None
    supervisor: int = field(default_factory=os.getpid)
    metrics: str | None = None


def kill(process: asyncio.subprocess.Process) -> None:
    """Kill a process, unless it has ended by itself."""
    with suppress(ProcessLookupError):
        process.kill()
