"""Tags in tables (CSV, TSV) and JSON lines: columns of file names and of tags, and maybe of splits and of users."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from visterm.core.errors import TagFileError
from visterm.core.files import open_text
from visterm.data.tag_formats.record import TagRecord, listed, record, split_name
from visterm.data.tag_formats.separators import Splitter
from visterm.data.text_files import read_text, unguarded

IMAGE_COLUMNS = ("file_name", "image")
TAGS_COLUMNS = ("tags", "labels", "tag")
USER_COLUMNS = ("user", "owner", "photographer")
SPLIT_COLUMN = ("split",)
JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")

_DELIMITERS = (",", "\t", ";", "|")


class Row(NamedTuple):
    """One row of a table: where it stands, and its cells by column."""

    line: int
    cells: dict[str, Any]


class TableForm(NamedTuple):
    """What a table should look like."""

    columns: tuple[Sequence[str], ...]
    """The names that each of its columns may have; the delimiter is the one that makes a header of most of them."""
    example: str  # A line of JSON, for messages


def read_table(
    path: Path,
    *,
    image_column: str | None = None,
    tags_column: str | None = None,
    user_column: str | None = None,
    separator: str | None = None,
) -> list[TagRecord]:
    """Read a CSV, TSV or JSON-lines file: one record for each row.

    JSON lines are known by their suffix or first character; the delimiter of other tables by the header it makes.
    `image_column` and `tags_column` are used instead of "file_name" or "image", and of "tags", "labels" or "tag" (in
    either case). `user_column` says whose an image is, instead of "user", "owner" or "photographer", which need not be
    there. `separator` separates tags in one cell, see `Splitter`; lists need none. Raises TagFileError if it is not
    UTF-8, a column is missing, or a row cannot be understood: the message names file and line.
    """
    form = _tag_form(image_column, tags_column)
    rows = table_rows(path, read_text(path), form)
    if not rows:
        raise TagFileError(f"The tag file {path} has no rows.")
    names = list(dict.fromkeys(name for row in rows for name in row.cells))
    image, tags = _image_and_tags(form, names, path)
    user = find_column(USER_COLUMNS, names)
    if user_column is not None:
        missing = f"The tag file {path} has no column of users"
        user = required_column([user_column], names, missing, "Name the column of users (--user-column).")
    split = find_column(SPLIT_COLUMN, names)
    cells = [_tags_cell(path, row, tags) for row in rows]
    splitter = Splitter(lambda: (cell for cell in cells if isinstance(cell, str)), separator)
    return [_record(path, row, cell, splitter, image, split, user) for row, cell in zip(rows, cells, strict=True)]


def stream_table(
    path: Path, *, image_column: str | None = None, tags_column: str | None = None, separator: str | None = None
) -> Iterator[TagRecord]:
    """Read a table row by row, in memory that does not grow with it; users are passed over.

    Parameters, records and errors are those of `read_table`, but for this: of JSON lines the first object names the
    columns of images and tags. Where no separator is given, the file is read once before, and three times if it has
    cells with ``;`` and others with commas.
    """
    form = _tag_form(image_column, tags_column)
    columns: tuple[str, str] | None = None
    splits: dict[tuple[str, ...], str | None] = {}

    def cells() -> Iterator[tuple[Row, str | list[str]]]:
        nonlocal columns
        for row in _streamed_rows(path, form):
            if columns is None:
                columns = _image_and_tags(form, list(row.cells), path)
            yield row, _tags_cell(path, row, columns[1])

    splitter = Splitter(lambda: (cell for _, cell in cells() if isinstance(cell, str)), separator)
    for row, cell in cells():
        names = tuple(row.cells)
        if names not in splits:
            splits[names] = find_column(SPLIT_COLUMN, names)
        yield _record(path, row, cell, splitter, columns[0] if columns else "", splits[names], None)
    if columns is None:
        raise TagFileError(f"The tag file {path} has no rows.")


def table_rows(path: Path, text: str, form: TableForm) -> list[Row]:
    """Return the rows of a CSV, TSV or JSON-lines file with this text; its path is for the suffix and messages.

    Raises TagFileError if a row cannot be understood: the message names file and line.
    """
    if path.suffix.lower() in JSON_SUFFIXES or text.lstrip().startswith("{"):
        return list(_json_rows(path, text.split("\n"), form.example))
    return list(_delimited_rows(path, io.StringIO(text, newline=""), _delimiter(path, text, form)))


def find_column(wanted: Iterable[str], names: Iterable[str]) -> str | None:
    """Return the first of the requested columns that there is, or None; capitals and outer white space don't count."""
    by_key: dict[str, str] = {}
    for name in names:
        by_key.setdefault(name.strip().casefold(), name)
    for name in wanted:
        if (key := name.strip().casefold()) in by_key:
            return by_key[key]
    return None


def required_column(wanted: Sequence[str], names: Sequence[str], missing: str, advice: str) -> str:
    """Return the first of the requested columns that there is.

    Raises TagFileError if there is none: `missing` ("The tag file a.csv has no column of tags") begins the message,
    `advice` ends it.
    """
    found = find_column(wanted, names)
    if found is None:
        there = ", ".join(names) or "none"
        raise TagFileError(f"{missing} named {' or '.join(map(repr, wanted))}; its columns are: {there}. {advice}")
    return found


def _tag_form(image_column: str | None, tags_column: str | None) -> TableForm:
    images = IMAGE_COLUMNS if image_column is None else [image_column]
    tags = TAGS_COLUMNS if tags_column is None else [tags_column]
    return TableForm((images, tags), '{"file_name": "1.jpg", "tags": ["sea", "sky"]}')


def _image_and_tags(form: TableForm, names: Sequence[str], path: Path) -> tuple[str, str]:
    images, tags = form.columns
    return (
        required_column(
            images,
            names,
            f"The tag file {path} has no column of file names",
            "Say which holds the file names: --image-column NAME.",
        ),
        required_column(
            tags, names, f"The tag file {path} has no column of tags", "Say which holds the tags: --tags-column NAME."
        ),
    )


def _streamed_rows(path: Path, form: TableForm) -> Iterator[Row]:
    try:
        with open_text(path, encoding="utf-8-sig", newline="") as lines:
            head = lines.readline()
            while head and not head.strip():
                head = lines.readline()
            lines.seek(0)
            if path.suffix.lower() in JSON_SUFFIXES or head.lstrip().startswith("{"):
                yield from _json_rows(path, lines, form.example)
            else:
                yield from _delimited_rows(path, lines, _delimiter(path, head, form))
    except OSError as error:
        raise TagFileError(f"The tag file {path} cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise TagFileError(f"The tag file {path} is not UTF-8 ({error}). Save it as 'UTF-8' or 'CSV UTF-8'.") from error


def _json_rows(path: Path, lines: Iterable[str], example: str) -> Iterator[Row]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            cells = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise TagFileError(f"{path}, line {number}: not JSON ({error}); expected one object a line.") from error
        if not isinstance(cells, dict):
            raise TagFileError(
                f"{path}, line {number}: {type(cells).__name__}; expected a JSON object such as {example}."
            )
        yield Row(number, cells)


def _delimited_rows(path: Path, lines: Iterable[str], delimiter: str) -> Iterator[Row]:
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    header: list[str] | None = None
    try:
        for fields in reader:
            if not any(field.strip() for field in fields):
                continue
            if header is None:
                header = [name.strip() for name in fields]
                continue
            if any(field.strip() for field in fields[len(header) :]):
                raise TagFileError(
                    f"{path}, line {reader.line_num}: {len(fields)} fields, but the first line names {len(header)} "
                    'columns. Put quotes around cells that hold the delimiter ("sea,sky"), or separate tags by ;.'
                )
            yield Row(reader.line_num, dict(zip(header, map(unguarded, fields), strict=False)))
    except csv.Error as error:
        fix = f'A cell may have {csv.field_size_limit():,} letters. Check the quotes (") of this row, or shorten it.'
        raise TagFileError(f"{path}, line {reader.line_num}: {error}. {fix}") from error


def _delimiter(path: Path, text: str, form: TableForm) -> str:
    """Choose the delimiter that makes a header with the columns looked for, or else with the most columns."""
    if path.suffix.lower() in (".tsv", ".tab"):
        return "\t"
    header = next((line for line in text.splitlines() if line.strip()), "")

    def columns(delimiter: str) -> tuple[int, int]:
        names = [name.strip().strip('"') for name in header.split(delimiter)]
        return sum(find_column(column, names) is not None for column in form.columns), len(names)

    return max(_DELIMITERS, key=columns)


def _record(
    path: Path, row: Row, cell: str | list[str], splitter: Splitter, image: str, split: str | None, user: str | None
) -> TagRecord:
    """Make a record of a row, whose tags are a list or are to be parted."""
    name = (_text_cell(path, row, image) or "").strip().replace("\\", "/").removeprefix("./")
    if not name:
        raise TagFileError(f"{path}, line {row.line}: the cell '{image}' is empty; expected the name of an image file.")
    said = None if user is None else row.cells.get(user)  # a text, or whatever else JSON has
    text = said if isinstance(said, str) else "" if said is None else json.dumps(said, sort_keys=True)
    return record(
        name,
        splitter.split(cell) if isinstance(cell, str) else cell,
        split_name(_text_cell(path, row, split)) if split else None,
        text.strip() or None,
        place=f"{path}, line {row.line}",
    )


def _text_cell(path: Path, row: Row, name: str) -> str | None:
    value = row.cells.get(name)
    if value is None or isinstance(value, str):
        return value
    raise TagFileError(f"{path}, line {row.line}: '{name}' is {value!r:.60}; expected text.")


def _tags_cell(path: Path, row: Row, name: str) -> str | list[str]:
    """Return the tags of a row: a list of them, or the text that holds them."""
    value = row.cells.get(name)
    if isinstance(value, str):
        in_brackets = listed(value)
        if in_brackets is None:
            return value
        value = in_brackets
    values = [] if value is None else value
    if not isinstance(values, list) or any(isinstance(v, bool) or not isinstance(v, str | int) for v in values):
        raise TagFileError(f"{path}, line {row.line}: '{name}' is {value!r:.60}; expected text or a list of texts.")
    return [str(v) for v in values]
