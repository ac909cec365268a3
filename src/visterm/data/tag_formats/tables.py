"""Tags in tables (CSV, TSV, JSON lines, DataFrames): columns of images and tags, and optionally splits and users."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TextIO, TypeAlias, TypedDict, Unpack

import numpy as np

from visterm.core.errors import TagFileError
from visterm.core.files import open_text, why_no_file
from visterm.core.remote import as_path
from visterm.data.data_sets import coco_records, data_set_records, is_data_set
from visterm.data.frames import FrameTable, as_table, unique_names
from visterm.data.images import image_name
from visterm.data.tag_formats.record import Splitter, TagRecord, parse_list, record, split_name
from visterm.data.text_files import GUARD, UTF16, read_text, unguarded

IMAGE_COLUMNS = ("file_name", "image", "path", "filename", "file", "photo", "SourceFile")
TAGS_COLUMNS = ("tags", "labels", "tag", "keywords", "label", "subject")
USER_COLUMNS = ("user", "owner", "photographer")
SPLIT_COLUMN = ("split",)
JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")

_NAME_COLUMN = "Rename the column of {0}, or name it in `tag_rules`: {1}_column = 'NAME'."
_NAME_IMAGES, _NAME_TAGS = _NAME_COLUMN.format("file names", "image"), _NAME_COLUMN.format("tags", "tags")
_MARKS, _NO_MARKS = {"1", "1.0", "x", "true", "yes"}, {"", "0", "0.0", "-1", "false", "no"}  # Of a tag, in its column
_DELIMITERS = (",", "\t", ";", "|")
_NUMBERED_TAGS = re.compile(rf"(?:{'|'.join(TAGS_COLUMNS)})[ _]?\d+ *", re.IGNORECASE)
_SEP_LINE = re.compile(r'("?)sep=([^"\r\n])\1', re.IGNORECASE)  # The first line that tells Excel the delimiter


class NoColumnError(TagFileError):
    """A table lacks a column that is needed."""


class Row(NamedTuple):
    """One row of a table: its line number (its number in a list of JSON), and its cells by column."""

    line: int
    cells: dict[str, Any]


TagSource: TypeAlias = Any  # A path, a DataFrame, or a list of dicts


class TableOptions(TypedDict, total=False):
    """How tables and texts of tags are read; None means the default."""

    # Columns to use instead of the usual names ("file_name", "image" or "path"; "tags", "labels" or "tag"). If they are
    # set, "auto" looks for tables only.
    image_column: str | None
    tags_column: str | None
    separator: str | None  # Separator of tags in a text, see `Splitter` and `separator_pattern`


class TableForm(NamedTuple):
    """The expected columns of a table, and an example."""

    # Accepted names of each column; the delimiter is the one that yields a header with most of the columns
    columns: tuple[Sequence[str], ...]
    example: str  # A line of JSON, for messages


def read_table(source: TagSource, **options: Unpack[TableOptions]) -> list[TagRecord]:
    """Read a CSV, TSV or JSON file, a DataFrame or a list of dicts: one record for each row.

    JSON, in lines or in one list, is recognised by the suffix or the first character. A file without a column of tags
    may have columns such as "tag 1" and "tag 2", or one for each tag with marks such as 1 and 0 in its cells. The
    delimiter of other tables is the one in a first line such as ``sep=;``, which Excel supports, or else the one that
    yields the best header. COCO's JSON of instances and data sets (`read_data_set`) are tables, too. Tag columns of the
    same name are joined. `options` may name columns to use instead of `IMAGE_COLUMNS` and `TAGS_COLUMNS`; case is
    ignored. An optional column of `USER_COLUMNS` has the owner of each image. Raises TagFileError if the file does not
    exist or is not UTF-8 (or UTF-16 with a byte-order mark), a column is missing, a column other than the tags occurs
    twice, or a row is invalid: the message names file and line.
    """
    if (table := as_table(source)) is not None:
        return table_records(table, **options)[1]
    path = as_path(source)
    if not path.is_file():
        problem, expected = f"The tag file {path} {why_no_file(path)}.", "a .csv, .tsv or .jsonl file"
        advice = "Images without a folder need one: `tags` FILE." if source == "auto" else ""
        expected += "" if advice else "; or a folder of .txt files, 'xmp' or 'auto'"
        raise TagFileError(problem, setting="tags", value=source, expected=expected, advice=advice)

    if is_data_set(path):
        return data_set_records(path)
    form = _tag_form(options)
    text = read_text(path, or_utf16=True)
    if (records := coco_records(path, text)) is not None:
        return records
    rows = table_rows(path, text, form)
    if not rows:
        raise TagFileError(f"The tag file {path} has no rows.")
    rows = _with_tags_in_one_column(rows, form) if options.get("tags_column") is None else rows
    names = list(dict.fromkeys(name for row in rows for name in row.cells))
    columns = _columns_of(form, names, f"The tag file {path}")
    return list(_records(path, lambda: rows, *columns, options.get("separator")))


def check_in_file(tags: TagSource, of: str = "streamed features") -> None:
    """Raise TagFileError unless `tags` is a table on disk; `of` says in the message what the tags are for."""
    if not isinstance(tags, str | os.PathLike) or not as_path(tags).is_file():
        source = f"'{tags}'" if isinstance(tags, str | os.PathLike) else f"a {type(tags).__name__}"
        problem = f"The tags of {of} are read from a table, and {source} is not a table."
        raise TagFileError(problem, setting="tags", value=tags, expected="a .csv, .tsv or .jsonl file")


def table_records(table: FrameTable, **options: Unpack[TableOptions]) -> tuple[list[Any], list[TagRecord]]:
    """Read a table in memory as `read_table` reads a file; return the image and the record of each row.

    An image that is a text, path or number is its own name; pixels are named "image 0", "image 1" and so on.
    """
    names = [name for name in table.names if isinstance(name, str)]
    image_column, tags_column = _columns_of(_tag_form(options), names, "The table")
    others = (columns_named(column, tuple(names)) for column in ((tags_column,), USER_COLUMNS, SPLIT_COLUMN))
    cells = {name: table.cells(name) for name in dict.fromkeys([image_column, *chain.from_iterable(others)])}
    images = cells[image_column]
    cells[image_column] = [image_name(image, index) for index, image in enumerate(images)]
    rows = [Row(n, dict(zip(cells, row, strict=True))) for n, row in enumerate(zip(*cells.values(), strict=True), 1)]
    if not rows:
        raise TagFileError("The table has no rows.")
    return images, list(_records("the table", lambda: rows, image_column, tags_column, options.get("separator")))


def image_cells(table: FrameTable, image_column: str | None = None) -> list[Any]:
    """Return the image column of a table: names or pixels. Raises TagFileError if it has no such column."""
    names = [name for name in table.names if isinstance(name, str)]
    if len(table.names) > 1 or image_column is not None:
        column_names = IMAGE_COLUMNS if image_column is None else [image_column]
        return table.cells(required_column(column_names, names, "The table", " of file names", _NAME_IMAGES))
    return table.cells(table.names[0]) if table.names else []


def stream_table(path: Path, **options: Unpack[TableOptions]) -> Iterator[TagRecord]:
    """Read a table row by row, in memory that does not grow with the table.

    Parameters, records and errors are those of `read_table`, except that in JSON lines the first object must have the
    columns of images and tags, and tags are in one column. Without a separator, the file is read once beforehand, or up
    to three times if some cells have ``;`` and others have commas.
    """
    form = _tag_form(options)
    if (first_row := next(_streamed_rows(path, form), None)) is None:
        raise TagFileError(f"The tag file {path} has no rows.")
    columns = _columns_of(form, list(first_row.cells), f"The tag file {path}")
    yield from _records(path, lambda: _streamed_rows(path, form), *columns, options.get("separator"))


def table_rows(path: Path, text: str, form: TableForm) -> list[Row]:
    """Return the rows of a CSV, TSV or JSON-lines file with this text; `path` is used for its suffix and in messages.

    Raises TagFileError if a row is invalid: the message names file and line.
    """
    return list(_rows(path, io.StringIO(text, newline=""), form))


@lru_cache(maxsize=256)
def columns_named(requested: tuple[str, ...], names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the columns with the first of the requested names that exists.

    Case and outer white space are ignored, and "File Name" is "file_name". The result has several columns if a table
    has several columns of that name.
    """
    column_of_key = [("_".join(column.casefold().split()), column) for column in names]
    for name in requested:
        requested_key = "_".join(name.casefold().split())
        if columns := tuple(column for key, column in column_of_key if key == requested_key):
            return columns
    return ()


