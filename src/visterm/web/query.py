"""Addresses with many settings: read in one step by a model, which describes them too.

FastAPI reads each setting of its own; for the twenty of a search that takes longer than the search.
"""

from __future__ import annotations

from typing import Any, TypeVar, get_args, get_origin

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

M = TypeVar("M", bound=BaseModel)


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


def _lists(model: type[BaseModel]) -> frozenset[str]:
    found = _KNOWN.get(model)
    if found is None:
        fields = model.model_fields.items()
        found = _KNOWN[model] = frozenset(name for name, field in fields if _is_list(field.annotation))
    return found


def _is_list(annotation: Any) -> bool:
    return get_origin(annotation) is list or any(get_origin(one) is list for one in get_args(annotation))


_KNOWN: dict[type[BaseModel], frozenset[str]] = {}
