"""One process at a time writes rows: a lock that tells who holds it, and that a killed process leaves to others."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from visterm.core.errors import StorageError
from visterm.core.jsonlines import json_text
from visterm.store.database import now


class WriterLock:
    """The right to write rows, of one process and in it of one thread at a time; held more than once by that thread.

    `path` is the lock's file; None of a catalogue in memory, which has no other process.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._thread = threading.RLock()
        self._depth = 0
        self._holder: int | None = None
        self._descriptor = -1

    @property
    def is_mine(self) -> bool:
        """Whether the calling thread holds it."""
        return self._holder == threading.get_ident()

    @contextmanager
    def held(self) -> Iterator[bool]:
        """Hold the lock, and say whether this thread did not hold it before; other threads of this process wait.

        Raises StorageError if another process holds it: "in use by PID on HOST since ...".
        """
        with self._thread:
            if self._depth == 0 and self._path is not None:
                self._descriptor = _locked(self._path)
            self._depth += 1
            self._holder = threading.get_ident()
            try:
                yield self._depth == 1
            finally:
                self._depth -= 1
                if self._depth == 0:
                    self._holder = None
                    if self._path is not None:
                        os.close(self._descriptor)


def _locked(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": now()}
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json_text(holder).encode(), 0)
    except BlockingIOError as error:
        who = _holder(os.pread(descriptor, 4096, 0))
        os.close(descriptor)
        raise StorageError(
            f"{path.parent} is in use by {who}, which is writing rows into it. Wait until it is done; searches and "
            "feedback go on meanwhile."
        ) from error
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _holder(text: bytes) -> str:
    try:
        facts = json.loads(text)
        return f"process {facts['pid']} on {facts['host']} since {facts['since']}"
    except (ValueError, KeyError, TypeError):  # it has just taken the lock and not written its name yet
        return "another process"
