"""Queries of addresses, of which unknown names are refused; and cursors of lists."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from typing import Annotated, TypeVar

from fastapi import Query, Request

from visterm.core.errors import UserError
from visterm.core.registry import known_names
from visterm.web.errors import LONGEST_SHOWN
from visterm.web.schemas import TagName

T = TypeVar("T")

Limit = Annotated[int, Query(ge=1, le=200, description="Entries of a page, at most.")]
OneTag = Annotated[TagName, Query(description="A tag that the run has learned.")]
Cursor = Annotated[str | None, Query(max_length=80, description="`next` of the page before.")]

_CURSOR = re.compile(r"([a-z]+):(\d{1,18})")


async def refuse_unknown(request: Request) -> None:
    """Refuse a query with a name that is no parameter of its address: a misspelled filter would find too much.

    Raises UserError, which names the known ones.
    """
    if not request.query_params:
        return
    route = request.scope["route"]
    known: set[str] = set()
    parts = [route.dependant]
    for part in parts:  # and those that it depends on, which are added meanwhile
        for parameter in part.query_params:
            fields = getattr(parameter.field_info.annotation, "model_fields", None)  # of a model of several parameters
            known.update([parameter.alias] if fields is None else fields)
        parts += part.dependencies
    for name in request.query_params:
        if name not in known:
            shown = name[:LONGEST_SHOWN]
            raise UserError(f"Unknown parameter {shown!r}.", setting=shown, advice=known_names(sorted(known)))


def cursor_at(kind: str, position: int) -> str:
    """Return the cursor of a position in a list of some kind."""
    return base64.urlsafe_b64encode(f"{kind}:{position}".encode()).decode().rstrip("=")


def position_of(kind: str, cursor: str | None, start: int = 0) -> int:
    """Return the position of a cursor; without a cursor, the start.

    Raises UserError if it is not a cursor of such a list.
    """
    if cursor is None:
        return start
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode("ascii")
    except ValueError:
        text = ""
    match = _CURSOR.fullmatch(text)
    if match is None or match[1] != kind:
        raise UserError(setting="cursor", value=cursor, expected="a cursor of this list: `next` of the page before")
    return int(match[2])


def page_from(kind: str, start: int, limit: int, entries: Sequence[T]) -> tuple[Sequence[T], str | None]:
    """Return one page of a list of some kind, and the cursor of the next page; None on the last one."""
    end = start + limit
    return entries[start:end], cursor_at(kind, end) if end < len(entries) else None
