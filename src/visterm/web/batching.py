"""Micro-batches: what comes in while the model is busy is shown to it together, next; so pictures are tagged."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import ImageError
from visterm.core.types import Tag
from visterm.tagging.annotating import Annotated
from visterm.tagging.tagger import Tagger
from visterm.web.work import Work

T = TypeVar("T")
R = TypeVar("R")

BATCH = 16
"""Pictures that are encoded together at most: what waits behind them waits for all."""


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


class HowMany(NamedTuple):
    """How many tags a picture is given; as `Tagger.annotate` takes it."""

    precision: float | None = None
    best_f1: bool = False
    min_confidence: float | None = None


class Wanted(NamedTuple):
    """A picture and how many tags it gets; `k` None: all above the cut-off, or five."""

    pixels: NDArray[np.uint8]
    k: int | None
    how: HowMany


def annotate_together(tagger: Callable[[], Tagger], batch: Sequence[Wanted]) -> list[list[Tag] | Exception]:
    """Return the tags of each picture, or the error that it met; those of like wishes are encoded together."""
    groups: defaultdict[tuple[HowMany, bool], list[int]] = defaultdict(list)
    for place, wanted in enumerate(batch):
        groups[wanted.how, wanted.k is None].append(place)
    found: list[list[Tag] | Exception] = [ImageError("image", "it was left out")] * len(batch)
    for (how, _), places in groups.items():
        pictures: Any = [batch[place].pixels for place in places]
        counts = [batch[place].k for place in places]
        most = None if counts[0] is None else max(k or 0 for k in counts)
        try:
            answers = list(tagger().annotate_each(pictures, most, **how._asdict()))
        except Exception as error:  # whatever it is, it is the answer to these requests, and not to the others
            for place in places:
                found[place] = error
            continue
        for place, k, answer in zip(places, counts, answers, strict=True):
            found[place] = answer.tags[:k] if isinstance(answer, Annotated) else ImageError(answer.image, answer.reason)
    return found
