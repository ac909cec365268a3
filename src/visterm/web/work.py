"""Bounded work in a few threads: a request beyond the bound is answered 503 at once, and does not wait."""

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
from visterm.web.figures import Figures

P = ParamSpec("P")
R = TypeVar("R")

RETRY_SECONDS = 1  # Seconds that a refused client should wait: the queues empty faster


def busy(why: str) -> Refused:
    """Return the error 503 for a request that is too much now."""
    message = f"The service is busy: {why}. Try again in {RETRY_SECONDS} s."
    return Refused(503, message, headers={"retry-after": str(RETRY_SECONDS)})


class Work:
    """Threads for one kind of work, such as "search", with a bound on the requests that run and wait together.

    A thread computes alone: many requests share the cores best so. A request waits at most `patience` seconds for a
    thread; after that it is refused. `waiting` counts the requests running and waiting
    now; `refused` those that were refused. The bound holds for all processes that share `figures`.
    """

    def __init__(
        self, name: str, threads: int, bound: int, *, patience: float = math.inf, figures: Figures | None = None
    ) -> None:
        self.name = name
        self.bound = bound
        self._patience = patience
        figures = figures or Figures()
        self.waiting, self.refused = figures.now(name), figures.ever(name)
        self._threads = ThreadPoolExecutor(
            threads, thread_name_prefix=f"visterm-{name}", initializer=hold_this_thread_to, initargs=(1,)
        )

    async def run(self, do: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a function in one of the threads, and return its result.

        Raises Refused (503) if the bound is reached, or the request has waited too long for a thread.
        """
        latest = time.monotonic() + self._patience

        def do_in_time() -> R:
            if time.monotonic() > latest:
                raise self._busy()
            return do(*args, **kwargs)

        with self.place():
            return await self.do(do_in_time)

    async def do(self, do: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a function in one of the threads, inside `place`."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: do(*args, **kwargs))

    @contextmanager
    def place(self) -> Iterator[None]:
        """Hold one place of as many as the bound allows. Raises Refused (503) if no place is free."""
        if self.waiting.total >= self.bound:
            raise self._busy()
        self.waiting.own += 1
        try:
            yield
        finally:
            self.waiting.own -= 1

    def _busy(self) -> Refused:
        """Count a refusal and return its error."""
        self.refused.own += 1
        return busy(f"{self.waiting.total} requests for {self.name} are running or waiting")

    def close(self) -> None:
        """Stop the threads after what they are running."""
        self._threads.shutdown(wait=True, cancel_futures=True)
