"""Request bodies: limits of each and of all together, checked while they arrive; JSON; forms; and uploaded pictures."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import sys
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, NamedTuple, TypeVar

from fastapi import Form, Request, Response
from fastapi.routing import APIRoute
from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from visterm.core.errors import DataError, UserError
from visterm.store.filters import MAX_INT
from visterm.web.errors import HttpError
from visterm.web.work import Figures, busy

SMALL_BODY = 64 * 2**10  # Bytes of a body, unless its route allows more
MEDIUM_BODY = 2**20  # Bytes of lists of tags, and of Label Studio's events
PIECE_SECONDS = 30.0  # Seconds in which the next piece of a body must arrive
MAX_VALUES = 100_000  # Maximum in the JSON of a request: parsing takes 50 ms, which block all other requests
SCOPE_KEY = "visterm_body"  # Key of the body in a request's scope
Endpoint = TypeVar("Endpoint", bound=Callable[..., object])
_MAX_BYTES: dict[object, int] = {}
UPLOAD_FIELD = "image"
PICTURE = {"type": "string", "format": "binary"}
PICTURES = {"type": "array", "items": PICTURE, "minItems": 1, "description": "Pictures to upload."}
UPLOAD_FORM = {"type": "object", "properties": {UPLOAD_FIELD: PICTURES}, "required": [UPLOAD_FIELD]}
UPLOAD: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "One picture as the body, or a form with pictures.",
        "content": {
            "multipart/form-data": {"schema": UPLOAD_FORM},
            "application/octet-stream": {"schema": PICTURE},
            "image/*": {"schema": PICTURE},
        },
    }
}
"""OpenAPI's description of requests with pictures."""

# Fields of forms
FormText = Annotated[str, Form()]
FormFlag = Annotated[bool, Form()]
FormNumber = Annotated[int, Form(ge=0, le=MAX_INT, description="Number of a photo or a step.")]

_DATA = re.compile(r"data:image/[\w.+-]{1,40};base64,", re.IGNORECASE)


def allow_body(max_bytes: int) -> Callable[[Endpoint], Endpoint]:
    """Allow a route bodies of more than `SMALL_BODY` bytes."""

    def set_limit(endpoint: Endpoint) -> Endpoint:
        _MAX_BYTES[endpoint] = max_bytes
        return endpoint

    return set_limit


allow_pictures = allow_body(2**63)
"""Allow a route the largest bodies that the service accepts."""


class Bodies:
    """The bytes of all bodies that are being received or processed, with a limit on their sum over all processes.

    `n_bytes` is the current number; `n_refused` counts the requests that were refused because of the limit.
    """

    def __init__(self, max_bytes: int, figures: Figures) -> None:
        self._max_bytes = max_bytes
        self.n_bytes, self.n_refused = figures.gauge("body"), figures.counter("body")

    def add(self, n_bytes: int) -> None:
        """Count bytes that have arrived. Raises HttpError (503) if there are too many."""
        if self.n_bytes.total + n_bytes > self._max_bytes:
            self.n_refused.value += 1
            raise busy(f"requests of {self.n_bytes.total:,} bytes are being received")
        self.n_bytes.value += n_bytes


class BodyLimit:
    """Refuses bodies that are larger than their route allows, whatever length they claim, or that are too slow.

    A body may have `max_bytes` on routes that accept pictures; a whole body must arrive in `seconds`.
    """

    def __init__(self, app: ASGIApp, bodies: Bodies, max_bytes: int, seconds: float) -> None:
        self._app, self._bodies, self._max_bytes, self._seconds = app, bodies, max_bytes, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        length = Headers(scope=scope).get("content-length", "0")
        if not length.isascii() or not length.isdigit():
            await HttpError(400, f"Content-Length is {length!r}; expected a number.").answer()(scope, receive, send)
            return

        body = scope[SCOPE_KEY] = _Body(receive, self._bodies, self._seconds)

        async def receive_counted() -> Message:
            if body.limit is None:  # the route is known only when it reads the body
                body.limit = min(self._max_bytes, _MAX_BYTES.get(scope.get("endpoint"), SMALL_BODY))
                body.check(int(length[:20]))
            return await body.receive()

        try:
            await self._app(scope, receive_counted, send)
        finally:
            self._bodies.n_bytes.value -= body.n_bytes


