"""A log of each time that test rows were looked at, kept beside the report."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

LOG = "looks.jsonl"
"""A line for each look. Unlike finished results it is never made anew: keep it when you move a report."""


class Looks:
    """The log in a folder.

    Each line has the ``date``, the ``rows`` by the name of their problem, and the ``method`` that they judged. A line
    without a method is a version of the whole report from before there was a log, with its ``commit``.

    Parameters
    ----------
    folder : Path
        Of the report.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOG

    def add(self, rows: str, method: str) -> None:
        """Write down that a method was judged by the test rows of a problem."""
        entry = {"date": datetime.now(UTC).date().isoformat(), "rows": rows, "method": method}
        with self._path.open("a", encoding="utf-8") as log:
            log.write(json.dumps(entry, ensure_ascii=False) + "\n")

    def commit(self) -> str | None:
        """Return the commit of the latest version of the whole report, if the log names it."""
        commits = [entry["commit"] for entry in self._entries() if "commit" in entry]
        return commits[-1] if commits else None

    def versions(self) -> dict[str, int]:
        """Return by problem how many versions of the search judged one method at most."""
        counts: dict[str, Counter[str]] = {}
        for entry in self._entries():
            counts.setdefault(entry["rows"], Counter())[entry.get("method", "")] += 1
        return {rows: of.pop("", 0) + max(of.values(), default=0) for rows, of in counts.items()}

    def _entries(self) -> list[dict[str, str]]:
        lines = self._path.read_text(encoding="utf-8").splitlines() if self._path.is_file() else []
        return [json.loads(line) for line in lines]


def versions_by_data(logs: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Return how many versions used the test rows of each data set, in all reports together.

    Parameters
    ----------
    logs : sequence of mapping
        Of each report (`Looks.versions`). Problems of one data set have names such as ``corel5k-visterms``.
    """
    total: Counter[str] = Counter()
    for versions in logs:
        of_report: Counter[str] = Counter()
        for rows, n in versions.items():
            data = re.split("[ -]", rows)[0]
            of_report[data] = max(of_report[data], n)
        total += of_report
    return dict(total.most_common())


def shown_versions(versions: Mapping[str, int]) -> str:
    """Return a sentence on how often test rows were used: at least as often as the log says."""
    once = "Test rows are used once for each version of the search; there"
    counts = set(versions.values()) or {1}
    if counts == {1}:
        return f"{once} was at least 1 version."
    if len(counts) == 1:
        return f"{once} were at least {max(counts)} versions."
    return f"{once} were at least these versions: {', '.join(f'{n} on {rows}' for rows, n in versions.items())}."
