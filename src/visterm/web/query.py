"""Queries of addresses, read and described by a model in one step; and cursors of lists.

FastAPI reads each parameter on its own; for the twenty of a search that takes longer than the search.
"""

from __future__ import annotations

import base64
import binascii
import re
from functools import cache
from typing import Annotated, Any, TypeVar, get_args, get_origin

from fastapi import Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from visterm.core.registry import known_names
from visterm.web.errors import LONGEST_SHOWN, Refused
from visterm.web.schemas import TagName

M = TypeVar("M", bound=BaseModel)

Limit = Annotated[int, Query(ge=1, le=200, description="Entries of a page, at most.")]
OneTag = Annotated[TagName, Query(description="A tag that the run has learned.")]
Cursor = Annotated[str | None, Query(max_length=80, description="`next` of the page before.")]

_CURSOR = re.compile(r"([a-z]+):(\d{1,18})")


def read_query(request: Request, model: type[M]) -> M:
    """Read the query of an address; if a name is repeated, the last value counts.

    Raises RequestValidationError if a value is not accepted.
    """
    query, lists = request.query_params, _lists(model)
    known = [name for name in query if name in model.model_fields]
    try:
        return model.model_validate({name: query.getlist(name) if name in lists else query[name] for name in known})
    except ValidationError as error:
        raise RequestValidationError(error.errors()) from error


async def refuse_unknown(request: Request) -> None:
    """Refuse a query with a name that is no parameter of its address: a misspelled filter would find too much.

    Raises Refused (422), which names the known ones.
    """
    if not request.query_params:
        return
    route = request.scope["route"]
    known = {parameter["name"] for parameter in (route.openapi_extra or {}).get("parameters", ())}
    parts = [route.dependant]
    for part in parts:  # and those that it depends on, which are added meanwhile
        known.update(parameter.alias for parameter in part.query_params)
        parts += part.dependencies
    for name in request.query_params:
        if name not in known:
            shown = name[:LONGEST_SHOWN]
            raise Refused(422, f"Unknown parameter {shown!r}. {known_names(sorted(known))}", field=shown)


def described(model: type[BaseModel]) -> dict[str, Any]:
    """Return OpenAPI's description of a query, for `openapi_extra`."""
    schema = model.model_json_schema()
    parameters = []
    for name, found in schema["properties"].items():
        kind = {key: value for key, value in found.items() if key not in ("title", "description")}
        required = name in schema.get("required", ())
        parameters.append(
            {"name": name, "in": "query", "required": required, "schema": kind, "description": found["description"]}
        )
    return {"parameters": parameters}


def cursor_at(kind: str, place: int) -> str:
    """Return the cursor of a place in a list of some kind."""
    return base64.urlsafe_b64encode(f"{kind}:{place}".encode()).decode().rstrip("=")


def place_of(kind: str, cursor: str | None, start: int = 0) -> int:
    """Return the place of a cursor; without a cursor, the start.

    Raises Refused (422) if it is not a cursor of such a list.
    """
    if cursor is None:
        return start
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode("ascii")
    except (binascii.Error, ValueError):
        text = ""
    found = _CURSOR.fullmatch(text)
    if found is None or found[1] != kind:
        raise Refused(422, f"{cursor!r} is not a cursor of this list. Use 'next' of the page before.", field="cursor")
    return int(found[2])


@cache
def _lists(model: type[BaseModel]) -> frozenset[str]:
    """Return the names of the fields that are lists, optional ones too."""
    types = ((name, field.annotation) for name, field in model.model_fields.items())
    return frozenset(name for name, kind in types if any(get_origin(one) is list for one in (kind, *get_args(kind))))
