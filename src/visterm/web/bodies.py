"""Bodies of requests: limits of one and of all, checked as they arrive; JSON; and uploaded pictures."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import sys
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, TypeVar

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from visterm.core.errors import DataError, UserError
from visterm.web.errors import HttpError
from visterm.web.work import Figures, busy

SMALL = 64 * 2**10  # Bytes of a body, unless a route says otherwise
MEDIUM = 2**20  # Bytes of lists of tags, and of Label Studio's events
PIECE_SECONDS = 30.0  # Seconds in which the next piece of a body must arrive
MOST_VALUES = 100_000  # Values in the JSON of one request: reading these takes 50 ms, in which nothing else is answered
IN_SCOPE = "visterm_body"  # In the scope of a request
E = TypeVar("E", bound=Callable[..., object])
_MOST: dict[object, int] = {}
FIELD = "image"
PICTURE = {"type": "string", "format": "binary"}
PICTURES = {"type": "array", "items": PICTURE, "minItems": 1, "description": "Pictures to upload."}
BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "One picture as the body, or a form with pictures.",
        "content": {
            "multipart/form-data": {"schema": {"type": "object", "properties": {FIELD: PICTURES}, "required": [FIELD]}},
            "application/octet-stream": {"schema": PICTURE},
            "image/*": {"schema": PICTURE},
        },
    }
}
"""OpenAPI's description of requests with pictures."""

_DATA = re.compile(r"data:image/[\w.+-]{1,40};base64,", re.IGNORECASE)


def takes(most: int) -> Callable[[E], E]:
    """Allow a route bodies of more than `SMALL` bytes."""

    def note(endpoint: E) -> E:
        _MOST[endpoint] = most
        return endpoint

    return note


takes_pictures = takes(2**63)
"""Allow a route the largest bodies that the service accepts."""


class Bodies:
    """The bytes of all bodies that are being received or worked on, with a budget for their sum in all processes.

    `n_bytes` are the bytes now; `refused` counts the requests that were refused because the budget was spent.
    """

    def __init__(self, most: int, figures: Figures) -> None:
        self._most = most
        self.n_bytes, self.refused = figures.now("body"), figures.ever("body")

    def take(self, n_bytes: int) -> None:
        """Count bytes that have arrived. Raises HttpError (503) if the budget is spent."""
        if self.n_bytes.total + n_bytes > self._most:
            self.refused.value += 1
            raise busy(f"requests of {self.n_bytes.total:,} bytes are being received")
        self.n_bytes.value += n_bytes


class BodyLimit:
    """Refuses bodies that are larger than their route allows, whatever length they claim, or that are too slow.

    A body may have `most` bytes on routes that accept pictures; a whole body must arrive in `seconds`.
    """

    def __init__(self, app: ASGIApp, bodies: Bodies, most: int, seconds: float) -> None:
        self._app, self._bodies, self._most, self._seconds = app, bodies, most, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        length = Headers(scope=scope).get("content-length", "0")
        if not length.isascii() or not length.isdigit():
            await HttpError(400, f"Content-Length is {length!r}; expected a number.").answer()(scope, receive, send)
            return

        body = scope[IN_SCOPE] = _Body(receive, self._bodies, self._seconds)

        async def receive_counted() -> Message:
            if body.most is None:  # the route is known only now that it reads the body
                body.most = min(self._most, _MOST.get(scope.get("endpoint"), SMALL))
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
        self._complete = False
        self.most: int | None = None
        self.n_bytes = 0

    def check(self, n_bytes: int) -> None:
        if self.most is not None and n_bytes > self.most:
            raise HttpError(413, f"The body of this request may have at most {self.most:,} bytes. Send less at once.")

    async def receive(self) -> Message:
        if self._complete:  # the only message left is that the client has gone
            return await self._receive()
        remaining = self._end - asyncio.get_running_loop().time()
        try:
            message = await asyncio.wait_for(self._receive(), min(remaining, PIECE_SECONDS))
        except TimeoutError as error:
            late = f"The next piece of the body took longer than {PIECE_SECONDS:g} s."
            if remaining <= PIECE_SECONDS:
                late = f"The body of the request took longer than {self._seconds:g} s."
            raise HttpError(408, late) from error
        self._complete = not message.get("more_body", False)
        n_bytes = len(message.get("body", b""))
        self.check(self.n_bytes + n_bytes)
        self.hold(n_bytes)
        return message

    def hold(self, n_bytes: int) -> None:
        """Count bytes until the request is answered. Raises HttpError (503) if the budget is spent."""
        self._bodies.take(n_bytes)
        self.n_bytes += n_bytes


def hold(request: Request, n_bytes: int) -> None:
    """Count what was fetched for a request as if its body had brought it; errors are those of `Bodies.take`."""
    request.scope[IN_SCOPE].hold(n_bytes)


class JsonRoute(APIRoute):
    """A route that counts the values of JSON before it reads them, and reads long JSON in a thread."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[object, object, Response]]:
        """Return the handler, called with requests that count."""
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
        if sum(map(body.count, (b",", b":", b"[", b"{"))) > MOST_VALUES:
            raise HttpError(413, f"The JSON of a request may have at most {MOST_VALUES:,} values. Send less at once.")
        return json.loads(body) if len(body) <= SMALL else await asyncio.to_thread(json.loads, body)


class Upload(NamedTuple):
    """An uploaded picture. Its name is only repeated in answers; no file is opened by it."""

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


async def read_uploads(request: Request, most: int) -> list[Upload]:
    """Read the pictures of a request.

    Raises UserError if it has none, or more than `most`; HttpError if its form can't be read (400), or it is of another
    type (415).
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        return await _read_form(request, most)
    if kind.startswith("image/") or kind in ("application/octet-stream", ""):
        content = await request.body()
        if not content:
            raise UserError("The request has no picture: its body is empty.", setting=FIELD, advice="Send one.")
        return [Upload(FIELD, content)]
    raise HttpError(
        415,
        f"Content-Type is {kind!r}; expected multipart/form-data with pictures in '{FIELD}', or a picture as the body "
        "(image/* or application/octet-stream).",
    )


async def _read_form(request: Request, most: int) -> list[Upload]:
    """Read the pictures of a form; errors are those of `read_uploads`."""
    parser = MultiPartParser(request.headers, request.stream(), max_files=most + 1, max_fields=most + 1)
    parser.spool_max_size = sys.maxsize  # in memory, which is bounded, and never on a disk
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise HttpError(400, f"The form can't be read: {error.message}") from error

    try:
        parts = [part for name, part in form.multi_items() if name == FIELD]
        if len(parts) > most:
            raise UserError(f"The form has {len(parts)} pictures.", setting=FIELD, expected=f"at most {most}")
        if not parts:
            raise UserError("The form has no picture.", setting=FIELD, advice=f"Send files in the field `{FIELD}`.")
        uploads = []
        for part in parts:
            if not isinstance(part, UploadFile):
                raise UserError(f"`{FIELD}` is text.", setting=FIELD, expected="a file")
            uploads.append(Upload(part.filename or FIELD, await part.read()))
        return uploads
    finally:
        await form.close()
