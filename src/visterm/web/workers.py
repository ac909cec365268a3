"""Several processes that answer requests, and the one that supervises them.

The supervisor accepts connections, and sends each to the worker with the fewest connections. It runs the jobs, and
restarts workers that have ended. Workers share the memory-mapped rows, the database, and their `Figures`; a request
sees what any worker has committed before. A worker is ``python -m visterm.web.workers``; it reads its settings, a line
of JSON, from standard input, and ends with the supervisor, which imports what only jobs need after the workers answer.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from visterm.core.errors import ReplacedError, StorageError, UserError, VistermError
from visterm.core.threads import end_with_standard_input, resolve_jobs
from visterm.core.types import Place
from visterm.features.streaming.memory import machine_memory
from visterm.store import DATABASE, RUNS
from visterm.web.roles import Access
from visterm.web.server import END_SECONDS, Server, address_of, listening_socket
from visterm.web.work import Figures, Member, Work, kill

if TYPE_CHECKING:
    from visterm.store.catalogue import StoredCatalogue
    from visterm.web.jobs import JobRunner

LOG = logging.getLogger("visterm.web")
MAX_DEFAULT_WORKERS = 4  # More are hardly faster, as disk and memory are the limit
WORKER_BYTES = 2**29  # Approximate memory of a worker, without the run
MAX_ACCEPTED_AT_ONCE = 64
RESEND_SECONDS = 0.02  # Pause without new connections after all workers had too many to take
FULL_SECONDS = 1.0  # Pause without new connections after too many files were open
SHORT_LIFE_SECONDS = 10.0  # A worker that ends sooner is restarted after longer and longer pauses
MAX_PAUSE_SECONDS = 5.0
SHARED_MEMORY = "/dev/shm"

Settings: TypeAlias = dict[str, Any]
"""What a worker reads from standard input, as JSON; see `run_workers`."""


def shares_connections() -> bool:
    """Return whether processes can send connections to each other on this system; on Windows they can't."""
    return hasattr(socket, "send_fds")


def default_workers(catalogue: Place) -> int:
    """Return the default number of workers: one per core, at most 4, and no more than fit into half of the memory."""
    if not shares_connections():
        return 1
    runs = (Path(catalogue) / RUNS).glob("[!.]*")
    largest_run_bytes = max((sum(file.stat().st_size for file in run.iterdir()) for run in runs), default=0)
    n_in_memory = machine_memory() // 2 // (WORKER_BYTES + 2 * largest_run_bytes)
    return max(1, min(MAX_DEFAULT_WORKERS, resolve_jobs(None), n_in_memory))


def run_workers(
    n_workers: int, catalogue: Place, host: str, port: int, announce: Callable[[str], None], *, access: Access
) -> None:
    """Serve a catalogue with several processes until stopped; call `announce` with the address once all answer.

    Raises UserError if the port is in use, this machine doesn't have the address, there is no catalogue, or it is
    damaged.
    """
    path = Path(catalogue).absolute()
    folder = _memory_folder()
    with listening_socket(host, port) as listener, tempfile.TemporaryDirectory(prefix="visterm", dir=folder) as metrics:
        listener.setblocking(False)
        settings = {
            "catalogue": str(path), "n_workers": n_workers, "metrics": metrics, "access": asdict(access),
        }  # fmt: skip
        address = address_of(host, listener.getsockname()[1])
        asyncio.run(_Supervisor(settings, listener).run(lambda: announce(address)))


