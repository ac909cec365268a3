"""What the commands print: messages on standard error, results on standard output."""

from __future__ import annotations

import codecs
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from visterm.cli.command_line import imported_when_used
from visterm.core.progress import Progress
from visterm.core.types import CLOSED, NO_TAGS, Hit, Skipped, Tag
from visterm.core.wording import count_of, json_text, printable, printable_json

with imported_when_used():
    from visterm.data import image_folders
    from visterm.data.tag_formats import record as tag_records
    from visterm.features import contents

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

    from visterm.data.corpus import Corpus
    from visterm.data.tag_rules import TagRules


JsonObject: TypeAlias = dict[str, Any]  # As it is printed
Result = TypeVar("Result", bound=Tag | Hit)

_NAMED = 3  # Skipped folders and tag files that are named on the terminal
_CATEGORY = re.compile(r": ?|; | \(|\.(?: |$)")  # What ends the part of a reason that is the same for many photos
_WIDEST = 60  # Columns of a terminal that a cell may take for others to be lined up with it
LINE_SECONDS = 60  # Seconds between two lines in a pipe or a log that say how far a long task is


def say(message: str) -> None:
    """Tell the person something that is not a result."""
    print(printable(message), file=sys.stderr, flush=True)


def at_a_terminal() -> bool:
    """Return whether a person is there to answer a question."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def emit(value: JsonObject) -> None:
    """Print one JSON object as one line, in ASCII where standard output is not UTF-8."""
    utf8 = codecs.lookup(sys.stdout.encoding or "utf-8").name == "utf-8"
    print(printable_json(json_text(value, ascii_only=not utf8)), flush=True)


def show(line: str) -> None:
    """Print one line of a result for people, whatever the names in it hold."""
    print(printable(line, sys.stdout.encoding), flush=True)


def table(rows: Sequence[Sequence[str]], header: Sequence[str]) -> None:
    """Print columns that line up on a terminal, where letters of Chinese, Japanese and Korean and emoji are two wide.

    Numbers stand to the right. A cell that is very long widens its own line alone.
    """
    lines = [[printable(cell, sys.stdout.encoding) for cell in row] for row in (header, *rows)]
    widths = [max([w for w in map(_width, column) if w <= _WIDEST] or [0]) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = []
        for cell, width in zip(line, widths, strict=True):
            gap = " " * (width - _width(cell))
            cells.append(gap + cell if _numeric(cell) else cell + gap)
        print("  ".join(cells).rstrip(), flush=True)


def show_all(
    objects: Iterable[JsonObject],
    rows: Sequence[Sequence[str]],
    header: Sequence[str],
    *,
    json: bool,
    out: Path | None = None,
    none: str = "",
) -> None:
    """Print results: as a table for people, or each as a JSON object; as JSON only if they are in a file `out` already.

    `none` is what people read if there are none.
    """
    if json:
        for value in objects:
            emit(value)
    elif out is None and none and not rows:
        say(none)
    elif out is None:
        table(rows, header)


def _width(text: str) -> int:
    """Return the columns of a terminal that a text takes; rich is imported only for text that has others than ASCII."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def percent(chance: float) -> str:
    """Return a confidence for people: ``84%``, and ``<1%`` or ``>99%`` where it is nearly none or nearly all."""
    return "<1%" if 0 < chance < 0.005 else ">99%" if 0.995 <= chance < 1 else f"{chance:.0%}"


def in_minutes(text: str) -> str:
    """Return a text with its times to the minute: ``2026-11-23 00:13`` of ``2026-11-23T00:13:01.084582Z``."""
    return re.sub(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d):[\d.]+Z", r"\1 \2", text)


def likeliest_first(results: Iterable[Result]) -> list[Result]:
    """Return tags or photos by confidence, the number that people see, after photos that people tagged with all words.

    They stay as they are if some have no confidence.
    """
    hits = list(results)
    if any(one.confidence is None for one in hits):
        return hits
    return sorted(hits, key=lambda one: (getattr(one, "source", None) is None, -(one.confidence or 0.0)))


def exit_code(skipped: Sequence[Skipped], listed_in: Path | None = None) -> int:
    """Report how many photos were skipped and why; return 3 if any were, else 0.

    All are named, unless they are listed in a file: then only some folders and tag files among them.
    """
    if not skipped:
        return 0
    nouns = [
        "folder" if item.reason.startswith(CLOSED) else "tag file" if item.reason.startswith(NO_TAGS) else "photo"
        for item in skipped
    ]
    others = [item for item, noun in zip(skipped, nouns, strict=True) if noun != "photo"]
    for item in skipped if listed_in is None else others[:_NAMED]:
        say(f"Skipped {item.image}: {item.reason}")
    reasons = Counter(_CATEGORY.split(item.reason, maxsplit=1)[0] for item in skipped)
    counts = ", ".join(f"{n:,} {reason}" for reason, n in sorted(reasons.items(), key=lambda item: (-item[1], item[0])))
    list_note = "" if listed_in is None else f"; listed in {listed_in}"
    counted = " and ".join(count_of(n, noun) for noun, n in Counter(nouns).most_common())
    say(f"Skipped {counted} ({counts}){list_note}")
    return 3


def check_tags_read(corpus: Corpus, rules: TagRules, *, paths: bool = False) -> JsonObject:
    """Report what was understood of the tags that were read, which may be `paths`; return that for JSON.

    Raises TagFileError if most tags look like lists, and no separator is given.
    """
    summary = tag_records.TagsRead.in_lists(corpus.tags, paths=paths)
    say(summary.line())
    summary.check(rules.separator)
    return summary.facts()


def say_not_read(folders: Iterable[str | os.PathLike[str]], *, videos: bool = False) -> dict[str, int]:
    """Report how many files in folders of photos are not read, by kind; return the counts for JSON.

    `videos` says whether the command reads videos.
    """
    not_read = image_folders.count_not_read(
        (folder for folder in folders if not contents.is_features(folder)), videos=videos
    )
    if not_read.text:
        say(f"Not read as photos: {not_read.text}.")
    return not_read.counts


def _numeric(cell: str) -> bool:
    try:
        float(cell.replace(",", "").rstrip("%").lstrip("<>"))
    except ValueError:
        return False
    return True


class Bars(Progress):
    """Draws what the library reports: a bar per task with its rate, the time left and the last note.

    With `lines`, it leaves a line of each task when it ends.
    """

    def __init__(self, *, lines: bool = True) -> None:
        self._lines = lines
        self._total: int | None = None
        self._last_line = time.monotonic()
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
            self._last_line = self._began
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
            rate = self._done / max(time.monotonic() - self._began, 1e-9)
            self._rich.update(self._task, advance=steps, note=self._note, rate=f"{rate:,.0f}/s" if rate >= 1 else "")
        elif time.monotonic() - self._last_line >= LINE_SECONDS and self._done != self._total:
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
        self._last_line = time.monotonic()
        rate = self._done / max(self._last_line - self._began, 1e-9)
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
