"""DataFrames and lists of dicts in, DataFrames and pictures for notebooks out; pandas and polars only where passed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from html import escape
from typing import Any, NamedTuple

import numpy as np

from visterm.core.checks import check_choice
from visterm.core.errors import DataError, MissingExtraError, UserError
from visterm.core.remote import is_remote
from visterm.core.wording import printable
from visterm.data.images import ImageLike, data_uri

LIBRARIES = ("pandas", "polars", "pyarrow")  # Whose frames results can be
MOST_SHOWN = 24  # Photos that a notebook shows of a result
SIDE = 160  # Longer side of these, in pixels


class FrameTable(NamedTuple):
    """A frame, or a list of dicts: rows with named columns."""

    names: list[object]
    column: Callable[[object], list[Any]]  # The cells of a column, one a row; None where nothing is said

    def cells(self, name: object) -> list[Any]:
        """Return the cells of a column, with None for what pandas calls missing."""

        def is_missing(cell: object) -> bool:
            return (isinstance(cell, float) and cell != cell) or type(cell).__name__ in ("NAType", "NaTType")

        return [None if is_missing(cell) else cell for cell in self.column(name)]


def as_table(value: object) -> FrameTable | None:
    """Return the columns of a DataFrame (of pandas, polars and what else narwhals reads), or of dicts.

    These are a list of dicts, one a row, or one dict of columns. None of anything else. Raises DataError if some
    entries of a list are dicts, and others are not; or if what a dict has are no lists of one length.
    """
    if isinstance(value, Mapping):
        columns = {name: listed(cells) for name, cells in value.items()}
        lengths = [len(one) if isinstance(one, list | tuple | np.ndarray) else "no list" for one in columns.values()]
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
        other = next((index for index, row in enumerate(value) if not isinstance(row, Mapping)), None)
        if other is not None:
            raise DataError(
                f"Entry {other} of the list is a {type(value[other]).__name__}, and the first is a dict. Pass a dict "
                'for each photo, such as {"path": "1.jpg", "tags": ["sea"]}.'
            )
        names = list(dict.fromkeys(name for row in value for name in row))
        return FrameTable(names, lambda name: [row.get(name) for row in value])

    frame = _narwhal(value)
    if frame is None or not hasattr(frame, "columns"):
        return None
    return FrameTable(list(frame.columns), lambda name: list(frame.get_column(name).to_list()))


def unique_names(names: Sequence[str]) -> list[str]:
    """Return the names of columns with white space behind those that are there before: it tells columns apart only."""
    unique: dict[str, None] = {}
    for name in names:
        while name in unique:
            name = f"{name} "
        unique[name] = None
    return list(unique)


def listed(values: Any) -> Any:
    """Return the entries of a Series, or of a frame's only column, as a list; anything else as it is."""
    if (frame := _narwhal(values)) is None:
        return values
    if not hasattr(frame, "columns"):
        return frame.to_list()
    table = as_table(values)
    return values if table is None or len(table.names) != 1 else table.column(table.names[0])


def lists_of_tags(y: object) -> list[Any] | None:
    """Return the tags of images where these are lists of words; None of a matrix, and of anything else."""
    y = listed(y)
    if not isinstance(y, list | tuple | np.ndarray) or (isinstance(y, np.ndarray) and y.dtype.kind not in "OU"):
        return None
    lists = [tags for tags in y if isinstance(tags, list | tuple | set | frozenset | np.ndarray)]
    first = next((tag for tags in lists for tag in tags), None)
    return list(y) if isinstance(first, str) and len(lists) == len(y) else None


