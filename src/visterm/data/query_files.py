"""Reading queries from a table or JSON lines: the query text, an image and its relevance, as in a click log."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from visterm.core.errors import TagFileError
from visterm.data.image_folders import plain_name
from visterm.data.tag_formats.tables import TableForm, find_column, required_column, table_rows
from visterm.data.text_files import read_text

QUERY_COLUMNS = ("query", "text")
IMAGE_COLUMNS = ("image", "file_name")
RELEVANCE_COLUMNS = ("relevance", "clicks")
FORM = TableForm(
    (QUERY_COLUMNS, IMAGE_COLUMNS, RELEVANCE_COLUMNS), '{"query": "sea sky", "image": "1.jpg", "relevance": 1}'
)


class QueryRow(NamedTuple):
    """One line of a query file."""

    query: str  # As typed: ``snow tree -people``
    image: str  # The name of an image, as in the tag file
    relevance: float  # Grade of relevance; 0 or less: not relevant


class JudgedTexts(NamedTuple):
    """Queries as they were typed, and the relevant images of each query."""

    texts: list[str]
    relevant: sp.csr_array  # float32, shape (n_queries, n_images): above 0 for relevant images
    unknown: list[str]  # Images in the file that are not ranked


def read_query_file(path: str | os.PathLike[str]) -> list[QueryRow]:
    """Read a CSV, TSV or JSON-lines file of queries, in the order of the file.

    It has the columns "query" (or "text"), "image" (or "file_name") and, unless every line is relevant, "relevance" (or
    "clicks"), a number. Raises TagFileError if it cannot be read, a column is missing, or a row is invalid: the message
    names file and line.
    """
    file = Path(path)
    rows = table_rows(file, read_text(file, "query file", or_utf16=True), FORM)
    if not rows:
        raise TagFileError(f"The query file {file} has no rows.")
    names = list(dict.fromkeys(name for row in rows for name in row.cells))
    advice = "Expected the columns query, image and, if not every line is relevant, relevance."
    query_column, image_column = (
        required_column(column_names, names, f"The query file {file}", "", advice)
        for column_names in (QUERY_COLUMNS, IMAGE_COLUMNS)
    )
    relevance_column = find_column(RELEVANCE_COLUMNS, names, f"The query file {file}")

    query_rows = []
    for row in rows:
        position = f"{file}, line {row.line}"
        for name in (query_column, image_column):
            text = row.cells.get(name)
            if not isinstance(text, str) or not text.strip():
                raise TagFileError(f"{position}: '{name}' is {text!r:.60}; expected text.")
        value: Any = 1.0 if relevance_column is None else row.cells.get(relevance_column)
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number):
            expected = "expected a number, above 0 if the image is relevant"
            raise TagFileError(f"{position}: '{relevance_column}' is {value!r:.60}; {expected}.")
        query_rows.append(QueryRow(row.cells[query_column].strip(), row.cells[image_column].removeprefix("./"), number))
    return query_rows


def judge_images(rows: Sequence[QueryRow], images: Sequence[str]) -> JudgedTexts:
    """Group the rows of a query file by query.

    If a query and image occur on several lines, the largest relevance counts. `images` are the names of the ranked
    images, in the order of their columns. Returns the queries with at least one relevant ranked image, in the order of
    the file.
    """
    column = {name: i for i, name in enumerate(images)}
    grades: dict[str, dict[int, float]] = {}
    unknown: dict[str, None] = {}
    for row in rows:
        name = row.image if row.image in column else plain_name(row.image)
        if name not in column:
            unknown[name] = None
        elif row.relevance > 0:
            relevance_of = grades.setdefault(row.query, {})
            relevance_of[column[name]] = max(row.relevance, relevance_of.get(column[name], 0.0))

    starts = np.cumsum([0, *map(len, grades.values())])
    columns = np.array([i for relevance in grades.values() for i in sorted(relevance)], np.int32)
    values = np.array([relevance[i] for relevance in grades.values() for i in sorted(relevance)], np.float32)
    return JudgedTexts(
        list(grades), sp.csr_array((values, columns, starts), shape=(len(grades), len(images))), list(unknown)
    )