def find_column(requested: Iterable[str], names: Iterable[str], table: str = "The table") -> str | None:
    """Return the first requested column that exists, found as in `columns_named`, or None.

    Raises TagFileError if several columns have that name; the message begins with `table`.
    """
    columns = columns_named(tuple(requested), tuple(names))
    if len(columns) > 1:
        name = columns[0].strip()
        raise TagFileError(f"{table} has {len(columns)} columns named '{name}'; expected one. Rename the others.")
    return columns[0] if columns else None


def required_column(requested: Sequence[str], names: Sequence[str], table: str, of: str, advice: str) -> str:
    """Return the first requested column that exists, found as in `find_column`.

    Raises TagFileError if none exists: the message begins with `table` ("The tag file a.csv") and `of`, the content of
    the column (" of tags"), and ends with `advice`.
    """
    if (column := find_column(requested, names, table)) is None:
        raise NoColumnError(
            f"{table} has no column{of} named {' or '.join(map(repr, requested))}; its columns are: "
            f"{', '.join(names[:20]) or 'none'}{', …' if len(names) > 20 else ''}.",
            advice=advice,
        )
    return column


def _tag_form(options: TableOptions) -> TableForm:
    images, tags = options.get("image_column"), options.get("tags_column")
    columns = (IMAGE_COLUMNS if images is None else (images,), TAGS_COLUMNS if tags is None else (tags,))
    return TableForm(columns, '{"file_name": "1.jpg", "tags": ["sea", "sky"]}')


