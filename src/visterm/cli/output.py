"""Output of the commands: messages on standard error, results on standard output."""

from __future__ import annotations

import codecs
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from visterm.cli.command_line import imported_when_used
from visterm.core.progress import Progress
from visterm.core.types import CLOSED, NO_TAGS, Skipped, Tag
from visterm.core.wording import count_of, json_text, printable, printable_json

with imported_when_used():
    from visterm.data import image_folders
    from visterm.data.tag_formats import record as tag_records
    from visterm.features import folder as feature_folders

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

    from visterm.data.corpus import Corpus
    from visterm.data.image_folders import NotRead
    from visterm.data.tag_rules import TagRules


JsonObject: TypeAlias = dict[str, Any]

_MAX_PRINTED = 3  # Skipped folders and tag files that are printed if a file lists all of them
_CATEGORY_END = re.compile(r": ?|; | \(|\.(?: |$)")  # Ends the general part of a reason, before details of the photo
_MAX_WIDTH = 60  # Cells that are wider than this don't widen their column
LINE_SECONDS = 60  # Seconds between two lines of progress in a pipe or a log


def say(message: str) -> None:
    """Print a message that is not a result."""
    print(printable(message), file=sys.stderr, flush=True)


def at_a_terminal() -> bool:
    """Return whether a person can answer questions: standard input and error are a terminal."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def emit(value: JsonObject) -> None:
    """Print a JSON object as one line, in ASCII if standard output is not UTF-8."""
    is_utf8 = codecs.lookup(sys.stdout.encoding or "utf-8").name == "utf-8"
    print(printable_json(json_text(value, ascii_only=not is_utf8)), flush=True)


def show(line: str) -> None:
    """Print one line of a result for people; unprintable characters are replaced."""
    print(printable(line, sys.stdout.encoding), flush=True)


def table(rows: Sequence[Sequence[str]], header: Sequence[str]) -> None:
    """Print a table with aligned columns; Chinese, Japanese and Korean characters and emoji count as two columns.

    Numbers are aligned to the right. A very long cell widens only its own line.
    """
    lines = [[printable(cell, sys.stdout.encoding) for cell in row] for row in (header, *rows)]
    widths = [max([w for w in map(_width, column) if w <= _MAX_WIDTH] or [0]) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = []
        for cell, width in zip(line, widths, strict=True):
            gap = " " * (width - _width(cell))
            cells.append(gap + cell if _is_number(cell) else cell + gap)
        print("  ".join(cells).rstrip(), flush=True)


def show_all(
    objects: Iterable[JsonObject],
    rows: Sequence[Sequence[str]],
    header: Sequence[str],
    *,
    json: bool,
    out: Path | None = None,
    empty_note: str = "",
) -> None:
    """Print results as a table, or as one JSON object each; no table is printed if they were written to a file `out`.

    `empty_note` is the message if there are no results.
    """
    if json:
        for value in objects:
            emit(value)
    elif out is None and empty_note and not rows:
        say(empty_note)
    elif out is None:
        table(rows, header)


def _width(text: str) -> int:
    """Return the width of a text on a terminal; rich is imported only for text that is not ASCII."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def percent(chance: float) -> str:
    """Return a confidence as text: ``84%``, or ``<1%`` and ``>99%`` for values close to 0 and 1."""
    return "<1%" if 0 < chance < 0.005 else ">99%" if 0.995 <= chance < 1 else f"{chance:.0%}"


def in_minutes(text: str) -> str:
    """Shorten times in a text to minutes: ``2026-11-23T00:13:01.084582Z`` becomes ``2026-11-23 00:13``."""
    return re.sub(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d):[\d.]+Z", r"\1 \2", text)


def by_confidence(tags: Sequence[Tag]) -> list[Tag]:
    """Sort tags by confidence, the highest first; if one of them has no confidence, the order is not changed."""
    if any(tag.confidence is None for tag in tags):
        return list(tags)
    return sorted(tags, key=lambda tag: -(tag.confidence or 0.0))


def say_skipped(skipped: Sequence[Skipped], listed_in: Path | None = None) -> int:
    """Report how many photos were skipped and why; return the exit code: 3 if there are any, otherwise 0.

    Prints all skipped photos, or if they are listed in the file `listed_in`, only the first folders and tag files.
    """
    if not skipped:
        return 0
    nouns = [
        "folder" if item.reason.startswith(CLOSED) else "tag file" if item.reason.startswith(NO_TAGS) else "photo"
        for item in skipped
    ]
    other_items = [item for item, noun in zip(skipped, nouns, strict=True) if noun != "photo"]
    for item in skipped if listed_in is None else other_items[:_MAX_PRINTED]:
        say(f"Skipped {item.image}: {item.reason}")
    reasons = Counter(_CATEGORY_END.split(item.reason, maxsplit=1)[0] for item in skipped)
    counts = ", ".join(f"{n:,} {reason}" for reason, n in sorted(reasons.items(), key=lambda item: (-item[1], item[0])))
    list_note = "" if listed_in is None else f"; listed in {listed_in}"
    totals = " and ".join(count_of(n, noun) for noun, n in Counter(nouns).most_common())
    say(f"Skipped {totals} ({counts}){list_note}")
    return 3


