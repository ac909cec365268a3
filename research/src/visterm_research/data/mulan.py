"""Multi-label data in Mulan's form: an ARFF file of features and tags, and an XML file that says which are tags."""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.errors import TagFileError

_ATTRIBUTE = re.compile(r"@attribute\s+(?:'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"|(\S+))\s+(.+)", re.IGNORECASE)
_NUMERIC = {"numeric", "real", "integer"}


class MulanData(NamedTuple):
    """Features and tags of a multi-label data set.

    Attributes
    ----------
    X : csr_array of float32, shape (n_images, n_features)
    Y : csr_array of float32, shape (n_images, n_tags)
        Ones where a tag is given.
    features, tags : list of str
        Names of the columns, as the file spells them.
    """

    X: sp.csr_array
    Y: sp.csr_array
    features: list[str]
    tags: list[str]


def read_mulan(arff: str | os.PathLike[str], labels: str | os.PathLike[str]) -> MulanData:
    """Read a data set, such as Delicious, whose rows are sparse (``{3 1,17 1}``) or dense (``0,0,1``).

    Only numbers and the pair ``{0,1}`` are taken as values of an attribute.

    Parameters
    ----------
    arff : path-like
        Features and tags, an attribute each.
    labels : path-like
        ``<label name="...">`` for each attribute that is a tag.

    Raises
    ------
    TagFileError
        If a file is missing or cannot be understood; the message names the line.
    """
    path, names = Path(arff), _label_names(Path(labels))
    if not path.is_file():
        raise TagFileError(f"There is no ARFF file {path}.")
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = enumerate(file, start=1)
        attributes = _attributes(path, lines)
        values = _rows(path, lines, len(attributes))
    of_tags = np.isin(attributes, names)
    missing = sorted(set(names).difference(attributes))
    if missing:
        raise TagFileError(f"{labels} names the tag '{missing[0]}', which is no attribute of {path}.")
    X, Y = values[:, np.flatnonzero(~of_tags)], values[:, np.flatnonzero(of_tags)]
    features = [name for name, tag in zip(attributes, of_tags, strict=True) if not tag]
    tags = [name for name, tag in zip(attributes, of_tags, strict=True) if tag]
    return MulanData(sp.csr_array(X), sp.csr_array(Y != 0, dtype=np.float32), features, tags)


def _label_names(path: Path) -> list[str]:
    if not path.is_file():
        raise TagFileError(f"There is no list of labels {path}.")
    try:
        root = ElementTree.parse(path).getroot()
    except ElementTree.ParseError as error:
        raise TagFileError(f"{path} is not XML: {error}.") from error
    names = [element.get("name") for element in root.iter() if element.tag.rpartition("}")[2] == "label"]
    if not names or None in names:
        raise TagFileError(f'{path} has no <label name="..."> elements; expected one for each tag.')
    return [str(name) for name in names]


def _attributes(path: Path, lines: Iterator[tuple[int, str]]) -> list[str]:
    """Read the head up to ``@data``: the attributes' names in order."""
    found: list[str] = []
    for number, line in lines:
        text = line.strip()
        if text.lower() == "@data":
            return found
        if text.lower().startswith("@attribute"):
            match = _ATTRIBUTE.fullmatch(text)
            if match is None:
                raise TagFileError(f"{path}, line {number}: '{text[:60]}' is not '@attribute NAME TYPE'.")
            kind = match[4].strip().lower()
            if kind not in _NUMERIC and kind.replace(" ", "") != "{0,1}":
                raise TagFileError(
                    f"{path}, line {number}: the attribute type '{match[4][:40]}' is not known; "
                    f"expected {{0,1}} or one of: {', '.join(sorted(_NUMERIC))}."
                )
            found.append(match[1] or match[2] or match[3])
    raise TagFileError(f"{path} has no line '@data'; expected the head of an ARFF file.")


def _rows(path: Path, lines: Iterator[tuple[int, str]], width: int) -> sp.csr_array:
    values, columns, starts = array("f"), array("q"), array("q", [0])
    for number, line in lines:
        text = line.strip()
        if not text or text.startswith("%"):
            continue
        try:
            if text.startswith("{"):
                _add_sparse(text.strip("{}"), values, columns, width)
            else:
                _add_dense(text.split(","), values, columns, width)
        except ValueError as error:
            raise TagFileError(f"{path}, line {number}: {error}") from error
        starts.append(len(columns))
    shape = (len(starts) - 1, width)
    parts = (_numpy(values, np.float32), _numpy(columns, np.int64), _numpy(starts, np.int64))
    matrix = sp.csr_array(parts, shape=shape)
    matrix.sort_indices()
    return matrix


def _add_sparse(text: str, values: array[float], columns: array[int], width: int) -> None:
    seen = set()
    for item in text.split(",") if text.strip() else []:
        index, _, value = item.strip().partition(" ")
        column = int(index)
        if not 0 <= column < width or column in seen:
            raise ValueError(f"the column {column} is given twice or is outside of 0 to {width - 1}.")
        seen.add(column)
        if float(value):
            columns.append(column)
            values.append(float(value))


def _add_dense(items: Sequence[str], values: array[float], columns: array[int], width: int) -> None:
    if len(items) != width:
        raise ValueError(f"the row has {len(items)} values; expected {width}.")
    for column, item in enumerate(items):
        if float(item):
            columns.append(column)
            values.append(float(item))


def _numpy(numbers: array[int] | array[float], dtype: type) -> NDArray[np.generic]:
    return np.array(numbers, dtype)
