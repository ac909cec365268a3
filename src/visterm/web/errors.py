"""Answers in JSON, and one shape for all errors: ``{"error": {"code", "message", "field"}}``."""

from __future__ import annotations

import json
import logging
from http import HTTPStatus
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from visterm.core.errors import (
    CorruptFileError,
    DiskError,
    DivergedError,
    ImageError,
    MissingExtraError,
    OutOfSpaceError,
    ReplacedError,
    StorageError,
    UnknownNameError,
    VistermError,
)
from visterm.core.writing import storage_error

LOG = logging.getLogger("visterm.web")
LONGEST_SHOWN = 60
"""Letters of a wrong value that a message repeats."""

CODES = {
    400: "bad_request",
    401: "unauthorised",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    408: "too_slow",
    409: "conflict",
    413: "too_large",
    415: "unsupported_type",
    421: "wrong_host",
    422: "invalid",
    500: "internal",
    503: "busy",
    507: "disk_full",
}

_ENCODE = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode


class Refused(HTTPException):
    """A request that is answered with an error.

    Parameters
    ----------
    status : int
    message : str
        What is wrong with the value, what is accepted, what to do.
    code : str, optional
        Name of the error for programs; None: that of the status.
    field : str, optional
        The part of the request that is wrong.
    headers : dict, optional
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        field: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(status, message, headers)
        self.code = code
        self.field = field


def error_answer(
    status: int,
    message: str,
    *,
    code: str | None = None,
    field: str | None = None,
    headers: dict[str, str] | None = None,
) -> Response:
    """Return the answer to a request that failed."""
    error: dict[str, Any] = {"code": code or CODES.get(status, "error"), "message": message}
    if field is not None:
        error["field"] = field
    return json_answer({"error": error}, status, headers)


def answer_to(error: Exception) -> Response:
    """Return the answer to an error of visterm, of the disk, or of the web framework."""
    error = storage_error(error) or error
    if isinstance(error, Refused):
        return error_answer(
            error.status_code, str(error.detail), code=error.code, field=error.field, headers=dict(error.headers or {})
        )
    if isinstance(error, HTTPException):
        message = str(error.detail) or HTTPStatus(error.status_code).phrase
        if error.status_code == 404:
            message = "There is nothing at this address. The addresses of the API are listed at /api/v1/docs."
        elif error.status_code == 405:
            accepted = (error.headers or {}).get("Allow", "other methods")
            message = f"This address doesn't accept this method. It accepts {accepted}."
        return error_answer(error.status_code, message, headers=dict(error.headers or {}))
    if isinstance(error, RequestValidationError):
        return _answer_to_invalid(error)
    if isinstance(error, ImageError):
        return error_answer(422, f"The picture can't be read: {error.reason}.", code="unreadable_image")
    if isinstance(error, UnknownNameError):
        return error_answer(422, str(error), code="unknown_name")
    if isinstance(error, MissingExtraError):
        return error_answer(422, str(error), code="missing_extra")
    if isinstance(error, ReplacedError):
        return error_answer(503, str(error), code="catalogue_replaced")
    if isinstance(error, DiskError | CorruptFileError):
        LOG.error("%s", error)  # in one line: its cause is known
        if isinstance(error, CorruptFileError):
            return error_answer(500, str(error), code="damaged")
        if isinstance(error, OutOfSpaceError):
            return error_answer(507, str(error))
        return error_answer(503, str(error), code="disk_fails", headers={"retry-after": "60"})
    if isinstance(error, StorageError):
        return error_answer(409, str(error), code="in_use")
    if isinstance(error, VistermError) and not isinstance(error, DivergedError):
        return error_answer(422, str(error))
    if isinstance(error, ClientDisconnect):  # nobody reads this answer
        return error_answer(400, "The connection was closed before the request was complete.")
    LOG.error("A request failed.", exc_info=error)
    return error_answer(500, "The service failed to answer this request. Its log says why.")


def _answer_to_invalid(error: RequestValidationError) -> Response:
    """Return the answer that names the first value that is wrong, and what is accepted."""
    found: dict[str, Any] = next(iter(error.errors()), {"loc": (), "msg": "it can't be read", "type": ""})
    if found["type"] == "json_invalid":  # its place is a letter of the body, not a field
        why = found.get("ctx", {}).get("error", "it ends too early")
        return error_answer(422, f"The body isn't valid JSON: {why} (letter {found['loc'][-1]}).", field="body")
    where = ".".join(str(part) for part in found["loc"] if part not in ("query", "path", "body", "header")) or "body"
    value, message = found.get("input"), str(found["msg"])
    if found["type"] == "missing":
        return error_answer(422, f"{where} is missing. Add it to the request.", field=where)
    if found["type"] == "extra_forbidden":
        return error_answer(422, f"{where} is not a known name. Leave it out.", field=where)
    if isinstance(value, str | int | float) and len(repr(value)) <= LONGEST_SHOWN:
        where_and_value = f"{where} is {value!r}"
    else:
        where_and_value = where
    return error_answer(422, f"{where_and_value}: {message[:1].lower()}{message[1:]}.", field=where)


def json_answer(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    r"""Return JSON; bytes of names that are not UTF-8 become ``\udcff``, as in our files."""
    return Response(_ENCODE(content), status, headers, media_type="application/json")
