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
    """The latest answers by key. A request for an answer that is being computed waits for it."""

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._computing = threading.Lock()
        self._answers: dict[Hashable, Any] = {}
        self._most = most

    def get(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return the answer of a key, computed once."""
        with self._computing:
            if key not in self._answers:
                self._put(key, compute())
            found: T = self._answers[key]
            return found

    def known(self, key: Hashable) -> Any:
        """Return the answer of a key; None if there is none."""
        return self._answers.get(key)

    def put(self, key: Hashable, answer: Any) -> None:
        """Keep an answer in place of the one of before."""
        with self._computing:
            self._answers.pop(key, None)
            self._put(key, answer)

    def _put(self, key: Hashable, answer: Any) -> None:
        if len(self._answers) >= self._most:
            self._answers.pop(next(iter(self._answers)))
        self._answers[key] = answer


def cache_of(catalogue: Catalogue) -> Cache:
    """Return the cache of an open catalogue."""
    return _CACHES.setdefault(catalogue, Cache())


_CACHES: weakref.WeakKeyDictionary[Catalogue, Cache] = weakref.WeakKeyDictionary()
