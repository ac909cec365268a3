"""Reading DataFrames and lists of dicts; results as DataFrames, and as pictures for notebooks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, overload

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import as_csr, check_choice
from visterm.core.errors import DataError, MissingExtraError, UserError
from visterm.core.remote import is_remote
from visterm.core.types import Matrix, MatrixLike
from visterm.core.wording import printable
from visterm.data.images import ImageLike, data_uri

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    Frame: TypeAlias = pd.DataFrame | pl.DataFrame | pa.Table

LIBRARIES = ("pandas", "polars", "pyarrow")  # Supported libraries of DataFrames for results
MAX_PHOTOS = 24  # Maximum number of photos of a result in a notebook
PHOTO_SIDE = 160  # Longer side of a photo in a notebook, in pixels


class FrameTable(NamedTuple):
    """A DataFrame or a list of dicts: rows with named columns."""

    names: list[object]
    column: Callable[[object], list[Any]]  # Returns the cells of a column, one per row; None for an empty cell
    frame: Any = None  # The DataFrame, if there is one, as narwhals has it

    def cells(self, name: object) -> list[Any]:
        """Return the cells of a column, with None for pandas' missing values."""
        return _with_none(self.column(name))

    def numbered(self, name: object) -> tuple[list[Any], NDArray[np.int64]]:
        """Return the distinct cells of a column, and for each row which of these it has."""
        series: Any = None if self.frame is None else self.frame.get_column(name).to_native()
        if hasattr(series, "factorize"):  # pandas numbers cells without a Python object for each
            numbers, values = series.factorize(use_na_sentinel=False)
            return _with_none(values.tolist()), numbers
        cells = self.column(name)
        number_of = {cell: number for number, cell in enumerate(dict.fromkeys(cells))}
        numbers = np.fromiter(map(number_of.__getitem__, cells), np.int64, len(cells))
        return _with_none(list(number_of)), numbers


def as_table(value: object) -> FrameTable | None:
    """Return a DataFrame (of any library that narwhals supports), a list of dicts, or a dict of columns as a table.

    Anything else is None. Raises DataError if a list has both dicts and other entries, or if a dict's values are not
    lists of the same length.
    """
    if isinstance(value, Mapping):
        columns = {name: listed(cells) for name, cells in value.items()}
        lengths = [len(col) if isinstance(col, list | tuple | np.ndarray) else "no list" for col in columns.values()]
        if "no list" in lengths or len(set(lengths)) != 1:
            kinds = ", ".join([f"{name!r} ({length})" for name, length in zip(columns, lengths, strict=True)][:5])
            raise DataError(
                f"The dict has {kinds or 'nothing'}; expected a list for each column, all of one length, such as "
                '{"path": ["1.jpg"], "tags": [["sea"]]}. For one photo, pass a list with its dict.'
            )
        return FrameTable(list(columns), lambda name: list(columns[name]))

    if isinstance(value, list | tuple):
        if not value or not isinstance(value[0], Mapping):
            return None
        index = next((i for i, row in enumerate(value) if not isinstance(row, Mapping)), None)
        if index is not None:
            raise DataError(
                f"Entry {index} of the list is a {type(value[index]).__name__}, and the first is a dict. Pass a dict "
                'for each photo, such as {"path": "1.jpg", "tags": ["sea"]}.'
            )
        names = list(dict.fromkeys(name for row in value for name in row))
        return FrameTable(names, lambda name: [row.get(name) for row in value])

    frame = _narwhal(value)
    if frame is None or not hasattr(frame, "columns"):
        return None
    return FrameTable(list(frame.columns), lambda name: list(frame.get_column(name).to_list()), frame)


def unique_names(names: Sequence[str]) -> list[str]:
    """Append spaces to repeated names of columns, which makes the names unique."""
    unique: dict[str, None] = {}
    for name in names:
        while name in unique:
            name = f"{name} "
        unique[name] = None
    return list(unique)


