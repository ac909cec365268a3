"""Pieces of work on workers of several machines, played event by event: shared cores, a driver, losses."""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

DRIVER = -1


class Setting(NamedTuple):
    """Where pieces are worked on.

    Attributes
    ----------
    workers : int
    cores : int
        Of each machine; it has as many workers.
    crowd : float
        How much longer a piece takes while all cores of its machine work, against one alone.
    driver : float
        Seconds of a core that the driver spends on a piece that is done, one piece at a time.
    apart : bool
        Whether the driver has a machine of its own, or shares the first with workers.
    lost_an_hour : float
        Times an hour that a worker is lost, with its piece.
    notice : float
        Seconds until a loss is seen and another worker is ready.
    """

    workers: int
    cores: int = 2
    crowd: float = 1.0
    driver: float = 0.0
    apart: bool = False
    lost_an_hour: float = 0.0
    notice: float = 20.0


class Machine:
    """Cores that whoever runs on them shares evenly."""

    def __init__(self, cores: int, crowd: float) -> None:
        self._cores, self._crowd = cores, crowd
        self.left: dict[int, float] = {}
        self._at, self.version = 0.0, 0

    def go_on_to(self, now: float) -> None:
        """Let all that run here go on until now; what was expected before no longer holds."""
        done = (now - self._at) * self._speed()
        self.left = {who: max(0.0, left - done) for who, left in self.left.items()}
        self._at, self.version = now, self.version + 1

    def next_end(self) -> tuple[float, int]:
        """Return when the first of those that run here ends, and who that is."""
        who = min(self.left, key=lambda each: (self.left[each], each))
        return self._at + self.left[who] / self._speed(), who

    def _speed(self) -> float:
        working = min(len(self.left), self._cores)
        slowed = 1 + (self._crowd - 1) * max(0, working - 1) / max(1, self._cores - 1)
        return working / max(1, len(self.left)) / slowed


def play(pieces: Sequence[float], setting: Setting, seed: int = 0) -> float:
    """Return the seconds until the workers, which take the next piece when they are free, and the driver are through.

    `pieces` are the seconds that each takes a worker on a machine where nobody else works.
    """
    return max(ends(pieces, setting, seed), default=0.0)


def ends(pieces: Sequence[float], setting: Setting, seed: int = 0) -> list[float]:
    """Return when each piece is through, in order of time: with the driver, if that has to do with each."""
    rng = random.Random(seed)
    todo = deque(pieces)
    n_machines = math.ceil(setting.workers / setting.cores) + setting.apart
    machines = [Machine(setting.cores, setting.crowd) for _ in range(n_machines)]
    events: list[tuple[float, int, int, int]] = []
    waiting, now = 0, 0.0
    through: list[float] = []

    def machine_of(who: int) -> int:
        return 0 if who == DRIVER else setting.apart + who // setting.cores

    def begin(who: int, seconds: float) -> None:
        machine = machines[machine_of(who)]
        machine.go_on_to(now)
        machine.left[who] = seconds
        expect(machine_of(who))

    def begin_next(worker: int) -> None:
        seconds = todo.popleft()
        if rng.random() < -math.expm1(-seconds * setting.lost_an_hour / 3600):
            seconds += rng.random() * seconds + setting.notice
        begin(worker, seconds)

    def expect(number: int) -> None:
        if machines[number].left:
            heapq.heappush(events, (*machines[number].next_end(), number, machines[number].version))

    for worker in range(min(setting.workers, len(todo))):
        begin_next(worker)
    while events:
        at, who, number, version = heapq.heappop(events)
        if version != machines[number].version:
            continue
        now = at
        machines[number].go_on_to(now)
        del machines[number].left[who]
        waiting += -1 if who == DRIVER else 1
        if (who == DRIVER) == bool(setting.driver):
            through.append(now)
        if who != DRIVER and todo:
            begin_next(who)
        if waiting and setting.driver and DRIVER not in machines[0].left:
            begin(DRIVER, setting.driver)
        expect(number)
    return through
