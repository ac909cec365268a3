"""The server that an application runs in, alone or as one of several processes, with bounded connections."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import sys
import time
from array import array
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import uvicorn

from visterm.core.errors import UserError
from visterm.core.system import limit_of
from visterm.web.work import Figures, Member, SharedCount

if TYPE_CHECKING:
    from fastapi import FastAPI

HEADER_SECONDS = 10.0  # Seconds in which the headers of a request must arrive
ANSWER_SECONDS = 30.0  # Seconds in which a client must read the next part of an answer
MAX_CONNECTIONS = 1024  # Maximum number of open connections, even if more files may be open
MIN_CONNECTIONS = 8
RESERVED_FILES = 64  # Files kept free for the catalogue, pictures and processes; a quarter of all if that is more
_TIMEOUT_ANSWER = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_BUSY_ANSWER = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 1\r\nconnection: close\r\n\r\n"
SWITCH_SECONDS = 0.001
"""Time after which a computing thread lets others run. An answer waits for two switches, and Python's 5 ms add up."""

KEEP_ALIVE_SECONDS = 30
LINGER_SECONDS = 2.0  # Time in which the client of a refused connection can read the answer
MAX_TAKEN_AT_ONCE = 64  # Connections that a worker takes from the supervisor, before it goes on answering
TICKS_PER_SECOND = 10  # Ticks of uvicorn's main loop
END_SECONDS = 5  # Time for open requests when the service ends
LIMITED_LOGGERS = ("asyncio", "uvicorn.error", "python_multipart.multipart")
LOG_SECONDS = 60.0  # Period in which repeated messages are counted
MAX_REPEATS = 3
"""Messages of the same text that are logged in `LOG_SECONDS`, so that clients can't fill a disk with them."""

MAX_COUNTED_TEXTS = 100


def run_server(app: FastAPI, host: str, port: int, announce: Callable[[str], None]) -> None:
    """Serve an application until it is stopped; call `announce` with the address once it answers.

    Port 0 stands for any free port. Raises UserError if the port is in use, or this machine doesn't have the address.
    """
    with listening_socket(host, port) as listener:
        address = address_of(host, listener.getsockname()[1])
        Server(app, Member(), lambda: announce(address)).run_alone([listener])