def listed(values: Any) -> Any:
    """Return the entries of a Series or a frame's only column, or the rows of a sparse matrix; else `values`."""
    if (frame := _narwhal(values)) is None:
        return split_rows(values) if sp.issparse(values) else values
    if not hasattr(frame, "columns"):
        return frame.to_list()
    table = as_table(values)
    return values if table is None or len(table.names) != 1 else table.column(table.names[0])


def split_rows(matrix: MatrixLike) -> list[Matrix]:
    """Return the rows of a matrix of features: arrays (n_features,), or CSR (1, n_features)."""
    if isinstance(matrix, np.ndarray):
        return list(matrix)
    X = as_csr(matrix)
    return [
        sp.csr_array((X.data[start:stop], X.indices[start:stop], [0, stop - start]), shape=(1, X.shape[1]))
        for start, stop in pairwise(X.indptr.tolist())
    ]


def lists_of_tags(y: object) -> list[Any] | None:
    """Return tags as a list if they are lists of words, [] for a missing one; None for a matrix or anything else.

    Raises DataError if some are texts, which need a separator.
    """
    y = y if sp.issparse(y) else listed(y)
    if not isinstance(y, list | tuple | np.ndarray) or (isinstance(y, np.ndarray) and y.dtype.kind not in "OU"):
        return None
    if texts := [str(tags) for tags in y if isinstance(tags, str)]:
        text = next((tags for tags in texts if "," in tags or ";" in tags), texts[0])
        separator = ";" if ";" in text else ","
        raise DataError(
            f"The tags of an image are the text {text!r}; expected a list of tags for each image.",
            setting="y", value=text, advice=f'Split the column: frame["tags"].str.split("{separator}").',
        )  # fmt: skip
    y = [[] if _is_missing(tags) else tags for tags in y]
    if not all(isinstance(tags, list | tuple | set | frozenset | np.ndarray) for tags in y):
        return None
    return y if isinstance(next((tag for tags in y for tag in tags), None), str) else None


@overload
def to_frame(results: Framed | Iterable[object], library: Literal["pandas"] = "pandas") -> pd.DataFrame: ...
@overload
def to_frame(results: Framed | Iterable[object], library: Literal["polars"]) -> pl.DataFrame: ...
@overload
def to_frame(results: Framed | Iterable[object], library: Literal["pyarrow"]) -> pa.Table: ...
@overload
def to_frame(results: Framed | Iterable[object], library: str) -> Frame: ...
def to_frame(results: Framed | Iterable[object], library: str = "pandas") -> Frame:
    """Return results as a DataFrame of `library`, "pandas", "polars" or "pyarrow", which is imported on demand.

    `results` were returned by `Tagger.annotate`, `Catalogue.search` or `visterm.evaluate`, or are a list of results
    (tags, photos, mistakes) or of dicts. Raises UserError if the library is not supported, or not installed.
    """
    check_choice(library, "library", LIBRARIES)
    columns = results.columns() if isinstance(results, Framed) else _columns(map(_as_dict, results))
    import narwhals

    backend: Any = library
    try:
        frame: Frame = narwhals.from_dict(columns, backend=backend).to_native()
    except ImportError as error:
        raise MissingExtraError(f"{library} is not installed. Install it with: pip install {library}") from error
    return frame


class Framed:
    """A result that converts to a DataFrame, and that a notebook displays with its photos."""

    __slots__ = ()

    def rows(self) -> list[dict[str, object]]:
        """Return the rows of the frame, by column; a new result writes this, or `columns` if it has arrays."""
        columns = self.columns()
        rows = zip(*(cells.tolist() for cells in columns.values()), strict=True)
        return [dict(zip(columns, row, strict=True)) for row in rows]

    def columns(self) -> dict[str, Any]:
        """Return the columns of the frame: lists or arrays."""
        return _columns(self.rows())

    def to_frame(self, library: str = "pandas") -> Frame:
        """Return the result as a frame of "pandas", "polars" or "pyarrow"."""
        return to_frame(self, library)

    def to_pandas(self) -> pd.DataFrame:
        """Return the result as a frame of pandas."""
        return to_frame(self, "pandas")

    def to_polars(self) -> pl.DataFrame:
        """Return the result as a frame of polars."""
        return to_frame(self, "polars")


