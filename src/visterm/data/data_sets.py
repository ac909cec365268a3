"""Data sets of other programs that hold features and tags in one file: Mulan's ARFF, and svmlight with its targets."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import numpy as np
import scipy.sparse as sp

from visterm.core.checks import as_csr
from visterm.core.errors import DataError, TagFileError
from visterm.core.files import GB, open_text, read_regular_text
from visterm.data.matrix_files import SVMLIGHT, read_svmlight
from visterm.data.tag_formats.record import TagRecord, record

ARFF = ".arff"
ROW = "#"  # Between the file and the number of the row, from 1: "delicious-test.arff#17"

_ATTRIBUTE = re.compile(r"@attribute\s+(?:'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"|(\S+))\s+(.+)", re.IGNORECASE)
_TYPES = ("numeric", "real", "integer", "{0,1}")


class LabelledRows(NamedTuple):
    """Features and tags of the same rows."""

    X: sp.csr_array  # float32, shape (n_rows, n_features)
    Y: sp.csr_array  # float32, shape (n_rows, n_tags); 1 where a row has the tag
    features: list[str]  # Names of the columns of `X`, as the file spells them; empty for svmlight
    tags: list[str]


def is_data_set(path: object) -> bool:
    """Return whether a path has the ending of a data set."""
    return isinstance(path, str | os.PathLike) and os.fspath(path).endswith((ARFF, *SVMLIGHT))


def read_data_set(path: str | os.PathLike[str]) -> LabelledRows:
    """Read a file with features and tags; the ending decides the format.

    Mulan's ARFF needs the list of its labels: ``delicious.xml`` beside ``delicious.arff`` or ``delicious-train.arff``.
    The targets of svmlight, separated by commas, are the tags. Raises TagFileError or DataError if the file cannot be
    read: the message names the line.
    """
    file = Path(path)
    return read_mulan(file, _labels_beside(file)) if file.suffix == ARFF else _read_svmlight(file)


def read_data_set_again(path: str) -> LabelledRows:
    """Return `read_data_set` of a file, kept in memory until the file changes."""
    try:
        status = os.stat(path)
    except OSError as error:
        raise TagFileError(f"{path} cannot be read: {error.strerror}.") from error
    return _kept(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=2)
def _kept(path: str, _changed: int, _size: int) -> LabelledRows:
    return read_data_set(path)


def data_set_records(path: str | os.PathLike[str]) -> list[TagRecord]:
    """Return the tags of each row of a data set; the image of a row is named ``FILE#ROW``."""
    file = os.fspath(path)
    data = read_data_set_again(file)
    rows = np.split(data.Y.indices, data.Y.indptr[1:-1])
    return [
        record(f"{file}{ROW}{number}", [data.tags[tag] for tag in row], None, source=f"{file}, row {number}")
        for number, row in enumerate(rows, start=1)
    ]


