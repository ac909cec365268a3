"""Progress told in one process and shown in another: as lines of a file that both see."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from visterm.core.jsonlines import json_text
from visterm.core.progress import Progress

EVERY = 0.3
"""Seconds between looks at the file."""


class ToldProgress:
    """Writes down what it is told.

    Parameters
    ----------
    path : Path
        Lines are added to it, one for each thing told.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def start(self, task: str, total: int | None = None) -> None:
        """Note the beginning of a task."""
        self._write("start", task, total)

    def advance(self, steps: int = 1, note: str = "") -> None:
        """Note steps."""
        self._write("advance", steps, note)

    def finish(self) -> None:
        """Note the end of the task."""
        self._write("finish")

    def _write(self, *told: Any) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json_text(told) + "\n")


@contextmanager
def retold(path: Path, progress: Progress, before: str = "") -> Iterator[None]:
    """Tell a progress, while the block runs, all that is written to a file; a task that begins again ends first.

    `before` is the task that is under way until something is written, if there is one.
    """
    if before:
        progress.start(before, None)
    over = threading.Event()
    retelling = threading.Thread(target=_retell, args=(path, progress, over, bool(before)), daemon=True)
    retelling.start()
    try:
        yield
    finally:
        over.set()
        retelling.join()


def _retell(path: Path, progress: Progress, over: threading.Event, under_way: bool) -> None:
    place, rest = 0, b""
    while True:
        last = over.wait(EVERY)  # what was written before the end is read after it
        if path.exists():
            with path.open("rb") as file:
                file.seek(place)
                read = file.read()
            place += len(read)
            *lines, rest = (rest + read).split(b"\n")
            for line in lines:
                what, *told = json.loads(line)
                if under_way and what == "start":
                    progress.finish()
                if what != "finish" or under_way:
                    getattr(progress, what)(*told)
                under_way = what != "finish"
        if last:
            if under_way:
                progress.finish()
            return