def _columns_of(form: TableForm, names: Sequence[str], table: str) -> tuple[str, str]:
    image = required_column(form.columns[0], names, table, " of file names", _NAME_IMAGES)
    columns = columns_named(tuple(form.columns[1]), tuple(names))  # columns of one name are joined
    tags = columns[0] if columns else required_column(form.columns[1], names, table, " of tags", _NAME_TAGS)
    return image, tags


def _with_tags_in_one_column(rows: list[Row], form: TableForm) -> list[Row]:
    """Join columns such as "tag 1" and "tag 2", or a column for each tag with 1 or x where a photo has it."""
    names = tuple(dict.fromkeys(name for row in rows for name in row.cells))
    groups = (*form.columns, SPLIT_COLUMN, USER_COLUMNS)
    images, has_tags, *others = (columns_named(tuple(group), names) for group in groups)
    columns = [name for name in names if name not in (*images, *chain.from_iterable(others))]
    if not images or has_tags or len(columns) < 2:
        return rows
    numbered = [name for name in columns if _NUMBERED_TAGS.fullmatch(name)]
    cells = [[str(row.cells.get(name) or "").strip() for name in numbered or columns] for row in rows]
    values = {cell.casefold() for row_cells in cells for cell in row_cells}
    tags: list[Any] = ["\n".join(row_cells) for row_cells in cells]
    if values & _MARKS and values <= _MARKS | _NO_MARKS:
        pairs = (zip(numbered or columns, row_cells, strict=True) for row_cells in cells)
        tags = [[name for name, cell in row_pairs if cell.casefold() in _MARKS] for row_pairs in pairs]
    elif not numbered:
        return rows
    return [Row(row.line, row.cells | {TAGS_COLUMNS[0]: cell}) for row, cell in zip(rows, tags, strict=True)]


def _records(
    path: Path | str, read: Callable[[], Iterable[Row]], images: str, tags: str, separator: str | None
) -> Iterator[TagRecord]:
    """Yield a record for each row; `read` is called once per pass, since the splitter sees all rows first."""
    splitter = Splitter(
        lambda: (text for row in read() if (text := _tags_cell(path, row, tags)[0]) is not None), separator
    )
    for row in read():
        yield _record(path, row, splitter, images, tags)


