"""Where the parts of a long job run: in this process, or wherever the executor that was handed in takes them."""

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
    """Work that comes in parts.

    It may be sent to processes on other machines, so everything large lies on a disk that all of them share.
    """

    def begin(self, team: Team, progress: Progress) -> Callable[[P_contra], R_co]:
        """Load what all parts need, and return the function that does one.

        The result depends on the part alone, and doing a part again does no harm: a worker may die at any time.
        `progress` takes the steps of each part, as many as `size_of` says.
        """

    def name_of(self, part: P_contra) -> str:
        """Return a part's name for messages."""

    def size_of(self, part: P_contra) -> int:
        """Return how many steps of progress a part is."""


def require_visible_path(path: str | os.PathLike[str]) -> None:
    """Refuse to work where a file or folder of the job is not: all its images would count as unreadable.

    Raises StorageError if it is not there.
    """
    if not as_path(path).exists():
        raise StorageError(
            f"The worker on {socket.gethostname()} finds nothing at {os.fspath(path)}. Photos, features and runs must "
            "lie on a disk that all machines share, at the same path, or in an object store."
        )


class Executor:
    """Runs the parts of jobs: this one in this process, with `n_jobs` threads (None is all cores).

    An executor of several machines has the same methods, so that whoever has work in parts never asks where it is done.
    """

    remote = False
    """Whether other processes do the work, which takes a while to start: not worth it for a single part."""

    def __init__(self, n_jobs: int | None = None) -> None:
        self.n_jobs = n_jobs

    def run(self, job: Job[P, R], parts: Sequence[P], progress: Progress) -> Iterator[R]:
        """Do all parts of a job, and yield the results in the order of the parts.

        Raises StorageError if workers do not find the files of the job, or are lost again and again.
        """
        with Team(resolve_jobs(self.n_jobs)) as team:
            work = job.begin(team, StepProgress(progress))
            for part in parts:
                yield work(part)

    def run_as_done(self, job: Job[P, R], parts: Sequence[P], finished: Callable[[int, R], None]) -> None:
        """Do all parts of a job, and call `finished` with the number and the result of each as it ends."""
        for number, result in enumerate(self.run(job, parts, SILENT)):
            finished(number, result)


LOCAL = Executor()


def for_parts(executor: Executor, parts: Sequence[object]) -> Executor:
    """Return the executor for some parts: this process where there is a single one, as starting others takes longer."""
    return executor if executor.remote and len(parts) > 1 else Executor(executor.n_jobs)