def check_tags_read(corpus: Corpus, rules: TagRules, *, paths: bool = False) -> JsonObject:
    """Report statistics of the tags that were read, and return them for JSON; `paths` says that tags are paths.

    Raises TagFileError if most tags look like lists and no separator is set.
    """
    summary = tag_records.TagCounts.in_lists(corpus.tags, paths=paths)
    say(summary.line())
    summary.check(rules.separator)
    return summary.facts()


def say_not_read(
    folders: Iterable[str | os.PathLike[str]], *, videos: bool = False, counted: NotRead | None = None
) -> dict[str, int]:
    """Report how many files in folders of photos were not read, and return the counts by kind for JSON.

    `videos` says whether the command reads videos; `counted` are the files, if they have been counted.
    """
    not_read = counted or image_folders.count_not_read(
        (folder for folder in folders if not feature_folders.is_features(folder)), videos=videos
    )
    if not_read.text:
        say(f"Not read as photos: {not_read.text}.")
    return not_read.counts


def _is_number(cell: str) -> bool:
    try:
        float(cell.replace(",", "").rstrip("%").lstrip("<>"))
    except ValueError:
        return False
    return True


class Bars(Progress):
    """Draws a progress bar per task, with its rate, the remaining time and the last note.

    With `lines`, each task prints a line when it ends.
    """

    def __init__(self, *, lines: bool = True) -> None:
        self._lines = lines
        self._total: int | None = None
        self._last_line_time = time.monotonic()
        self._rich: RichProgress | None = None
        self._task: TaskID | None = None
        self._name = ""
        self._note = ""
        self._done = 0
        self._start_time = 0.0

    def start(self, task: str, total: int | None = None) -> None:
        """Start a bar of `total` steps."""
        self._name, self._note, self._done, self._start_time = task, "", 0, time.monotonic()
        self._total = total
        if self._lines:
            self._last_line_time = self._start_time
        if sys.stderr.isatty():
            from rich import progress
            from rich.console import Console

            self._rich = progress.Progress(
                progress.SpinnerColumn(), progress.TextColumn("{task.description:<24}"), progress.BarColumn(),
                progress.MofNCompleteColumn(), progress.TextColumn("{task.fields[rate]}"),
                progress.TimeRemainingColumn(), progress.TextColumn("{task.fields[note]}"),
                console=Console(stderr=True), transient=True,
            )  # fmt: skip
            self._rich.start()
            self._task = self._rich.add_task(task, total=total, note="", rate="")

    def advance(self, steps: int = 1, note: str = "") -> None:
        """Move the bar."""
        self._done += steps
        self._note = note or self._note
        if self._rich is not None and self._task is not None:
            rate = self._rate()
            self._rich.update(self._task, advance=steps, note=self._note, rate=f"{rate:,.0f}/s" if rate >= 1 else "")
        elif time.monotonic() - self._last_line_time >= LINE_SECONDS and self._done != self._total:
            self._print_progress()

    def finish(self) -> None:
        """Remove the bar, and print a line with the number of steps, the time and the rate, unless there were none."""
        if self._rich is not None:
            self._rich.stop()
            self._rich = None
        if self._done == 0 or not self._lines:
            return
        seconds = time.monotonic() - self._start_time
        rate = f", {self._done / seconds:,.0f}/s" if seconds > 0.5 and self._done > seconds else ""
        note = f"  {self._note}" if self._note else ""
        count = f"{self._done:,} in " if self._done > 1 else ""
        print(f"{self._name}: {count}{seconds:.1f} s{rate}{note}", file=sys.stderr, flush=True)

    def _print_progress(self) -> None:
        self._last_line_time, rate = time.monotonic(), self._rate()
        total = "" if self._total is None else f" of {self._total:,}"
        rate_text = f", {rate:,.{0 if rate >= 10 else 2}f}/s" if rate > 0 else ""
        time_left = ""
        if rate > 0 and self._total is not None:
            time_left = f", {duration((self._total - self._done) / rate)} left"
        note = f"  {self._note}" if self._note else ""
        print(f"{self._name}: {self._done:,}{total}{rate_text}{time_left}{note}", file=sys.stderr, flush=True)

    def _rate(self) -> float:
        return self._done / max(time.monotonic() - self._start_time, 1e-9)


def duration(seconds: float) -> str:
    """Return a duration as text: ``29 s``, ``3 min``, ``1 h 5 min``."""
    minutes, remainder = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min" if minutes else f"{remainder} s"
