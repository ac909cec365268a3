"""Where threads run: keeping helpers off the processor of the thread that calls them."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable


class OtherProcessors:
    """Threads that shall not share the processor of whoever calls them; without effect where the system cannot do it.

    Only places change, never results.
    """

    def __init__(self) -> None:
        self._threads: list[int] = []
        self._placed = (-1, 0)
        self._processor = _processor_finder()

    def enter(self) -> None:
        """Count the thread that calls this among the threads."""
        self._threads.append(threading.get_native_id())

    def keep_from_here(self) -> None:
        """Let the threads run on any processor but this one, of those that the caller may use."""
        if self._processor is None:
            return
        here = self._processor(), len(self._threads)
        if here == self._placed:
            return
        elsewhere = os.sched_getaffinity(0) - {here[0]}
        try:
            for thread in self._threads if elsewhere else []:
                os.sched_setaffinity(thread, elsewhere)
        except OSError:  # a sandbox that forbids it
            self._processor = None
        self._placed = here


def _processor_finder() -> Callable[[], int] | None:
    """Return the function that tells the processor of the calling thread; None where there is none."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    return getattr(ctypes.CDLL(None), "sched_getcpu", None)
