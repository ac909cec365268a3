"""Bounded work in a few threads: past the bound a request is refused for now, instead of waiting in a queue."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from visterm.core.threads import hold_this_thread_to
from visterm.web.errors import Refused

P = ParamSpec("P")
R = TypeVar("R")

RETRY_SECONDS = 1
"""What a refused client should wait: the queues empty in less."""


def busy(why: str) -> Refused:
    """Return the refusal of a request that would be too much now."""
    message = f"The service is busy: {why}. Try again in {RETRY_SECONDS} s."
    return Refused(503, message, headers={"retry-after": str(RETRY_SECONDS)})


class Work:
    """Threads that do one kind of work, and the number of requests that may be at it or wait for it.

    Parameters
    ----------
    name : str
        What is done: "search".
    threads : int
    bound : int
        Requests at work and waiting together.
    n_jobs : int
        Threads that each of the threads may use besides: one, as many requests share the cores.
    patience : float
        Seconds that a request may wait for a thread; one that has waited longer is refused.

    Attributes
    ----------
    waiting : int
        Requests at work and waiting now.
    refused : int
        Requests that found the bound reached.
    """

    def __init__(self, name: str, threads: int, bound: int, *, n_jobs: int = 1, patience: float = math.inf) -> None:
        self.name = name
        self.bound = bound
        self._patience = patience
        self.waiting = 0
        self.refused = 0
        self._threads = ThreadPoolExecutor(
            threads, thread_name_prefix=f"visterm-{name}", initializer=hold_this_thread_to, initargs=(n_jobs,)
        )

    async def run(self, do: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Do something in one of the threads, and wait for what it gives.

        Raises
        ------
        Refused
            503, if the bound is reached, or it has waited for a thread for too long.
        """
        latest = time.monotonic() + self._patience

        def do_in_time() -> R:
            if time.monotonic() > latest:
                raise self._busy()
            return do(*args, **kwargs)

        with self.place():
            return await self.do(do_in_time)

    async def do(self, do: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Do something in one of the threads, for those who have their places."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: do(*args, **kwargs))

    @contextmanager
    def place(self) -> Iterator[None]:
        """Hold one of the places, of which there are as many as the bound says.

        Raises
        ------
        Refused
            503, if there is none.
        """
        if self.waiting >= self.bound:
            raise self._busy()
        self.waiting += 1
        try:
            yield
        finally:
            self.waiting -= 1

    def _busy(self) -> Refused:
        self.refused += 1
        return busy(f"{self.waiting} requests for {self.name} are at work or waiting")

    def close(self) -> None:
        """End the threads, once they have done what they are at."""
        self._threads.shutdown(wait=True, cancel_futures=True)
