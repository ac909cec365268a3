"""Keeping Pillow's warnings about odd metadata to itself while images are decoded, also in many threads at once."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, cast

_PILLOW = r"PIL\."
_lock = threading.Lock()
_inside = 0


@contextmanager
def pillow_silenced() -> Iterator[None]:
    """Ignore the warnings that Pillow's own modules give, and no others.

    `warnings.catch_warnings` saves and restores the whole list of filters, so that two threads that enter and leave it
    in turns can undo each other's changes (and the caller's). This puts one narrow filter in while at least one thread
    decodes, and takes that one out again.
    """
    global _inside
    with _lock:
        _inside += 1
        if _entry() is None:
            warnings.filterwarnings("ignore", category=Warning, module=_PILLOW)
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            entry = _entry()
            if not _inside and entry is not None:
                with suppress(ValueError):  # the caller's own thread may have replaced the list just now
                    cast("list[Any]", warnings.filters).remove(entry)


def _entry() -> Any:
    """Find our filter among those in force: ``(action, message, category, module, line)``."""
    for entry in warnings.filters:
        if entry[0] == "ignore" and entry[1] is None and getattr(entry[3], "pattern", None) == _PILLOW:
            return entry
    return None
