"""What the simulation wants to know beside a worker's pieces: what runs next to it, and how cores slow each other."""

from __future__ import annotations

import multiprocessing
import os
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

TICKS = os.sysconf("SC_CLK_TCK")
WORKER = "ray::MapWorker"
"""How Ray names a process that works on the pieces of a job."""


def beside_workers() -> float:
    """Return the processor's seconds of this process and its children, the driver's and Ray's without its workers."""
    parents: dict[int, int] = {}
    spent: dict[int, tuple[float, bool]] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            command = (folder / "cmdline").read_bytes()
        except OSError:  # it has ended meanwhile
            continue
        pid = int(folder.name)
        parents[pid] = int(fields[1])
        spent[pid] = ((int(fields[11]) + int(fields[12])) / TICKS, command.startswith(WORKER.encode()))
    return sum(seconds for pid, (seconds, worker) in spent.items() if not worker and _is_below(pid, parents))


def _is_below(pid: int, parents: dict[int, int]) -> bool:
    while pid not in (os.getpid(), 0):
        pid = parents.get(pid, 0)
    return pid != 0


def crowd(
    gaps: Callable[..., list[float]], arguments: Sequence[tuple[Any, ...]], runs: int
) -> tuple[float, list[float]]:
    """Say how much longer a piece takes while as many processes as there are `arguments` do the same, without Ray.

    Beside it come the seconds of the pieces of one alone, in the run whose median piece was the median.

    Parameters
    ----------
    gaps : callable
        Called in fresh processes; gives the seconds of each piece.
    arguments : sequence of tuple
        Of each of the processes; the first also works alone.
    runs : int
        Turns of the two.
    """
    context = multiprocessing.get_context("spawn")
    alone: list[list[float]] = []
    ratios: list[float] = []
    for _ in range(runs):
        medians = []
        for some in (arguments[:1], arguments):
            with context.Pool(len(some)) as pool:
                each = [one.get() for one in [pool.apply_async(gaps, one) for one in some]]
            medians.append(statistics.mean(map(statistics.median, each)))
            if len(some) == 1:
                alone += each
        ratios.append(medians[1] / medians[0])
    return statistics.median(ratios), sorted(alone, key=statistics.median)[runs // 2]
