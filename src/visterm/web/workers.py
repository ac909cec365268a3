"""Several processes that answer requests, and the one that supervises them.

The supervisor accepts connections, and sends each to the worker that has the fewest. It runs the jobs, and starts a
worker again that has ended. Workers share the rows, which are memory-mapped, the database, and their `Figures`; what
one has committed the others read at their next request. A worker is ``python -m visterm.web.workers``; it reads its
settings, a line of JSON, from standard input, and ends with the supervisor.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

from visterm.core.errors import ReplacedError, StorageError, UserError, VistermError
from visterm.core.threads import end_with_standard_input, resolve_jobs
from visterm.core.writing import Place
from visterm.features.streaming.memory import machine_memory
from visterm.store.catalogue import RUNS, StoredCatalogue
from visterm.web.errors import LOG
from visterm.web.jobs import JobRunner, kill
from visterm.web.security import Access
from visterm.web.server import END_SECONDS, Server, address_of, listening
from visterm.web.work import Figures, Member, Work

MOST_WORKERS = 4  # By default: with more, the disk and the memory's speed decide
WORKER_BYTES = 2**29  # Memory that a worker takes, about, beside the run
ACCEPTED_AT_ONCE = 64
FULL_SECONDS = 1.0  # How long nothing is accepted once too many files are open
SHORT_LIFE = 10.0  # Seconds; a worker that ends sooner is started again more and more slowly
LONGEST_PAUSE = 5.0
SHARED_MEMORY = "/dev/shm"

Settings: TypeAlias = dict[str, Any]
"""What a worker reads from standard input, as JSON; see `run_workers`."""


def shares_connections() -> bool:
    """Return whether one process can hand connections to another on this system; Windows can't."""
    return hasattr(socket, "send_fds")


