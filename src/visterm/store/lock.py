"""One process at a time writes rows: a lock that tells who holds it, and that a killed process leaves to others."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from visterm.core.errors import InUseError
from visterm.core.jsonlines import json_text
from visterm.store.database import now


@dataclass(eq=False)
class WriterLock:
    """The right to write rows, of one process and in it of one thread at a time; held more than once by that thread.

    `path` is the lock's file; None of a catalogue in memory, which has no other process.
    """

    path: Path | None
    _thread: Any = field(default_factory=threading.RLock, init=False)
    _depth: int = field(default=0, init=False)
    _holder: int | None = field(default=None, init=False)
    _descriptor: int = field(default=-1, init=False)

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
                self._descriptor = _locked(self.path)
            self._depth += 1
            self._holder = threading.get_ident()
            try:
                yield self._depth == 1
            finally:
                self._depth -= 1
                if self._depth == 0:
                    self._holder = None
                    if self.path is not None:
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
        raise InUseError(
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
