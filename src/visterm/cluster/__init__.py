"""Jobs on several machines, by Ray: the same work as on one, handed out part by part. The only room that knows Ray."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TypeVar

from visterm.cluster.engine import missing_ray, running_engine
from visterm.cluster.ordered import in_order
from visterm.cluster.unordered import as_done
from visterm.core.executor import Job
from visterm.core.progress import Progress

P = TypeVar("P")
R = TypeVar("R")


@dataclass(frozen=True)
class RayExecutor:
    """Runs parts on the workers of a Ray engine; see `visterm.core.executor.Executor`.

    The engine is reached, or started, when there is work, and Ray is imported no earlier. The address "local" starts an
    engine on this machine, which ends with the job; "auto" and "HOST:PORT" reach one that was started with ``ray
    start``. It uses at most `n_jobs` workers; None: one for each processor. Raises MissingExtraError if Ray is not
    installed, UserError if there is no engine at the address.
    """

    address: str
    n_jobs: int | None = None
    remote: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        if find_spec("ray") is None:
            raise missing_ray()

    def run(self, job: Job[P, R], parts: Sequence[P], progress: Progress) -> Iterator[R]:
        """Do all parts of a job by Ray Data, and yield the results in the order of the parts."""
        with running_engine(self.address, self.n_jobs) as n_workers:
            for part, result in zip(parts, in_order(job, parts, n_workers), strict=True):
                progress.advance(job.size_of(part))
                yield result

    def run_as_done(self, job: Job[P, R], parts: Sequence[P], finished: Callable[[int, R], None]) -> None:
        """Do all parts of a job by Ray Tune, and call `finished` as each ends."""
        with running_engine(self.address, self.n_jobs) as n_workers:
            as_done(job, parts, n_workers, finished)
