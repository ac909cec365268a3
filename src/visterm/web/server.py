"""The server that an application runs in, alone or as one of several processes."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI

from visterm.core.errors import UserError
from visterm.web.connections import HEADER_SECONDS, Connection, Connections, accepted_at_once, most_connections
from visterm.web.figures import Member

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
    with listening(host, port) as bound:
        address = address_of(host, bound.getsockname()[1])
        server = Server(app, Member(), lambda: announce(address), header_seconds=header_seconds)
        server.run_alone([bound])


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens; errors are those of `run_server`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=accepted_at_once())
    except OSError as error:
        why = (error.strerror or str(error)).partition(" (while")[0]
        raise UserError(
            f"Cannot listen on {address_of(host, port)}: {why}. Choose another port (--port 0: any free one) or an "
            "address of this machine (--host)."
        ) from error


def address_of(host: str, port: int) -> str:
    """Return the address that people open."""
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


class Server(uvicorn.Server):
    """uvicorn's server with bounded connections, which are checked every second.

    `channel` is where a supervisor sends connections and news, see `visterm.web.workers`; `news` is called for these.
    """

    def __init__(
        self,
        app: FastAPI,
        member: Member,
        ready: Callable[[], None],
        *,
        channel: socket.socket | None = None,
        news: Callable[[], None] = lambda: None,
        header_seconds: float = HEADER_SECONDS,
    ) -> None:
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, server_header=False, timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=END_SECONDS, backlog=accepted_at_once(), ws="none",
        )  # fmt: skip
        super().__init__(config)
        n_open, self._n_taken = member.figures.now("connections"), member.figures.now("taken")
        most = -(-most_connections() // member.n_workers)
        self._connections = Connections(most, header_seconds=header_seconds, n_open=n_open)
        self._n_workers = member.n_workers
        self._ready = ready
        self._channel = channel
        self._news = news
        self._tasks: set[asyncio.Task[Any]] = set()

    def run_alone(self, sockets: list[socket.socket]) -> None:
        """Serve until stopped, as what this process does."""
        before = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_SECONDS)
        try:
            with _logged_seldom(self._n_workers):
                self.run(sockets=sockets)
        finally:
            sys.setswitchinterval(before)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to answer."""
        inner: Any = self.config.http_protocol_class

        def protocol(**settings: Any) -> Connection:
            return Connection(inner(**settings), self._connections)

        self.config.http_protocol_class = protocol  # type: ignore[assignment]
        await super().startup(sockets)
        if self.started:
            if self._channel is not None:
                asyncio.get_running_loop().add_reader(self._channel, self._hear, self._channel, protocol)
            self._ready()

    async def on_tick(self, counter: int) -> bool:
        """Check the connections every second."""
        if counter % TICKS_A_SECOND == 0:
            self._connections.sweep()
        return await super().on_tick(counter)

    def _hear(self, channel: socket.socket, protocol: Callable[..., asyncio.Protocol]) -> None:
        """Take a connection from the supervisor, or hear of news; stop if the supervisor has gone."""
        loop = asyncio.get_running_loop()
        state: Any = {"config": self.config, "server_state": self.server_state, "app_state": self.lifespan.state}
        assert hasattr(socket, "recv_fds")  # else there is no supervisor
        letter, descriptors, *_ = socket.recv_fds(channel, 1, 1)
        for descriptor in descriptors:
            self._n_taken.own += 1
            client = socket.socket(fileno=descriptor)
            client.setblocking(False)
            client.set_inheritable(False)
            task = loop.create_task(loop.connect_accepted_socket(lambda: protocol(**state, _loop=loop), client))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if not letter:
            loop.remove_reader(channel)
            self.should_exit = True
        elif not descriptors:
            self._news()


class _Seldom(logging.Filter):
    """Logs a few messages of the same text, and the next ones after a while, with the number left out.

    It is one of `n_workers` processes that log a few of them together.
    """

    def __init__(self, n_workers: int = 1) -> None:
        super().__init__()
        self._most = max(1, MOST_ALIKE // n_workers)
        self._seconds = LOG_SECONDS * self._most * n_workers / MOST_ALIKE
        self._alike: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        text, now = str(record.msg)[:200], time.monotonic()
        since, count = self._alike.get(text, (now, 0))
        left_out = 0
        if now - since > self._seconds:
            since, count, left_out = now, 0, max(count - self._most, 0)
        if len(self._alike) > MOST_TEXTS:
            self._alike.clear()
        self._alike[text] = (since, count + 1)
        if left_out:
            record.msg = f"{record.msg} ({left_out:,} more like it were left out)"
        return count < self._most


@contextmanager
def _logged_seldom(n_workers: int) -> Iterator[None]:
    """Limit messages that clients can cause by the thousand, such as one per connection that can't be accepted."""
    seldom = _Seldom(n_workers)
    for name in LOGGERS:
        logging.getLogger(name).addFilter(seldom)
    try:
        yield
    finally:
        for name in LOGGERS:
            logging.getLogger(name).removeFilter(seldom)
