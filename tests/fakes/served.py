"""A real HTTP server on the loopback address for fakes of other programs: it can break in all the ways that servers do.

A fake derives from `FakeServer`, holds its state in itself, and writes `answer`. The server can be killed at any
request and started again at the same address, with its state. `traffic` holds what was asked, without keys; with a
`log` it is written as JSON lines, with the answers, so that it can be checked from outside against the real program's
description.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

SECRET = ("x-api-key", "authorization", "x-auth-token", "cookie")
TRAFFIC = "VISTERM_TEST_TRAFFIC"
"""The environment variable that names a file for the traffic of all fakes, as JSON lines."""


class Asked(NamedTuple):
    """A request."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]  # By their names in small letters
    body: bytes


class Reply(NamedTuple):
    """An answer."""

    status: int = 200
    content: bytes = b""
    kind: str = "application/json; charset=utf-8"
    headers: Mapping[str, str] = {}


def reply(value: object, status: int = 200) -> Reply:
    """Return an answer of JSON."""
    return Reply(status, json.dumps(value).encode())


Fault = Callable[["Handler", Callable[[], Reply]], None]
"""What is done in place of an answer. It may call the second argument, which does the work, and gives its answer."""


def status(code: int, retry_after: int | None = None, content: bytes = b'{"message":"no"}') -> Fault:
    """Answer with an error, and do nothing."""
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    return lambda handler, work: handler.send(Reply(code, content, headers=headers))


def other(content: bytes, code: int = 200) -> Fault:
    """Answer with some bytes, and do nothing."""
    return lambda handler, work: handler.send(Reply(code, content))


def redirect(address: str) -> Fault:
    """Send the client elsewhere."""
    return lambda handler, work: handler.send(Reply(302, headers={"Location": address}))


def reset(handler: Handler, work: Callable[[], Reply]) -> None:
    """Break the connection before anything is done."""
    handler.break_off()


def lost(handler: Handler, work: Callable[[], Reply]) -> None:
    """Do the work, and break the connection before the answer."""
    work()
    handler.break_off()