class _Body:
    def __init__(self, receive: Receive, bodies: Bodies, seconds: float) -> None:
        self._receive, self._bodies, self._seconds = receive, bodies, seconds
        self._end = asyncio.get_running_loop().time() + seconds
        self._is_complete = False
        self.limit: int | None = None
        self.n_bytes = 0

    def check(self, n_bytes: int) -> None:
        if self.limit is not None and n_bytes > self.limit:
            raise HttpError(413, f"The body of this request may have at most {self.limit:,} bytes. Send less at once.")

    async def receive(self) -> Message:
        if self._is_complete:  # the only remaining message is that the client has disconnected
            return await self._receive()
        remaining = self._end - asyncio.get_running_loop().time()
        try:
            message = await asyncio.wait_for(self._receive(), min(remaining, PIECE_SECONDS))
        except TimeoutError as error:
            problem = f"The next piece of the body took longer than {PIECE_SECONDS:g} s."
            if remaining <= PIECE_SECONDS:
                problem = f"The body of the request took longer than {self._seconds:g} s."
            raise HttpError(408, problem) from error

        self._is_complete = not message.get("more_body", False)
        n_bytes = len(message.get("body", b""))
        self.check(self.n_bytes + n_bytes)
        self.count(n_bytes)
        return message

    def count(self, n_bytes: int) -> None:
        """Count bytes until the request is answered; errors are those of `Bodies.add`."""
        self._bodies.add(n_bytes)
        self.n_bytes += n_bytes


def count_fetched(request: Request, n_bytes: int) -> None:
    """Count bytes that were fetched for a request like bytes of its body; errors are those of `Bodies.add`."""
    request.scope[SCOPE_KEY].count(n_bytes)


class JsonRoute(APIRoute):
    """A route that counts the values of JSON before it reads them, and reads long JSON in a thread."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[object, object, Response]]:
        """Return the handler, which is called with requests that count."""
        handle = super().get_route_handler()

        async def handle_counted(request: Request) -> Response:
            try:
                answer: Response = await handle(_JsonRequest(request.scope, request.receive))
            except Exception as error:
                return self.answer_error(request, error)
            return answer

        return handle_counted

    def answer_error(self, request: Request, error: Exception) -> Response:
        """Return the answer to an error; by default it is raised again, and the application answers it."""
        raise error


class _JsonRequest(Request):
    """A request that refuses JSON with too many values."""

    async def json(self) -> object:
        body = await self.body()
        if sum(map(body.count, (b",", b":", b"[", b"{"))) > MAX_VALUES:
            raise HttpError(413, f"The JSON of a request may have at most {MAX_VALUES:,} values. Send less at once.")
        return json.loads(body) if len(body) <= SMALL_BODY else await asyncio.to_thread(json.loads, body)


class Upload(NamedTuple):
    """An uploaded picture. Its name is only repeated in answers, never opened as a file."""

    name: str
    content: bytes


def data_content(address: str) -> bytes | None:
    """Return the content of a picture's ``data:`` address; None for another address.

    Raises DataError if it is not base64.
    """
    if not _DATA.match(address):
        return None
    try:
        return base64.b64decode(address.partition(",")[2], validate=True)
    except ValueError as error:
        raise DataError(f"the data: address is not base64: {error}") from error


async def read_uploads(request: Request, limit: int) -> list[Upload]:
    """Read the pictures of a request.

    Raises UserError for none or more than `limit`; HttpError for an unreadable form (400) or another type (415).
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type == "multipart/form-data":
        return await _read_form(request, limit)
    if media_type.startswith("image/") or media_type in ("application/octet-stream", ""):
        content = await request.body()
        if not content:
            raise UserError("The request has no picture: its body is empty.", setting=UPLOAD_FIELD, advice="Send one.")
        return [Upload(UPLOAD_FIELD, content)]
    raise HttpError(
        415,
        f"Content-Type is {media_type!r}; expected multipart/form-data with pictures in '{UPLOAD_FIELD}', or a picture "
        "as the body (image/* or application/octet-stream).",
    )


async def _read_form(request: Request, limit: int) -> list[Upload]:
    """Read the pictures of a form; errors are those of `read_uploads`."""
    parser = MultiPartParser(request.headers, request.stream(), max_files=limit + 1, max_fields=limit + 1)
    parser.spool_max_size = sys.maxsize  # keep them in memory, which is bounded, and never on a disk
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise HttpError(400, f"The form can't be read: {error.message}") from error

    try:
        parts = [part for name, part in form.multi_items() if name == UPLOAD_FIELD]
        if len(parts) > limit:
            raise UserError(f"The form has {len(parts)} pictures.", setting=UPLOAD_FIELD, expected=f"at most {limit}")
        if not parts:
            raise UserError("The form has no picture.", setting=UPLOAD_FIELD, advice=f"Send files in `{UPLOAD_FIELD}`.")
        uploads = []
        for part in parts:
            if not isinstance(part, UploadFile):
                raise UserError(f"`{UPLOAD_FIELD}` is text.", setting=UPLOAD_FIELD, expected="a file")
            uploads.append(Upload(part.filename or UPLOAD_FIELD, await part.read()))
        return uploads
    finally:
        await form.close()
