"""Executors of long jobs in parts: the base class runs all parts in this process, a subclass on other machines."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from visterm.core.errors import StorageError
from visterm.core.progress import SILENT, Progress, StepProgress
from visterm.core.remote import as_path
from visterm.core.threads import Team, resolve_jobs

P = TypeVar("P")
P_contra = TypeVar("P_contra", contravariant=True)
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Job(Protocol[P_contra, R_co]):
    """Work that is split into parts.

    A job may be sent to processes on other machines, so large data must be on a disk that all of them share.
    """

    def begin(self, team: Team, progress: Progress) -> Callable[[P_contra], R_co]:
        """Load the data that all parts need, and return the function that processes one part.

        The result must depend only on the part, and a part may be processed more than once, as workers may die. Each
        part reports `size_of` steps to `progress`.
        """

    def name_of(self, part: P_contra) -> str:
        """Return a part's name for messages."""

    def size_of(self, part: P_contra) -> int:
        """Return the number of progress steps of a part."""


def require_visible_path(path: str | os.PathLike[str]) -> None:
    """Raise StorageError if a file or folder of the job does not exist on this machine.

    Otherwise all its images would count as unreadable.
    """
    if not as_path(path).exists():
        raise StorageError(
            f"The worker on {socket.gethostname()} finds nothing at {os.fspath(path)}. Photos, features and runs must "
            "lie on a disk that all machines share, at the same path, or in an object store."
        )


class Executor:
    """Runs the parts of jobs in this process, with `n_jobs` threads (None: all cores).

    Executors for several machines have the same methods, so jobs don't depend on where they run.
    """

    remote = False
    """Whether other processes run the parts; they start slowly, so a single part runs in this process."""

    def __init__(self, n_jobs: int | None = None) -> None:
        self.n_jobs = n_jobs

    def run(self, job: Job[P, R], parts: Sequence[P], progress: Progress) -> Iterator[R]:
        """Process all parts of a job, and yield the results in the order of the parts.

        Raises StorageError if workers do not find the files of the job, or die repeatedly.
        """
        with Team(resolve_jobs(self.n_jobs)) as team:
            process_part = job.begin(team, StepProgress(progress))
            for part in parts:
                yield process_part(part)

    def run_as_done(self, job: Job[P, R], parts: Sequence[P], on_part_done: Callable[[int, R], None]) -> None:
        """Process all parts of a job, and call ``on_part_done(part_number, result)`` as each part ends."""
        for number, result in enumerate(self.run(job, parts, SILENT)):
            on_part_done(number, result)


LOCAL = Executor()


def for_parts(executor: Executor, parts: Sequence[object]) -> Executor:
    """Return the executor to use for `parts`: a local one for a single part, as other processes start slowly."""
    return executor if executor.remote and len(parts) > 1 else Executor(executor.n_jobs)
