"""Connections of clients: bounded in number, and closed if no request comes or the answer is not read."""

from __future__ import annotations

import asyncio
import ipaddress
import time
from typing import Any

from visterm.core.system import limit_of
from visterm.web.figures import Figures, Number

HEADER_SECONDS = 10.0  # Seconds in which the headers of a request must arrive
ANSWER_SECONDS = 30.0  # Seconds in which a client must read the next part of an answer
MOST = 1024  # Connections at once, even if more files may be open
FEWEST = 8
RESERVE = 64  # Files kept free for the catalogue, pictures and processes; a quarter of all if that is more
_LATE = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_FULL = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 1\r\nconnection: close\r\n\r\n"


class Connections:
    """All open connections: few enough that files can still be opened, and at most half of them of one client.

    If there is no room, the connection that has waited longest for a request is closed; if all are at work, the new one
    is refused. So a client that opens connections and sends nothing takes room only from itself. The headers of a
    request must arrive in `header_seconds`.
    """

    def __init__(self, most: int, *, header_seconds: float = HEADER_SECONDS, n_open: Number | None = None) -> None:
        self.most = most
        self._n_open = n_open or Figures().now("connections")
        self.header_seconds = header_seconds
        self.open: set[Connection] = set()

    def add(self, new: Connection) -> bool:
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
        self._n_open.own = len(self.open)
        return True

    def remove(self, old: Connection) -> None:
        """Remove a connection that is closed."""
        self.open.discard(old)
        self._n_open.own = len(self.open)

    def sweep(self) -> None:
        """Close the connections whose time is over; call it about once a second."""
        now = time.monotonic()
        for connection in list(self.open):
            connection.check(now, self.header_seconds)


class Connection(asyncio.Protocol):
    """One connection: the server's own protocol, with time limits.

    `inner` is one of uvicorn's protocols; its `cycle` is the request that it answers.
    """

    def __init__(self, inner: Any, connections: Connections) -> None:
        self._inner = inner
        self._connections = connections
        self._heard: float | None = time.monotonic()  # since when a request is awaited; None: no
        self._stuck: float | None = None  # since when the client has not read the answer
        self._last = 0.0
        self._received = False
        self.client = ""

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
        self.client = _client_of(transport)
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

    def check(self, now: float, header_seconds: float) -> None:
        """Close the connection if its time is over."""
        if self._stuck is None and self._transport.is_closing():
            self._stuck = now
        if self._stuck is not None:
            if now - self._stuck > ANSWER_SECONDS:
                self._transport.abort()
        elif self._heard is not None and not self.at_work and now - self._heard > header_seconds:
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


def _client_of(transport: asyncio.Transport) -> str:
    """Return the address of a client; for IPv6 its network, as one client has as many addresses as it likes."""
    peer = transport.get_extra_info("peername")
    address = str(peer[0]) if peer else ""
    if ":" not in address:
        return address
    return str(ipaddress.ip_network((address.partition("%")[0], 64), strict=False))
