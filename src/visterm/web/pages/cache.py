"""Answers that depend on the run alone, and that the pages need again and again."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from visterm.library.catalogue import Catalogue

T = TypeVar("T")

MOST_KEPT = 64


class Cache:
    """Answers by key. A request for an answer that is being computed waits for it."""

    def __init__(self) -> None:
        self._computing = threading.Lock()
        self._answers: dict[Hashable, Any] = {}

    def get(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return the answer of a key, computed once."""
        with self._computing:
            if key not in self._answers:
                answer = compute()
                if len(self._answers) >= MOST_KEPT:
                    self._answers.pop(next(iter(self._answers)))
                self._answers[key] = answer
            found: T = self._answers[key]
            return found


def cache_of(catalogue: Catalogue) -> Cache:
    """Return the cache of an open catalogue."""
    return _CACHES.setdefault(catalogue, Cache())


_CACHES: weakref.WeakKeyDictionary[Catalogue, Cache] = weakref.WeakKeyDictionary()