def to_frame(results: Framed | Iterable[object], library: str = "pandas") -> Any:
    """Return results as a DataFrame of a library: "pandas", "polars" or "pyarrow", which is imported only now.

    `results` are what `Tagger.annotate`, `Catalogue.search` or `visterm.evaluate` returned, or a list of results (tags,
    photos, mistakes) or of dicts. Raises UserError if the library is another one, or not installed.
    """
    check_choice(library, "library", LIBRARIES)
    rows = results.rows() if isinstance(results, Framed) else [_as_dict(one) for one in results]
    import narwhals

    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: [row.get(name) for row in rows] for name in names}
    backend: Any = library
    try:
        return narwhals.from_dict(columns, backend=backend).to_native()
    except ImportError as error:
        raise MissingExtraError(f"{library} is not installed. Install it with: pip install {library}") from error


class Framed:
    """A result that can be a DataFrame, and that a notebook shows with its photos."""

    __slots__ = ()

    def rows(self) -> list[dict[str, object]]:
        """Return the rows of the frame, by column."""
        raise NotImplementedError

    def to_frame(self, library: str = "pandas") -> Any:
        """Return the result as a frame of "pandas", "polars" or "pyarrow"."""
        return to_frame(self, library)

    def to_pandas(self) -> Any:
        """Return the result as a frame of pandas."""
        return to_frame(self, "pandas")

    def to_polars(self) -> Any:
        """Return the result as a frame of polars."""
        return to_frame(self, "polars")


def pictures(photos: Iterable[tuple[ImageLike | None, str, str]], n: int) -> str:
    """Return the first of `n` photos for a notebook, in HTML: each an image or its path, its name and a line below.

    Names are escaped, and pictures are inside the page. Photos that are not on this machine have no picture.
    """
    figures = []
    for (image, name, line), _ in zip(photos, range(MOST_SHOWN), strict=False):
        address = None if image is None or is_remote(image) else data_uri(image, SIDE)
        name, line = escape(printable(name)), escape(printable(line))
        picture = "" if address is None else f'<img src="{address}" alt="{name}">'
        figures.append(
            f'<figure style="margin:0;width:{SIDE}px">{picture}'
            f'<figcaption style="font-size:smaller;overflow-wrap:anywhere">{name}<br><b>{line}</b></figcaption>'
            "</figure>"
        )
    more = f"<p>… and {n - MOST_SHOWN:,} more</p>" if n > MOST_SHOWN else ""
    return f'<div style="display:flex;flex-wrap:wrap;gap:8px">{"".join(figures)}</div>{more}'


def first_of(results: Sequence[object]) -> str:
    """Return the first five of some results for people at a prompt, and how many more there are."""
    more = f", … {len(results) - 5:,} more" if len(results) > 5 else ""
    return f"[{', '.join(map(repr, results[:5]))}{more}]"


def _narwhal(value: Any) -> Any:
    """Return a frame or a Series as narwhals has it; None of anything else, mostly without importing narwhals."""
    if isinstance(value, str | os.PathLike | list | tuple | np.ndarray | None):
        return None
    if type(value).__module__.partition(".")[0] in ("visterm", "scipy", "PIL"):
        return None
    import narwhals

    try:
        frame: Any = narwhals.from_native(value, pass_through=True, allow_series=True)
    except narwhals.exceptions.DuplicateError:  # of pandas or pyarrow, which allow columns of one name
        names = unique_names(list(getattr(value, "column_names", value.columns)))
        renamed = value.rename_columns(names) if hasattr(value, "rename_columns") else value.set_axis(names, axis=1)
        frame = narwhals.from_native(renamed)
    if isinstance(frame, narwhals.LazyFrame):
        frame = frame.collect()
    return frame if isinstance(frame, narwhals.DataFrame | narwhals.Series) else None


def _as_dict(result: object) -> dict[str, object]:
    if isinstance(result, Mapping):
        return dict(result)
    as_dict = getattr(result, "as_dict", None) or getattr(result, "_asdict", None)
    if as_dict is not None:
        return dict(as_dict())
    if not is_dataclass(result) or isinstance(result, type):
        raise UserError(f"A {type(result).__name__} is no result that can be a row of a frame.")
    return asdict(result)
