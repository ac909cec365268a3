"""Several processes that answer: what one has stored the others read, limits hold together, and kills lose nothing."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from soak import Client, _log, workers_of
from test_photoprism_vision import ADDRESS as VISION
from test_photoprism_vision import as_photoprism_asks, pictures  # noqa: F401  # a fixture
from tiny_catalogue import make_tiny_catalogue
from visterm import Catalogue
from visterm.web import workers
from visterm.web.bodies import Bodies
from visterm.web.decoding_process import PIXELS, READY, REQUEST
from visterm.web.errors import HttpError
from visterm.web.server import _RepeatFilter
from visterm.web.work import Figures, Work
from visterm.web.workers import _Supervisor, default_workers

PATIENCE = 600.0
ATTEMPTS = 20  # A server closes a connection on which nothing comes for ten seconds, as beside much other work
pytestmark = pytest.mark.skipif(not Path("/proc").exists(), reason="the workers of a process are found in /proc")


class Service:
    """`visterm serve` with two workers."""

    def __init__(self, process: subprocess.Popen, port: int) -> None:
        self.process, self.port = process, port
        self.connections: list[http.client.HTTPConnection] = []

    def workers(self) -> list[int]:
        """List the workers that run."""
        return workers_of(self.process.pid)

    def connect(self) -> http.client.HTTPConnection:
        """Open a connection: each goes to the worker with the fewest, so that two go to both."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        self.connections.append(connection)
        ask(connection, "GET", "/health")
        return connection

    def kill_one(self, rng: random.Random) -> None:
        """Kill a worker (-9), and wait until another one has its place."""
        before = wait_for(lambda: self.workers() if len(self.workers()) == 2 else None)
        os.kill(rng.choice(before), signal.SIGKILL)
        wait_for(lambda: len(self.workers()) == 2 and self.workers() != before)


def ask(connection, method, path, content=None, *, attempts=ATTEMPTS):
    """Send a request, and return its status and what JSON was answered."""
    body = None if content is None else json.dumps(content)
    for attempt in range(attempts):
        try:
            connection.request(method, f"/api/v1{path}", body, {"content-type": "application/json"} if body else {})
            answer = connection.getresponse()
            break
        except (ConnectionError, http.client.RemoteDisconnected):  # closed, as this process was too slow to send
            connection.close()
            if attempt + 1 == attempts:
                raise
    text = answer.read().decode()
    return answer.status, json.loads(text) if text.startswith("{") else text


def wait_for(true):
    for _ in range(int(PATIENCE / 0.05)):
        if found := true():
            return found
        time.sleep(0.05)
    raise AssertionError("it did not come about")


@contextmanager
def served(folder, *options):
    command = [sys.executable, "-m", "visterm", "serve", str(folder), "--port", "0", "--workers", "2", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            line = process.stderr.readline()
            address = re.search(r"http://127\.0\.0\.1:(\d+) \(2 processes answer", line)
            assert address, line + process.stderr.read()
            service = Service(process, int(address[1]))
            yield service
            for connection in service.connections:
                connection.close()
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) in (0, -signal.SIGTERM)
            assert "Traceback" not in process.stderr.read()
        finally:
            process.kill()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return make_tiny_catalogue(tmp_path_factory.mktemp("workers"))


@pytest.fixture(scope="module")
def service(tiny, pictures):  # noqa: F811
    with served(tiny.folder, "--vision-host", pictures.removeprefix("http://")) as service:
        yield service


@pytest.fixture
def both(service):
    for connection in service.connections:
        connection.close()
    return [service.connect(), service.connect()]


def found_by(connection, query):
    status, answer = ask(connection, "GET", f"/search?limit=100&{query}")
    assert status == 200, answer
    return [hit["id"] for hit in answer["hits"]]


