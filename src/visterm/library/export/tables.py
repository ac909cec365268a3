"""Tags written into one table, CSV or JSON lines: a person's tags and predictions in columns apart."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from pathlib import Path

from visterm.core.errors import UserError
from visterm.core.jsonlines import json_text
from visterm.data.sidecars import content_of, replace_file
from visterm.data.text_files import guarded
from visterm.data.xmp.keywords import GIVEN, Mark
from visterm.library.export.items import ExportItem, Parents

CSV, JSONL = "csv", "jsonl"
TABLES = (CSV, JSONL)
COLUMNS = ("file_name", "tags", "predicted", "confidence")


def table_of(items: Iterable[ExportItem], to: str, *, run: str | None = None) -> str:
    """Return the tags of images as a table, one line an image.

    "csv": file_name, tags (of people, which `visterm fit --tags` reads), predicted and confidence, with ``;`` between;
    a list that has a ``;`` or ``,`` in a tag is written in JSON. "jsonl": the same as lists, and the run (its
    fingerprint). Raises UserError if `to` is something else.

    Cells of CSV that a spreadsheet would compute, because they begin with ``=``, ``+``, ``-``, ``@``, a tab or a
    carriage return, get an apostrophe before them. `visterm fit --tags` takes it off again.
    """
    if to not in TABLES:
        raise UserError(f"'{to}' is no table; expected {' or '.join(TABLES)}.")
    text = io.StringIO(newline="")
    if to == CSV:
        text.write(_row(COLUMNS))
    for item in items:
        given, predicted = given_and_predicted(item, run)
        name = item.name or str(item.path)
        if to == JSONL:
            guesses = [
                {"tag": mark.tag} | ({} if mark.confidence is None else {"confidence": round(mark.confidence, 4)})
                for mark in predicted
            ]
            line = {"file_name": name, "tags": [mark.tag for mark in given], "predicted": guesses}
            text.write(json_text(line | ({"run": run} if run and predicted else {})) + "\n")
            continue
        confidences = ["" if mark.confidence is None else f"{mark.confidence:.4f}" for mark in predicted]
        tags = [_cell([mark.tag for mark in marks]) for marks in (given, predicted)]
        cells = [name, *tags, ";".join(confidences)]
        text.write(_row(map(guarded, cells)))
    return text.getvalue()


def write_table(path: Path, text: str) -> None:
    """Write a table in one step. Raises UserError if another file is there, StorageError if it cannot be written."""
    before = content_of(path)
    first = (before or b"").split(b"\n", 1)[0]
    if first and not (first.strip() == ",".join(COLUMNS).encode() or b'"predicted": ' in first):
        raise UserError(f"{path} is no earlier export, and would be lost. Choose another -o, or remove it.")
    replace_file(path, before, text.encode("utf-8", "replace"))


def given_and_predicted(item: ExportItem, run: str | None = None) -> tuple[list[Mark], list[Mark]]:
    """Part the tags to write into those of people and predictions."""
    wanted = item.wanted(run, Parents())
    return [m for m in wanted if m.source == GIVEN], [m for m in wanted if m.source != GIVEN]


def _row(cells: Iterable[str]) -> str:
    """Return a line of CSV, with quotes around cells that have a line end of any kind: names of files may."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\r\n").writerow(cells)  # before Python 3.13, it quotes only what ends its lines
    return text.getvalue().removesuffix("\r\n") + "\n"


def _cell(tags: list[str]) -> str:
    """Join tags by ``;``, or write them in JSON where that would part one."""
    odd = any({";", ","} & set(tag) for tag in tags) or (bool(tags) and tags[0].startswith("["))
    return json_text(tags) if odd else ";".join(tags)
