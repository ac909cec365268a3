"""Answers that the pages need again and again, kept for a while: counts over all images, groups of tags."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from visterm.library.catalogue import Catalogue

T = TypeVar("T")

SECONDS = 10.0
LONG = 3600.0  # For answers that depend on the run alone, and have the run in their key
MOST_KEPT = 64


class Cache:
    """Answers by key. A request for an answer that is being computed waits for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._computing: dict[Hashable, threading.Lock] = {}
        self._answers: dict[Hashable, tuple[float, Any]] = {}

    def get(self, key: Hashable, compute: Callable[[], T], seconds: float = SECONDS) -> T:
        """Return the answer of a key if it is younger than `seconds`, else compute it."""
        with self._lock:
            computing = self._computing.setdefault(key, threading.Lock())
        with computing:
            at, answer = self._answers.get(key, (-float("inf"), None))
            if time.monotonic() - at >= seconds:
                answer = compute()
                with self._lock:
                    self._answers[key] = (time.monotonic(), answer)
                    while len(self._answers) > MOST_KEPT:
                        oldest = min(self._answers, key=lambda other: self._answers[other][0])
                        self._answers.pop(oldest)
                        self._computing.pop(oldest, None)
        found: T = answer
        return found

    def forget(self, *keys: Hashable) -> None:
        """Compute the answers of these keys anew next time."""
        with self._lock:
            for key in keys:
                self._answers.pop(key, None)


def cache_of(catalogue: Catalogue) -> Cache:
    """Return the cache of an open catalogue."""
    return _CACHES.setdefault(catalogue, Cache())


_CACHES: weakref.WeakKeyDictionary[Catalogue, Cache] = weakref.WeakKeyDictionary()
