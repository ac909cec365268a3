"""The meeting place of workers in several processes: it is the first one's, and the others are connected to it.

Weights go from memory to memory. An actor in their place took a process more, and the store of Ray for each message.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from typing import Any, NamedTuple

from visterm.models.ranking.worker_sync import LeftAloneError, MeetingPlace


class Line(NamedTuple):
    """Where a meeting place is, and the key that it asks for."""

    host: str
    port: int
    key: bytes


def open_line(place: MeetingPlace, host: str) -> Line:
    """Let workers of other processes come to a place of this one, until this process ends.

    A worker whose connection ends, as it does when its process is killed, closes the place.

    Parameters
    ----------
    place : MeetingPlace
    host : str
        Address of this machine, by which the others know it.
    """
    key = secrets.token_bytes(32)
    listener = Listener((host, 0), backlog=64, authkey=key)
    threading.Thread(target=_let_in, args=(listener, place), daemon=True).start()
    port: int = listener.address[1]  # type: ignore[assignment, unused-ignore]
    return Line(host, port, key)


class Caller:
    """The way of a process to the place of another: a connection for each of its threads.

    Parameters
    ----------
    line : Line
    """

    def __init__(self, line: Line) -> None:
        self._line = line
        self._own = threading.local()

    def meet(self, rank: int, how: str, value: Any) -> Any:
        """Meet the others, see `MeetingPlace.meet`.

        Raises
        ------
        LeftAloneError
            If the place is closed, or its process has ended.
        """
        try:
            connection = self._connection()
            connection.send((rank, how, value))
            return connection.recv()
        except (EOFError, OSError) as error:
            raise LeftAloneError("The place where the workers meet is gone.") from error

    def close(self) -> None:
        """Close the place, for all: a connection that ends does so."""
        with suppress(OSError):  # it is gone already
            Client((self._line.host, self._line.port), authkey=self._line.key).close()

    def _connection(self) -> Any:
        if not hasattr(self._own, "connection"):
            self._own.connection = _at_once(Client((self._line.host, self._line.port), authkey=self._line.key))
        return self._own.connection


def _let_in(listener: Listener, place: MeetingPlace) -> None:
    while True:
        try:
            connection = _at_once(listener.accept())
        except (AuthenticationError, EOFError, ConnectionError):  # who does not know the key is no worker
            continue
        threading.Thread(target=_serve, args=(connection, place), daemon=True).start()


def _serve(connection: Any, place: MeetingPlace) -> None:
    try:
        while True:
            connection.send(place.meet(*connection.recv()))
    except (EOFError, OSError):
        place.close()
    except LeftAloneError:
        connection.close()


def _at_once(connection: Connection) -> Connection:
    """Send the end of a message without waiting for its beginning to be acknowledged, which takes 40 ms."""
    with socket.socket(fileno=os.dup(connection.fileno())) as same:
        same.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection
