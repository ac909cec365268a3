"""The server that an application runs in."""

from __future__ import annotations

import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI

from visterm.core.errors import UserError
from visterm.web.connections import HEADER_SECONDS, Connections, accepted_at_once, bounded, most_connections

SWITCH_SECONDS = 0.001
"""Time after which a computing thread lets others run: an answer waits for it twice, and Python's 5 ms add up."""

KEEP_ALIVE_SECONDS = 30
TICKS_A_SECOND = 10  # Ticks of uvicorn's main loop
END_SECONDS = 5  # Time for open requests when the service ends
LOGGERS = ("asyncio", "uvicorn.error", "python_multipart.multipart")
LOG_SECONDS = 60.0
MOST_ALIKE = 3
"""Messages of the same text that are logged in that time: clients must not be able to fill a disk with them."""

MOST_TEXTS = 100


def run_server(
    app: FastAPI, host: str, port: int, announce: Callable[[str], None], *, header_seconds: float = HEADER_SECONDS
) -> None:
    """Serve an application until it is stopped; call `announce` with the address once it answers.

    Port 0 is any free one. The headers of a request must arrive in `header_seconds`. Raises UserError if the port is in
    use, or the address is not an address of this machine.
    """
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=END_SECONDS,
        backlog=accepted_at_once(),
        ws="none",
    )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        bound = socket.create_server((host, port), family=family, backlog=config.backlog)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        raise UserError(
            f"Cannot listen on {_address(host, port)}: {why}. Choose another port (--port 0: any free one) or an "
            "address of this machine (--host)."
        ) from error
    connections = Connections(most_connections(), header_seconds=header_seconds)
    with bound as listening, _logged_seldom():
        before = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_SECONDS)
        try:
            server = _Server(config, connections, lambda: announce(_address(host, listening.getsockname()[1])))
            server.run(sockets=[listening])
        finally:
            sys.setswitchinterval(before)


class _Server(uvicorn.Server):
    """uvicorn's server with bounded connections, which are checked every second."""

    def __init__(self, config: uvicorn.Config, connections: Connections, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._connections = connections
        self._started = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        protocol: Any = bounded(self.config.http_protocol_class, self._connections)
        self.config.http_protocol_class = protocol
        await super().startup(sockets)
        if self.started:
            self._started()

    async def on_tick(self, counter: int) -> bool:
        if counter % TICKS_A_SECOND == 0:
            self._connections.sweep()
        return await super().on_tick(counter)


class _Seldom(logging.Filter):
    """Logs a few messages of the same text, and the next ones after a while, with the number left out."""

    def __init__(self) -> None:
        super().__init__()
        self._alike: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        text, now = str(record.msg)[:200], time.monotonic()
        since, count = self._alike.get(text, (now, 0))
        left_out = 0
        if now - since > LOG_SECONDS:
            since, count, left_out = now, 0, max(count - MOST_ALIKE, 0)
        if len(self._alike) > MOST_TEXTS:
            self._alike.clear()
        self._alike[text] = (since, count + 1)
        if left_out:
            record.msg = f"{record.msg} ({left_out:,} more like it were left out)"
        return count < MOST_ALIKE


@contextmanager
def _logged_seldom() -> Iterator[None]:
    """Limit messages that clients can cause by the thousand, such as one per connection that can't be accepted."""
    seldom = _Seldom()
    for name in LOGGERS:
        logging.getLogger(name).addFilter(seldom)
    try:
        yield
    finally:
        for name in LOGGERS:
            logging.getLogger(name).removeFilter(seldom)


def _address(host: str, port: int) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
