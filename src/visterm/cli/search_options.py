"""Options of `visterm search`: what is searched for, in which images, and how dates and sizes are read."""

from __future__ import annotations

import re
from functools import partial
from typing import Annotated, Any

import typer

from visterm.core.errors import UserError

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(|b|kb|mb|gb|tb|kib|mib|gib)", re.IGNORECASE)
_UNITS = {
    "": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "kib": 2**10, "mib": 2**20, "gib": 2**30
}  # fmt: skip

search_option = partial(typer.Option, rich_help_panel="Search", show_default=False)
among_option = partial(typer.Option, rich_help_panel="Which images", show_default=False)

Words = Annotated[
    str | None,
    typer.Argument(
        help="Tags to find; -word for what should not be there. Any other word, too, of a run fitted with "
        '--word-vectors that have it; "polar bear" in quotes is one. None: list what the filters let pass.',
        show_default=False,
    ),
]
K = Annotated[int, search_option("-k", min=0, help="Images to show; 0 for all.", show_default=True)]
Combine = Annotated[
    str | None,
    search_option(
        "--combine",
        help="How words are put together: sum of their scores, product of their probabilities (models cmrm, mbrm, "
        "cmtt, plsa), or confidence that an image is meant [default: sum; confidence with -word or a cut-off].",
    ),
]
Cutoff = Annotated[
    bool, search_option("--cutoff", help="Show no images below the rank at which few more are likely to be meant.")
]
MinConfidence = Annotated[
    float | None, search_option("--min-confidence", help="Keep images with at least this confidence (0-1).")
]
Expand = Annotated[
    list[str] | None,
    search_option(
        "--expand",
        help="Then show photos of what belongs to the words, with the reason: parts (the wheels of a car) or siblings "
        "(a bus is a vehicle, too); repeat for both. For runs fitted with --part-of or --isa.",
    ),
]
Groups = Annotated[
    int, search_option(min=0, help="With --expand: tags to show, of each kind; 0 for all.", show_default=True)
]
Like = Annotated[
    str | None,
    search_option(
        "--like", help="In place of words, find photos that look like this one: a file, or a name in the catalogue."
    ),
]
Tags = Annotated[
    list[str] | None, among_option("--tag", help="Only images that have this tag, given or accepted; repeat.")
]
Without = Annotated[list[str] | None, among_option("--without", help="Only images without this tag; repeat.")]
Predicted = Annotated[
    list[str] | None,
    among_option("--predicted", help="Only images that the run gives this tag among its best ten; repeat."),
]
Folder = Annotated[str | None, among_option("--folder", help="Only images in this folder, to the bottom.")]
From = Annotated[
    str | None, among_option("--from", help="Only photos taken then or later: 2024, 2024-05 or 2024-05-31.")
]
To = Annotated[str | None, among_option("--to", help="Only photos taken then or earlier.")]
MinSize = Annotated[str | None, among_option("--min-size", help="Only files of this size or more, such as 1MB.")]
MaxSize = Annotated[str | None, among_option("--max-size", help="Only files of this size or less.")]
Type = Annotated[str | None, among_option("--type", help="Only files of this type: jpeg, png, heic, ...")]
Unreviewed = Annotated[bool, among_option("--unreviewed", help="Only images whose tags no person has looked at.")]


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
