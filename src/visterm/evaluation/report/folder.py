"""The folder of a report: `index.html` to look at and `results.json` to reckon with, whole or not there."""

from __future__ import annotations

import os
from typing import Any

from visterm.core.persist import check_target, new_folder, write_json
from visterm.evaluation.html_report import Report

KIND = "report"
PAGE, RESULTS = "index.html", "results.json"


def check_report_target(path: str | os.PathLike[str]) -> None:
    """Refuse, before any long work, a place where no report may be written."""
    check_target(path, KIND)


def write_report(path: str | os.PathLike[str], page: Report, results: dict[str, Any]) -> None:
    """Write a page and its figures into a folder; an earlier report there is replaced.

    Raises
    ------
    StorageError
        If something that is no report lies at `path`.
    """
    with new_folder(path, KIND) as folder:
        page.write(folder / PAGE)
        write_json(folder / RESULTS, results)