def test_what_one_process_stores_the_others_find_at_their_next_request(both):
    for judged, (writer, reader) in enumerate([both, both[::-1]] * 4):
        assert judged in found_by(reader, "q=dots")  # what is kept of this search must not last
        assert judged not in found_by(reader, "q=dots&tag=fresh")
        status, _ = ask(writer, "POST", f"/images/{judged}/tags", {"give": ["fresh"]})
        assert status == 200
        assert judged in found_by(reader, "q=dots&tag=fresh")
        assert judged in found_by(reader, "q=fresh")
        status, _ = ask(writer, "POST", f"/images/{judged}/feedback", {"tag": "dots", "verdict": -1})
        assert status == 200
        assert judged not in found_by(reader, "q=dots")


def test_connections_are_shared_evenly_and_workers_end_with_their_supervisor(tiny):
    with served(tiny.folder) as service:
        connections = [service.connect() for _ in range(6)]
        left = service.workers()
        assert len(left) == 2
        service.process.send_signal(signal.SIGSTOP)  # it starts no worker in place of the killed one
        os.kill(left[0], signal.SIGKILL)
        closed = 0
        for connection in connections:
            try:
                ask(connection, "GET", "/health", attempts=1)
            except (OSError, http.client.HTTPException):
                closed += 1
        assert closed == 3
        service.process.kill()
        wait_for(lambda: not any(Path(f"/proc/{pid}/cmdline").exists() and not zombie(pid) for pid in left))
        service.process.returncode = service.process.wait()
        service.process.wait = lambda *_: 0


def ends_with_its_input(process):
    """Close the standard input of a process, as a supervisor that is killed does, and return its status."""
    with process:
        try:
            process.stdin.close()
            return process.wait(PATIENCE)
        finally:
            process.kill()


@pytest.mark.parametrize("ready", [False, True])
def test_a_worker_ends_at_once_whatever_it_does_when_its_supervisor_is_killed(ready, tiny, tmp_path):
    ours, its = socket.socketpair()  # stays open: what the worker hears of the end is its input
    with ours, its, tempfile.TemporaryFile() as shared:
        Figures(2, 1, shared.fileno())
        settings = {
            "catalogue": str(tiny.folder), "access": {}, "n_workers": 1,
            "metrics": str(tmp_path), "number": 0, "figures": shared.fileno(), "channel": its.fileno(),
        }  # fmt: skip
        command = [sys.executable, "-m", "visterm.web.workers"]
        worker = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=(its.fileno(), shared.fileno()))
        worker.stdin.write(json.dumps(settings).encode() + b"\n")
        worker.stdin.flush()
        if ready:
            ours.settimeout(PATIENCE)
            assert ours.recv(100) == b'["ready"]\n'
        assert ends_with_its_input(worker) == 1


def test_a_decoder_ends_at_once_also_while_it_decodes():
    code = (
        "import time; from visterm.web import decoding_process as process\n"
        "process.answer = lambda *request: (print('begins', flush=True), time.sleep(3600)); process.main()"
    )
    command = [sys.executable, "-c", code, str(2**31), "1000"]
    decoder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    decoder.stdin.write(REQUEST.pack(PIXELS, False, 0, 1) + b"x")
    decoder.stdin.flush()
    assert decoder.stdout.readline() == READY + b"begins\n"
    assert ends_with_its_input(decoder) == 0


