"""Data sets of other programs in one file: Mulan's ARFF and svmlight, with features and tags; COCO's tags of images."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple
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
    return isinstance(path, str | os.PathLike) and os.fspath(path).lower().endswith((ARFF, *SVMLIGHT))


def read_data_set(path: str | os.PathLike[str]) -> LabelledRows:
    """Read a file with features and tags, and keep it in memory until it changes; the ending decides the format.

    For ARFF see `read_mulan`. The targets of svmlight, separated by commas, are its tags; -1 is a negative of 1.
    Raises TagFileError or DataError if the file cannot be read: the message names the line.
    """
    try:
        return _read(Path(path), os.stat(path).st_mtime_ns)
    except OSError as error:
        raise TagFileError(f"{path} cannot be read: {error.strerror or error}.") from error


def data_set_records(path: str | os.PathLike[str]) -> list[TagRecord]:
    """Return the tags of each row of a data set; the image of a row is named ``FILE#ROW``."""
    data = read_data_set(path)
    rows = enumerate(np.split(data.Y.indices, data.Y.indptr[1:-1]), start=1)
    return [record(f"{os.fspath(path)}{ROW}{number}", [data.tags[tag] for tag in row], None) for number, row in rows]


def coco_records(path: Path, text: str) -> list[TagRecord] | None:
    """Return the tags of each image in COCO's JSON of instances, in its order; None if the text is something else.

    An image has the categories that are marked in it. Raises TagFileError if an entry lacks a field, or names an image
    or a category that the file does not have.
    """
    try:
        content = json.loads(text) if path.suffix == ".json" and text.lstrip().startswith("{") else {}
    except (ValueError, RecursionError):  # JSON lines, which are read as a table
        return None
    if len({"images", "annotations", "categories"}.intersection(content)) < 2:
        return None
    expected = "COCO's JSON of instances: annotations with the image_id and category_id of entries of the file"
    try:
        names = {one["id"]: one["name"] for one in content["categories"]}
        tags: dict[Any, dict[str, None]] = {one["id"]: {} for one in content["images"]}
        for one in content["annotations"]:
            tags[one["image_id"]][names[one["category_id"]]] = None
        return [record(one["file_name"], tags[one["id"]], None, source=str(path)) for one in content["images"]]
    except (KeyError, TypeError, AttributeError) as error:
        missing = error if isinstance(error, KeyError) else "objects with ids"
        raise TagFileError(f"{path} does not have {missing}.", expected=expected) from error


@lru_cache(maxsize=2)
def _read(path: Path, _changed: int) -> LabelledRows:
    if path.suffix.lower() == ARFF:
        return read_mulan(path)
    rows, targets = read_svmlight(path)
    texts = [sorted({f"{target:.15g}" for target in row}, key=float) for row in targets]
    tags = sorted({text for row in texts for text in row}, key=float)
    if not tags:
        raise DataError(f"{path} has no targets.", expected="TARGET,TARGET INDEX:NUMBER ..., a line for each image")
    column = {tag: number for number, tag in enumerate(tags)}
    Y = _sparse([{column[text]: 1.0 for text in row} for row in texts], len(tags))
    return LabelledRows(as_csr(rows), Y, [], tags)


def read_mulan(arff: str | os.PathLike[str], labels: str | os.PathLike[str] | None = None) -> LabelledRows:
    """Read an ARFF file whose rows are sparse (``{3 1,17 1}``) or dense (``0,0,1``).

    `labels` is an XML file with ``<label name="...">`` for each attribute that is a tag. None: ``delicious.xml`` beside
    ``delicious.arff`` or ``delicious-train.arff``. Attributes are numbers or ``{0,1}``. Raises TagFileError if a file
    is missing or cannot be understood; the message names the line.
    """
    names, source = _label_names(Path(arff), labels)
    try:
        with open_text(arff) as file:
            lines = enumerate(file, start=1)
            attributes = _attributes(arff, lines)
            values = _sparse(list(_rows(arff, lines, len(attributes))), len(attributes))
    except (OSError, UnicodeDecodeError) as error:
        raise TagFileError(f"The ARFF file {arff} cannot be read: {error}.") from error

    if missing := sorted(names.difference(attributes)):
        raise TagFileError(f"{source} names the tag '{missing[0]}', which is not an attribute of {arff}.")
    is_tag = np.array([name in names for name in attributes])
    X, Y = values[:, np.flatnonzero(~is_tag)], values[:, np.flatnonzero(is_tag)]
    if 0 in X.shape:
        raise TagFileError(f"{arff} has {X.shape[0]:,} rows of {X.shape[1]:,} features; expected at least one of each.")
    if not (Y.data == 1).all():
        raise TagFileError(f"{arff}: a tag has the value {Y.data[Y.data != 1][0]:g}; expected 0 or 1.")
    features = [name for name in attributes if name not in names]
    return LabelledRows(as_csr(X), as_csr(Y), features, [name for name in attributes if name in names])


