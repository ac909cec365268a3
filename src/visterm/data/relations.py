"""Two-column files that relate words: is-a relations with the siblings that they imply, and part-of relations."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import as_csr, check_size
from visterm.core.errors import DataError
from visterm.core.vocabulary import Vocabulary, clean_tag, tag_key
from visterm.core.writing import whole_file
from visterm.data.text_files import guarded, read_text, unguarded

MAX_SIBLING_BYTES = 2**31  # Maximum memory for pairs of siblings

# Common names of columns: a first line that has only such words is a header, not a pair
_HEADERS = frozenset(
    {"alias", "aliases", "canonical", "child", "column", "file", "file_name", "filename", "from", "id"}
    | {"image", "kind", "label", "labels", "meaning", "name", "new", "old", "parent", "part", "preferred"}
    | {"reason", "replacement", "spelling", "synonym", "synset", "tag", "tags", "term", "to", "user", "whole"}
    | {"word", "words"}
)


class PairFormat(NamedTuple):
    """The format of a file of pairs, for its reader and for messages."""

    noun: str  # Name of the file in messages: "is-a file"
    columns: tuple[str, str]  # Names of the two columns in a header
    example: str  # An example of a line
    relation: str | None = None  # Relation that a word cannot have to itself: "a kind of"; None: no such check
    may_be_empty: bool = False  # Whether the second word may be missing
    other_columns: tuple[str, str] | None = None  # Names of the two columns in other programs' headers
    needs_header: bool = False  # Whether a header is required, because the columns are easily confused


IS_A_FILE = PairFormat("is-a file", ("child", "parent"), "tiger,big cat", "a kind of")
PART_OF_FILE = PairFormat("part-of file", ("part", "whole"), "wheel,car", "part of")
TREE_FILE = PairFormat("tree", ("child", "parent"), "husky,dog", "under")


class WordPair(NamedTuple):
    """The two words of a line, and the name of the file with the line number, for messages."""

    first: str
    second: str
    source: str


def read_pairs(path: str | os.PathLike[str], form: PairFormat) -> Iterator[WordPair]:
    """Read the pairs of a CSV (or, with the suffix .tsv, tab-separated) file with two columns.

    A first line that names both columns is a header; the file may then have more columns, in any order. Raises
    DataError if the file cannot be read, has no pairs, lacks a required header, or a line does not have two words; the
    message names file and line.
    """
    path = Path(path)
    reader = csv.reader(io.StringIO(read_text(path, form.noun), newline=""), delimiter=_delimiter(path), strict=True)
    columns: tuple[int, int] | None = None
    n_columns, is_empty = 2, True

    try:
        for fields in reader:
            cells = [clean_tag(unguarded(field)) for field in fields]
            if not any(cells):
                continue
            if columns is None:
                if (columns := _header(cells, form)) is not None:
                    n_columns = len(cells)
                    continue
                columns = 0, 1
                headers = _HEADERS.union(form.columns)
                if form.needs_header or any(cells[2:]) or headers.issuperset(cell.casefold() for cell in cells):
                    raise DataError(
                        f"{path} has the columns {', '.join(cells)}; the {form.noun} needs {','.join(form.columns)}. "
                        "Rename its columns, or add a first line that names two."
                    )
            is_empty = False
            yield _pair(cells, columns, n_columns, f"{path}, line {reader.line_num}", form)
    except csv.Error as error:
        raise DataError(f'{path}, line {reader.line_num}: {error}. Check the quotes (") of this line.') from error

    if is_empty:
        expected = f"expected lines such as '{form.example}' ({','.join(form.columns)})"
        raise DataError(f"The {form.noun} {path} has no relations; {expected}.")


def write_pairs(path: str | os.PathLike[str], header: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """Write a file for `read_pairs`: a header and a line for each row, tab-separated if the suffix is .tsv.

    Cells that a spreadsheet would evaluate get an apostrophe in front, which `read_pairs` removes.
    """
    path = Path(path)
    with whole_file(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter=_delimiter(path), lineterminator="\n")
        writer.writerow(header)
        writer.writerows([guarded(cell) for cell in row] for row in rows)


def read_related(path: str | os.PathLike[str], form: PairFormat) -> list[tuple[str, str]]:
    """Read the relations in a file of `IS_A_FILE`, `PART_OF_FILE` or `TREE_FILE`, as `read_pairs` does."""
    return [(pair.first, pair.second) for pair in read_pairs(path, form)]


class PartOf(NamedTuple):
    """A relation: `part` is a part of `whole`."""

    part: str
    whole: str


def part_pairs(relations: Iterable[tuple[str, str]], vocabulary: Vocabulary) -> NDArray[np.int64]:
    """Return the columns of the tags in relations (part, whole).

    Words are compared like tags, normalised (NFC) and without regard to case; if that fails, ``_`` is read as a space.
    Returns columns of (part, whole), int64 of shape (n_pairs, 2), sorted and unique. Relations with a word that is not
    a tag are left out. Raises DataError if no relation is between two tags, unless `relations` is empty.
    """
    relations = list(relations)

    def column(word: str) -> int:
        exact = vocabulary.get(word)
        spaced = vocabulary.get(word.replace("_", " ")) if exact is None else exact
        return -1 if spaced is None else spaced

    columns = {(column(part), column(whole)) for part, whole in relations}
    pairs = sorted((part, whole) for part, whole in columns if part != whole and min(part, whole) >= 0)
    if relations and not pairs:
        examples = ", ".join(f"{part} of {whole}" for part, whole in relations[:3])
        raise DataError(
            f"None of the part-of relations ({examples}) is between two tags of the vocabulary "
            f"({', '.join(vocabulary.tags[:3])}). Check that its lines are part,whole."
        )
    return np.array(pairs, np.int64).reshape(-1, 2)


def sibling_sets(relations: Iterable[tuple[str, str]], vocabulary: Vocabulary) -> sp.csr_array:
    """Find the tags that share a parent: ``S(i, j) = 1 if i = j or both are a kind of some k`` (WSABIE, section 4).

    Relations are (child, parent). Children that are not in the vocabulary are left out; parents need not be in it.
    Words are compared like tags: normalised (NFC) and without regard to case. Returns float32 of shape (n_tags,
    n_tags), 1 for siblings and on the diagonal. Raises DataError if no child is in the vocabulary; TooLargeError if the
    pairs of siblings could take more than 2 GiB.
    """
    relations = list(relations)
    parents: dict[str, int] = {}
    pairs = {
        (column, parents.setdefault(tag_key(parent), len(parents)))
        for child, parent in relations
        if (column := vocabulary.get(child)) is not None
    }
    if not pairs:
        examples = ", ".join(child for child, _ in relations[:3]) or "there are none"
        raise DataError(
            f"None of the children in the is-a relations ({examples}) is a tag of the vocabulary "
            f"({', '.join(vocabulary.tags[:3])}). Check that its lines are child,parent."
        )

    rows, columns = np.array(sorted(pairs), np.int64).T
    n_children = np.bincount(columns)
    n_tags, n_bytes = len(vocabulary), 8 * int((n_children**2).sum())
    description = f"The siblings of {n_tags} tags, up to {n_children.max()} of one parent,"
    check_size(n_bytes, MAX_SIBLING_BYTES, description, "Leave out parents that are too general.")
    is_child = sp.csr_array((np.ones(rows.size, np.float32), (rows, columns)), shape=(n_tags, len(parents)))
    return as_csr(((is_child @ is_child.T + sp.eye_array(n_tags, format="csr")) != 0).astype(np.float32))


def _delimiter(path: Path) -> str:
    return "\t" if path.suffix.lower() == ".tsv" else ","


def _header(cells: list[str], form: PairFormat) -> tuple[int, int] | None:
    names = [cell.casefold() for cell in cells]
    for first, second in filter(None, (form.columns, form.other_columns)):
        if first.casefold() in names and second.casefold() in names:
            return names.index(first.casefold()), names.index(second.casefold())
    return None


def _pair(cells: list[str], columns: tuple[int, int], n_columns: int, source: str, form: PairFormat) -> WordPair:
    if len(cells) < n_columns or any(cells[n_columns:]):
        expected = f"expected {n_columns}, {' and '.join(form.columns)}"
        raise DataError(f"{source}: {len(cells)} columns; {expected}. Put quotes around words with commas.")
    first, second = (cells[column] for column in columns)
    if not first or not (second or form.may_be_empty):
        empty_column = form.columns[1 if first else 0]
        raise DataError(f"{source}: the {empty_column} is empty; expected two words, such as '{form.example}'.")
    if form.relation is not None and tag_key(first) == tag_key(second):
        raise DataError(f"{source}: '{first}' is said to be {form.relation} itself. Leave the line out.")
    return WordPair(first, second, source)