class _Supervisor:
    """Starts workers, sends them connections, and runs jobs."""

    def __init__(self, settings: Settings, listener: socket.socket) -> None:
        self._settings, self._listener = settings, listener
        self._path = Path(settings["catalogue"])
        self._identity: tuple[int, int] | None = None  # Device and inode of the catalogue's database
        self._stored: StoredCatalogue | None = None  # Opened once all workers answer
        n_workers = settings["n_workers"]
        self._figures_file = tempfile.TemporaryFile(dir=_memory_folder())  # noqa: SIM115  # open as long as the service runs
        figures = self._figures = Figures(n_workers + 1, n_workers, self._figures_file.fileno())
        self._writing = Work("jobs", 1, 1)
        self._workers = [_WorkerProcess(number, figures) for number in range(n_workers)]
        self._stop = asyncio.Event()
        self._has_started = False

    async def run(self, on_start: Callable[[], None]) -> None:
        """Serve until a signal arrives; call `on_start` once all workers answer. Raises the error of a failed start."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop.set)
        self._runner: asyncio.Future[JobRunner] = loop.create_future()
        self._keepers = [asyncio.create_task(self._keep_running(worker)) for worker in self._workers]
        ready = asyncio.create_task(self._all_ready())
        stop = asyncio.create_task(self._stop.wait())
        try:
            ends: list[asyncio.Future[Any]] = [stop, *self._keepers]
            await asyncio.wait([ready, *ends], return_when=asyncio.FIRST_COMPLETED)
            if ready.done():
                self._has_started = True
                await asyncio.to_thread(on_start)
                with suppress(ReplacedError):  # workers then refuse changes
                    self._runner.set_result(await asyncio.to_thread(self._open))
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._stop.set()
            ready.cancel()
            self._accept(False)
            for worker in self._workers:
                worker.end()
            results = await asyncio.gather(*self._keepers, return_exceptions=True)
            if self._stored is not None:
                await self._runner.result().close()
                self._stored.close()
            self._writing.close()
            self._figures_file.close()

        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _all_ready(self) -> None:
        for worker in self._workers:
            await worker.ready.wait()

    def _open(self) -> JobRunner:
        """Open the catalogue and return what runs its jobs, in a thread: meanwhile workers get connections."""
        from visterm.store.catalogue import StoredCatalogue
        from visterm.web.jobs import JobRunner

        self._check_in_place()
        self._stored = stored = StoredCatalogue.open(self._path)
        return JobRunner(self._path, stored.jobs, self._writing, self._figures, self._send_news)

    def _send_news(self) -> None:
        for worker in self._workers:
            worker.send([])

    def _check_in_place(self) -> None:
        """Raise ReplacedError if the catalogue isn't the one of the first call, which the other workers use."""
        identity = None
        with suppress(OSError):  # without a database, workers say what is wrong
            status = os.stat(self._path / DATABASE)
            identity = status.st_dev, status.st_ino
        self._identity = self._identity or identity
        if identity != self._identity:
            raise ReplacedError(f"The catalogue {self._path} was replaced by another, or removed. Restart visterm.")

    async def _keep_running(self, worker: _WorkerProcess) -> None:
        """Restart a worker whenever it ends. Raises UserError if it can't open the catalogue at the service's start."""
        pause_seconds = 0.0
        while not self._stop.is_set():
            start = time.monotonic()
            try:
                self._check_in_place()
                await worker.run(self._settings | {"figures": self._figures_file.fileno()}, self._handle)
            except ReplacedError as error:
                if not any(other.ready.is_set() for other in self._workers):
                    raise
                worker.problem = str(error)
            if self._stop.is_set():
                return
            if worker.problem and not self._has_started:
                raise UserError(worker.problem)
            is_short = time.monotonic() - start < SHORT_LIFE_SECONDS
            pause_seconds = min(max(2 * pause_seconds, 0.1), MAX_PAUSE_SECONDS) if is_short else 0.0
            reason = worker.problem or f"it ended with status {worker.status}"
            LOG.warning("A process that answers requests is started again: %s.", reason.rstrip("."))
            self._accept(any(other.ready.is_set() for other in self._workers))
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), pause_seconds)
            with suppress(StorageError):
                if self._stored is not None:
                    await asyncio.to_thread(self._stored.jobs.mark_lost)  # jobs that it had stored and could not start

    def _handle(self, worker: _WorkerProcess, message: str, *arguments: object) -> None:
        if message == "ready":
            worker.ready.set()
            self._accept(True)
        elif message == "failed":
            worker.problem = str(arguments[0])
        else:
            self._runner.add_done_callback(lambda runner: runner.result().tell(message, *arguments))

    def _accept(self, accepting: bool) -> None:
        """Start or stop accepting connections; meanwhile the system keeps new ones waiting."""
        loop = asyncio.get_running_loop()
        if accepting and not self._stop.is_set():
            loop.add_reader(self._listener, self._take_connections)
        else:
            loop.remove_reader(self._listener)

    def _take_connections(self) -> None:
        for _ in range(MAX_ACCEPTED_AT_ONCE):
            try:
                client, _ = self._listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:  # too many open files
                LOG.warning("Connections can't be accepted now: %s", error)
                self._accept(False)
                asyncio.get_running_loop().call_later(FULL_SECONDS, self._accept, True)
                return
            if not self._send(client):
                return

    def _send(self, client: socket.socket) -> bool:
        """Send a connection to a worker; if all their queues are full, stop accepting, and try again a little later."""
        for worker in sorted(self._workers, key=lambda worker: worker.load):
            if worker.ready.is_set() and worker.send([client.fileno()]):
                client.close()
                return True
        self._accept(False)
        asyncio.get_running_loop().call_later(RESEND_SECONDS, self._send_again, client)
        return False

    def _send_again(self, client: socket.socket) -> None:
        if self._stop.is_set():
            client.close()
        elif self._send(client):
            self._accept(True)


