"""Locks that one process at a time holds: others are refused at once, with its name, and a kill frees them."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from visterm.core.errors import StorageError
from visterm.core.jsonlines import json_text


@contextmanager
def locked(path: Path, refusal: Callable[[str], StorageError]) -> Iterator[None]:
    """Hold the lock of a file, which is made; raise what `refusal` makes of the name of its holder if another has it.

    Who holds it stands in a file beside it: on Windows nobody else can read one that is locked.
    """
    from filelock import FileLock, Timeout  # which loads asyncio

    lock, note = FileLock(path, thread_local=False), holder_note(path)
    try:
        lock.acquire(blocking=False)
    except Timeout as error:
        raise refusal(_holder(note)) from error
    try:
        since = datetime.now(UTC).isoformat(timespec="seconds")
        note.write_text(json_text({"pid": os.getpid(), "host": socket.gethostname(), "since": since}), "utf-8")
        yield
    finally:
        with suppress(OSError):  # whom it refuses just now may be reading it
            note.unlink()
        lock.release()


def holder_note(path: Path) -> Path:
    """Return the file that says who holds a lock."""
    return path.with_name(f"{path.name}.json")


def _holder(note: Path) -> str:
    try:
        facts = json.loads(note.read_text("utf-8"))
        return f"process {facts['pid']} on {facts['host']} since {facts['since']}"
    except (OSError, ValueError, KeyError, TypeError):  # it has just taken the lock and not written its name yet
        return "another process"
