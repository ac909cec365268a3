"""Which tag is a kind of what, from a CSV of child and parent, and the tags that are siblings by it."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from visterm.core.checks import as_csr, check_size
from visterm.core.errors import DataError
from visterm.core.vocabulary import Vocabulary, clean_tag, tag_key
from visterm.data.tag_formats.text import read_text

CHILD, PARENT = "child", "parent"
MAX_BYTES = 2**31


class IsA(NamedTuple):
    """One relation: the child is a kind of the parent."""

    child: str
    parent: str


def read_is_a(path: str | os.PathLike[str]) -> list[IsA]:
    """Read a CSV (or, by its suffix .tsv, tab-separated file) of relations.

    Two columns, the child and its parent. A first line that names the columns ``child`` and ``parent`` is a header;
    there may then be other columns too, in any order.

    Raises
    ------
    DataError
        If it cannot be read, has no relation, or a line is not two words; the message names file and line.
    """
    path = Path(path)
    text = read_text(path, "is-a file")
    reader = csv.reader(
        io.StringIO(text, newline=""), delimiter="\t" if path.suffix.lower() == ".tsv" else ",", strict=True
    )
    relations: list[IsA] = []
    columns: tuple[int, int] | None = None
    try:
        for fields in reader:
            cells = [clean_tag(field) for field in fields]
            if not any(cells):
                continue
            if columns is None:
                named = [cell.casefold() for cell in cells]
                if CHILD in named and PARENT in named:
                    columns = named.index(CHILD), named.index(PARENT)
                    n_columns = len(cells)
                    continue
                columns, n_columns = (0, 1), 2
            relations.append(_relation(cells, columns, n_columns, f"{path}, line {reader.line_num}"))
    except csv.Error as error:
        raise DataError(f'{path}, line {reader.line_num}: {error}. Check the quotes (") of this line.') from error
    if not relations:
        raise DataError(
            f"The is-a file {path} has no relations; expected lines such as 'tiger,big cat' (child,parent)."
        )
    return relations


def write_is_a(path: str | os.PathLike[str], relations: Iterable[IsA]) -> None:
    """Write what `read_is_a` reads: a header and a line for each relation."""
    with Path(path).open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow((CHILD, PARENT))
        writer.writerows(relations)


def sibling_sets(relations: Iterable[tuple[str, str]], vocabulary: Vocabulary) -> sp.csr_array:
    """Find the tags that share a parent: ``S(i, j) = 1 if i = j or both are a kind of some k`` (WSABIE, section 4).

    Parameters
    ----------
    relations : iterable of (child, parent)
        Children that are not in the vocabulary are left out; parents need not be in it. Words are compared as tags
        are: normalised (NFC) and without regard to case.
    vocabulary : Vocabulary
        The tags.

    Returns
    -------
    csr_array of float32, shape (n_tags, n_tags)
        1 for siblings, and on the diagonal.

    Raises
    ------
    DataError
        If no child is in the vocabulary.
    TooLargeError
        If parents have so many children that the pairs of siblings could take more than 2 GiB.
    """
    parents: dict[str, int] = {}
    pairs: set[tuple[int, int]] = set()
    examples: list[str] = []
    for child, parent in relations:
        column = vocabulary.get(child)
        if column is None:
            examples = [*examples, child][:3]
        else:
            pairs.add((column, parents.setdefault(tag_key(parent), len(parents))))
    if not pairs:
        raise DataError(
            f"None of the children in the is-a relations ({', '.join(examples) or 'there are none'}) is a tag of the "
            f"vocabulary ({', '.join(vocabulary.tags[:3])}). Check that its lines are child,parent."
        )
    rows, columns = np.array(sorted(pairs), np.int64).T
    n_children = np.bincount(columns)
    check_size(
        8 * int((n_children**2).sum()),
        MAX_BYTES,
        f"The siblings of {len(vocabulary)} tags, up to {n_children.max()} of one parent,",
        "Leave out parents that are too general.",
    )
    n_tags = len(vocabulary)
    of_parent = sp.csr_array((np.ones(rows.size, np.float32), (rows, columns)), shape=(n_tags, len(parents)))
    return as_csr(((of_parent @ of_parent.T + sp.eye_array(n_tags, format="csr")) != 0).astype(np.float32))


def _relation(cells: list[str], columns: tuple[int, int], n_columns: int, place: str) -> IsA:
    if len(cells) < n_columns or any(cells[n_columns:]):
        raise DataError(
            f"{place}: {len(cells)} columns; expected {n_columns}, child and parent. "
            "Put quotes around words that hold commas."
        )
    child, parent = (cells[column] for column in columns)
    if not child or not parent:
        raise DataError(
            f"{place}: the {PARENT if child else CHILD} is empty; expected two words, such as 'tiger,big cat'."
        )
    if tag_key(child) == tag_key(parent):
        raise DataError(f"{place}: '{child}' is said to be a kind of itself. Leave the line out.")
    return IsA(child, parent)
