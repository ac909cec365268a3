"""Files of two columns that relate words: kinds (is-a), parts and their wholes, tags and their synsets."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from visterm.core.errors import DataError
from visterm.core.vocabulary import clean_tag, tag_key
from visterm.core.writing import whole_file
from visterm.data.text_files import guarded, read_text, unguarded

_HEADERS = frozenset(
    {"alias", "aliases", "canonical", "child", "column", "file", "file_name", "filename", "from", "id"}
    | {"image", "kind", "label", "labels", "meaning", "name", "new", "old", "parent", "part", "preferred"}
    | {"reason", "replacement", "spelling", "synonym", "synset", "tag", "tags", "term", "to", "user", "whole"}
    | {"word", "words"}
)
"""Words that head columns: a first line of nothing else is a header, and no pair."""


class PairFormat(NamedTuple):
    """What a file of pairs holds, for its reader and for the messages."""

    what: str  # Its name in messages: "is-a file"
    option: str  # The option that takes it
    columns: tuple[str, str]  # The two names that a header gives
    example: str  # A line
    relation: str | None = None  # What a word cannot be of itself: "a kind of". None: the two are no words of one sort.
    may_be_empty: bool = False  # Whether the second may be left out
    other_columns: tuple[str, str] | None = None  # Names by which other programs' headers call the two
    needs_header: bool = False  # Whether a first line must name the two: where they are easily taken for each other


class Pair(NamedTuple):
    """One line: its two words, and where it stands (file and line, for messages)."""

    first: str
    second: str
    place: str


def read_pairs(path: str | os.PathLike[str], form: PairFormat) -> Iterator[Pair]:
    """Read a CSV (or, by its suffix .tsv, tab-separated file) of two columns.

    A first line that names both columns is a header; there may then be other columns too, in any order. Raises
    DataError if it cannot be read, has no pair, lacks a header that its format needs, or a line is not two words; the
    message names file and line.
    """
    columns: tuple[int, int] | None = None
    n_columns = 2
    found = False
    for cells, place in read_lines(path, f"{form.what} ({form.option})"):
        if columns is None:
            columns = _header(cells, form)
            if columns is not None:
                n_columns = len(cells)
                continue
            if (
                form.needs_header
                or any(cells[2:])
                or _HEADERS.union(form.columns).issuperset(cell.casefold() for cell in cells)
            ):
                raise DataError(
                    f"{path} has the columns {', '.join(cells)}; {form.option} needs {','.join(form.columns)}. Rename "
                    "its columns, or add a first line that names two."
                )
            columns = 0, 1
        found = True
        yield _pair(cells, columns, n_columns, place, form)
    if not found:
        raise DataError(
            f"The {form.what} ({form.option}) {path} has no relations; expected lines such as '{form.example}' "
            f"({','.join(form.columns)})."
        )


def write_pairs(path: str | os.PathLike[str], header: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """Write what `read_pairs` reads: a header and a line for each row, with tabs where the file is named .tsv.

    Cells that a spreadsheet would compute get an apostrophe before them, which `read_pairs` takes off.
    """
    path = Path(path)
    with whole_file(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter=_delimiter(path), lineterminator="\n")
        writer.writerow(header)
        writer.writerows([guarded(cell) for cell in row] for row in rows)


def read_lines(path: str | os.PathLike[str], what: str) -> Iterator[tuple[list[str], str]]:
    """Yield the cleaned cells of each line that is not empty, and where it stands."""
    path = Path(path)
    text = read_text(path, what)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(path), strict=True)
    try:
        for fields in reader:
            cells = [clean_tag(unguarded(field)) for field in fields]
            if any(cells):
                yield cells, f"{path}, line {reader.line_num}"
    except csv.Error as error:
        raise DataError(f'{path}, line {reader.line_num}: {error}. Check the quotes (") of this line.') from error


def refuse_itself(word: str, other: str, place: str, relation: str) -> None:
    """Refuse a line that relates a word to itself."""
    if tag_key(word) == tag_key(other):
        raise DataError(f"{place}: '{word}' is said to be {relation} itself. Leave the line out.")


def _delimiter(path: Path) -> str:
    return "\t" if path.suffix.lower() == ".tsv" else ","


def _header(cells: list[str], form: PairFormat) -> tuple[int, int] | None:
    """Return the two columns that a first line names; None if it is no header."""
    named = [cell.casefold() for cell in cells]
    for columns in (form.columns, form.other_columns):
        if columns is not None and all(column.casefold() in named for column in columns):
            first, second = (named.index(column.casefold()) for column in columns)
            return first, second
    return None


def _pair(cells: list[str], columns: tuple[int, int], n_columns: int, place: str, form: PairFormat) -> Pair:
    if len(cells) < n_columns or any(cells[n_columns:]):
        raise DataError(
            f"{place}: {len(cells)} columns; expected {n_columns}, {' and '.join(form.columns)}. "
            "Put quotes around words that hold commas."
        )
    first, second = (cells[column] for column in columns)
    if not first or not (second or form.may_be_empty):
        raise DataError(
            f"{place}: the {form.columns[1 if first else 0]} is empty; expected two words, such as '{form.example}'."
        )
    if form.relation is not None:
        refuse_itself(first, second, place, form.relation)
    return Pair(first, second, place)