def zombie(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_all_processes_know_the_hosts_that_pictures_may_be_fetched_from(both, pictures):  # noqa: F811
    for connection in both:
        for url, status in ((f"{pictures}/photo", 200), ("http://localhost:1/photo", 422)):
            connection.request("POST", VISION, as_photoprism_asks(url), {"content-type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            assert answer.status == status


def test_figures_of_all_processes_are_added(service, both):
    def counted(connection):
        _, text = ask(connection, "GET", "/metrics")
        found = re.search(r'visterm_requests_total{method="GET",route="/api/v1/tags",status="200"} (\S+)', text)
        return float(found[1]) if found else 0.0

    before = counted(both[0])
    for connection, times in zip(both, (3, 5), strict=True):
        for _ in range(times):
            assert ask(connection, "GET", "/tags")[0] == 200
    wait_for(lambda: counted(both[0]) - before >= 8)  # a request is counted when its answer was sent
    assert [counted(connection) - before for connection in both] == [8, 8]
    service.kill_one(random.Random(0))  # what the killed one counted stays
    assert counted(service.connect()) - before == 8


def test_a_job_outlives_the_process_that_took_it(service, both):
    status, first = ask(both[0], "POST", "/jobs", {"kind": "duplicates"})
    assert status == 202
    status, second = ask(both[1], "POST", "/jobs", {"kind": "index"})
    assert status == 202
    for worker in service.workers():
        os.kill(worker, signal.SIGKILL)

    def states():
        try:
            connection = service.connect()
            found = [ask(connection, "GET", f"/jobs/{job['id']}")[1] for job in (first, second)]
        except (OSError, http.client.HTTPException):
            return None  # its worker was the killed one
        return found if all(job["finished"] for job in found) else None

    jobs = wait_for(states)
    assert [(job["state"], job["error"]) for job in jobs] == [("done", None)] * 2
    assert jobs[0]["finished"] <= jobs[1]["finished"]


def test_a_job_is_cancelled_by_any_process(both):
    for _ in range(2):
        jobs = [ask(both[0], "POST", "/jobs", {"kind": "duplicates"})[1]["id"] for _ in range(2)]
        status, cancelled = ask(both[1], "POST", f"/jobs/{jobs[1]}/cancel")
        assert status == 200
        assert cancelled["state"] in ("cancelled", "cancelling", "done")
        wait_for(lambda jobs=jobs: all(ask(both[1], "GET", f"/jobs/{job}")[1]["finished"] for job in jobs))


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_nothing_acknowledged_is_lost_however_often_workers_are_killed(tmp_path, kills):
    folder, rng = make_tiny_catalogue(tmp_path).folder, random.Random(kills)
    with served(folder) as service:
        clients = [Client(number, service.port) for number in range(8)]
        stop = threading.Event()
        threads = [threading.Thread(target=client.work, args=(stop, 24)) for client in clients]
        for thread in threads:
            thread.start()
        try:
            for _ in range(kills):
                there = sum(len(client.judged) for client in clients)
                wait_for(lambda there=there: sum(len(client.judged) for client in clients) > there + 4)
                service.kill_one(rng)
        finally:
            stop.set()
            for thread in threads:
                thread.join(PATIENCE)
    catalogue = Catalogue.load(folder, n_jobs=1)
    log = {entry.id: (entry.image_id, entry.tag, entry.verdict) for entry in _log(catalogue)}
    for client in clients:
        assert {status.rpartition(" ")[2] for status in client.statuses} <= {"200", "409", "503", "0", "reached"}
        assert {number: said for number, said in client.judged.items() if log.get(number) != said} == {}
        for (image, tag), has in client.given.items():
            assert has is None or (tag in catalogue.image(image).tags) == has
    assert catalogue.stored.database.check() == []
    catalogue.stored.close()


def test_a_damaged_run_is_told_in_one_line(tmp_path):
    folder = make_tiny_catalogue(tmp_path).folder
    (model,) = folder.glob("runs/*/model.safetensors")
    model.write_bytes(b"no arrays")
    command = [sys.executable, "-m", "visterm", "serve", str(folder), "--port", "0", "--workers", "2"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert ended.returncode == 2
    assert re.fullmatch(r"visterm: .*model\.safetensors.*\n", ended.stderr), ended.stderr


def test_a_killed_worker_does_not_open_a_catalogue_that_was_put_in_place_of_the_first(tmp_path):
    folder = make_tiny_catalogue(tmp_path).folder
    command = [sys.executable, "-m", "visterm", "serve", str(folder), "--port", "0", "--workers", "2"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            service = Service(process, int(re.search(r":(\d+) ", process.stderr.readline())[1]))
            connections = [service.connect(), service.connect()]
            folder.rename(tmp_path / "old")
            shutil.copytree(tmp_path / "old", folder)
            first, second = service.workers()
            os.kill(first, signal.SIGKILL)
            connections = [connection for connection in connections if status_of(connection) != 0]
            assert len(connections) == 1
            assert status_of(connections[0], "/search?q=dots") == 503
            connections[0].close()
            os.kill(second, signal.SIGKILL)
            assert process.wait(PATIENCE) == 2
            told = process.stderr.read()
            assert "was replaced by another" in told
            assert ".." not in told
        finally:
            process.kill()


def status_of(connection, path="/tags"):
    try:
        return ask(connection, "GET", path, attempts=1)[0]
    except (OSError, http.client.HTTPException):
        connection.close()
        return 0


def test_limits_hold_for_the_sum_of_all_processes():
    with tempfile.TemporaryFile() as file:
        first, second = (Figures(3, row, file.fileno()) for row in (0, 1))
        works = [Work("search", 1, 3, figures=figures) for figures in (first, second)]
        bodies = [Bodies(1000, figures) for figures in (first, second)]
        bodies[0].add(900)
        with pytest.raises(HttpError):
            bodies[1].add(200)
        with works[0].slot(), works[0].slot(), works[1].slot():
            assert works[0].waiting.total == 3
            for work in works:
                with pytest.raises(HttpError, match="3 requests for search"), work.slot():
                    pass
        works[0].waiting.value = 3
        second.forget(0)  # the process of the first was killed
        bodies[1].add(200)
        with works[1].slot():
            assert works[1].n_refused.total == 2
        for work in works:
            work.close()


def test_a_connection_that_no_worker_can_take_now_is_kept_for_later(monkeypatch):
    supervisor, accepted, full = object.__new__(_Supervisor), [], [True]
    ready = SimpleNamespace(is_set=lambda: True)
    supervisor._workers = [SimpleNamespace(load=0, ready=ready, send=lambda descriptors: not full[0])]
    monkeypatch.setattr(supervisor, "_accept", accepted.append, raising=False)

    async def hand_over():
        supervisor._stop = asyncio.Event()
        client, other = socket.socketpair()
        with other:
            assert not supervisor._send(client)
            assert client.fileno() >= 0
            full[0] = False
            while client.fileno() >= 0:
                await asyncio.sleep(0)

    asyncio.run(hand_over())
    assert accepted == [False, True]


def test_processes_together_log_no_more_than_one(monkeypatch):
    seconds = [0.0]
    monkeypatch.setattr("visterm.web.server.time.monotonic", lambda: seconds[0])
    for n_workers in (1, 2, 3, 4, 8):
        filters, logged = [_RepeatFilter(n_workers) for _ in range(n_workers)], 0
        for second in range(6000):
            seconds[0] = float(second)
            for each in filters:
                record = type("Record", (), {"msg": "the same"})()
                logged += bool(each.filter(record))
        assert logged <= 1.1 * 3 * 6000 / 60 + n_workers


def test_the_process_that_starts_the_others_loads_only_what_it_needs_itself():
    code = (
        "import sys, visterm.core.persist, visterm.web.workers\n"
        "print(*{'fastapi', 'jinja2', 'numba', 'pydantic', 'scipy', 'sklearn'} & set(sys.modules))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout == "\n"


def test_as_many_processes_as_cores_and_memory_allow(monkeypatch, tmp_path):
    monkeypatch.setattr(workers, "resolve_jobs", lambda _: 16)
    monkeypatch.setattr(workers, "machine_memory", lambda: 2**40)
    assert default_workers(tmp_path) == 4
    monkeypatch.setattr(workers, "machine_memory", lambda: 2**30)
    assert default_workers(tmp_path) == 1
    monkeypatch.setattr(workers, "machine_memory", lambda: 2**40)
    monkeypatch.setattr(workers, "resolve_jobs", lambda _: 2)
    assert default_workers(tmp_path) == 2
    monkeypatch.delattr("socket.send_fds")
    assert default_workers(tmp_path) == 1
