"""Limits of request bodies, checked as they arrive: one that is too large or too slow, and too many at once."""

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

from visterm.web.errors import Refused
from visterm.web.figures import Figures
from visterm.web.work import busy

SMALL = 64 * 2**10  # Bytes of a body, unless a route says otherwise
MEDIUM = 2**20  # Bytes of lists of tags, and of Label Studio's events
PIECE_SECONDS = 30.0  # Seconds in which the next piece of a body must arrive
MOST_VALUES = 100_000  # Values in the JSON of one request: reading these takes 50 ms, in which nothing else is answered
BODY = "visterm_body"  # In the scope of a request
E = TypeVar("E", bound=Callable[..., Any])


def takes(most: int) -> Callable[[E], E]:
    """Allow a route bodies of more than `SMALL` bytes."""

    def note(endpoint: E) -> E:
        _MOST[endpoint] = most
        return endpoint

    return note


def takes_pictures(endpoint: E) -> E:
    """Allow a route the largest bodies that the service accepts."""
    return takes(_ANY)(endpoint)


_ANY = 2**63
_MOST: dict[Any, int] = {}


class Bodies:
    """The bytes of all bodies that are being received or worked on, with a budget for their sum in all processes.

    `held` are the bytes now; `refused` counts the requests that were refused because the budget was spent.
    """

    def __init__(self, most: int, figures: Figures) -> None:
        self._most = most
        self.held, self.refused = figures.now("body"), figures.ever("body")

    def take(self, n_bytes: int) -> None:
        """Count bytes that have arrived. Raises Refused (503) if the budget is spent."""
        if self.held.total + n_bytes > self._most:
            self.refused.own += 1
            raise busy(f"requests of {self.held.total:,} bytes are being received")
        self.held.own += n_bytes


class BodyLimit:
    """Refuses bodies that are larger than their route allows, whatever length they claim, or that are too slow.

    A body may have `most` bytes on routes that accept pictures; a whole body must arrive in `seconds`.
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
            refused = Refused(400, f"Content-Length is {length!r}; expected a number.")
            await refused.answer()(scope, receive, send)
            return
        body = scope[BODY] = _Body(receive, self._bodies, self._seconds)

        async def receive_counted() -> Message:
            if body.most is None:  # the route is known only now that it reads the body
                body.most = min(self._most, _MOST.get(scope.get("endpoint"), SMALL))
                body.check(int(length[:20]))
            return await body.receive()

        try:
            await self._app(scope, receive_counted, send)
        finally:
            self._bodies.held.own -= body.n_bytes


class _Body:
    """One body as it arrives."""

    def __init__(self, receive: Receive, bodies: Bodies, seconds: float) -> None:
        self._receive = receive
        self._bodies = bodies
        self._seconds = seconds
        self._end = asyncio.get_running_loop().time() + seconds
        self._complete = False
        self.most: int | None = None
        self.n_bytes = 0

    def check(self, n_bytes: int) -> None:
        """Refuse a body of so many bytes if its route allows fewer."""
        if self.most is not None and n_bytes > self.most:
            raise Refused(413, f"The body of this request may have at most {self.most:,} bytes. Send less at once.")

    async def receive(self) -> Message:
        """Return the next piece, and count its bytes."""
        if self._complete:  # the only message left is that the client has gone
            return await self._receive()
        left = self._end - asyncio.get_running_loop().time()
        try:
            message = await asyncio.wait_for(self._receive(), min(left, PIECE_SECONDS))
        except TimeoutError as error:
            late = f"The next piece of the body took longer than {PIECE_SECONDS:g} s."
            if left <= PIECE_SECONDS:
                late = f"The body of the request took longer than {self._seconds:g} s."
            raise Refused(408, late) from error
        self._complete = not message.get("more_body", False)
        n_bytes = len(message.get("body", b""))
        self.check(self.n_bytes + n_bytes)
        self.hold(n_bytes)
        return message

    def hold(self, n_bytes: int) -> None:
        """Count bytes until the request is answered. Raises Refused (503) if the budget is spent."""
        self._bodies.take(n_bytes)
        self.n_bytes += n_bytes


def hold(request: Request, n_bytes: int) -> None:
    """Count what was fetched for a request as if its body had brought it; errors are those of `Bodies.take`."""
    request.scope[BODY].hold(n_bytes)


class JsonRoute(APIRoute):
    """A route that counts the values of JSON before it reads them, and reads long JSON in a thread."""

    def get_route_handler(self) -> Callable[..., Any]:
        """Return the handler, called with requests that count."""
        handle = super().get_route_handler()

        async def handle_counted(request: Request) -> Response:
            answer: Response = await handle(_JsonRequest(request.scope, request.receive))
            return answer

        return handle_counted


class _JsonRequest(Request):
    """A request that refuses JSON with too many values."""

    async def json(self) -> Any:
        """Read the body as JSON.

        Raises Refused (413) if it has too many values.
        """
        body = await self.body()
        if sum(map(body.count, (b",", b":", b"[", b"{"))) > MOST_VALUES:
            raise Refused(413, f"The JSON of a request may have at most {MOST_VALUES:,} values. Send less at once.")
        return json.loads(body) if len(body) <= SMALL else await asyncio.to_thread(json.loads, body)
