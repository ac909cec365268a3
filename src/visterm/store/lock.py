"""One process at a time writes rows: a lock that tells who holds it, and that a killed process leaves to others."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from visterm.core.errors import InUseError
from visterm.core.writing import locked


class WriterLock:
    """The right to write rows, of one process and in it of one thread at a time; held more than once by that thread.

    `path` is the lock's file; None of a catalogue in memory, which has no other process.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._thread = threading.RLock()
        self._holder: int | None = None  # The thread that holds it

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
            if self.is_mine:
                yield False
                return
            with nullcontext() if self.path is None else locked(self.path, self._refusal):
                self._holder = threading.get_ident()
                try:
                    yield True
                finally:
                    self._holder = None

    def _refusal(self, holder: str) -> InUseError:
        assert self.path is not None
        return InUseError(
            f"{self.path.parent} is in use by {holder}, which is writing rows into it. Wait until it is done; searches "
            "and feedback go on meanwhile."
        )