def _label_names(arff: Path, labels: str | os.PathLike[str] | None) -> tuple[set[str], Path]:
    """Return the names of the tags, and the file that they are from."""
    beside = [arff.with_name(f"{arff.stem.rsplit('-', n)[0]}.xml") for n in range(arff.stem.count("-") + 1)]
    path = next(filter(Path.is_file, beside), beside[-1]) if labels is None else Path(labels)
    try:
        root = ElementTree.fromstring(read_regular_text(path, GB))
    except (OSError, UnicodeDecodeError, ElementTree.ParseError) as error:
        raise TagFileError(f"{path}, the list of the labels of {arff}, cannot be read: {error}.") from error
    names = {element.get("name") for element in root.iter() if element.tag.rpartition("}")[2] == "label"}
    if not names or None in names:
        raise TagFileError(f'{path} has no <label name="..."> elements; expected one for each tag.')
    return {str(name) for name in names}, path


def _attributes(path: object, lines: Iterator[tuple[int, str]]) -> list[str]:
    """Read the head up to ``@data``; return the names of the attributes in order."""
    names: list[str] = []
    for number, line in lines:
        text = re.sub(r"\s%.*", "", line).strip()
        if text.lower() == "@data":
            return names
        if text.lower().startswith("@attribute"):
            matches = filter(None, map(_ATTRIBUTE.fullmatch, (text, line.strip())))  # a quoted name may contain %
            match = next((one for one in matches if re.sub(r"[\s'\"]", "", one[4].lower()) in _TYPES), None)
            if match is None:
                raise TagFileError(
                    f"{path}, line {number}: '{text[:60]}' is not known.",
                    expected=f"@attribute NAME and one of: {', '.join(_TYPES)}",
                )
            names.append(match[3] or re.sub(r"\\(.)", r"\1", match[1] or match[2]))
    raise TagFileError(f"{path} has no line '@data'; expected the head of an ARFF file.")


def _rows(path: object, lines: Iterator[tuple[int, str]], width: int) -> Iterator[dict[int, float]]:
    for number, line in lines:
        text = re.sub("%.*|['\"]", "", line).strip()
        if not text:
            continue
        try:
            cells = [cell.split() for cell in text.strip("{}").split(",") if cell.strip()]
            if not text.startswith("{"):
                cells = [[str(column), *cell] for column, cell in enumerate(cells)]
                if len(cells) != width:
                    raise ValueError(f"the row has {len(cells)} values; expected {width}")
            elif not text.endswith("}"):
                raise ValueError("the row does not end with '}'; the file may be truncated")
            row = {int(column): float(value.replace("?", "nan")) for column, value in cells}
            if len(row) < len(cells) or not all(0 <= i < width and abs(row[i]) < 3.4e38 for i in row):  # float32
                raise ValueError(f"a column occurs twice or is not from 0 to {width - 1}, or has no finite number")
        except ValueError as error:
            raise TagFileError(f"{path}, line {number}: {error}.") from error
        yield row


def _sparse(rows: list[dict[int, float]], width: int) -> sp.csr_array:
    starts = np.cumsum([0, *map(len, rows)])
    columns = np.fromiter((column for row in rows for column in row), np.int32, starts[-1])
    values = np.fromiter((value for row in rows for value in row.values()), np.float32, starts[-1])
    matrix = sp.csr_array((values, columns, starts), shape=(len(rows), width))
    matrix.sort_indices()
    matrix.eliminate_zeros()
    return matrix
