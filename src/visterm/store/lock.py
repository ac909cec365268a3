"""One process at a time writes rows: a lock that tells who holds it, and that a killed process leaves to others."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from visterm.core.errors import InUseError
from visterm.core.writing import locked


@dataclass(eq=False)
class WriterLock:
    """The right to write rows, of one process and in it of one thread at a time; held more than once by that thread.

    `path` is the lock's file; None of a catalogue in memory, which has no other process.
    """

    path: Path | None
    _thread: Any = field(default_factory=threading.RLock, init=False)
    _depth: int = field(default=0, init=False)
    _holder: int | None = field(default=None, init=False)
    _lock: ExitStack = field(default_factory=ExitStack, init=False)

    @property
    def is_mine(self) -> bool:
        """Whether the calling thread holds it."""
        return self._holder == threading.get_ident()

    @contextmanager
    def held(self) -> Iterator[bool]:
        """Hold the lock, and say whether this thread did not hold it before; other threads of this process wait.

        Raises InUseError if another process holds it: "in use by PID on HOST since ...".
        """
        with self._thread:
            if self._depth == 0 and self.path is not None:
                self._lock.enter_context(locked(self.path, self._refusal))
            self._depth += 1
            self._holder = threading.get_ident()
            try:
                yield self._depth == 1
            finally:
                self._depth -= 1
                if self._depth == 0:
                    self._holder = None
                    self._lock.close()

    def _refusal(self, holder: str) -> InUseError:
        assert self.path is not None
        return InUseError(
            f"{self.path.parent} is in use by {holder}, which is writing rows into it. Wait until it is done; searches "
            "and feedback go on meanwhile."
        )
