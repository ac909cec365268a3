"""The server that an application runs in, alone or as one of several processes, with bounded connections."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any

import uvicorn
from fastapi import FastAPI

from visterm.core.errors import UserError
from visterm.core.system import limit_of
from visterm.web.work import Figures, Member, SharedCount

HEADER_SECONDS = 10.0  # Seconds in which the headers of a request must arrive
ANSWER_SECONDS = 30.0  # Seconds in which a client must read the next part of an answer
MOST = 1024  # Connections at once, even if more files may be open
FEWEST = 8
RESERVE = 64  # Files kept free for the catalogue, pictures and processes; a quarter of all if that is more
_LATE = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_FULL = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 1\r\nconnection: close\r\n\r\n"
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


def run_server(app: FastAPI, host: str, port: int, announce: Callable[[str], None]) -> None:
    """Serve an application until it is stopped; call `announce` with the address once it answers.

    Port 0 is any free one. Raises UserError if the port is in use, or the address is not an address of this machine.
    """
    with listening(host, port) as bound:
        address = address_of(host, bound.getsockname()[1])
        Server(app, Member(), lambda: announce(address)).run_alone([bound])


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens; errors are those of `run_server`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=accepted_at_once())
    except OSError as error:
        why = (error.strerror or str(error)).partition(" (while")[0]
        raise UserError(
            f"Cannot listen on {address_of(host, port)}: {why}.", setting="port", value=port,
            advice="Choose another `port` (0: any free one), or an address of this machine as `host`.",
        ) from error  # fmt: skip


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
        news: Callable[[], Coroutine[object, object, None]] | None = None,
    ) -> None:
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, server_header=False, timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=END_SECONDS, backlog=accepted_at_once(), ws="none",
        )  # fmt: skip
        super().__init__(config)
        n_open, self._n_taken = member.figures.now("connections"), member.figures.now("taken")
        most = -(-most_connections() // member.n_workers)
        self._connections = Connections(most, n_open=n_open)
        self._n_workers, self._ready, self._channel, self._news = member.n_workers, ready, channel, news
        self._tasks: set[asyncio.Task[object]] = set()

    def run_alone(self, sockets: list[socket.socket]) -> None:
        """Serve until stopped, as the only task of this process."""
        before = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_SECONDS)
        seldom = _Seldom(self._n_workers)  # clients can cause some messages by the thousand
        for name in LOGGERS:
            logging.getLogger(name).addFilter(seldom)
        try:
            self.run(sockets=sockets)
        finally:
            for name in LOGGERS:
                logging.getLogger(name).removeFilter(seldom)
            sys.setswitchinterval(before)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to answer."""
        inner: Any = self.config.http_protocol_class

        def protocol(**settings: object) -> HttpConnection:
            return HttpConnection(inner(**settings), self._connections)

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
        state = {"config": self.config, "server_state": self.server_state, "app_state": self.lifespan.state}
        assert hasattr(socket, "recv_fds")  # else there is no supervisor
        letter, descriptors, *_ = socket.recv_fds(channel, 1, 1)
        work: list[Coroutine[object, object, object]] = []
        for descriptor in descriptors:
            self._n_taken.value += 1
            client = socket.socket(fileno=descriptor)
            client.setblocking(False)
            client.set_inheritable(False)
            work.append(loop.connect_accepted_socket(lambda: protocol(**state, _loop=loop), client))

        if not letter:
            loop.remove_reader(channel)
            self.should_exit = True
        elif not descriptors and self._news is not None:
            work.append(self._news())

        for each in work:
            task = loop.create_task(each)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


class _Seldom(logging.Filter):
    """Logs a few messages of the same text, the next ones after a while; `n_workers` processes log a few together."""

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


