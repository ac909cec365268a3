"""Options of `visterm search`: what is searched for, in which images, and how dates are read."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from visterm.cli.completion import one_tag, words_of_a_query
from visterm.core.errors import UserError

search_option = partial(typer.Option, rich_help_panel="Search", show_default=False)
among_option = partial(typer.Option, rich_help_panel="Which photos", show_default=False)

Words = Annotated[
    str | None,
    typer.Argument(
        help='Tags to find, in quotes; -word means "not"; "polar bear" in double quotes is one tag '
        "[default: list all photos that pass the filters].",
        show_default=False,
        autocompletion=words_of_a_query,
    ),
]
K = Annotated[int, search_option("-k", min=0, help="Photos to show; 0 for all.", show_default=True)]
Cutoff = Annotated[bool, search_option("--cutoff", help="Stop where few more photos are likely to match.")]
MinConfidence = Annotated[
    float | None, search_option("--min-confidence", help="Show photos with at least this confidence (0-1).")
]
Expand = Annotated[
    list[str] | None,
    search_option(
        help="Also show photos of related tags: parts (the wheels of a car) or siblings (a bus, like a car, is a "
        "vehicle). Repeat for both."
    ),
]
Like = Annotated[str | None, search_option(help="Find photos similar to this one, a file or a name in the catalogue.")]
Sort = Annotated[str | None, search_option(help="Order: chance (unlikely photos, too), taken, oldest, name, added.")]
tag_option = partial(among_option, autocompletion=one_tag)
Tags = Annotated[list[str] | None, tag_option(help="With this tag, given or accepted. Repeat for more.")]
From = Annotated[str | None, among_option("--from", help="Taken on this date or later: 2024, 2024-05 or 2024-05-31.")]
To = Annotated[str | None, among_option(help="Taken on this date or earlier.")]


def date_in(text: str, option: str) -> str:
    """Return a date as typed, such as 2024-05. Raises UserError if it is none."""
    from visterm.store.filters import is_date

    if is_date(text.strip()):
        return text.strip()
    raise UserError(f"{option} is {text!r}, not a date; expected one such as 2024, 2024-05 or 2024-05-31.")
