"""What a piece of work costs its process: the processor's seconds, and memory at the peak above what was there."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@dataclass
class Cost:
    """Measure what is done inside ``with Cost() as cost``; costs of pieces that follow each other add up.

    Attributes
    ----------
    seconds : float
        Of the processor, all threads together.
    before, peak : int
        Bytes of memory at the start, and the most at any time since; 0 where the system is not Linux.
    """

    seconds: float = 0.0
    before: int = 0
    peak: int = 0

    @property
    def bytes(self) -> int:
        """Return the memory at the peak, less what was there at the start."""
        return self.peak - self.before

    def __enter__(self) -> Self:
        if CLEAR.exists():
            CLEAR.write_text("5", encoding="ascii")  # the peak starts again from what there is now
        self.before = _bytes_of("VmRSS")
        self._began = time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.process_time() - self._began
        self.peak = max(_bytes_of("VmHWM"), self.before)

    def __add__(self, later: Cost) -> Cost:
        return Cost(self.seconds + later.seconds, self.before, max(self.peak, later.peak))


def _bytes_of(name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+)", STATUS.read_text(encoding="ascii")) if STATUS.exists() else None
    return 1024 * int(found[1]) if found else 0
