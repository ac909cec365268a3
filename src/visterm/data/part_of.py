"""Which tag names a part of what: from a CSV of part and whole, or from lists of wholes with their parts."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import DataError
from visterm.core.vocabulary import Vocabulary
from visterm.data.relation_files import PairFormat, read_lines, read_pairs, refuse_itself, write_pairs

PART_OF_FILE = PairFormat("part-of file", ("part", "whole"), "wheel,car", "part of")


class PartOf(NamedTuple):
    """One relation: the part is part of the whole."""

    part: str
    whole: str


def read_part_of(path: str | os.PathLike[str]) -> list[PartOf]:
    """Read a CSV (or, by its suffix .tsv, tab-separated file) of relations.

    Two columns, the part and its whole, as "part of" reads. A first line that names the columns ``part`` and ``whole``
    is a header; there may then be other columns too, in any order.

    Raises
    ------
    DataError
        If it cannot be read, has no relation, or a line is not two words; the message names file and line.
    """
    return [PartOf(pair.first, pair.second) for pair in read_pairs(path, PART_OF_FILE)]


def write_part_of(path: str | os.PathLike[str], relations: Iterable[PartOf]) -> None:
    """Write what `read_part_of` reads: a header and a line for each relation."""
    write_pairs(path, PART_OF_FILE.columns, relations)


def read_part_lists(path: str | os.PathLike[str]) -> list[PartOf]:
    """Read a CSV in which each line is a whole and then its parts, as PASCAL-Part's ``pascalPartOntology.csv``.

    A line with a whole alone says that it has no parts, and gives no relation.

    Raises
    ------
    DataError
        If it cannot be read, has no relation, or a line is not such a list; the message names file and line.
    """
    relations: dict[PartOf, None] = {}
    for (whole, *parts), place in read_lines(path, "list of parts"):
        if not whole:
            raise DataError(f"{place}: the whole is empty; expected it before its parts, such as 'car,wheel,door'.")
        for part in filter(None, parts):
            refuse_itself(part, whole, place, "part of")
            relations[PartOf(part, whole)] = None
    if not relations:
        raise DataError(f"The list of parts {path} has no relations; expected lines such as 'car,wheel,door'.")
    return list(relations)


def part_pairs(relations: Iterable[tuple[str, str]], vocabulary: Vocabulary) -> NDArray[Any]:
    """Find the columns of the tags that relations are about.

    Parameters
    ----------
    relations : iterable of (part, whole)
        Words are compared as tags are, normalised (NFC) and without regard to case; one that is no tag so may be one
        with spaces for its ``_``.
    vocabulary : Vocabulary
        The tags.

    Returns
    -------
    ndarray of int64, shape (n_pairs, 2)
        Columns of (part, whole), sorted, each pair once. Relations with a word that is no tag are left out.

    Raises
    ------
    DataError
        If there are relations, but none among the tags.
    """
    found: set[tuple[int, int]] = set()
    examples: list[str] = []
    for part, whole in relations:
        columns = _column(part, vocabulary), _column(whole, vocabulary)
        if columns[0] is not None and columns[1] is not None and columns[0] != columns[1]:
            found.add((columns[0], columns[1]))
        else:
            examples = [*examples, f"{part} of {whole}"][:3]
    if examples and not found:
        raise DataError(
            f"None of the part-of relations ({', '.join(examples)}) is between two tags of the vocabulary "
            f"({', '.join(vocabulary.tags[:3])}). Check that its lines are part,whole."
        )
    return np.array(sorted(found), np.int64).reshape(-1, 2)


def _column(word: str, vocabulary: Vocabulary) -> int | None:
    column = vocabulary.get(word)
    return vocabulary.get(word.replace("_", " ")) if column is None and "_" in word else column
