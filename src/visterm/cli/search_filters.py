"""Options of `visterm search` that say which images are searched, and how sizes and dates are read."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer

from visterm.core.errors import UserError

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(|b|kb|mb|gb|tb|kib|mib|gib)", re.IGNORECASE)
_UNITS = {
    "": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "kib": 2**10, "mib": 2**20, "gib": 2**30
}  # fmt: skip

PANEL = "Which images"

Tags = Annotated[
    list[str] | None,
    typer.Option("--tag", help="Only images that have this tag, given or accepted; repeat.", rich_help_panel=PANEL),
]
Without = Annotated[
    list[str] | None,
    typer.Option("--without", help="Only images that have not this tag; repeat.", rich_help_panel=PANEL),
]
Predicted = Annotated[
    list[str] | None,
    typer.Option(
        "--predicted", help="Only images that the run gives this tag among its best ten; repeat.", rich_help_panel=PANEL
    ),
]
Folder = Annotated[
    str | None, typer.Option("--folder", help="Only images in this folder, to the bottom.", rich_help_panel=PANEL)
]
From = Annotated[
    str | None,
    typer.Option("--from", help="Only photos taken then or later: 2024, 2024-05 or 2024-05-31.", rich_help_panel=PANEL),
]
To = Annotated[
    str | None,
    typer.Option("--to", help="Only photos taken then or earlier.", rich_help_panel=PANEL),
]
MinSize = Annotated[
    str | None, typer.Option("--min-size", help="Only files of this size or more, such as 1MB.", rich_help_panel=PANEL)
]
MaxSize = Annotated[
    str | None, typer.Option("--max-size", help="Only files of this size or less.", rich_help_panel=PANEL)
]
Type = Annotated[
    str | None, typer.Option("--type", help="Only files of this type: jpeg, png, heic, ...", rich_help_panel=PANEL)
]
Unreviewed = Annotated[
    bool, typer.Option("--unreviewed", help="Only images whose tags no person has looked at.", rich_help_panel=PANEL)
]


def filter_of(
    *,
    tag: list[str] | None,
    without: list[str] | None,
    predicted: list[str] | None,
    folder: str | None,
    from_: str | None,
    to: str | None,
    min_size: str | None,
    max_size: str | None,
    type_: str | None,
    unreviewed: bool,
) -> Any:
    """Return the filter that the options mean.

    Raises
    ------
    UserError
        If a size or a date is not understood.
    """
    from visterm.store.filters import Filter

    return Filter(
        tags=tuple(tag or ()),
        without=tuple(without or ()),
        predicted=tuple(predicted or ()),
        folder=folder,
        taken_from=None if from_ is None else _date(from_, "--from"),
        taken_to=None if to is None else _date(to, "--to"),
        min_bytes=None if min_size is None else _bytes(min_size, "--min-size"),
        max_bytes=None if max_size is None else _bytes(max_size, "--max-size"),
        file_type=type_,
        unreviewed=unreviewed,
    )


def _bytes(text: str, option: str) -> int:
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise UserError(f"{option} {text!r} is no size; expected a number of bytes, or such as 500kB, 1MB or 2.5MiB.")
    return round(float(found[1]) * _UNITS[found[2].lower()])


def _date(text: str, option: str) -> str:
    from visterm.store.filters import is_date

    if is_date(text.strip()):
        return text.strip()
    raise UserError(f"{option} {text!r} is no date; expected a year, a month or a day: 2024, 2024-05 or 2024-05-31.")
