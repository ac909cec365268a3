"""Connections of clients: bounded in number, and closed where a request does not come or its answer is not read."""

from __future__ import annotations

import asyncio
import ipaddress
import resource
import time
from collections.abc import Callable
from typing import Any

HEADER_SECONDS = 10.0
"""How long the headers of a request may take to come."""

ANSWER_SECONDS = 30.0
"""How long a client may take to read the next part of an answer, before its connection is cut."""

MOST = 1024
"""Connections at once, however many files may be open."""

FEWEST = 8
RESERVE = 64
"""Files that are left for all else, or a quarter of those that may be open: the catalogue, pictures, processes."""

_LATE = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_FULL = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 1\r\nconnection: close\r\n\r\n"


class Connections:
    """All open connections: few enough that files can still be opened, and half as many of one client.

    Where there is no room, the connection that has waited longest for a request makes way; where all are at work, the
    new one is refused. A client that opens connections and sends nothing so takes room from itself alone.

    Parameters
    ----------
    most : int
    header_seconds : float
        That the headers of a request may take to come.

    Attributes
    ----------
    open : set of Connection
    """

    def __init__(self, most: int, *, header_seconds: float = HEADER_SECONDS) -> None:
        self.most = most
        self.header_seconds = header_seconds
        self.open: set[Connection] = set()

    def add(self, new: Connection) -> bool:
        """Take a connection in; return False if there is no room for it."""
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
        return True

    def sweep(self) -> None:
        """Close the connections whose time is over; to be called every second or so."""
        now = time.monotonic()
        for connection in list(self.open):
            connection.check(now, self.header_seconds)


class Connection(asyncio.Protocol):
    """One connection: the server's own protocol, with an eye on the clock.

    Parameters
    ----------
    inner : asyncio.Protocol
        One of uvicorn's, which keeps the request that it is at in `cycle`.
    connections : Connections
    """

    def __init__(self, inner: Any, connections: Connections) -> None:
        self._inner = inner
        self._connections = connections
        self._heard: float | None = time.monotonic()  # since when a request is awaited; None: none has begun to come
        self._stuck: float | None = None  # since when the client has not read on
        self._last = 0.0
        self._received = False
        self.client = ""

    @property
    def at_work(self) -> bool:
        """Whether a request is being answered."""
        cycle = self._inner.cycle
        return cycle is not None and not cycle.response_complete

    def patience_left(self) -> tuple[bool, float]:
        """Return what is least for the connection that should make way first: one whose request is overdue."""
        return (self._heard is None, self._last if self._heard is None else self._heard)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection in, or refuse it."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.client = _client_of(transport)
        self._inner.connection_made(transport)
        if not self._connections.add(self):
            transport.write(_FULL)
            transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        """Make room."""
        self._connections.open.discard(self)
        self._inner.connection_lost(error)

    def data_received(self, data: bytes) -> None:
        """Pass on what came, and note since when a request has been coming."""
        self._received = True
        self._last = time.monotonic()
        self._inner.data_received(data)
        if self.at_work:
            self._heard = None
        elif self._heard is None:
            self._heard = self._last

    def eof_received(self) -> None:
        """Pass on that nothing more will come."""
        self._inner.eof_received()

    def pause_writing(self) -> None:
        """Note that the client does not read as fast as it is answered."""
        self._stuck = time.monotonic()
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Note that the client has read on."""
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
    """Return how many connections leave room for the files that the service needs."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return MOST
    return max(FEWEST, min(MOST, files - max(RESERVE, files // 4)))


def accepted_at_once() -> int:
    """Return how many connections may be accepted before those that make way for them are closed: half of the reserve.

    More would run out of files, and then nothing is accepted for a second.
    """
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    spare = MOST if files == resource.RLIM_INFINITY else files - most_connections()
    return min(MOST, max(FEWEST, spare // 2))


def bounded(protocol: Callable[..., asyncio.Protocol], connections: Connections) -> Callable[..., asyncio.Protocol]:
    """Return what makes a server's protocol for each connection, bounded."""

    def make(**settings: Any) -> asyncio.Protocol:
        return Connection(protocol(**settings), connections)

    return make


def _client_of(transport: asyncio.Transport) -> str:
    """Return the address of a client; of IPv6 the network, in which one client has as many as it likes."""
    peer = transport.get_extra_info("peername")
    address = str(peer[0]) if peer else ""
    if ":" not in address:
        return address
    return str(ipaddress.ip_network((address.partition("%")[0], 64), strict=False))
