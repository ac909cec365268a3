"""What describes the JSON of requests and answers to OpenAPI, and errors. Answers are tested against it."""

from __future__ import annotations

from collections.abc import Mapping
from types import GenericAlias
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

from visterm.core.vocabulary import MAX_LETTERS

TagName = Annotated[str, Field(min_length=1, max_length=MAX_LETTERS, examples=["beach"])]

Id = Annotated[int, Field(description="Id of the photo.")]
ImageName = Annotated[str, Field(description="File name of the photo, relative to the indexed folder.")]
Tag = Annotated[str, Field(description="The tag.")]
Score = Annotated[float, Field(description="The model's score; higher is better.")]
Next = Annotated[str | None, Field(description="Pass it as `cursor` to get the next page; null on the last page.")]


class RequestBody(BaseModel):
    """Base of what clients send. Unknown names are errors, so that no typing error is silently ignored."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _first_unknown(cls, values: object) -> object:
        """Keep only the first unknown name: errors about thousands of names would take too long."""
        if not isinstance(values, dict):
            return values
        known = {name: value for name, value in values.items() if name in cls.model_fields}
        unknown = next((name for name in values if name not in known), None)
        return known if unknown is None else known | {unknown: values[unknown]}


def answer(name: str, about: str, /, **fields: object) -> type[BaseModel]:
    """Return the form of an object in answers, for OpenAPI: routes write their JSON themselves.

    A field is a type that has a description; or a type, its description and, if it may be absent, its default.
    """
    definitions: dict[str, Any] = {}
    for field, content in fields.items():
        definitions[field] = (content, ...)
        if isinstance(content, tuple):
            kind, description, *default = content
            definitions[field] = (kind, Field(*(default or [...]), description=description))
    return create_model(name, __doc__=about, **definitions)


def listed(model: type[BaseModel], about: str) -> tuple[object, str]:
    """Return a field of `answer`: a list of these objects."""
    return GenericAlias(list, (model,)), about


Error = answer(
    "Error", "What is wrong with a request.",
    code=(str, "Name of the error, for programs."),
    message=(str, "What is wrong, what is accepted, and what to do; for people."),
    field=(str | None, "The part of the request that is wrong.", None),
)  # fmt: skip

ErrorAnswer = answer("ErrorAnswer", "The answer to a request that failed.", error=(Error, "The error."))

STATUSES = {
    400: ("bad_request", "The request can't be understood."),
    401: ("unauthorised", "The token is missing or wrong."),
    403: ("forbidden", "A page of another site sent the request, or one from another machine would write into files."),
    404: ("not_found", "It doesn't exist."),
    405: ("method_not_allowed", "The address doesn't accept this method."),
    408: ("too_slow", "The body of the request arrived too slowly."),
    409: ("conflict", "Not possible right now: the catalogue is in use, or another step comes first."),
    413: ("too_large", "The request is too large."),
    415: ("unsupported_type", "This type of body isn't accepted."),
    421: ("wrong_host", "The service doesn't have this host name."),
    422: ("invalid", "A value isn't accepted, or a picture can't be read."),
    500: ("internal", "The service failed, or a file of the catalogue is damaged. Its log says more."),
    503: ("busy", "The service is busy, or its disk fails. Retry-After says when to try again, in seconds."),
    507: ("disk_full", "The catalogue's disk is full. Nothing was written."),
}
"""The name of each error for programs, by status, and its description in OpenAPI."""

COMMON_STATUSES = (400, 401, 403, 421, 422, 500, 503, 507)


def file_answers(media_type: str, others: Mapping[int, str]) -> dict[int | str, dict[str, Any]]:
    """Return OpenAPI's description of a route that answers with a file, a 404, or one of the `others`."""
    answers: dict[int | str, dict[str, Any]] = {status: {"description": text} for status, text in others.items()}
    answers[200] = {"content": {media_type: {"schema": {"type": "string", "format": "binary"}}}}
    return answers | errors(404)


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return OpenAPI's description of a route's errors: those with these statuses, and those that all routes have."""
    return {code: {"model": ErrorAnswer, "description": STATUSES[code][1]} for code in (*COMMON_STATUSES, *statuses)}
