"""Numbers that all processes of a service see: each has its own, and limits hold for their sum."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Tell = Callable[..., None]
"""Sends a message to the process that runs jobs: the name of what it does, and arguments."""

KNOWN = ("connections", "taken", "jobs", "unstored", "body", "thumbnails")
"""Names with a place of their own; others get the next one, in the same order in all processes."""

ROOM = 32  # Numbers that count what is there now, and as many that only grow
ROW = 2 * ROOM


class Number:
    """A number of this process, which is one of several that are added up."""

    def __init__(self, numbers: memoryview, row: int, place: int) -> None:
        self._numbers = numbers
        self._own = row * ROW + place
        self._all = slice(place, None, ROW)

    @property
    def own(self) -> int:
        """What this process counts."""
        return int(self._numbers[self._own])

    @own.setter
    def own(self, value: int) -> None:
        self._numbers[self._own] = value

    @property
    def total(self) -> int:
        """What all processes count together."""
        return sum(self._numbers[self._all])


class Figures:
    """The numbers of a service of `n_rows` processes, of which this one writes `row`.

    `file` is the descriptor of what they share; None: nothing, as there is one process.
    """

    def __init__(self, n_rows: int = 1, row: int = 0, file: int | None = None) -> None:
        if file is not None and os.fstat(file).st_size == 0:
            os.write(file, bytes(8 * ROW * n_rows))
        shared: Any = bytearray(8 * ROW) if file is None else mmap.mmap(file, 8 * ROW * n_rows)
        self._numbers = memoryview(shared).cast("q")
        self._row = row
        self._names = list(KNOWN)

    def now(self, name: str, row: int | None = None) -> Number:
        """Return a number that counts what is there now, such as requests that wait."""
        return Number(self._numbers, self._row if row is None else row, self._place(name))

    def ever(self, name: str) -> Number:
        """Return a number that only grows: it goes on where a process that died left it."""
        return Number(self._numbers, self._row, ROOM + self._place(name))

    def forget(self, row: int) -> None:
        """Count nothing any more of what a process that died had."""
        for place in range(row * ROW, row * ROW + ROOM):
            self._numbers[place] = 0

    def _place(self, name: str) -> int:
        if name not in self._names:
            self._names.append(name)
            assert len(self._names) <= ROOM
        return self._names.index(name)


@dataclass(frozen=True)
class Member:
    """What a process knows of the service that it is part of.

    `tell` reaches the process that runs jobs, `supervisor`; None: this one runs them. `metrics` is the folder in
    which all keep their counts of requests; None: in memory.
    """

    figures: Figures = field(default_factory=Figures)
    n_workers: int = 1
    tell: Tell | None = None
    supervisor: int = field(default_factory=os.getpid)
    metrics: str | None = None
