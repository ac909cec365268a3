"""Jobs of the service: one process at a time, a few more waiting; one that doesn't stop is killed."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from visterm.core.errors import StorageError
from visterm.library.catalogue import Catalogue
from visterm.library.photos import indexed_folders
from visterm.store.database import now
from visterm.store.jobs import Job
from visterm.web.errors import Refused
from visterm.web.job_process import NOT_NOTED
from visterm.web.work import Work

MOST_OPEN = 8  # Jobs that run or wait
GRACE_SECONDS = 20.0  # Time for a cancelled job to stop, before its process is killed
AGAIN_SECONDS = 5.0  # Time between two tries to store the end of a job, while the disk is full
LOG = logging.getLogger("visterm.web")


class _Waiting(NamedTuple):
    """A job that has not started."""

    job_id: int
    kind: str
    arguments: list[str]


class JobRunner:
    """Runs jobs in processes, one after the other.

    `folders` are those that "index" searches; empty: those of the catalogue's images. The threads of `work` write to
    the catalogue, whose folder is `path`.
    """

    def __init__(self, path: Path, catalogue: Catalogue, folders: Sequence[Path], work: Work) -> None:
        self._path = path
        self._catalogue = catalogue
        self._folders = [str(folder) for folder in folders]
        self._work = work
        self._waiting: deque[_Waiting] = deque()
        self._running: tuple[int, asyncio.subprocess.Process] | None = None
        self._task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._not_noted: dict[int, str] = {}

    @property
    def n_open(self) -> int:
        """Number of jobs of this service that run or wait."""
        return len(self._waiting) + (self._task is not None and not self._task.done())

    async def start(self, kind: str, *options: str) -> Job:
        """Store a job, and run it when its turn comes; "index" is one job per folder, of which the first is returned.

        Options of "fit" are "full" and "use-even-if-worse"; that of "use run" is the first letters of a fingerprint.

        Raises
        ------
        Refused
            409, if too many wait, or there is no folder to search.
        """
        if self.n_open >= MOST_OPEN:
            raise Refused(409, f"{self.n_open} jobs already run or wait. Wait for them, or cancel some.")
        lists = [list(options)]
        if kind == "index":
            folders = self._folders or await self._work.run(indexed_folders, self._catalogue.stored)
            lists = [[folder] for folder in folders[: MOST_OPEN - self.n_open]]
            if not lists:
                raise Refused(409, "There is no folder to search for photos. Start the service with --images FOLDER.")
        jobs = self._catalogue.stored.jobs
        started = []
        for arguments in lists:
            started.append(await self._work.run(jobs.start, kind, waiting=True))
            self._waiting.append(_Waiting(started[-1], kind, arguments))  # at once: storing the next may fail
            if self._task is None or self._task.done():
                self._task = asyncio.create_task(self._run_waiting())
        return await self._work.run(self._get, started[0])

    async def cancel(self, job_id: int) -> None:
        """Ask a job to stop; its process is killed if it doesn't."""
        await self._work.run(self._catalogue.stored.jobs.cancel, job_id)
        if self._running is not None and self._running[0] == job_id:
            process = self._running[1]
            asyncio.get_running_loop().call_later(GRACE_SECONDS, _kill, process)

    def shown(self, job: Job) -> Job:
        """Return a job as it is; one whose failure can't be stored, as the disk is full, counts as failed."""
        error = self._not_noted.get(job.id)
        return job if error is None or job.ended else replace(job, state="failed", error=error, finished=now())

    async def close(self) -> None:
        """Kill the running job, and cancel those that wait."""
        self._closing.set()
        waiting, self._waiting = self._waiting, deque()
        running = [] if self._running is None else [self._running[0]]
        try:
            for job_id in [*(job.job_id for job in waiting), *running]:
                self._catalogue.stored.jobs.cancel(job_id)
        except StorageError as error:
            LOG.error("Jobs could not be cancelled: %s They count as lost when the service starts again.", error)
        if self._running is not None:
            _kill(self._running[1])
        if self._task is not None:
            await self._task

    async def _run_waiting(self) -> None:
        """Run jobs until none waits."""
        while self._waiting:
            job = self._waiting.popleft()
            found = await self._work.do(self._get, job.job_id)
            if not found.ended:
                await self._run(job)

    async def _run(self, job: _Waiting) -> None:
        """Run one job in a process, and store its end."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "visterm.web.job_process", str(self._path), str(job.job_id), job.kind, *job.arguments),
            stdin=asyncio.subprocess.PIPE,  # closed when this process ends, however it does
            stdout=asyncio.subprocess.DEVNULL,
        )
        self._running = (job.job_id, process)
        status = await process.wait()
        self._running = None
        await self._store_end(job.job_id, status)

    async def _store_end(self, job_id: int, status: int) -> None:
        """Store the end of a job; try again while the disk is full."""
        while True:
            try:
                await self._work.do(self._end, job_id, status)
            except StorageError as error:
                if job_id not in self._not_noted:
                    LOG.error("The end of job %d can't be stored; trying again: %s", job_id, error)
                self._not_noted[job_id] = f"It could not write to the catalogue: {error}"
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._closing.wait(), AGAIN_SECONDS)
                    return
            else:
                self._not_noted.pop(job_id, None)
                return

    def _end(self, job_id: int, status: int) -> None:
        """Store the end of a job whose process could not do so, and use a run that it learned."""
        found = self._get(job_id)
        cancelled = found.state == "cancelling"
        why = self._not_noted.get(job_id) or f"Its process ended with status {status}. The service's log may say why."
        if status == NOT_NOTED and job_id not in self._not_noted:
            why = "It failed and could not store the reason. The service's log has it."
        error = None if status == 0 or cancelled else why
        self._catalogue.stored.jobs.finish(job_id, error=error)
        self._catalogue.refresh()

    def _get(self, job_id: int) -> Job:
        """Return a job that exists."""
        found = self._catalogue.stored.jobs.get(job_id)
        assert found is not None
        return found


def _kill(process: asyncio.subprocess.Process) -> None:
    """Kill a process, unless it has ended by itself."""
    with suppress(ProcessLookupError):
        process.kill()
