"""Immich's jobs: what happens between its answer to a request and the tags that a photo keeps.

A request that changes a photo's tags queues a job for it. That job takes a snapshot of the tags, writes them into the
sidecar, and queues another job, which reads the file with its sidecar and *replaces* the photo's tags by what it read;
`updatedAt` moves only then. A second request to the same photo between snapshot and replacement is undone. The sidecars
of a read-only library can't be written: its photos get the tags of their files back.

All of this runs on a virtual clock: requests and `advance` move it, never the time that passes.
"""

from __future__ import annotations

import heapq
import itertools
import random
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from fakes.immich_search import Photo, Tag
from visterm.connectors import contract
from visterm.core.web_client import Patience

PER_REQUEST, PER_PHOTO = 0.005, 0.045  # Seconds
WORKERS = 5  # Of each of the two queues
START, WRITE, READ = (0.0, 0.3), (0.1, 0.8), (0.05, 0.5)
"""Seconds, at least and at most, until a job starts, until a sidecar is written, and until a file is read."""


class Jobs:
    """The part of the fake that works after it has answered."""

    photos: dict[str, Photo]
    tags: dict[str, Tag]
    lock: threading.RLock
    per_request = PER_REQUEST
    _random: random.Random
    tag: Callable[[str], Tag]
    _tick: Callable[[], float]

    def _set_up_jobs(self, clock: float) -> None:
        self.clock = clock
        self.paused = False
        self.unfinished: Counter[str] = Counter()  # Jobs by photo
        self.unfinished_ours: Counter[str] = Counter()  # Of those, the jobs that requests of the API queued
        self.endangered: set[tuple[str, str]] = set()
        """Pairs of a photo's id and a tag's value that a person changed while a job of ours was under way."""
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._waiting: list[Callable[[], None]] = []  # While the queues are paused
        self._numbers = itertools.count()
        self._free = {"write": [0.0] * WORKERS, "read": [0.0] * WORKERS}

    def advance(self, seconds: float) -> None:
        """Let time pass, and do the jobs that are due in it."""
        with self.lock:
            end = self.clock + seconds
            while self._due and self._due[0][0] <= end:
                due, _, work = heapq.heappop(self._due)
                self.clock = max(self.clock, due)
                work()
            self.clock = max(self.clock, end)

    def finish_jobs(self) -> None:
        """Let time pass until no job is left; those of a paused queue stay."""
        with self.lock:
            while self._due:
                self.advance(max(0.0, self._due[0][0] - self.clock))

    def virtual(self, patch: Any) -> None:
        """Let the clients that commands make wait by this clock."""
        patch.setattr(contract, "Patience", partial(Patience, pause=self.advance))

    def pause(self) -> None:
        """Start no more jobs, as an administrator can."""
        self.paused = True

    def resume(self) -> None:
        """Start the jobs that wait."""
        with self.lock:
            self.paused, waiting, self._waiting = False, self._waiting, []
            for start in waiting:
                start()

    def _queue_write(self, photo: str, *, ours: bool) -> None:
        """Queue the two jobs of a photo whose tags were changed."""
        self.unfinished[photo] += 1
        self.unfinished_ours[photo] += ours
        self._start("write", WRITE, lambda end: self._write(photo, end, ours=ours))

    def _start(self, queue: str, lasts: tuple[float, float], work: Callable[[float], None]) -> None:
        """Start a job when a worker of a queue is free, and hand it the time at which it ends."""
        if self.paused:
            self._waiting.append(lambda: self._start(queue, lasts, work))
            return
        free = self._free[queue]
        worker = free.index(min(free))
        begin = max(self.clock, free[worker]) + self._random.uniform(*START)
        free[worker] = end = begin + self._random.uniform(*lasts)
        self._at(begin, lambda: work(end))

    def _at(self, time: float, work: Callable[[], None]) -> None:
        heapq.heappush(self._due, (time, next(self._numbers), work))

    def _write(self, photo: str, end: float, *, ours: bool) -> None:
        asset = self.photos[photo]
        snapshot = {self.tags[tag].value for tag in asset.tags if tag in self.tags}

        def written() -> None:
            if not asset.read_only:
                asset.in_file = snapshot
            self._start("read", READ, lambda done: self._read(photo, done, ours=ours))

        self._at(end, written)

    def _read(self, photo: str, end: float, *, ours: bool) -> None:
        values = set(self.photos[photo].in_file)

        def replaced() -> None:
            self._replace(photo, values)
            self.unfinished[photo] -= 1
            self.unfinished_ours[photo] -= ours

        self._at(end, replaced)

    def _replace(self, photo: str, values: set[str]) -> None:
        asset = self.photos[photo]
        asset.tags = {self.tag(value).id for value in values}
        asset.updated = self._tick()
