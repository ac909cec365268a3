"""Bodies of requests are counted as they come in: too large, or too slow, and the request is refused."""

from __future__ import annotations

import asyncio

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from visterm.web.errors import Refused, error_answer

SECONDS = 30.0
"""How long the next piece of a body may take to come."""


class BodyLimit:
    """Refuses bodies of more than some bytes, whatever their length is said to be.

    Parameters
    ----------
    app : ASGI application
    most : int
    """

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app = app
        self._most = most
        self._message = f"A request may have {most:,} bytes at most. Send a smaller picture, or fewer at once."

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        told = Headers(scope=scope).get("content-length", "0")
        if not told.isascii() or not told.isdigit():
            await error_answer(400, f"Content-Length is {told!r}; expected a number.")(scope, receive, send)
            return
        if int(told) > self._most:
            await error_answer(413, self._message)(scope, receive, send)
            return
        counted, more = 0, True

        async def receive_counted() -> Message:
            nonlocal counted, more
            if not more:  # what comes now is that the client has gone
                return await receive()
            try:
                message = await asyncio.wait_for(receive(), SECONDS)
            except TimeoutError as error:
                raise Refused(408, f"The next piece of the request took longer than {SECONDS:g} s.") from error
            more = bool(message.get("more_body", False))
            counted += len(message.get("body", b""))
            if counted > self._most:
                raise Refused(413, self._message)
            return message

        await self._app(scope, receive_counted, send)
