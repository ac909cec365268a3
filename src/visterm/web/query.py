"""Query parameters, with errors for unknown names; and cursors of lists."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, TypeVar

from fastapi import Query, Request

from visterm.core.errors import UserError
from visterm.core.registry import known_names
from visterm.web.errors import MAX_SHOWN_LETTERS
from visterm.web.schemas import TagName

T = TypeVar("T")

Limit = Annotated[int, Query(ge=1, le=200, description="Maximum number of entries per page.")]
OneTag = Annotated[TagName, Query(description="A tag that the run has learned.")]
Cursor = Annotated[str | None, Query(max_length=80, description="`next` of the previous page.")]

_CURSOR = re.compile(r"([a-z]+):([0-9]{1,18})")


async def refuse_unknown(request: Request) -> None:
    """Refuse parameters that the address doesn't have: with a misspelled filter, a search would find too much.

    Raises UserError, which lists the known parameters.
    """
    if not request.query_params:
        return
    route = request.scope["route"]
    parameters: set[str] = set()
    dependants = [route.dependant]
    for dependant in dependants:  # the loop adds those that it depends on
        for parameter in dependant.query_params:
            fields = getattr(parameter.field_info.annotation, "model_fields", None)  # a model has many parameters
            parameters.update([parameter.alias] if fields is None else fields)
        dependants += dependant.dependencies

    for name in request.query_params:
        if name not in parameters:
            name = name[:MAX_SHOWN_LETTERS]
            raise UserError(f"Unknown parameter {name!r}.", setting=name, advice=known_names(sorted(parameters)))


def cursor_at(kind: str, position: int) -> str:
    """Return the cursor of a position in a list of this kind."""
    return f"{kind}:{position}"


def position_of(kind: str, cursor: str | None, start: int = 0) -> int:
    """Return the position of a cursor; without a cursor, `start`.

    Raises UserError if it is not a cursor of a list of this kind.
    """
    if cursor is None:
        return start
    match = _CURSOR.fullmatch(cursor)
    if match is None or match[1] != kind:
        raise UserError(setting="cursor", value=cursor, expected="a cursor of this list: `next` of the previous page")
    return int(match[2])


def page_from(kind: str, start: int, limit: int, entries: Sequence[T]) -> tuple[Sequence[T], str | None]:
    """Return one page of a list of this kind, and the cursor of the next page; None on the last page."""
    end = start + limit
    return entries[start:end], cursor_at(kind, end) if end < len(entries) else None