class Connections:
    """All open connections: few enough that files can still be opened, and at most half of them of one client.

    If there is no room, the connection that has waited longest for a request is closed; if all are at work, the new one
    is refused. So a client that opens connections and sends nothing takes room only from itself. The headers of a
    request must arrive in `HEADER_SECONDS`.
    """

    def __init__(self, most: int, *, n_open: SharedCount | None = None) -> None:
        self.most = most
        self._n_open = n_open or Figures().now("connections")
        self.open: set[HttpConnection] = set()

    def add(self, new: HttpConnection) -> bool:
        """Add a connection; return False if there is no room for it."""
        same = [each for each in self.open if each.client == new.client]
        rivals = same if len(same) >= max(self.most // 2, 1) else self.open
        if rivals is same or len(self.open) >= self.most:
            idle = [each for each in rivals if not each.at_work]
            if not idle:
                return False
            first = min(idle, key=lambda each: each.patience_left())
            self.open.discard(first)
            first.cut()
        self.open.add(new)
        self._n_open.value = len(self.open)
        return True

    def remove(self, old: HttpConnection) -> None:
        """Remove a connection that is closed."""
        self.open.discard(old)
        self._n_open.value = len(self.open)

    def sweep(self) -> None:
        """Close the connections whose time is over; call it about once a second."""
        for connection in list(self.open):
            connection.check(time.monotonic())


class HttpConnection(asyncio.Protocol):
    """One connection: the server's own protocol, with time limits.

    `inner` is one of uvicorn's protocols; its `cycle` is the request that it answers.
    """

    def __init__(self, inner: Any, connections: Connections) -> None:
        self._inner, self._connections = inner, connections
        self._heard: float | None = time.monotonic()  # since when a request is awaited; None: no
        self._stuck: float | None = None  # since when the client has not read the answer
        self._last, self._received, self.client = 0.0, False, ""

    @property
    def at_work(self) -> bool:
        """Whether a request is being answered."""
        cycle = self._inner.cycle
        return cycle is not None and not cycle.response_complete

    def patience_left(self) -> tuple[bool, float]:
        """Return a sort key that is least for the connection to close first: the one whose request is most overdue."""
        return (self._heard is None, self._last if self._heard is None else self._heard)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Add the connection, or refuse it."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self.client = str(peer[0]) if peer else ""
        if ":" in self.client:  # IPv6: its network, as one client has as many addresses as it likes
            self.client = str(ipaddress.ip_network((self.client.partition("%")[0], 64), strict=False))
        self._inner.connection_made(transport)
        if not self._connections.add(self):
            transport.write(_FULL)
            transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        """Remove the connection."""
        self._connections.remove(self)
        self._inner.connection_lost(error)

    def data_received(self, data: bytes) -> None:
        """Pass data on, and note when a request began to arrive."""
        self._received = True
        self._last = time.monotonic()
        self._inner.data_received(data)
        if self.at_work:
            self._heard = None
        elif self._heard is None:
            self._heard = self._last

    def eof_received(self) -> None:
        """Pass on that no more data will arrive."""
        self._inner.eof_received()

    def pause_writing(self) -> None:
        """Note that the client has stopped reading its answer."""
        self._stuck = time.monotonic()
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Note that the client reads again."""
        self._stuck = None
        self._inner.resume_writing()

    def check(self, now: float) -> None:
        """Close the connection if its time is over."""
        if self._stuck is None and self._transport.is_closing():
            self._stuck = now
        if self._stuck is not None:
            if now - self._stuck > ANSWER_SECONDS:
                self._transport.abort()
        elif self._heard is not None and not self.at_work and now - self._heard > HEADER_SECONDS:
            if self._received:
                self._transport.write(_LATE)
            self._transport.close()

    def cut(self) -> None:
        """Close the connection at once, to make room."""
        self._transport.abort()


def most_connections() -> int:
    """Return the number of connections that leaves room for the files that the service needs."""
    files = limit_of("RLIMIT_NOFILE")
    if files is None:
        return MOST
    return max(FEWEST, min(MOST, files - max(RESERVE, files // 4)))


def accepted_at_once() -> int:
    """Return how many connections may be accepted before others are closed for them: half of the reserve.

    With more, files could run out, and then nothing is accepted for a second.
    """
    files = limit_of("RLIMIT_NOFILE")
    spare = MOST if files is None else files - most_connections()
    return min(MOST, max(FEWEST, spare // 2))