class _WorkerProcess:
    """A process that answers requests, which can be started repeatedly."""

    def __init__(self, number: int, figures: Figures) -> None:
        self.number = number
        self.ready = asyncio.Event()
        self.problem = ""  # Why it could not open the catalogue
        self.status, self._figures = 0, figures
        self._n_open, self._n_taken = figures.gauge("connections", number), figures.gauge("taken", number)
        self._n_sent, self._is_ending = 0, False
        self._channel: socket.socket | None = None
        self._process: asyncio.subprocess.Process | None = None

    @property
    def load(self) -> int:
        """The number of connections that it has, or that were sent to it."""
        return self._n_open.value + self._n_sent - self._n_taken.value

    def send(self, descriptors: list[int]) -> bool:
        """Send a connection, or news if there is none; return whether the process could receive it."""
        try:
            assert self._channel is not None
            assert hasattr(socket, "send_fds")
            socket.send_fds(self._channel, [b"c" if descriptors else b"n"], descriptors)
        except (OSError, AssertionError):  # it has ended, or its queue is full
            return False
        self._n_sent += len(descriptors)
        return True

    async def run(self, settings: Settings, handle: Callable[..., None]) -> None:
        """Run the process until it ends; `handle` is called with each of its messages."""
        channel, worker_channel = socket.socketpair()
        channel.setblocking(False)
        self._n_sent, self.problem, self._channel = 0, "", channel

        with channel:
            with worker_channel:
                self._process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "visterm.web.workers"),
                    stdin=asyncio.subprocess.PIPE,
                    pass_fds=(worker_channel.fileno(), settings["figures"]),
                    start_new_session=True,  # Ctrl-C reaches the supervisor, which ends it
                )
                assert self._process.stdin is not None
                of_this_worker = {"number": self.number, "channel": worker_channel.fileno()}
                line = json.dumps(settings | of_this_worker, default=sorted)  # sets of `Access` become lists
                self._process.stdin.write(line.encode() + b"\n")
            if self._is_ending:  # `end` was called before the start
                self.end()
            reader, writer = await asyncio.open_connection(sock=channel.dup())
            try:
                with suppress(ConnectionError):
                    while message := await reader.readline():
                        handle(self, *json.loads(message))
                self.status = await self._process.wait()
            finally:
                self.ready.clear()
                self._channel = None
                self._figures.forget(self.number)
                writer.close()

    def end(self) -> None:
        """Ask the process to end, and kill it if it doesn't."""
        process, self._is_ending = self._process, True
        if process is None or process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            process.terminate()
        asyncio.get_running_loop().call_later(END_SECONDS + 2, kill, process)


def _memory_folder() -> str | None:
    """Return a folder in memory, if there is one: writing to a mapped file on a full disk kills a process."""
    return SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else None


def main() -> None:
    """Answer the requests of the connections that the supervisor sends."""
    gc.disable()  # imported modules stay, and looking for garbage among them takes a sixth of a start
    settings: Settings = json.loads(sys.stdin.readline())
    end_with_standard_input()
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = settings["metrics"]  # read when prometheus_client is imported
    from pydantic import TypeAdapter

    from visterm.web.app import create_app

    channel = socket.socket(fileno=settings["channel"])

    def tell(message: str, *arguments: object) -> None:
        channel.sendall(json.dumps([message, *arguments]).encode() + b"\n")

    figures = Figures(settings["n_workers"] + 1, settings["number"], settings["figures"])
    member = Member(figures, settings["n_workers"], tell, os.getppid(), settings["metrics"])
    access = TypeAdapter(Access).validate_python(settings["access"])
    try:
        app = create_app(settings["catalogue"], access=access, member=member)
    except VistermError as error:
        tell("failed", str(error))
        return

    gc.freeze()
    gc.enable()
    Server(app, member, lambda: tell("ready"), channel=channel, on_news=app.state.service.catch_up).run_alone([])


if __name__ == "__main__":
    main()
