"""Addresses: many settings are read in one step by a model, which describes them too; and cursors of lists.

FastAPI reads each setting of its own; for the twenty of a search that takes longer than the search.
"""

from __future__ import annotations

import base64
import binascii
import re
from functools import cache
from typing import Any, TypeVar, get_args, get_origin

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from visterm.web.errors import Refused

M = TypeVar("M", bound=BaseModel)

_MEANT = re.compile(r"([a-z]+):(\d{1,18})")


def read_query(request: Request, model: type[M]) -> M:
    """Read the settings of an address; those that are not known are passed over, and of one the last counts.

    Raises
    ------
    RequestValidationError
        If a value is not accepted.
    """
    query = request.query_params
    given: dict[str, Any] = {}
    for name in query:
        if name in model.model_fields:
            given[name] = query.getlist(name) if name in _lists(model) else query[name]
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise RequestValidationError(error.errors()) from error


def described(model: type[BaseModel]) -> dict[str, Any]:
    """Describe the settings of an address as OpenAPI does, to be given as `openapi_extra`."""
    schema = model.model_json_schema()
    parameters = []
    for name, found in schema["properties"].items():
        of = {key: value for key, value in found.items() if key not in ("title", "description")}
        parameter = {"name": name, "in": "query", "required": name in schema.get("required", ()), "schema": of}
        if "description" in found:
            parameter["description"] = found["description"]
        parameters.append(parameter)
    return {"parameters": parameters}


def cursor_at(kind: str, place: int) -> str:
    """Make the cursor of a place in a list of some kind."""
    return base64.urlsafe_b64encode(f"{kind}:{place}".encode()).decode().rstrip("=")


def place_of(kind: str, cursor: str | None, start: int = 0) -> int:
    """Return the place that a cursor means; None is the start.

    Raises
    ------
    Refused
        422, if it is no cursor of such a list.
    """
    if cursor is None:
        return start
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode("ascii")
    except (binascii.Error, ValueError):
        text = ""
    found = _MEANT.fullmatch(text)
    if found is None or found[1] != kind:
        raise Refused(422, f"{cursor!r} is no cursor of this list. Use 'next' of the page before.", field="cursor")
    return int(found[2])


@cache
def _lists(model: type[BaseModel]) -> frozenset[str]:
    """Return the settings that are lists, optional ones too."""
    types = ((name, field.annotation) for name, field in model.model_fields.items())
    return frozenset(name for name, kind in types if any(get_origin(one) is list for one in (kind, *get_args(kind))))
