"""Export tags as a table (CSV, JSON lines), or photos with tags as a data set (FiftyOne, Hugging Face)."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from pathlib import Path

from PIL import Image

from visterm.core.checks import check_choice
from visterm.core.errors import StorageError, UserError
from visterm.core.remote import is_remote
from visterm.core.types import Skipped
from visterm.core.wording import json_text
from visterm.data.image_folders import suffix_of
from visterm.data.sidecars import content_of, replace_file
from visterm.data.text_files import guarded
from visterm.data.xmp.keywords import GIVEN, Mark
from visterm.library.export.items import ExportItem, Parents
from visterm.library.export.onnx_model import export_folder

CSV, JSONL = "csv", "jsonl"
TABLES = (CSV, JSONL)
TABLE_COLUMNS = ("file_name", "tags", "predicted", "confidence")

FIFTYONE, IMAGEFOLDER = "fiftyone", "imagefolder"
DATASETS = (FIFTYONE, IMAGEFOLDER)
PHOTO_FOLDER = "photos"

_README = """# Photos and tags for FiftyOne

Written by visterm. People's tags are in `labels.json`, predictions in `predictions.json`.

    import fiftyone as fo

    kind = fo.types.FiftyOneImageClassificationDataset
    layout = {"dataset_dir": FOLDER, "dataset_type": kind, "data_path": "data.json"}
    dataset = fo.Dataset.from_dir(**layout, label_field="tags")
    dataset.merge_dir(**layout, labels_path="predictions.json", label_field="predictions")
"""
"""`data_path` is needed: FiftyOne 1.22.1 does not find the file of paths by itself."""


def table_of(items: Iterable[ExportItem], to: str, *, run: str | None = None) -> str:
    """Return the tags of images as a table with one line per image.

    "csv": columns file_name, tags (by people, for `visterm fit --tags`), predicted and confidence, with values joined
    by ``;``; lists with a ``;`` or ``,`` in a tag are written as JSON. "jsonl": the same data as lists, and the
    fingerprint of the run. Raises UserError for any other `to`.

    CSV cells that a spreadsheet would interpret as formulas, because they begin with ``=``, ``+``, ``-``, ``@``, a tab
    or a carriage return, are prefixed with an apostrophe. `visterm fit --tags` removes it again.
    """
    check_choice(to, "to", TABLES)
    table = io.StringIO(newline="")
    if to == CSV:
        table.write(_row(TABLE_COLUMNS))
    for item in items:
        given_marks, predicted_marks = given_and_predicted(item, run)
        name = item.name or str(item.path)
        if to == JSONL:
            predicted_data = [
                {"tag": mark.tag} | ({} if mark.confidence is None else {"confidence": round(mark.confidence, 4)})
                for mark in predicted_marks
            ]
            record = {"file_name": name, "tags": [mark.tag for mark in given_marks], "predicted": predicted_data}
            table.write(json_text(record | ({"run": run} if run and predicted_marks else {})) + "\n")
            continue
        confidences = ["" if mark.confidence is None else f"{mark.confidence:.4f}" for mark in predicted_marks]
        tags = [_cell([mark.tag for mark in marks]) for marks in (given_marks, predicted_marks)]
        table.write(_row(map(guarded, [name, *tags, ";".join(confidences)])))
    return table.getvalue()


def write_table(path: Path, text: str) -> None:
    """Write a table atomically. Raises UserError if `path` is another file, StorageError if writing fails."""
    previous = content_of(path)
    first_line = (previous or b"").split(b"\n", 1)[0]
    if first_line and not (first_line.strip() == ",".join(TABLE_COLUMNS).encode() or b'"predicted": ' in first_line):
        problem = f"{path} is not an earlier export, and would be overwritten."
        raise UserError(problem, setting="out", value=str(path), advice="Choose another `out`, or remove it.")
    replace_file(path, previous, text.encode("utf-8", "replace"))


def given_and_predicted(item: ExportItem, run: str | None = None) -> tuple[list[Mark], list[Mark]]:
    """Return the tags to write that people gave, and those that are predictions."""
    marks = item.marks_to_write(run, Parents())
    return [m for m in marks if m.source == GIVEN], [m for m in marks if m.source != GIVEN]


def _row(cells: Iterable[str]) -> str:
    """Return a line of CSV, quoting cells with any kind of line break, which file names may contain."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\r\n").writerow(cells)  # before Python 3.13, only this terminator is quoted
    return text.getvalue().removesuffix("\r\n") + "\n"