def cut(handler: Handler, work: Callable[[], Reply]) -> None:
    """Do the work, and send the first half of the answer."""
    made = work()
    handler.send(made, upto=len(made.content) // 2)
    handler.close_connection = True


def half_json(handler: Handler, work: Callable[[], Reply]) -> None:
    """Send the first half of the answer as if it were all."""
    made = work()
    handler.send(made._replace(content=made.content[: len(made.content) // 2]))


def slow(seconds: float) -> Fault:
    """Answer late."""

    def wait(handler: Handler, work: Callable[[], Reply]) -> None:
        handler.fake.stopping.wait(seconds)
        handler.send(work())

    return wait


def hang(handler: Handler, work: Callable[[], Reply]) -> None:
    """Give no answer before the server ends."""
    handler.fake.stopping.wait()
    handler.close_connection = True


def drip(handler: Handler, work: Callable[[], Reply]) -> None:
    """Announce an answer again and again, each time before a client loses patience."""
    while not handler.fake.stopping.wait(0.01):
        handler.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    handler.close_connection = True


def changed(change: Callable[[Any], Any]) -> Fault:
    """Do the work, and answer with what is made of its JSON."""

    def answer(handler: Handler, work: Callable[[], Reply]) -> None:
        made = work()
        if "json" in made.kind:
            made = made._replace(content=json.dumps(change(json.loads(made.content))).encode())
        handler.send(made)

    return answer


class FakeServer:
    """A server whose state outlives its death."""

    def __init__(self, log: Path | None = None) -> None:
        self.traffic: list[dict[str, Any]] = []
        self.offset = 0.0  # Seconds that its clock is ahead of ours
        self.date: str | None = None  # What its answers say in place of the time
        self.rate: tuple[int, float] | None = None  # At most so many requests in so many seconds, else 429
        self.dies_in: int | None = None  # Requests until it is killed, before the last one's work is done
        self.lock = threading.RLock()
        self.stopping = threading.Event()
        self.died = threading.Event()
        self.log = log or (Path(os.environ[TRAFFIC]) if os.environ.get(TRAFFIC) else None)
        self._faults: list[list[Any]] = []  # Pattern of "METHOD path", the fault, how many times it comes
        self._answered: deque[float] = deque()
        self._server: _Server | None = None
        self._port = 0

    def answer(self, asked: Asked) -> Reply:
        """Do what is asked, and return what is answered; one request at a time."""
        raise NotImplementedError

    @property
    def url(self) -> str:
        """Its address, which stays the same after a death."""
        return f"http://127.0.0.1:{self._port}"

    def now(self) -> float:
        """Return the time by its clock."""
        return time.time() + self.offset

    def finish_jobs(self) -> None:
        """Let what the server does after its answers come to an end; most do nothing then."""

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.offset += seconds

    def virtual(self, patch: Any) -> None:
        """Let the clients that commands make wait by this clock, where they wait at all."""

    def fail(self, fault: Fault, times: int = 1, where: str = ".*") -> None:
        """Break the next requests whose method and path ("GET /api/tags") match."""
        self._faults.append([re.compile(where), fault, times])

    def forget_faults(self) -> None:
        """Break nothing any more."""
        self._faults.clear()

    def asked(self, where: str = ".*") -> int:
        """Return how many requests there were whose method and path match."""
        return sum(bool(re.fullmatch(where, f"{each['method']} {each['path']}")) for each in self.traffic)

    def start(self) -> None:
        """Begin to answer, after a death at the same address as before."""
        self.stopping, self.died = threading.Event(), threading.Event()
        self._server = _Server(("127.0.0.1", self._port), Handler)
        self._server.fake = self
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def kill(self) -> None:
        """End at once: connections break, and no new ones are taken."""
        server, self._server = self._server, None
        if server is not None:
            self.stopping.set()
            server.shutdown()
            server.server_close()
            for connection in list(server.open):
                _reset(connection)
            self.died.set()

    def __enter__(self) -> Any:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def next_fault(self, what: str) -> Fault | None:
        """Return what breaks this request, if anything."""
        with self.lock:
            if self.dies_in is not None:
                self.dies_in -= 1
                if self.dies_in <= 0:
                    self.dies_in = None
                    self.kill()
                    return reset
            for each in self._faults:
                if each[2] > 0 and each[0].fullmatch(what):
                    each[2] -= 1
                    return each[1]  # type: ignore[no-any-return]
            if self.rate is not None:
                most, seconds = self.rate
                while self._answered and self._answered[0] < time.monotonic() - seconds:
                    self._answered.popleft()
                if len(self._answered) >= most:
                    return status(429, retry_after=1)
                self._answered.append(time.monotonic())
        return None

    def record(self, asked: Asked, made: Reply) -> None:
        """Write down a request and its answer."""
        entry = {
            "program": type(self).__name__,
            "method": asked.method,
            "path": asked.path,
            "query": asked.query,
            "headers": {name: value for name, value in asked.headers.items() if name not in SECRET},
            "body": _shown(asked.body),
            "status": made.status,
        }
        with self.lock:
            self.traffic.append(entry)
            if self.log is not None:
                shown = _shown(made.content) if "json" in made.kind else f"{len(made.content)} bytes of {made.kind}"
                with self.log.open("a") as opened:
                    opened.write(json.dumps({**entry, "answer": shown}) + "\n")


@contextmanager
def apart(make: Callable[[], Any], photos: int) -> Iterator[str]:
    """Serve photos from a process of its own, so that this one's memory is the client's; yields the address."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve_apart, args=(make, photos, there), daemon=True)
    process.start()
    try:
        yield here.recv()
    finally:
        process.terminate()
        process.join()


def _serve_apart(make: Callable[[], Any], photos: int, pipe: Any) -> None:
    fake = make()
    for i in range(photos):
        fake.add_photo(f"{i}.jpg", tags=(f"tag{i % 7}",) if i % 2 else ())
    with fake:
        pipe.send(fake.url)
        pipe.recv()  # until the parent ends this process


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server: _Server

    @property
    def fake(self) -> FakeServer:
        """The server's state."""
        return self.server.fake

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def date_time_string(self, timestamp: float | None = None) -> str:
        """Return the Date header, by the fake's clock."""
        if self.fake.date is not None:
            return self.fake.date
        return formatdate(self.fake.now() if timestamp is None else timestamp, usegmt=True)

    def send(self, made: Reply, upto: int | None = None) -> None:
        """Send an answer, or its first bytes."""
        self.send_response(made.status)
        for name, value in made.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", made.kind)
        self.send_header("Content-Length", str(len(made.content)))
        self.end_headers()
        self.wfile.write(made.content[:upto])

    def break_off(self) -> None:
        """Break the connection."""
        self.close_connection = True
        _reset(self.connection)

    def _do(self) -> None:
        parts = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = Asked(self.command, unquote(parts.path), dict(parse_qsl(parts.query, True)), headers, body)
        fake = self.fake

        def work() -> Reply:
            with fake.lock:
                made = fake.answer(asked)
                fake.record(asked, made)
                return made

        fault = fake.next_fault(f"{asked.method} {asked.path}")
        with suppress(OSError, ValueError):  # the client, or this server, has gone
            if fault is not None:
                fault(self, work)
            else:
                self.send(work())

    do_GET = do_POST = do_PUT = do_DELETE = _do  # noqa: N815


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64
    fake: FakeServer

    def __init__(self, *args: Any) -> None:
        self.open: set[socket.socket] = set()
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, *_: object) -> None:
        """Print nothing of clients that have gone."""


def _reset(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.shutdown(socket.SHUT_RDWR)
        connection.close()


def _shown(content: bytes) -> object:
    """Return the JSON of a body, or its text."""
    try:
        return json.loads(content) if content else None
    except ValueError:
        return content.decode("utf-8", "replace")[:1000]
