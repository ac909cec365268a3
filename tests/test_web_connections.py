"""Connections that clients open and do nothing with: others are answered all the same, and the log stays small."""

from __future__ import annotations

import asyncio
import resource
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from tiny_catalogue import make_tiny_catalogue
from visterm.web.server import (
    MAX_CONNECTIONS,
    RESERVED_FILES,
    Connections,
    HttpConnection,
    _JoinedWrites,
    max_backlog,
    max_connections,
)

FILES = 128
CROWD = 200
FOREVER = 3600.0
PATIENCE = 600.0
UNFINISHED = b"GET /health HTTP/1.1\r\nhost: here\r\nx-slow:"

SERVER = """
import asyncio, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]),) * 2)
held = [open("/dev/null") for _ in range(int(sys.argv[2]))]
from fastapi import FastAPI
from visterm.web import server
from visterm.web.server import run_server
app = FastAPI()

@app.get("/health")
async def health():
    return {"status": "ok"}

@app.get("/never")
async def never():
    await asyncio.Event().wait()

@app.get("/large")
async def large():
    return "x" * 10_000_000

server.HEADER_SECONDS = float(sys.argv[3])
run_server(app, "127.0.0.1", 0, lambda at: print(at, flush=True))
"""

SERVICE = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (1024,) * 2)
from visterm.web.app import create_app
from visterm.web import server
from visterm.web.server import run_server
from visterm.web.service import Bounds
app = create_app(sys.argv[1], bounds=Bounds(body_bytes=int(sys.argv[2])))
server.HEADER_SECONDS = 3600.0
run_server(app, "127.0.0.1", 0, lambda at: print(at, flush=True))
"""
"""The whole service, at the number of files that most systems let a process open."""


@contextmanager
def serving(folder, *, held=0, header_seconds=FOREVER):
    """Run a server that may open few files, of which some are open; give its address and the file of its log."""
    with running(folder, SERVER, FILES, held, header_seconds) as (address, log, _):
        yield address, log


@contextmanager
def running(folder, program, *arguments):
    """Run a program that serves; give its address, the file of its log, and its process number."""
    log = folder / "log.txt"
    command = [sys.executable, "-c", program, *map(str, arguments)]
    with log.open("wb") as errors, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors) as process:
        try:
            address = process.stdout.readline().decode().strip()
            assert address, log.read_text()
            yield address, log, process.pid
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(PATIENCE)
            process.kill()


BODIES = 2**24
"""Bytes of bodies that the service takes at once."""


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """The whole service: its address, the file of its log, and its process number."""
    folder = tmp_path_factory.mktemp("crowded")
    with running(folder, SERVICE, make_tiny_catalogue(folder / "tiny").folder, BODIES) as service:
        yield service


def connect(address, request, source="127.0.0.1"):
    at = urlsplit(address)
    connection = socket.create_connection((at.hostname, at.port), timeout=PATIENCE, source_address=(source, 0))
    connection.sendall(request)
    return connection


@pytest.fixture
def many_files():
    """Let this process open more files than the service may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2048:
        pytest.skip(f"this process may open {hard} files only")
    resource.setrlimit(resource.RLIMIT_NOFILE, (2048 if soft == resource.RLIM_INFINITY else max(soft, 2048), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def peak_megabytes(pid):
    """Return the most memory that a process has taken so far."""
    return int(Path(f"/proc/{pid}/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024


def test_more_unfinished_requests_than_files_may_be_open_leave_the_service_answering(tmp_path):
    with serving(tmp_path) as (address, log), ExitStack() as crowd:
        for _ in range(CROWD):
            crowd.enter_context(connect(address, UNFINISHED))
        for _ in range(3):
            with urlopen(f"{address}/health", timeout=PATIENCE) as answer:
                assert answer.status == 200
        assert log.stat().st_size < 2000, log.read_text()


def test_1100_unfinished_requests_at_1024_files_leave_the_whole_service_answering(service, many_files):
    address, log, _ = service
    with ExitStack() as crowd:
        for _ in range(1100):
            crowd.enter_context(connect(address, UNFINISHED))
        for path in ("health", "search?q=dots", "images/1/thumbnail"):
            with urlopen(f"{address}/api/v1/{path}", timeout=PATIENCE) as answer:
                assert answer.status == 200
        assert log.read_text() == ""  # not even a connection that could not be accepted


def test_bodies_that_are_held_open_take_the_memory_of_their_budget_and_others_are_answered(service):
    address, _, pid = service
    headers = "host: 127.0.0.1\r\ncontent-type: image/png\r\ncontent-length: 16777216\r\n\r\n"
    with ExitStack() as crowd:
        before = peak_megabytes(pid)
        for _ in range(64):
            holding = crowd.enter_context(connect(address, f"POST /api/v1/annotate HTTP/1.1\r\n{headers}".encode()))
            with suppress(OSError):  # refused before all of it was sent
                holding.sendall(bytes(2**23))
        with connect(address, b"GET /api/v1/metrics HTTP/1.0\r\nhost: 127.0.0.1\r\n\r\n", "127.0.0.2") as other:
            told = b"".join(iter(lambda: other.recv(2**16), b"")).decode()
        assert told.startswith("HTTP/1.1 200 ")
        figures = dict(line.rsplit(" ", 1) for line in told.splitlines() if line.startswith("visterm_"))
        assert 0 < float(figures["visterm_body_bytes"]) <= BODIES
        assert float(figures['visterm_refused_total{kind="body"}']) > 0
        assert peak_megabytes(pid) - before < 256  # 64 bodies of 8 MB are twice that


def test_a_request_whose_headers_do_not_end_is_refused(tmp_path):
    with serving(tmp_path, header_seconds=0.5) as (address, _), connect(address, UNFINISHED) as slow:
        assert slow.recv(1000).startswith(b"HTTP/1.1 408 ")
        assert slow.recv(1000) == b""
        with connect(address, b"") as silent:
            assert silent.recv(1000) == b""


def test_connections_that_cannot_be_accepted_are_logged_a_few_times_only(tmp_path):
    with serving(tmp_path, held=FILES - 24) as (address, log), ExitStack() as crowd:
        for _ in range(40):
            crowd.enter_context(connect(address, UNFINISHED))
        end = time.monotonic() + PATIENCE
        while b"out of system resource" not in log.read_bytes():
            assert time.monotonic() < end
            time.sleep(0.05)
    assert log.stat().st_size < 20_000


def test_a_refused_connection_gets_its_answer_whole(tmp_path):
    request = b"GET /%s HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n"
    with serving(tmp_path) as (address, _), ExitStack() as crowd:
        for _ in range((FILES - RESERVED_FILES) // 2):
            crowd.enter_context(connect(address, request % b"never"))
        with connect(address, request % b"health", "127.0.0.2") as other:  # all before it were accepted
            assert other.recv(13) == b"HTTP/1.1 200 "
        for _ in range(3):
            with connect(address, request % b"health") as refused:
                answer = b"".join(iter(lambda refused=refused: refused.recv(2**16), b""))
                assert answer.startswith(b"HTTP/1.1 503 ")
                assert b"\r\nretry-after: 1\r\n" in answer


def test_if_all_were_answered_just_now_the_first_answered_makes_room(monkeypatch):
    now, closed, connections = [0.0], [], Connections(4)
    monkeypatch.setattr("visterm.web.server.time.monotonic", lambda: now[0])
    cycles = [SimpleNamespace(response_complete=False) for _ in range(4)]
    for client, cycle in enumerate(cycles):
        connection = HttpConnection(SimpleNamespace(cycle=cycle, data_received=lambda data: None), connections)
        connection.client = client
        connection._transport = SimpleNamespace(abort=partial(closed.append, client))
        assert connections.add(connection)
        now[0] += 0.01
        connection.data_received(b"GET")
    new = HttpConnection(SimpleNamespace(cycle=None), connections)
    assert not connections.add(new)  # all are being answered
    for cycle in cycles[1:]:
        cycle.response_complete = True
    assert connections.add(new)
    assert closed == [1]


def test_the_head_and_the_body_of_an_answer_are_sent_together():
    class Transport:
        def __init__(self):
            self.sent = []
            self.write = self.sent.append

        def close(self):
            self.sent.append("closed")

    async def answer():
        loop_turn, transport = asyncio.sleep, Transport()
        joined = _JoinedWrites(transport)
        joined.write(b"HTTP/1.1 200 OK\r\n\r\n")
        joined.write(b"body")
        joined.write(b"more")
        joined.write(b"HTTP/1.1 304 \r\n\r\n")
        await loop_turn(0)
        joined.write(b"HTTP/1.1 204 \r\n\r\n")
        joined.close()
        await loop_turn(0)
        return transport.sent

    parts = [b"HTTP/1.1 200 OK\r\n\r\nbody", b"more", b"HTTP/1.1 304 \r\n\r\n", b"HTTP/1.1 204 \r\n\r\n", "closed"]
    assert asyncio.run(answer()) == parts


class Held:
    """A connection as `Connections` sees it."""

    def __init__(self, client, since, *, is_busy=False):
        self.client, self.since, self.is_busy = client, since, is_busy
        self.was_cut = False

    def closing_order(self):
        return (False, self.since)

    def abort(self):
        self.was_cut = True


def test_a_client_with_half_of_the_connections_makes_room_among_its_own():
    connections = Connections(6)
    other = Held("other", 0)
    greedy = [Held("greedy", since) for since in range(1, 5)]
    assert all(map(connections.add, [other, *greedy]))
    assert [each.was_cut for each in greedy] == [True, False, False, False]
    assert not other.was_cut


def test_connections_that_are_answered_do_not_make_room():
    connections = Connections(4)
    busy = [Held(f"{i % 3}", i, is_busy=True) for i in range(4)]
    assert all(map(connections.add, busy))
    assert not connections.add(Held("new", 5))
    assert not any(each.was_cut for each in busy)


@pytest.mark.parametrize(
    ("files", "expected"),
    [(128, 128 - RESERVED_FILES), (1024, 768), (2**20, MAX_CONNECTIONS), (-1, MAX_CONNECTIONS), (32, 8)],
    ids=str,
)
def test_the_number_of_connections_leaves_files_for_all_else(monkeypatch, files, expected):
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (files, files))
    assert max_connections() == expected


@pytest.mark.parametrize("files", [32, 128, 1024, 4096])
def test_connections_that_wait_to_be_accepted_fit_into_the_reserve(monkeypatch, files):
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (files, files))
    assert max_connections() + max_backlog() < files
