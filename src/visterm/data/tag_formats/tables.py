"""Tags in tables (CSV, TSV) and JSON lines: columns of file names and of tags, and maybe of splits and of users."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from visterm.core.errors import TagFileError
from visterm.core.files import open_text
from visterm.data.tag_formats.record import TagRecord, choose_separator, listed, record, split_name, split_text
from visterm.data.text_files import read_text, unguarded

IMAGE_COLUMNS = ("file_name", "image")
TAGS_COLUMNS = ("tags", "labels", "tag")
USER_COLUMNS = ("user", "owner", "photographer")
SPLIT_COLUMN = "split"
JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")

_DELIMITERS = (",", "\t", ";", "|")


class Row(NamedTuple):
    """One row of a table: where it stands, and its cells by column."""

    line: int
    cells: dict[str, Any]


def read_table(
    path: Path,
    *,
    image_column: str | None = None,
    tags_column: str | None = None,
    user_column: str | None = None,
    separator: str | None = None,
) -> list[TagRecord]:
    """Read a CSV, TSV or JSON-lines file.

    Parameters
    ----------
    path : Path
        JSON lines are known by their suffix or first character; the delimiter of other tables by the header it makes.
    image_column, tags_column : str, optional
        Columns to use instead of "file_name" or "image", and of "tags", "labels" or "tag" (in either case).
    user_column : str, optional
        The column that says whose an image is, instead of "user", "owner" or "photographer", which need not be there.
    separator : str, optional
        What stands between tags in one cell: by default ``;`` if any cell has one, else ``,``. Lists need none.

    Returns
    -------
    list of TagRecord
        One for each row.

    Raises
    ------
    TagFileError
        If it is not UTF-8, a column is missing, or a row cannot be understood: the message names file and line.
    """
    text = read_text(path)
    wanted = Columns(image_column, tags_column)
    rows = table_rows(path, text, wanted)
    if not rows:
        raise TagFileError(f"The tag file {path} has no rows.")
    names = list(dict.fromkeys(name for row in rows for name in row.cells))
    image_name, tags_name = wanted.image_in(names, path), wanted.tags_in(names, path)
    split_in_file = find_column([SPLIT_COLUMN], names)
    user_in_file = _user_column(user_column, names, path)
    cells = [_tags_cell(path, row, tags_name) for row in rows]
    separator = choose_separator((cell for cell in cells if isinstance(cell, str)), separator)
    return [
        record(
            _image_cell(path, row, image_name),
            split_text(cell, separator) if isinstance(cell, str) else cell,
            split_name(_text_cell(path, row, split_in_file)) if split_in_file else None,
            _user_of(row.cells.get(user_in_file)) if user_in_file else None,
            place=f"{path}, line {row.line}",
        )
        for row, cell in zip(rows, cells, strict=True)
    ]


def stream_table(
    path: Path,
    *,
    image_column: str | None = None,
    tags_column: str | None = None,
    separator: str | None = None,
) -> Iterator[TagRecord]:
    """Read a table row by row, in memory that does not grow with it; users are passed over.

    Parameters, records and errors are those of `read_table`, but for this: of JSON lines the first object names the
    columns of images and tags. Where no separator is given, the file is read once before, up to its first ``;``.

    Yields
    ------
    TagRecord
        One for each row.
    """
    wanted = Columns(image_column, tags_column)
    columns: tuple[str, str] | None = None
    splits: dict[tuple[str, ...], str | None] = {}

    def cells() -> Iterator[tuple[Row, str | list[str]]]:
        nonlocal columns
        for row in _streamed_rows(path, wanted):
            if columns is None:
                names = list(row.cells)
                columns = wanted.image_in(names, path), wanted.tags_in(names, path)
            yield row, _tags_cell(path, row, columns[1])

    chosen = separator or choose_separator((cell for _, cell in cells() if isinstance(cell, str)), None)
    for row, cell in cells():
        names = tuple(row.cells)
        if names not in splits:
            splits[names] = find_column([SPLIT_COLUMN], names)
        column = splits[names]
        yield record(
            _image_cell(path, row, columns[0] if columns else ""),
            split_text(cell, chosen) if isinstance(cell, str) else cell,
            split_name(_text_cell(path, row, column)) if column else None,
            place=f"{path}, line {row.line}",
        )
    if columns is None:
        raise TagFileError(f"The tag file {path} has no rows.")


def _streamed_rows(path: Path, wanted: Header) -> Iterator[Row]:
    try:
        with open_text(path, encoding="utf-8-sig", newline="") as lines:
            head = lines.readline()
            while head and not head.strip():
                head = lines.readline()
            lines.seek(0)
            if path.suffix.lower() in JSON_SUFFIXES or head.lstrip().startswith("{"):
                yield from _json_rows(path, lines, wanted.example)
            else:
                yield from _delimited_rows(path, lines, _delimiter(path, head, wanted))
    except OSError as error:
        raise TagFileError(f"The tag file {path} cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise TagFileError(f"The tag file {path} is not UTF-8 ({error}). Save it as 'UTF-8' or 'CSV UTF-8'.") from error


class Header(Protocol):
    """The columns that a table should have."""

    example: str

    def fit(self, names: list[str]) -> int:
        """Say how many of the columns a header has."""


def table_rows(path: Path, text: str, wanted: Header) -> list[Row]:
    """Return the rows of a CSV, TSV or JSON-lines file.

    Parameters
    ----------
    path : Path
        For its suffix, and for messages.
    text : str
        What is in it.
    wanted : Header
        Finds the delimiter by the columns, and gives the example of messages.

    Raises
    ------
    TagFileError
        If a row cannot be understood: the message names file and line.
    """
    is_json = path.suffix.lower() in JSON_SUFFIXES or text.lstrip().startswith("{")
    if is_json:
        return list(_json_rows(path, text.split("\n"), wanted.example))
    return list(_delimited_rows(path, io.StringIO(text, newline=""), _delimiter(path, text, wanted)))


class Columns:
    """The columns to look for, and the errors that say which there are."""

    example = '{"file_name": "1.jpg", "tags": ["sea", "sky"]}'

    def __init__(self, image: str | None, tags: str | None) -> None:
        self._image = [image] if image is not None else list(IMAGE_COLUMNS)
        self._tags = [tags] if tags is not None else list(TAGS_COLUMNS)

    def fit(self, names: list[str]) -> int:
        """Say how many of the two columns a header has."""
        return sum(find_column(wanted, names) is not None for wanted in (self._image, self._tags))

    def image_in(self, names: list[str], path: Path) -> str:
        """Find the column of file names."""
        return self._required(self._image, names, path, "file names", "image column (--image-column)")

    def tags_in(self, names: list[str], path: Path) -> str:
        """Find the column of tags."""
        return self._required(self._tags, names, path, "tags", "tags column (--tags-column)")

    @staticmethod
    def _required(wanted: list[str], names: list[str], path: Path, what: str, option: str) -> str:
        found = find_column(wanted, names)
        if found is None:
            raise TagFileError(
                f"The tag file {path} has no column of {what} named {' or '.join(map(repr, wanted))}; "
                f"its first line or its objects name: {', '.join(map(repr, names)) or 'nothing'}. Name the {option}."
            )
        return found


def find_column(wanted: Iterable[str], names: Iterable[str]) -> str | None:
    """Find the first of the wanted columns that there is; neither capitals nor white space around count."""
    by_key = {name.strip().casefold(): name for name in reversed(list(names))}
    return next((by_key[key] for key in (name.strip().casefold() for name in wanted) if key in by_key), None)


def _user_column(named: str | None, names: list[str], path: Path) -> str | None:
    """Find the column of users: one that is named must be there."""
    found = find_column(USER_COLUMNS if named is None else [named], names)
    if named is not None and found is None:
        raise TagFileError(
            f"The tag file {path} has no column of users named {named!r}; its first line or its objects name: "
            f"{', '.join(map(repr, names))}. Name the column of users (--user-column)."
        )
    return found


def _user_of(value: Any) -> str | None:
    """Return what tells a user from others: a text, or whatever else JSON has; None where nothing is said."""
    text = value if isinstance(value, str) else "" if value is None else json.dumps(value, sort_keys=True)
    return text.strip() or None


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
                    'columns. Put quotes around cells that hold the delimiter ("sea,sky"), or part tags by ; instead.'
                )
            yield Row(reader.line_num, dict(zip(header, map(unguarded, fields), strict=False)))
    except csv.Error as error:
        fix = f'A cell may have {csv.field_size_limit():,} letters. Check the quotes (") of this row, or shorten it.'
        raise TagFileError(f"{path}, line {reader.line_num}: {error}. {fix}") from error


def _delimiter(path: Path, text: str, wanted: Header) -> str:
    """Choose the delimiter that makes a header with the columns looked for, or else with the most columns."""
    if path.suffix.lower() in (".tsv", ".tab"):
        return "\t"
    header = next((line for line in text.splitlines() if line.strip()), "")

    def names(delimiter: str) -> list[str]:
        return [name.strip().strip('"') for name in header.split(delimiter)]

    return max(_DELIMITERS, key=lambda delimiter: (wanted.fit(names(delimiter)), len(names(delimiter))))


def _image_cell(path: Path, row: Row, name: str) -> str:
    text = (_text_cell(path, row, name) or "").strip().replace("\\", "/").removeprefix("./")
    if not text:
        raise TagFileError(f"{path}, line {row.line}: the cell '{name}' is empty; expected the name of an image file.")
    return text


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