def _cell(tags: list[str]) -> str:
    """Join tags with ``;``, or write them as JSON if a tag contains a separator."""
    needs_json = any({";", ","} & set(tag) for tag in tags) or (bool(tags) and tags[0].startswith("["))
    return json_text(tags) if needs_json else ";".join(tags)


def only_pictures(items: Iterable[ExportItem | Skipped]) -> Iterator[ExportItem | Skipped]:
    """Yield photos that both programs can read; yield videos, RAW files and remote objects as skipped."""
    readable = {suffix for suffix, kind in Image.registered_extensions().items() if kind in Image.OPEN}
    for item in items:
        if isinstance(item, Skipped):
            yield item
        elif is_remote(item.path):
            yield Skipped(str(item.path), "in an object store: copy it to this machine first")
        elif suffix_of(item.path) not in readable:
            yield Skipped(str(item.path), f"data sets cannot have files of type {suffix_of(item.path)}")
        else:
            yield item


def export_dataset(items: Iterable[ExportItem], to: str, out: Path) -> None:
    """Write photos (from `only_pictures`) and their tags as a data set of kind `to`, one of `DATASETS`.

    Photos get numbers as names, because both programs interpret names. "fiftyone" has a table of their paths, and
    "imagefolder" has links to them. Raises UserError if `to` is invalid; StorageError if `out` is not empty.
    """
    check_choice(to, "to", DATASETS)
    with export_folder(out) as folder:
        (_write_fiftyone if to == FIFTYONE else _write_imagefolder)(items, folder)


def _write_imagefolder(items: Iterable[ExportItem], folder: Path) -> None:
    """Write photos and ``metadata.jsonl``: file_name, name, tags, predicted and confidence."""
    (folder / PHOTO_FOLDER).mkdir()
    with (folder / "metadata.jsonl").open("w", encoding="utf-8") as lines:
        for number, item in enumerate(items):
            given, predicted = given_and_predicted(item)
            file_name = f"{PHOTO_FOLDER}/{number:07d}{suffix_of(item.path)}"
            try:
                (folder / file_name).symlink_to(item.path.absolute())
            except OSError as error:  # for example on Windows, where users may not create links
                raise StorageError(
                    f"The link {folder / file_name} to {item.path.absolute()} cannot be created: "
                    f"{error.strerror or error}. Write to a disk where you may make links."
                ) from error
            entry = {
                "file_name": file_name,
                "name": item.name or str(item.path),
                "tags": [mark.tag for mark in given],
                "predicted": [mark.tag for mark in predicted],
                "confidence": [mark.confidence for mark in predicted if mark.confidence is not None],
            }
            lines.write(json_text(entry) + "\n")


def _write_fiftyone(items: Iterable[ExportItem], folder: Path) -> None:
    """Write ``data.json`` (paths of photos), ``labels.json`` and ``predictions.json``."""
    paths: dict[str, str] = {}
    classes: dict[str, int] = {}
    label_maps: tuple[dict[str, object], dict[str, object]] = {}, {}
    for number, item in enumerate(items):
        name = f"{number:07d}"
        paths[name] = str(item.path.absolute())
        for labels, marks in zip(label_maps, given_and_predicted(item), strict=True):
            labels[name] = [
                {"label": classes.setdefault(mark.tag, len(classes))}
                | ({} if mark.confidence is None else {"confidence": mark.confidence})
                for mark in marks
            ] or None

    (folder / "data.json").write_text(json_text(paths, indent=1), encoding="utf-8")
    for file, labels in zip(("labels.json", "predictions.json"), label_maps, strict=True):
        (folder / file).write_text(json_text({"classes": list(classes), "labels": labels}, indent=1), encoding="utf-8")
    (folder / "README.md").write_text(_README, encoding="utf-8")