def default_workers(catalogue: Place) -> int:
    """Return how many processes answer if nobody says: one for each core, up to 4, as half of the memory allows."""
    if not shares_connections():
        return 1
    runs = (Path(catalogue) / RUNS).glob("*")
    largest = max((sum(file.stat().st_size for file in run.iterdir()) for run in runs), default=0)
    return max(1, min(MOST_WORKERS, resolve_jobs(None), machine_memory() // 2 // (WORKER_BYTES + 2 * largest)))


def run_workers(
    n_workers: int, catalogue: Place, host: str, port: int, announce: Callable[[str], None], *, access: Access
) -> None:
    """Serve a catalogue by several processes until stopped; call `announce` with the address once all answer.

    Raises UserError if the port is in use, or the address is not of this machine; StorageError if there is no
    catalogue, or it is damaged.
    """
    path = Path(catalogue).absolute()
    stored = StoredCatalogue.open(path)
    with listening(host, port) as bound, tempfile.TemporaryDirectory(prefix="visterm", dir=_memory()) as metrics:
        bound.setblocking(False)
        settings = {
            "catalogue": str(path), "n_workers": n_workers, "metrics": metrics,
            "access": [access.token, sorted(access.hosts), access.any_address, sorted(access.fetched_hosts)],
        }  # fmt: skip
        address = address_of(host, bound.getsockname()[1])
        try:
            asyncio.run(_Supervisor(settings, bound, stored).run(lambda: announce(address)))
        finally:
            stored.close()


class _Supervisor:
    """Starts workers, sends them connections, and runs jobs."""

    def __init__(self, settings: Settings, bound: socket.socket, stored: StoredCatalogue) -> None:
        self._settings, self._bound, self._stored = settings, bound, stored
        n_workers = settings["n_workers"]
        self._file = tempfile.TemporaryFile(dir=_memory())  # noqa: SIM115  # open as long as the service runs
        figures = Figures(n_workers + 1, n_workers, self._file.fileno())
        self._writing = Work("jobs", 1, 1)
        self._runner = JobRunner(Path(settings["catalogue"]), stored.jobs, self._writing, figures, self._send_news)
        self._workers = [_WorkerProcess(number, figures) for number in range(n_workers)]
        self._ending = asyncio.Event()
        self._started = False

    async def run(self, started: Callable[[], None]) -> None:
        """Serve until a signal ends it; call `started` once all workers answer. Raises what a worker could not open."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._ending.set)
        with suppress(StorageError):  # a full disk: workers log it
            self._stored.jobs.mark_lost()
        self._keeping = [asyncio.create_task(self._keep(worker)) for worker in self._workers]
        ready = asyncio.create_task(self._all_ready())
        ending = asyncio.create_task(self._ending.wait())
        try:
            ends: list[asyncio.Future[Any]] = [ending, *self._keeping]
            await asyncio.wait([ready, *ends], return_when=asyncio.FIRST_COMPLETED)
            if ready.done():
                self._started = True
                started()
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._ending.set()
            ready.cancel()
            self._accept(False)
            for worker in self._workers:
                worker.end()
            failed = await asyncio.gather(*self._keeping, return_exceptions=True)
            await self._runner.close()
            self._writing.close()
            self._file.close()

        for error in failed:
            if isinstance(error, BaseException):
                raise error

    async def _all_ready(self) -> None:
        for worker in self._workers:
            await worker.ready.wait()

    async def _keep(self, worker: _WorkerProcess) -> None:
        """Keep a worker running. Raises UserError if it can't open the catalogue when the service starts."""
        pause = 0.0
        while not self._ending.is_set():
            began = time.monotonic()
            try:
                self._stored.database.check_in_place()  # a new worker must not open another catalogue than the others
                await worker.run(self._settings | {"figures": self._file.fileno()}, self._hear)
            except ReplacedError as error:
                if not any(other.ready.is_set() for other in self._workers):
                    raise
                worker.failed = str(error)
            if self._ending.is_set():
                return
            if worker.failed and not self._started:
                raise UserError(worker.failed)
            pause = min(max(2 * pause, 0.1), LONGEST_PAUSE) if time.monotonic() - began < SHORT_LIFE else 0.0
            why = worker.failed or f"it ended with status {worker.status}"
            LOG.warning("A process that answers requests is started again: %s.", why.rstrip("."))
            self._accept(any(other.ready.is_set() for other in self._workers))
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), pause)
            with suppress(StorageError):
                await asyncio.to_thread(self._stored.jobs.mark_lost)  # what it had stored and could not hand over

    def _hear(self, worker: _WorkerProcess, what: str, *arguments: object) -> None:
        if what == "ready":
            worker.ready.set()
            self._accept(True)
        elif what == "failed":
            worker.failed = str(arguments[0])
        else:
            self._runner.tell(what, *arguments)

    def _send_news(self) -> None:
        for worker in self._workers:
            worker.send([])

    def _accept(self, accepting: bool) -> None:
        """Begin or stop to accept connections; while nothing is accepted, the system keeps them waiting."""
        loop = asyncio.get_running_loop()
        if accepting and not self._ending.is_set():
            loop.add_reader(self._bound, self._take_connections)
        else:
            loop.remove_reader(self._bound)

    def _take_connections(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                client, _ = self._bound.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:  # too many open files
                LOG.warning("Connections can't be accepted now: %s", error)
                self._accept(False)
                asyncio.get_running_loop().call_later(FULL_SECONDS, self._accept, True)
                return
            with client:
                for worker in sorted(self._workers, key=lambda worker: worker.load):
                    if worker.ready.is_set() and worker.send([client.fileno()]):
                        break


class _WorkerProcess:
    """One process that answers requests, started again and again."""

    def __init__(self, number: int, figures: Figures) -> None:
        self.number = number
        self.ready = asyncio.Event()
        self.failed = ""  # Why it could not open the catalogue
        self.status, self._figures = 0, figures
        self._n_open, self._n_taken = figures.now("connections", number), figures.now("taken", number)
        self._n_sent, self._ended = 0, False
        self._channel: socket.socket | None = None
        self._process: asyncio.subprocess.Process | None = None

    @property
    def load(self) -> int:
        """How many connections it has, or will have."""
        return self._n_open.value + self._n_sent - self._n_taken.value

    def send(self, descriptors: list[int]) -> bool:
        """Send a connection, or news; return whether there was room."""
        try:
            assert self._channel is not None
            assert hasattr(socket, "send_fds")
            socket.send_fds(self._channel, [b"c" if descriptors else b"n"], descriptors)
        except (OSError, AssertionError):  # it has ended, or takes nothing
            return False
        self._n_sent += len(descriptors)
        return True

    async def run(self, settings: Settings, hear: Callable[..., None]) -> None:
        """Run the process until it ends; `hear` is called with each of its messages."""
        ours, its = socket.socketpair()
        ours.setblocking(False)
        self._n_sent, self.failed, self._channel = 0, "", ours

        with ours:
            with its:
                self._process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "visterm.web.workers"),
                    stdin=asyncio.subprocess.PIPE,
                    pass_fds=(its.fileno(), settings["figures"]),
                    start_new_session=True,  # Ctrl-C reaches the supervisor, which ends it
                )
                assert self._process.stdin is not None
                line = json.dumps(settings | {"number": self.number, "channel": its.fileno()})
                self._process.stdin.write(line.encode() + b"\n")
            if self._ended:  # while it was being started
                self.end()
            reader, writer = await asyncio.open_connection(sock=ours.dup())
            try:
                with suppress(ConnectionError):
                    while line_of_it := await reader.readline():
                        hear(self, *json.loads(line_of_it))
                self.status = await self._process.wait()
            finally:
                self.ready.clear()
                self._channel = None
                self._figures.forget(self.number)
                writer.close()

    def end(self) -> None:
        """Ask the process to end, and kill it if it doesn't."""
        process, self._ended = self._process, True
        if process is None or process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            process.terminate()
        asyncio.get_running_loop().call_later(END_SECONDS + 2, kill, process)


def _memory() -> str | None:
    """Return where small files lie in memory: writing to a map of a file on a full disk ends a process."""
    return SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else None


def main() -> None:
    """Answer the requests of the connections that the supervisor sends."""
    settings: Settings = json.loads(sys.stdin.readline())
    end_with_standard_input()
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = settings["metrics"]  # read when prometheus_client is imported
    from visterm.web.app import create_app

    channel = socket.socket(fileno=settings["channel"])

    def tell(what: str, *arguments: object) -> None:
        channel.sendall(json.dumps([what, *arguments]).encode() + b"\n")

    figures = Figures(settings["n_workers"] + 1, settings["number"], settings["figures"])
    member = Member(figures, settings["n_workers"], tell, os.getppid(), settings["metrics"])
    token, hosts, any_address, fetched = settings["access"]
    access = Access(token, frozenset(hosts), any_address, frozenset(fetched))
    try:
        app = create_app(settings["catalogue"], access=access, member=member)
    except VistermError as error:
        tell("failed", str(error))
        return

    Server(app, member, lambda: tell("ready"), channel=channel, news=app.state.service.catch_up).run_alone([])


if __name__ == "__main__":
    main()
