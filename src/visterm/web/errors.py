"""Answers in JSON, and one shape for all errors: ``{"error": {"code", "message", "field"}}``."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from visterm.core import errors
from visterm.core.writing import storage_error
from visterm.web.schemas import STATUSES

LOG = logging.getLogger("visterm.web")
API_NAMES = {"words": "q"}  # Names of settings that differ between Python and the API
MAX_SHOWN_LETTERS = 60  # Maximum length of a wrong value that a message repeats
ANSWERS: tuple[tuple[type[errors.VistermError], int, str], ...] = (
    (errors.UnknownNameError, 422, "unknown_name"),
    (errors.MissingExtraError, 422, "missing_extra"),
    (errors.ReplacedError, 503, "catalogue_replaced"),
    (errors.CorruptFileError, 500, "damaged"),
    (errors.OutOfSpaceError, 507, "disk_full"),
    (errors.DiskError, 503, "disk_fails"),
    (errors.StorageError, 409, "in_use"),
    (errors.ServiceError, 503, "server_unreachable"),
    (errors.DivergedError, 500, "internal"),
    (errors.VistermError, 422, "invalid"),
)
"""Errors of visterm with their status and code; the first matching class counts."""

_ENCODE = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode


class HttpError(HTTPException):
    """An error as the answer to a request; for a value that isn't accepted (422), raise `UserError` instead.

    The message says what is wrong, what is accepted, what to do. `code` is the name of the error for programs; None:
    the code of the status. `field` is the part of the request that is wrong.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        field: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, message, headers)
        self.code = code or STATUSES.get(status, ("error",))[0]
        self.field = field

    def answer(self) -> Response:
        """Return the error as JSON."""
        error = {"code": self.code, "message": self.detail}
        if self.field is not None:
            error["field"] = self.field
        return json_answer({"error": error}, self.status_code, self.headers)


def http_error_of(error: Exception, name_of: Callable[[str], str] | None = None) -> HttpError:
    """Return the answer to an error of visterm, of the disk, or of the web framework; log errors of the service.

    `name_of` returns the reader's name of a setting; None: the API's name.
    """
    error = storage_error(error) or error
    if isinstance(error, HttpError):
        return error
    if isinstance(error, HTTPException):
        message = str(error.detail) or HTTPStatus(error.status_code).phrase
        if error.status_code == 404:
            message = "There is nothing at this address. The addresses of the API are listed at /api/v1/docs."
        elif error.status_code == 405:
            accepted = (error.headers or {}).get("Allow", "other methods")
            message = f"This address doesn't accept this method. It accepts {accepted}."
        return HttpError(error.status_code, message, headers=error.headers)

    if isinstance(error, RequestValidationError):
        return _first_invalid(error)
    if isinstance(error, errors.ImageError):
        return HttpError(422, f"The picture can't be read: {error.reason}.", code="unreadable_image")
    if isinstance(error, ClientDisconnect):  # nobody reads this answer
        return HttpError(400, "The connection was closed before the request was complete.")
    status, code = next(
        ((status, code) for error_type, status, code in ANSWERS if isinstance(error, error_type)), (500, "internal")
    )
    if not isinstance(error, errors.VistermError) or code == "internal":
        LOG.error("A request failed.", exc_info=error)
        return HttpError(500, "The service failed to answer this request. Its log says why.")

    if code in ("damaged", "disk_full", "disk_fails"):
        LOG.error("%s", error)  # one line without a traceback: the cause is known
    headers = {"retry-after": "60"} if code == "disk_fails" else None
    field = error.setting and API_NAMES.get(error.setting, error.setting)
    return HttpError(status, error.wording(name_of), code=code, field=field, headers=headers)


@contextmanager
def error_statuses(statuses: Mapping[type[errors.VistermError], int]) -> Iterator[None]:
    """Answer errors of these classes with a more specific status than 422."""
    try:
        yield
    except tuple(statuses) as error:
        raise HttpError(next(code for kind, code in statuses.items() if isinstance(error, kind)), str(error)) from error


def _first_invalid(error: RequestValidationError) -> HttpError:
    problem: dict[str, Any] = next(iter(error.errors()), {"loc": (), "msg": "it can't be read", "type": ""})
    if problem["type"] == "json_invalid":  # its location is a letter of the body, not a field
        reason = problem.get("ctx", {}).get("error", "it ends too early")
        return HttpError(422, f"The body isn't valid JSON: {reason} (letter {problem['loc'][-1]}).", field="body")
    field = ".".join(str(part) for part in problem["loc"] if part not in ("query", "path", "body", "header")) or "body"
    if problem["type"] == "missing":
        return HttpError(422, f"{field} is missing. Add it to the request.", field=field)
    if problem["type"] == "extra_forbidden":
        return HttpError(422, f"{field} is not a known name. Leave it out.", field=field)
    value, message = problem.get("input"), str(problem["msg"])
    is_short = isinstance(value, str | int | float) and len(repr(value)) <= MAX_SHOWN_LETTERS
    subject = f"{field} is {value!r}" if is_short else field
    return HttpError(422, f"{subject}: {message[:1].lower()}{message[1:]}.", field=field)


def json_answer(content: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    r"""Return a JSON answer that no cache stores; bytes that are not UTF-8 become ``\udcff``, as in visterm's files."""
    headers = {"cache-control": "no-store", **(headers or {})}
    return Response(_ENCODE(content), status, headers, media_type="application/json")
