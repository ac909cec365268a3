"""Progress of long work: the library reports to this small object, and never prints."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self, TypeAlias

Say: TypeAlias = Callable[[str], None]  # Takes a line for people


def silent(line: str) -> None:
    """Drop a line for people."""


class Progress:
    """What long work calls as it goes; it passes all on to `onto`, and the command line draws that with rich."""

    _onto: Progress | None = None

    def __init__(self, onto: Progress | None = None) -> None:
        self._onto = onto

    def start(self, task: str, total: int | None = None) -> None:
        """Begin a task of `total` steps (None: not known)."""
        if self._onto is not None:
            self._onto.start(task, total)

    def advance(self, steps: int = 1, note: str = "") -> None:
        """Report that `steps` more are done, with a short note such as the validation measure."""
        if self._onto is not None:
            self._onto.advance(steps, note)

    def finish(self) -> None:
        """End the task."""
        if self._onto is not None:
            self._onto.finish()


SILENT = Progress()  # It goes nowhere: the default in Python


@contextmanager
def reported(progress: Progress, task: str, total: int | None = None) -> Iterator[None]:
    """Report the block as a task to `progress`; the task is finished however the block ends."""
    progress.start(task, total)
    try:
        yield
    finally:
        progress.finish()


class StepProgress(Progress):
    """Passes on only the steps: for a part of a task that was started already."""

    def start(self, task: str, total: int | None = None) -> None:
        """Ignore the start: the whole task has begun."""

    def finish(self) -> None:
        """Ignore the end: the whole task goes on."""


class Titled(Progress):
    """Shows all tasks under one name, with `total` steps if it is given: of a fit that will be ended sooner."""

    def __init__(self, progress: Progress, title: str, total: int | None = None) -> None:
        super().__init__(progress)
        self._title, self._total = title, total

    def start(self, task: str, total: int | None = None) -> None:
        """Begin the task under the name."""
        super().start(self._title, total if self._total is None else self._total)


class OneTask(Titled):
    """One task from beginning to end, whatever tasks the work inside it begins; ends with how it came out.

    For a fit that is judged after it: what is shown last is then the judgement, and not a note of the fit's last epoch.
    """

    def __init__(self, progress: Progress, title: str) -> None:
        super().__init__(progress, title)
        self._steps = 0

    def __enter__(self) -> Self:
        super().start(self._title)
        return self

    def __exit__(self, *_: object) -> None:
        super().finish()

    def start(self, task: str, total: int | None = None) -> None:
        """Begin again under the name, now that the number of steps is known."""
        super().finish()
        super().start(self._title, total)
        self._steps = 0

    def advance(self, steps: int = 1, note: str = "") -> None:
        """Pass the step on."""
        self._steps += steps
        super().advance(steps, note)

    def finish(self) -> None:
        """Ignore the end: how it came out is not known yet."""

    def finish_with(self, note: str) -> None:
        """Report how it came out; work that reported no step counts as one."""
        self.advance(0 if self._steps else 1, note)