def listening_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens; errors are those of `run_server`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=max_backlog())
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (while")[0]
        raise UserError(
            f"Cannot listen on {address_of(host, port)}: {reason}.", setting="port", value=port,
            advice="Choose another `port` (0: any free one), or an address of this machine as `host`.",
        ) from error  # fmt: skip


def address_of(host: str, port: int) -> str:
    """Return the address that people open."""
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


class Server(uvicorn.Server):
    """uvicorn's server with bounded connections, which are checked every second.

    A supervisor sends connections and news through `channel`, see `visterm.web.workers`; `on_news` is called for news.
    """

    def __init__(
        self,
        app: FastAPI,
        member: Member,
        on_ready: Callable[[], None],
        *,
        channel: socket.socket | None = None,
        on_news: Callable[[], Coroutine[object, object, None]] | None = None,
    ) -> None:
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, server_header=False, timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=END_SECONDS, backlog=max_backlog(), ws="none", http="h11",  # it limits headers
        )  # fmt: skip
        super().__init__(config)
        n_open, self._n_taken = member.figures.gauge("connections"), member.figures.gauge("taken")
        max_open = -(-max_connections() // member.n_workers)
        self._connections = Connections(max_open, max_backlog() // 2, n_open=n_open)
        self._n_workers, self._on_ready, self._channel, self._on_news = member.n_workers, on_ready, channel, on_news
        self._tasks: set[asyncio.Task[object]] = set()

    def run_alone(self, sockets: list[socket.socket]) -> None:
        """Serve until stopped, as the only task of this process."""
        old_interval = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_SECONDS)
        log_filter = _RepeatFilter(self._n_workers)  # clients can cause thousands of some messages
        for name in LIMITED_LOGGERS:
            logging.getLogger(name).addFilter(log_filter)
        try:
            self.run(sockets=sockets)
        finally:
            for name in LIMITED_LOGGERS:
                logging.getLogger(name).removeFilter(log_filter)
            sys.setswitchinterval(old_interval)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to answer."""
        inner: Any = self.config.http_protocol_class

        def new_protocol(**settings: object) -> HttpConnection:
            return HttpConnection(inner(**settings), self._connections)

        self.config.http_protocol_class = new_protocol  # type: ignore[assignment]
        await super().startup(sockets)
        if self.started:
            if self._channel is not None:
                asyncio.get_running_loop().add_reader(self._channel, self._receive, self._channel, new_protocol)
            self._on_ready()

    async def on_tick(self, counter: int) -> bool:
        """Check the connections every second."""
        if counter % TICKS_PER_SECOND == 0:
            self._connections.sweep()
        return await super().on_tick(counter)

    def _receive(self, channel: socket.socket, new_protocol: Callable[..., asyncio.Protocol]) -> None:
        """Receive connections and news from the supervisor; stop if the supervisor has ended."""
        loop = asyncio.get_running_loop()
        state = {"config": self.config, "server_state": self.server_state, "app_state": self.lifespan.state}
        coroutines: list[Coroutine[object, object, object]] = []
        for _ in range(MAX_TAKEN_AT_ONCE):
            try:
                message, ancillary, *_ = channel.recvmsg(1, socket.CMSG_LEN(4), socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            descriptors = [number for _, _, content in ancillary for number in array("i", content)]
            for descriptor in descriptors:
                self._n_taken.value += 1
                client = socket.socket(fileno=descriptor)
                client.setblocking(False)
                client.set_inheritable(False)
                coroutines.append(loop.connect_accepted_socket(lambda: new_protocol(**state, _loop=loop), client))

            if not message:
                loop.remove_reader(channel)
                self.should_exit = True
                break
            if not descriptors and self._on_news is not None:
                coroutines.append(self._on_news())

        for coroutine in coroutines:
            task = loop.create_task(coroutine)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


class _RepeatFilter(logging.Filter):
    """Limits how many messages of the same text are logged in `LOG_SECONDS`, by `n_workers` processes together."""

    def __init__(self, n_workers: int = 1) -> None:
        super().__init__()
        self._max_messages = max(1, MAX_REPEATS // n_workers)
        self._seconds = LOG_SECONDS * self._max_messages * n_workers / MAX_REPEATS
        self._counts: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        text, now = str(record.msg)[:200], time.monotonic()
        start, count = self._counts.get(text, (now, 0))
        n_omitted = 0
        if now - start > self._seconds:
            start, count, n_omitted = now, 0, max(count - self._max_messages, 0)
        if len(self._counts) > MAX_COUNTED_TEXTS:
            self._counts.clear()
        self._counts[text] = (start, count + 1)
        if n_omitted:
            record.msg = f"{record.msg} ({n_omitted:,} more like it were left out)"
        return count < self._max_messages


class Connections:
    """All open connections: few enough that files can still be opened, and at most half of them from one client.

    If there are too many, the connection that has waited longest for a request is closed; if all are busy, the new one
    is refused. So a client that opens connections and sends nothing harms only itself. The headers of a request must
    arrive in `HEADER_SECONDS`.
    """

    def __init__(self, max_open: int, max_refused: int = 0, *, n_open: SharedCount | None = None) -> None:
        self.max_open, self.max_refused = max_open, max_refused
        self._n_open = n_open or Figures().gauge("connections")
        self.open: set[HttpConnection] = set()
        self.refused: set[HttpConnection] = set()  # Those whose clients are reading why, at most `max_refused`

    def add(self, new: HttpConnection) -> bool:
        """Add a connection; return False if there are too many."""
        client_connections = [connection for connection in self.open if connection.client == new.client]
        rivals = client_connections if len(client_connections) >= max(self.max_open // 2, 1) else self.open
        if rivals is client_connections or len(self.open) >= self.max_open:
            idle_connections = (connection for connection in rivals if not connection.is_busy)
            most_overdue = min(idle_connections, key=lambda connection: connection.closing_order(), default=None)
            if most_overdue is None:
                return False
            self.open.discard(most_overdue)
            most_overdue.abort()
        self.open.add(new)
        self._n_open.value = len(self.open)
        return True

    def remove(self, old: HttpConnection) -> None:
        """Remove a connection that is closed."""
        self.refused.discard(old)
        self.open.discard(old)
        self._n_open.value = len(self.open)

    def sweep(self) -> None:
        """Close the connections whose time is over; call it about once a second."""
        for connection in [*self.open, *self.refused]:
            connection.check(time.monotonic())


class HttpConnection(asyncio.Protocol):
    """One connection: the server's own protocol, with time limits.

    `inner` is one of uvicorn's protocols; its `cycle` is the request that it answers.
    """

    def __init__(self, inner: Any, connections: Connections) -> None:
        self._inner, self._connections = inner, connections
        self._waiting_since: float | None = time.monotonic()  # for a request; None: not waiting
        self._unread_since: float | None = None  # since when the client has not read the answer; None: it reads
        self._last_received, self._has_received, self.client = 0.0, False, ""
        self._refused_at: float | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a request is being answered."""
        cycle = self._inner.cycle
        return cycle is not None and not cycle.response_complete

    def closing_order(self) -> tuple[bool, float]:
        """Return a sort key: the connection whose request is most overdue comes first, the last answered one last."""
        since = self._waiting_since
        return (since is None, self._last_received if since is None else since)

    def connection_made(self, transport: Any) -> None:
        """Add the connection, or refuse it."""
        self._transport = transport
        # asyncio does this for some sockets only; otherwise the second part of an answer waits 40 ms for the client
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer = transport.get_extra_info("peername")
        self.client = str(peer[0]) if peer else ""
        if ":" in self.client:  # IPv6: its network, as one client can use many addresses
            self.client = str(ipaddress.ip_network((self.client.partition("%")[0], 64), strict=False))
        self._inner.connection_made(_JoinedWrites(transport))
        if not self._connections.add(self):
            self._refused_at = time.monotonic()
            if len(self._connections.refused) >= self._connections.max_refused:
                transport.abort()
                return
            self._connections.refused.add(self)  # closed with an unread request, the client would not get the answer
            transport.write(_BUSY_ANSWER)
            if transport.can_write_eof():
                transport.write_eof()

    def connection_lost(self, error: Exception | None) -> None:
        """Remove the connection."""
        self._connections.remove(self)
        self._inner.connection_lost(error)

    def data_received(self, data: bytes) -> None:
        """Pass data on, and note when a request began to arrive."""
        if self._refused_at is not None:
            return
        self._has_received = True
        self._last_received = time.monotonic()
        self._inner.data_received(data)
        if self.is_busy:
            self._waiting_since = None
        elif self._waiting_since is None:
            self._waiting_since = self._last_received

    def eof_received(self) -> None:
        """Pass on that no more data will arrive."""
        self._inner.eof_received()

    def pause_writing(self) -> None:
        """Note that the client has stopped reading its answer."""
        self._unread_since = time.monotonic()
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Note that the client reads again."""
        self._unread_since = None
        self._inner.resume_writing()

    def check(self, now: float) -> None:
        """Close the connection if its time is over."""
        if self._refused_at is not None:
            if now - self._refused_at > LINGER_SECONDS:
                self._transport.abort()
            return
        if self._unread_since is None and self._transport.is_closing():
            self._unread_since = now
        if self._unread_since is not None:
            if now - self._unread_since > ANSWER_SECONDS:
                self._transport.abort()
        elif self._waiting_since is not None and not self.is_busy and now - self._waiting_since > HEADER_SECONDS:
            if self._has_received:
                self._transport.write(_TIMEOUT_ANSWER)
            self._transport.close()

    def abort(self) -> None:
        """Close the connection at once, to make room."""
        self._transport.abort()


class _JoinedWrites:
    """A transport that sends the head of an answer with its body: one packet, and one call during which others run."""

    def __init__(self, transport: Any) -> None:
        self._transport, self._head = transport, b""

    def __getattr__(self, name: str) -> Any:
        self._flush()
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if self._head or not data.startswith(b"HTTP/1.1 "):
            data, self._head = self._head + data, b""
            self._transport.write(data)
        else:  # the body follows before anything else runs, unless the answer is made in pieces
            self._head = bytes(data)
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        head, self._head = self._head, b""
        if head:
            self._transport.write(head)


def max_connections() -> int:
    """Return the number of connections that leaves room for the files that the service needs."""
    max_files = limit_of("RLIMIT_NOFILE")
    if max_files is None:
        return MAX_CONNECTIONS
    return max(MIN_CONNECTIONS, min(MAX_CONNECTIONS, max_files - max(RESERVED_FILES, max_files // 4)))


def max_backlog() -> int:
    """Return how many connections may wait to be accepted: half of the reserved files.

    With more, files could run out, and then no connection is accepted for a second.
    """
    max_files = limit_of("RLIMIT_NOFILE")
    n_reserved = MAX_CONNECTIONS if max_files is None else max_files - max_connections()
    return min(MAX_CONNECTIONS, max(MIN_CONNECTIONS, n_reserved // 2))
