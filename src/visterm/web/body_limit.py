"""Bodies of requests are counted as they come in: one too large or too slow is refused, and so are too many at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, TypeVar

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from visterm.web.errors import Refused, error_answer
from visterm.web.work import busy

SMALL = 64 * 2**10
"""Bytes of a body, unless a route says otherwise."""

MEDIUM = 2**20
"""Bytes of lists of tags, and of what Label Studio tells."""

PIECE_SECONDS = 30.0
"""How long the next piece of a body may take to come."""

MOST_VALUES = 100_000
"""Values in the JSON of one request: these are read in 50 ms, in which nothing else can be answered."""

E = TypeVar("E", bound=Callable[..., Any])


def takes(most: int) -> Callable[[E], E]:
    """Let a route take bodies of more than `SMALL` bytes."""

    def note(endpoint: E) -> E:
        _MOST[endpoint] = most
        return endpoint

    return note


def takes_pictures(endpoint: E) -> E:
    """Let a route take bodies as large as the service allows any."""
    return takes(_ANY)(endpoint)


_ANY = 2**63
_MOST: dict[Any, int] = {}


class Bodies:
    """The bytes of all bodies that are being received or worked at: together no more than a budget.

    Parameters
    ----------
    most : int

    Attributes
    ----------
    held : int
        Bytes now.
    refused : int
        Requests that found the budget spent.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.held = 0
        self.refused = 0

    def take(self, n_bytes: int) -> None:
        """Count bytes that have come in.

        Raises
        ------
        Refused
            503, if there are too many.
        """
        if self.held + n_bytes > self._most:
            self.refused += 1
            raise busy(f"requests of {self.held:,} bytes are being received")
        self.held += n_bytes


class BodyLimit:
    """Refuses bodies that are larger than their route takes, whatever length they claim, or that take too long.

    Parameters
    ----------
    app : ASGI application
    bodies : Bodies
    most : int
        Bytes of one body, for routes that take pictures.
    seconds : float
        That a whole body may take to come.
    """

    def __init__(self, app: ASGIApp, bodies: Bodies, most: int, seconds: float) -> None:
        self._app = app
        self._bodies = bodies
        self._most = most
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        length = Headers(scope=scope).get("content-length", "0")
        if not length.isascii() or not length.isdigit():
            await error_answer(400, f"Content-Length is {length!r}; expected a number.")(scope, receive, send)
            return
        body = _Body(receive, self._bodies, self._seconds)

        async def receive_counted() -> Message:
            if body.most is None:  # only now that a route reads it is it known which
                body.most = min(self._most, _MOST.get(scope.get("endpoint"), SMALL))
                body.check(int(length[:20]))
            return await body.receive()

        try:
            await self._app(scope, receive_counted, send)
        finally:
            self._bodies.held -= body.n_bytes


class _Body:
    """One body as it comes in."""

    def __init__(self, receive: Receive, bodies: Bodies, seconds: float) -> None:
        self._receive = receive
        self._bodies = bodies
        self._seconds = seconds
        self._end = asyncio.get_running_loop().time() + seconds
        self._complete = False
        self.most: int | None = None
        self.n_bytes = 0

    def check(self, n_bytes: int) -> None:
        if self.most is not None and n_bytes > self.most:
            raise Refused(413, f"This request may have {self.most:,} bytes at most. Send less, or fewer at once.")

    async def receive(self) -> Message:
        if self._complete:  # what comes now is that the client has gone
            return await self._receive()
        left = self._end - asyncio.get_running_loop().time()
        try:
            message = await asyncio.wait_for(self._receive(), min(left, PIECE_SECONDS))
        except TimeoutError as error:
            late = f"{PIECE_SECONDS:g} s for its next piece" if left > PIECE_SECONDS else f"{self._seconds:g} s"
            raise Refused(408, f"The body of the request took longer than {late}.") from error
        self._complete = not message.get("more_body", False)
        n_bytes = len(message.get("body", b""))
        self.check(self.n_bytes + n_bytes)
        self._bodies.take(n_bytes)
        self.n_bytes += n_bytes
        return message


class JsonRoute(APIRoute):
    """A route whose JSON is counted before it is read, and read beside the loop where it is long."""

    def get_route_handler(self) -> Callable[..., Any]:
        """Return the handler, which gets requests that count."""
        handle = super().get_route_handler()

        async def handle_counted(request: Request) -> Response:
            answer: Response = await handle(_JsonRequest(request.scope, request.receive))
            return answer

        return handle_counted


class _JsonRequest(Request):
    async def json(self) -> Any:
        """Read the body as JSON.

        Raises
        ------
        Refused
            413, if it has too many values.
        """
        body = await self.body()
        if sum(map(body.count, (b",", b":", b"[", b"{"))) > MOST_VALUES:
            raise Refused(413, f"The JSON of a request may have {MOST_VALUES:,} values at most. Send less at once.")
        return json.loads(body) if len(body) <= SMALL else await asyncio.to_thread(json.loads, body)