def _streamed_rows(path: Path, form: TableForm) -> Iterator[Row]:
    try:
        with open_text(path, encoding="latin-1") as file:
            encoding = "utf-16" if file.read(2).encode("latin-1") in UTF16 else "utf-8-sig"
        with open_text(path, encoding=encoding, newline="") as file:
            yield from _rows(path, file, form)
    except OSError as error:
        raise TagFileError(f"The tag file {path} cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise TagFileError(f"The tag file {path} is not UTF-8 ({error}). Save it as 'UTF-8' or 'CSV UTF-8'.") from error


def _rows(path: Path, file: TextIO, form: TableForm) -> Iterator[Row]:
    first_line = next((line for line in file if line.strip()), "")
    file.seek(0)
    if path.suffix.lower() in JSON_SUFFIXES or first_line.lstrip().startswith("{"):
        return _json_rows(path, file, form.example)
    return _delimited_rows(path, file, _delimiter(path, first_line, form))


def _json_rows(path: Path, lines: Iterable[str], example: str) -> Iterator[Row]:
    """Yield an object of each line, or the entries of a list over all lines, whose numbers then count as lines."""
    numbered_lines = ((number, line) for number, line in enumerate(lines, start=1) if line.strip())
    for index, (number, text) in enumerate(numbered_lines):
        is_list = index == 0 and text.lstrip().startswith("[")
        text = "\n".join([text, *(line for _, line in numbered_lines)]) if is_list else text
        try:
            value = json.loads(text, object_pairs_hook=_without_repeats, parse_float=str)  # 2.80 is a keyword
        except (ValueError, RecursionError) as error:
            expected = "expected one object per line, or a list of objects"
            raise TagFileError(f"{path}, line {number}: not JSON ({error}); {expected}.") from error
        for line, cells in enumerate(value, start=1) if is_list else [(number, value)]:
            if not isinstance(cells, dict):
                type_name = type(cells).__name__
                raise TagFileError(f"{path}, line {line}: {type_name}; expected a JSON object such as {example}.")
            yield Row(line, cells)


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return a JSON object as a dict; raise ValueError for a repeated key, of which `json` would drop a value."""
    cells = dict(pairs)
    if len(cells) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} occurs twice")
    return cells


def _delimited_rows(path: Path, lines: Iterable[str], delimiter: str) -> Iterator[Row]:
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    header: list[str] | None = None
    next_line = 1
    try:
        for fields in reader:
            line, next_line = next_line, reader.line_num + 1  # a row may have several lines
            is_sep = header is None and _SEP_LINE.fullmatch(delimiter.join(fields)) is not None
            if is_sep or not any(field.strip() for field in fields):
                continue
            if header is None:
                header = unique_names([name.strip() for name in fields])
                continue
            if any(field.strip() for field in fields[len(header) :]):
                raise TagFileError(
                    f"{path}, line {line}: {len(fields)} fields, but the first line names {len(header)} "
                    'columns. Put quotes around cells that hold the delimiter ("sea,sky"), or separate tags by ;.'
                )
            cells = [unguarded(cell) if cell.startswith(GUARD) else cell for cell in fields]
            yield Row(line, dict(zip(header, cells, strict=False)))
    except csv.Error as error:
        advice = f'A cell may have {csv.field_size_limit():,} letters. Check the quotes (") of this row, or shorten it.'
        raise TagFileError(f"{path}, line {next_line}: {error}. {advice}") from error


def _delimiter(path: Path, first_line: str, form: TableForm) -> str:
    """Return the delimiter of a line ``sep=``, or the one that yields a header with most of the expected columns."""
    header = first_line.strip("\r\n")
    if sep_line := _SEP_LINE.fullmatch(header):
        return sep_line[2]
    if path.suffix.lower() in (".tsv", ".tab"):
        return "\t"

    counts = {}
    for delimiter in _DELIMITERS:
        names = [name.strip().strip('"') for name in header.split(delimiter)]
        n_columns = sum(bool(columns_named(tuple(column), tuple(names))) for column in form.columns)
        counts[delimiter] = n_columns, len(names)
    return max(counts, key=counts.__getitem__)


def _record(path: Path | str, row: Row, splitter: Splitter, image_column: str, tags_column: str) -> TagRecord:
    """Convert a row to a record, which has the image's name as it is in the cell (see `match_names`)."""
    source = f"{path}, line {row.line}"
    split_column, user_column = (find_column(names, row.cells, source) for names in (SPLIT_COLUMN, USER_COLUMNS))
    for column in filter(None, (image_column, split_column)):
        value = row.cells.get(column)
        if value is not None and not isinstance(value, str):
            raise TagFileError(f"{source}: '{column}' is {value!r:.60}; expected text.")

    name = (row.cells.get(image_column) or "").removeprefix("./")
    if name.strip() in ("", "./", ".\\"):
        raise TagFileError(f"{source}: the cell '{image_column}' is empty; expected the name of an image file.")

    text_of_tags, listed_tags = _tags_cell(path, row, tags_column)
    tags = [*(splitter.split(text_of_tags) if text_of_tags else ()), *listed_tags]
    split = split_name(row.cells[split_column]) if split_column else None
    owner = row.cells[user_column] if user_column else None  # a text, or any other JSON value
    user = owner if isinstance(owner, str) else "" if owner is None else json.dumps(owner, sort_keys=True)
    is_known = any(tags) or text_of_tags is None  # an empty list, or a row without marks, says that it has no tag
    return record(name, tags, split, user.strip() or None, source=source)._replace(is_known=is_known)


def _tags_cell(path: Path | str, row: Row, name: str) -> tuple[str | None, list[str]]:
    """Return the tags of a row from all columns named `name`: a text to split, and the tags that were in lists."""
    texts: list[str] = []
    listed_tags: list[str] = []
    for column in columns_named((name,), tuple(row.cells)):
        cell = row.cells[column]
        list_cell = parse_list(cell) if isinstance(cell, str) and "[" in cell else None
        cell = cell if list_cell is None else list_cell
        if cell is None or isinstance(cell, str):
            texts.append(cell or "")
            continue
        cell = [cell] if type(cell) is int else cell  # such as 2019, a photo's only keyword in the JSON of exiftool
        values = cell.tolist() if isinstance(cell, np.ndarray) else cell
        if isinstance(values, tuple | set | frozenset):
            values = list(values) if isinstance(values, tuple) else sorted(values)
        if not isinstance(values, list) or any(isinstance(v, bool) or not isinstance(v, str | int) for v in values):
            raise TagFileError(f"{path}, line {row.line}: '{name}' is {cell!r:.60}; expected text or a list of texts.")
        listed_tags += map(str, values)
    return "\n".join(texts) if texts else None, listed_tags  # `Splitter` splits each line
