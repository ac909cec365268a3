"""Micro-batches: pictures that arrive while the model is busy are encoded together next."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import ImageError
from visterm.core.types import Tag
from visterm.library.catalogue import Catalogue
from visterm.tagging.annotating import Annotated
from visterm.web.work import Work

MAX_BATCH = 16  # Pictures that are encoded together; the next ones wait for all of them


class Batcher:
    """Collects pictures and processes them together. None waits for a full batch: a single one starts at once.

    `process` returns the tags or an error for each of at most `max_items` pictures. `work` has the threads that run it,
    and limits how many requests may wait.
    """

    def __init__(
        self, process: Callable[[Sequence[PictureToTag]], Sequence[list[Tag] | Exception]], work: Work, max_items: int
    ) -> None:
        self._process, self._work, self._max_items = process, work, max_items
        self._waiting: deque[tuple[float, PictureToTag, asyncio.Future[list[Tag]]]] = deque()
        self._task: asyncio.Task[None] | None = None

    async def ask(self, item: PictureToTag) -> list[Tag]:
        """Process one picture with others, and return its tags. Raises HttpError (503) if too many wait."""
        with self._work.slot():
            future: asyncio.Future[list[Tag]] = asyncio.get_running_loop().create_future()
            self._waiting.append((time.monotonic(), item, future))
            if self._task is None or self._task.done():
                self._task = asyncio.create_task(self._process_waiting())
            return await future

    async def _process_waiting(self) -> None:
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(self._max_items, len(self._waiting)))]
            batch = [entry for entry in batch if not entry[-1].done()]  # else its client has disconnected
            if not batch:
                continue
            self._work.note_start(batch[0][0])
            try:
                results = await self._work.do(self._process, [item for _, item, _ in batch])
            except Exception as error:
                results = [error] * len(batch)
            for (*_, future), result in zip(batch, results, strict=True):
                if future.done():
                    continue
                if isinstance(result, Exception):
                    future.set_exception(result)
                else:
                    future.set_result(result)


class TagLimits(NamedTuple):
    """Limits of a picture's tags: parameters of `Tagger.annotate`."""

    precision: float | None = None
    best_f1: bool = False
    min_confidence: float | None = None


class PictureToTag(NamedTuple):
    """A picture to tag, with at most `k` tags; None: all above the cut-off, or five without one."""

    pixels: NDArray[np.uint8]
    k: int | None
    limits: TagLimits


def annotate_together(catalogue: Catalogue, batch: Sequence[PictureToTag]) -> list[list[Tag] | Exception]:
    """Return the tags of each picture, or its error, by the run in use, even if another process has just changed it.

    Pictures with the same limits and `k` are encoded together.
    """
    groups: defaultdict[tuple[TagLimits, int | None], list[int]] = defaultdict(list)
    for index, item in enumerate(batch):
        groups[item.limits, item.k].append(index)
    results: dict[int, list[Tag] | Exception] = {}
    for (limits, k), indices in groups.items():
        try:
            catalogue.refresh()
            pictures = [batch[index].pixels for index in indices]
            answers = list(catalogue.tagger.annotate_each(pictures, k, **limits._asdict()))
        except Exception as error:  # any error answers these requests, but not the others
            results |= dict.fromkeys(indices, error)
            continue
        for index, answer in zip(indices, answers, strict=True):
            results[index] = answer.tags if isinstance(answer, Annotated) else ImageError(answer.image, answer.reason)

    return [results[index] for index in range(len(batch))]
