"""Progress of long tasks: the library calls a `Progress` object, and never prints."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

Say: TypeAlias = Callable[[str], None]  # Shows a line of text to the user


def silent(line: str) -> None:
    """Ignore a line for the user."""


def say_or_warn(line: str, say: Say, stacklevel: int = 6) -> None:
    """Show a line by `say`; if nobody listens, warn."""
    if say is silent:
        warnings.warn(line, stacklevel=stacklevel)
    else:
        say(line)


class Progress:
    """Receives the progress of a long task, and forwards it to `target`, if given; the command line draws bars."""

    _target: Progress | None = None

    def __init__(self, target: Progress | None = None) -> None:
        self._target = target

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"  # for the help of functions with a default

    def start(self, task: str, total: int | None = None) -> None:
        """Begin a task with `total` steps (None: unknown)."""
        if self._target is not None:
            self._target.start(task, total)

    def advance(self, steps: int = 1, note: str = "") -> None:
        """Report `steps` more steps, with a short note such as the validation score."""
        if self._target is not None:
            self._target.advance(steps, note)

    def finish(self) -> None:
        """End the task."""
        if self._target is not None:
            self._target.finish()


SILENT = Progress()  # Shows nothing; the default in Python


@contextmanager
def reported(progress: Progress, task: str, total: int | None = None) -> Iterator[None]:
    """Report the block as a task to `progress`; the task is finished even if the block raises an error."""
    progress.start(task, total)
    try:
        yield
    finally:
        progress.finish()


class StepProgress(Progress):
    """Forwards only the steps, for a part of a task that has already started."""

    def start(self, task: str, total: int | None = None) -> None:
        """Ignore the start of a part."""

    def finish(self) -> None:
        """Ignore the end of a part."""


class Titled(Progress):
    """Shows all tasks under one title, and with `total` steps if given, for a fit that will be stopped early."""

    def __init__(self, progress: Progress, title: str, total: int | None = None) -> None:
        super().__init__(progress)
        self._title, self._total = title, total

    def start(self, task: str, total: int | None = None) -> None:
        """Begin the task under the title."""
        super().start(self._title, total if self._total is None else self._total)