def pictures(photos: Iterable[tuple[ImageLike | None, str, str]], n: int) -> str:
    """Return HTML for a notebook with the first of `n` photos, given as image or path, name and caption.

    Names are escaped, and pictures are embedded in the page. Photos that are not on this machine have no picture.
    """
    figures = []
    for (image, name, caption), _ in zip(photos, range(MAX_PHOTOS), strict=False):
        address = None if image is None or is_remote(image) else data_uri(image, PHOTO_SIDE)
        name, caption = escape(printable(name)), escape(printable(caption))
        img_tag = "" if address is None else f'<img src="{address}" alt="{name}">'
        figures.append(
            f'<figure style="margin:0;width:{PHOTO_SIDE}px">{img_tag}'
            f'<figcaption style="font-size:smaller;overflow-wrap:anywhere">{name}<br><b>{caption}</b></figcaption>'
            "</figure>"
        )
    note = f"<p>… and {n - MAX_PHOTOS:,} more</p>" if n > MAX_PHOTOS else ""
    return f'<div style="display:flex;flex-wrap:wrap;gap:8px">{"".join(figures)}</div>{note}'


def html_table(rows: Iterable[tuple[str, object]]) -> str:
    """Return HTML for a notebook: a table of names and values, escaped; numbers have up to four digits."""
    lines = []
    for name, value in rows:
        text = f"{value:.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
        name, text = escape(printable(name)), escape(printable(text))
        lines.append(f'<tr><th style="text-align:left">{name}</th><td style="text-align:left">{text}</td></tr>')
    return f"<table>{''.join(lines)}</table>"


def first_of(results: Sequence[object]) -> str:
    """Return a text with the first five results, and the number of other results, for an interactive prompt."""
    note = f", … {len(results) - 5:,} more" if len(results) > 5 else ""
    return f"[{', '.join(map(repr, results[:5]))}{note}]"


def _narwhal(value: Any) -> Any:
    """Convert a DataFrame or a Series to narwhals; None for anything else, mostly without importing narwhals."""
    if isinstance(value, str | os.PathLike | list | tuple | np.ndarray | None):
        return None
    if type(value).__module__.partition(".")[0] in ("visterm", "scipy", "PIL"):
        return None
    import narwhals

    try:
        frame: Any = narwhals.from_native(value, pass_through=True, allow_series=True)
    except narwhals.exceptions.DuplicateError:  # pandas and pyarrow allow columns of the same name
        names = unique_names(list(getattr(value, "column_names", value.columns)))
        renamed = value.rename_columns(names) if hasattr(value, "rename_columns") else value.set_axis(names, axis=1)
        frame = narwhals.from_native(renamed)
    if isinstance(frame, narwhals.LazyFrame):
        frame = frame.collect()
    return frame if isinstance(frame, narwhals.DataFrame | narwhals.Series) else None


def _with_none(cells: list[Any]) -> list[Any]:
    if set(map(type, cells)) <= {str, int}:  # a call for each cell takes ten times as long
        return cells
    return [None if _is_missing(cell) else cell for cell in cells]


def _is_missing(cell: object) -> bool:
    return cell is None or (isinstance(cell, float) and cell != cell) or type(cell).__name__ in ("NAType", "NaTType")


def _columns(rows: Iterable[dict[str, object]]) -> dict[str, list[object]]:
    rows = list(rows)
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def _as_dict(result: object) -> dict[str, object]:
    if isinstance(result, Mapping):
        return dict(result)
    as_dict = getattr(result, "as_dict", None) or getattr(result, "_asdict", None)
    if as_dict is not None:
        return dict(as_dict())
    if not is_dataclass(result) or isinstance(result, type):
        raise UserError(f"A {type(result).__name__} cannot be a row of a frame.")
    return asdict(result)
