"""Progress bars on standard error, drawn with rich; in a pipe or a log, a plain line per task and per minute."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from visterm.core.progress import Progress

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID


LINE_SECONDS = 60  # Seconds between two lines in a pipe or a log that say how far a long task is


class Bars(Progress):
    """Draws what the library reports: a bar per task with its rate, the time left and the last note.

    With `lines`, it leaves a line of each task when it ends.
    """

    def __init__(self, *, lines: bool = True) -> None:
        self._lines = lines
        self._total: int | None = None
        self._said = time.monotonic()
        self._rich: RichProgress | None = None
        self._task: TaskID | None = None
        self._name = ""
        self._note = ""
        self._done = 0
        self._began = 0.0

    def start(self, task: str, total: int | None = None) -> None:
        """Begin a bar of `total` steps."""
        self._name, self._note, self._done, self._began = task, "", 0, time.monotonic()
        self._total = total
        if self._lines:
            self._said = self._began
        if sys.stderr.isatty():
            self._rich = _bar()
            self._rich.start()
            self._task = self._rich.add_task(task, total=total, note="", rate="")

    def advance(self, steps: int = 1, note: str = "") -> None:
        """Move the bar."""
        self._done += steps
        self._note = note or self._note
        if self._rich is not None and self._task is not None:
            rate = self._done / max(time.monotonic() - self._began, 1e-9)
            self._rich.update(self._task, advance=steps, note=self._note, rate=f"{rate:,.0f}/s" if rate >= 1 else "")
        elif time.monotonic() - self._said >= LINE_SECONDS and self._done != self._total:
            self._say_how_far()

    def finish(self) -> None:
        """End the bar, and leave a line that says what was done and how fast; none if an error came first."""
        if self._rich is not None:
            self._rich.stop()
            self._rich = None
        if self._done == 0 or not self._lines:
            return
        seconds = time.monotonic() - self._began
        rate = f", {self._done / seconds:,.0f}/s" if seconds > 0.5 and self._done > seconds else ""
        note = f"  {self._note}" if self._note else ""
        count = f"{self._done:,} in " if self._done > 1 else ""
        print(f"{self._name}: {count}{seconds:.1f} s{rate}{note}", file=sys.stderr, flush=True)

    def _say_how_far(self) -> None:
        self._said = time.monotonic()
        rate = self._done / max(self._said - self._began, 1e-9)
        line = f"{self._name}: {self._done:,}"
        if self._total is not None:
            line += f" of {self._total:,}"
        if rate > 0:
            line += f", {rate:,.{0 if rate >= 10 else 2}f}/s"
        if rate > 0 and self._total is not None:
            line += f", {duration((self._total - self._done) / rate)} left"
        print(f"{line}{f'  {self._note}' if self._note else ''}", file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """Return a span of time for people: ``29 s``, ``3 min``, ``1 h 5 min``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min" if minutes else f"{rest} s"


def _bar() -> RichProgress:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    return RichProgress(
        SpinnerColumn(),
        TextColumn("{task.description:<24}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
        console=Console(stderr=True),
        transient=True,
    )
