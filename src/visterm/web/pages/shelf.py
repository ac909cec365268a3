"""What the pages ask of a catalogue again and again, kept for a while: counts over all images, groups of tags."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from visterm.library.catalogue import Catalogue

T = TypeVar("T")

SECONDS = 10.0
LONG = 3600.0
"""For what only another run would change, and has that in its key."""

MOST_KEPT = 64


class Kept:
    """Answers by key; who asks for one that is being made waits for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._making: dict[Hashable, threading.Lock] = {}
        self._found: dict[Hashable, tuple[float, Any]] = {}

    def get(self, key: Hashable, make: Callable[[], T], seconds: float = SECONDS) -> T:
        """Return what `make` gave for a key no longer ago than some seconds, or make it."""
        with self._lock:
            making = self._making.setdefault(key, threading.Lock())
        with making:
            at, found = self._found.get(key, (-float("inf"), None))
            if time.monotonic() - at >= seconds:
                found = make()
                self._keep(key, found)
        answer: T = found
        return answer

    def forget(self, *keys: Hashable) -> None:
        """Make answers anew next time."""
        with self._lock:
            for key in keys:
                self._found.pop(key, None)

    def _keep(self, key: Hashable, found: Any) -> None:
        with self._lock:
            self._found[key] = (time.monotonic(), found)
            while len(self._found) > MOST_KEPT:
                oldest = min(self._found, key=lambda other: self._found[other][0])
                self._found.pop(oldest)
                self._making.pop(oldest, None)


def kept_of(catalogue: Catalogue) -> Kept:
    """Return the answers that are kept of a catalogue, as long as it is open."""
    return _KEPT.setdefault(catalogue, Kept())


_KEPT: weakref.WeakKeyDictionary[Catalogue, Kept] = weakref.WeakKeyDictionary()
