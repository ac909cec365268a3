"""Micro-batches: what comes in while the model is busy is shown to it together, next."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from visterm.web.work import Work

T = TypeVar("T")
R = TypeVar("R")


class Batcher(Generic[T, R]):
    """Collects items and has them done together. Nothing waits for a batch to fill: alone, an item is done at once.

    Parameters
    ----------
    do : callable
        Gives, for a list of items, a result or an error for each.
    work : Work
        Where it is done, and how many may wait.
    most : int
        Items of one batch.
    """

    def __init__(self, do: Callable[[Sequence[T]], Sequence[R | Exception]], work: Work, most: int) -> None:
        self._do = do
        self._work = work
        self._most = most
        self._waiting: deque[tuple[T, asyncio.Future[R]]] = deque()
        self._task: asyncio.Task[None] | None = None

    async def ask(self, item: T) -> R:
        """Have one item done.

        Raises
        ------
        Refused
            503, if the bound is reached.
        """
        with self._work.place():
            future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
            self._waiting.append((item, future))
            if self._task is None or self._task.done():
                self._task = asyncio.create_task(self._go_on())
            return await future

    async def _go_on(self) -> None:
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(self._most, len(self._waiting)))]
            batch = [(item, future) for item, future in batch if not future.done()]  # else its client has gone
            if not batch:
                continue
            try:
                results = await self._work.do(self._do, [item for item, _ in batch])
            except Exception as error:
                results = [error] * len(batch)
            for (_, future), result in zip(batch, results, strict=True):
                if future.done():
                    continue
                if isinstance(result, Exception):
                    future.set_exception(result)
                else:
                    future.set_result(result)
