"""Jobs of the service: one runs at a time in a process, and a few more wait; a job that doesn't stop is killed."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from visterm.core.errors import StorageError, UserError
from visterm.core.system import is_alive
from visterm.library.catalogue import Catalogue
from visterm.library.photos import check_not_connected, indexed_folders
from visterm.store.database import WHO, now
from visterm.store.history import Jobs, StoredJob
from visterm.web.errors import LOG, HttpError, error_statuses
from visterm.web.job_process import REASON_NOT_STORED, WHO_ENV
from visterm.web.work import Figures, Tell, Work, kill

MAX_OPEN_JOBS = 8  # Running and waiting jobs
GRACE_SECONDS = 20.0  # Time for a cancelled job to stop before its process is killed
RETRY_SECONDS = 5.0  # Time between two tries to store the end of a job while the disk is full


class JobQueue:
    """Jobs as requests see them, in any process of a service.

    The threads of `work` write to the catalogue. `tell` calls methods of the `JobRunner` in the process `pid`.
    """

    def __init__(self, catalogue: Catalogue, work: Work, tell: Tell, figures: Figures, pid: int) -> None:
        self._stored, self._work, self._tell, self._pid = catalogue.stored, work, tell, pid
        self.n_open, self._unstored = figures.gauge("jobs"), figures.gauge("unstored")

    async def start(self, kind: str, *options: str) -> StoredJob:
        """Store a job, and run it when its turn comes; "index" is one job per folder, of which the first is returned.

        Options of "fit" are "full", "use-even-if-worse" and "by-itself" (the page started it); the option of "use run"
        is a run, by its number or the first letters of its fingerprint, and is optional for "go back".

        Raises HttpError (409) if too many wait, there is no folder to search, or the catalogue is connected to another
        program.
        """
        jobs = self._stored.jobs
        n_open = await self._work.run(jobs.n_open, self._pid)
        if n_open >= MAX_OPEN_JOBS:
            raise HttpError(409, f"{n_open} jobs already run or wait. Wait for them, or cancel some.")
        argument_lists = [list(options)]
        if kind == "index":
            with error_statuses({UserError: 409}):
                await self._work.run(check_not_connected, self._stored)
            folders = await self._work.run(indexed_folders, self._stored)
            argument_lists = [[folder] for folder in folders[: MAX_OPEN_JOBS - n_open]]
            if not argument_lists:
                advice = "Index one first: visterm index CATALOGUE FOLDER"
                raise HttpError(409, f"There is no folder to search for photos. {advice}")

        job_ids = []
        for arguments in argument_lists:
            job_ids.append(await self._work.run(jobs.start, kind, waiting=True, pid=self._pid))
            self._tell("enqueue", job_ids[-1], WHO.get(), [kind, *arguments])  # at once, as the next one may fail
        return await self._work.run(jobs.existing, job_ids[0])

    async def cancel(self, job_id: int) -> None:
        """Ask a job to stop; its process is killed if it doesn't."""
        await self._work.run(self._stored.jobs.cancel, job_id)
        self._tell("cancel", job_id)

    def get(self, job_id: int) -> StoredJob:
        """Return a job, see `with_end`. Raises HttpError (404) if there is no such job."""
        job = self._stored.jobs.get(job_id)
        if job is None:
            raise HttpError(404, f"There is no job {job_id}.")
        return self.with_end(job)

    def with_end(self, job: StoredJob) -> StoredJob:
        """Return a job; it is lost if its process was killed, and failed if the disk is too full to store its end."""
        if not job.ended and job.host == socket.gethostname() and not is_alive(job.pid):
            return replace(job, state="lost", error="Its process was killed.", finished=now())
        if job.ended or self._unstored.total != job.id + 1:
            return job
        error = "It could not write to the catalogue. The service's log says why."
        return replace(job, state="failed", error=error, finished=now())


class JobRunner:
    """Runs the jobs of the catalogue in the folder `path`, one after the other, each in a process.

    The threads of `work` write to the catalogue. `on_end` is called after each job.
    """

    def __init__(self, path: Path, jobs: Jobs, work: Work, figures: Figures, on_end: Callable[[], object]) -> None:
        self._path, self._jobs, self._work, self._on_end = path, jobs, work, on_end
        self._n_open, self._unstored = figures.gauge("jobs"), figures.gauge("unstored")
        self._waiting: deque[tuple[int, str, list[str]]] = deque()  # Ids of jobs, who started them, and their arguments
        self._running: tuple[int, asyncio.subprocess.Process] | None = None
        self._task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    def tell(self, message: str, *arguments: object) -> None:
        """Call the method that a queue names, from any process of the service."""
        methods: dict[str, Callable[..., None]] = {"enqueue": self.enqueue, "cancel": self.cancel}
        methods[message](*arguments)

    def enqueue(self, job_id: int, who: str, arguments: list[str]) -> None:
        """Run a stored job when its turn comes; `arguments` are its kind and options."""
        self._jobs.adopt(job_id)
        self._waiting.append((job_id, who, arguments))
        self._n_open.value += 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run_waiting())

    def cancel(self, job_id: int) -> None:
        """Kill the process of a cancelled job if it doesn't stop."""
        if self._running is not None and self._running[0] == job_id:
            asyncio.get_running_loop().call_later(GRACE_SECONDS, kill, self._running[1])

    async def close(self) -> None:
        """Kill the running job, and cancel those that wait."""
        self._closing.set()
        waiting, self._waiting = self._waiting, deque()
        running = [] if self._running is None else [self._running[0]]
        try:
            for job_id in [*(job_id for job_id, *_ in waiting), *running]:
                self._jobs.cancel(job_id)
        except StorageError as error:
            LOG.error("Jobs could not be cancelled: %s They count as lost when the service starts again.", error)
        if self._running is not None:
            kill(self._running[1])
        if self._task is not None:
            await self._task

    async def _run_waiting(self) -> None:
        while self._waiting:
            job_id, who, arguments = self._waiting.popleft()
            job = await self._work.do(self._jobs.existing, job_id)
            if not job.ended:
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    *("-m", "visterm.web.job_process", str(self._path), str(job_id), *arguments),
                    env=os.environ | {WHO_ENV: who},
                    stdin=asyncio.subprocess.PIPE,  # closed whenever this process ends
                    stdout=asyncio.subprocess.DEVNULL,
                )
                self._running = (job_id, process)
                status = await process.wait()
                self._running = None
                await self._store_end(job_id, status)
            self._n_open.value -= 1

    async def _store_end(self, job_id: int, status: int) -> None:
        """Store the end of a job; try again while the disk is full."""
        problem = None
        while True:
            try:
                await self._work.do(self._finish, job_id, status, problem)
            except StorageError as error:
                if problem is None:
                    LOG.error("The end of job %d can't be stored; trying again: %s", job_id, error)
                problem, self._unstored.value = f"It could not write to the catalogue: {error}", job_id + 1
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._closing.wait(), RETRY_SECONDS)
                    return
            else:
                self._unstored.value = 0
                return

    def _finish(self, job_id: int, status: int, problem: str | None) -> None:
        """Store the end of a job, unless its process has stored it, and use a run that it learned."""
        is_cancelled = self._jobs.existing(job_id).state == "cancelling"
        reason = problem or f"Its process ended with status {status}. The service's log may say why."
        if status == REASON_NOT_STORED and problem is None:
            reason = "It failed and could not store the reason. The service's log has it."
        self._jobs.finish(job_id, error=None if status == 0 or is_cancelled else reason)
        self._on_end()