def read_mulan(arff: str | os.PathLike[str], labels: str | os.PathLike[str]) -> LabelledRows:
    """Read an ARFF file whose rows are sparse (``{3 1,17 1}``) or dense (``0,0,1``).

    `labels` is an XML file with ``<label name="...">`` for each attribute that is a tag. Attributes are numbers or
    ``{0,1}``. Raises TagFileError if a file is missing or cannot be understood; the message names the line.
    """
    names = _label_names(Path(labels))
    try:
        with open_text(arff) as file:
            lines = enumerate(file, start=1)
            attributes = _attributes(arff, lines)
            values = _values(arff, lines, len(attributes))
    except OSError as error:
        raise TagFileError(f"The ARFF file {arff} cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise TagFileError(f"The ARFF file {arff} is not UTF-8 ({error}).") from error

    is_tag = np.isin(attributes, names)
    if missing := sorted(set(names).difference(attributes)):
        raise TagFileError(f"{labels} names the tag '{missing[0]}', which is not an attribute of {arff}.")
    X, Y = values[:, np.flatnonzero(~is_tag)], values[:, np.flatnonzero(is_tag)]
    Y.data[:] = 1
    features = [name for name, tag in zip(attributes, is_tag, strict=True) if not tag]
    return LabelledRows(as_csr(X), as_csr(Y), features, [name for name in attributes if name in set(names)])


def _labels_beside(arff: Path) -> Path:
    stems = dict.fromkeys((arff.stem, arff.stem.rpartition("-")[0] or arff.stem))
    places = [arff.with_name(f"{stem}.xml") for stem in stems]
    if (existing := next(filter(Path.is_file, places), None)) is None:
        expected = " or ".join(map(str, places))
        raise TagFileError(
            f"{arff} needs the list of its labels, which Mulan's sets have beside it.", expected=expected
        )
    return existing


def _label_names(path: Path) -> list[str]:
    try:
        root = ElementTree.fromstring(read_regular_text(path, GB))
    except (OSError, UnicodeDecodeError, ElementTree.ParseError) as error:
        raise TagFileError(f"The list of labels {path} cannot be read as XML: {error}.") from error
    names = [element.get("name") for element in root.iter() if element.tag.rpartition("}")[2] == "label"]
    if not names or None in names:
        raise TagFileError(f'{path} has no <label name="..."> elements; expected one for each tag.')
    return [str(name) for name in names]


def _attributes(path: object, lines: Iterator[tuple[int, str]]) -> list[str]:
    """Read the head up to ``@data``; return the names of the attributes in order."""
    names: list[str] = []
    for number, line in lines:
        text = line.strip()
        if text.lower() == "@data":
            return names
        if text.lower().startswith("@attribute"):
            match = _ATTRIBUTE.fullmatch(text)
            if match is None or match[4].lower().replace(" ", "") not in _TYPES:
                expected = f"@attribute NAME and one of: {', '.join(_TYPES)}"
                raise TagFileError(f"{path}, line {number}: '{text[:60]}' is not known; expected {expected}.")
            names.append(match[1] or match[2] or match[3])
    raise TagFileError(f"{path} has no line '@data'; expected the head of an ARFF file.")


def _values(path: object, lines: Iterator[tuple[int, str]], width: int) -> sp.csr_array:
    rows: list[dict[int, float]] = []
    for number, line in lines:
        text = line.strip()
        if text and not text.startswith("%"):
            try:
                rows.append(_row(text, width))
            except ValueError as error:
                raise TagFileError(f"{path}, line {number}: {error}.") from error
    starts = np.cumsum([0, *map(len, rows)])
    columns = np.fromiter((column for row in rows for column in row), np.int32, starts[-1])
    values = np.fromiter((value for row in rows for value in row.values()), np.float32, starts[-1])
    return sp.csr_array((values, columns, starts), shape=(len(rows), width))


def _row(text: str, width: int) -> dict[int, float]:
    """Return the columns of a row that are not 0, in ascending order."""
    if text.startswith("{"):
        cells = [cell.split() for cell in text.strip("{}").split(",") if cell.strip()]
        row = {int(column): float(value) for column, value in cells}
        if len(row) < len(cells) or not all(0 <= column < width for column in row):
            raise ValueError(f"a column is given twice, or is not from 0 to {width - 1}")
    else:
        row = dict(enumerate(map(float, text.split(","))))
        if len(row) != width:
            raise ValueError(f"the row has {len(row)} values; expected {width}")
    return {column: row[column] for column in sorted(row) if row[column]}


def _read_svmlight(path: Path) -> LabelledRows:
    """Read the rows of a svmlight file and their targets, whole numbers; a target of -1 is a negative of the tag 1."""
    rows, targets = read_svmlight(path)
    texts = [[f"{target:g}" for target in row] for row in targets]
    tags = sorted({text for row in texts for text in row}, key=float)
    if not tags:
        raise DataError(f"{path} has no targets.", expected="TARGET,TARGET INDEX:NUMBER ..., a line for each image")
    column = {tag: number for number, tag in enumerate(tags)}
    starts = np.cumsum([0, *map(len, texts)])
    columns = np.array([column[text] for row in texts for text in sorted(row, key=float)], np.int32)
    Y = sp.csr_array((np.ones(columns.size, np.float32), columns, starts), shape=(len(texts), len(tags)))
    return LabelledRows(as_csr(rows), Y, [], tags)
