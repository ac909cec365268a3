"""Run the parts of a job on several machines with Ray Data. Only this package uses Ray."""

from __future__ import annotations

import logging
import os
import socket
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from types import ModuleType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import MissingExtraError, StorageError, UserError
from visterm.core.executor import Executor, Job
from visterm.core.progress import SILENT, Progress
from visterm.core.threads import Team, resolve_jobs
from visterm.core.wording import count_of

P = TypeVar("P")
R = TypeVar("R")

LOCAL = "local"  # Starts a Ray cluster on this machine for the duration of the job
CONNECT_TIMEOUT_SECONDS = 5.0
STORE_BYTES = 512 * 2**20  # Shared memory of a cluster on this machine

MAX_TASKS = 20_000
"""Maximum number of Ray tasks per job. If there are more parts, they are grouped, because each task has an overhead."""

TASKS_PER_ACTOR = 2  # Queued tasks per actor: enough that it never waits, and few that are lost if it dies
MAX_TRIES = 5  # Attempts per part, as a part may kill its workers every time


class RayExecutor(Executor):
    """Runs parts on the workers of a Ray cluster; see `visterm.core.executor.Executor`.

    The address "local" starts a cluster on this machine for each job; "auto" and "HOST:PORT" connect to a cluster that
    was started with ``ray start``. Ray is imported when a job runs. At most `n_jobs` workers are used; None: one per
    processor. Raises MissingExtraError if Ray is not installed, UserError if there is no cluster at the address.
    """

    remote = True

    def __init__(self, address: str, n_jobs: int | None = None) -> None:
        super().__init__(n_jobs)
        self.address = address
        if find_spec("ray") is None:
            raise MissingExtraError(
                "Jobs on several machines need the package 'ray'. Install it with: pip install 'visterm[ray]'"
            )

    def run(self, job: Job[P, R], parts: Sequence[P], progress: Progress) -> Iterator[R]:
        """Process all parts of a job, and yield the results in the order of the parts."""
        with running_cluster(self.address, self.n_jobs) as n_workers:
            for part, (_, result) in zip(parts, results_of(job, parts, n_workers), strict=True):
                progress.advance(job.size_of(part))
                yield result

    def run_as_done(self, job: Job[P, R], parts: Sequence[P], on_part_done: Callable[[int, R], None]) -> None:
        """Process all parts of a job, and call ``on_part_done(part_number, result)`` as each part ends."""
        with running_cluster(self.address, self.n_jobs) as n_workers:
            for number, result in results_of(job, parts, n_workers, ordered=False):
                on_part_done(number, result)


def results_of(
    job: Job[P, R], parts: Sequence[P], n_workers: int, *, ordered: bool = True, tries: int = MAX_TRIES
) -> Iterator[tuple[int, R]]:
    """Process parts of a job on the workers of the connected cluster, and yield (part number, result) for each part.

    Results come in the order of the parts if `ordered`, otherwise as parts end. Up to `n_workers` actors with one
    thread each are started. If an actor dies with its worker or machine, Ray Data restarts it elsewhere, and its parts
    are processed again; without a free processor it waits, so the pool may shrink to one actor. A part is attempted at
    most `tries` times. The first error of a part stops the other parts, and is raised in this process. Raises
    StorageError if a part kills its workers, or if Ray loses or repeats results.
    """
    ray, data = load_ray(), load_ray_data()
    counter_class = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(_AttemptCounter)
    n_actors = min(n_workers, len(parts))
    rows = [{"number": number, "part": ray.cloudpickle.dumps(part)} for number, part in enumerate(parts)]
    dataset = data.from_items(rows, override_num_blocks=min(len(rows), MAX_TASKS)).map_batches(
        _PartWorker,
        fn_constructor_args=([ray.put(job)], counter_class.remote(), tries),
        batch_size=1,
        batch_format="numpy",
        compute=data.ActorPoolStrategy(
            min_size=1, max_size=n_actors, initial_size=n_actors, max_tasks_in_flight_per_actor=TASKS_PER_ACTOR
        ),
        num_cpus=1,
    )
    dataset.context.execution_options.preserve_order = ordered
    missing = dict.fromkeys(range(len(parts)))

    for batch in dataset.iter_batches(batch_size=None, batch_format="numpy", prefetch_batches=0):
        for number, pickled in zip(batch["number"].tolist(), batch["result"], strict=True):
            if number not in missing or (ordered and number != next(iter(missing))):
                raise StorageError(f"Part {number} of the job came twice or out of order. Run the same command again.")
            del missing[number]
            result, error, trace = ray.cloudpickle.loads(pickled)
            if error is not None:
                error.add_note(f"In a worker:\n{trace}")
                raise error
            yield number, result

    if missing:
        raise StorageError(
            f"Of {count_of(len(parts), 'part')} of the job, {len(missing):,} were not done. Run the same command again."
        )


class _PartWorker:
    """The code of an actor. It calls `Job.begin` with its first part, so that errors of `begin` are returned, too."""

    def __init__(self, job_ref: list[object], counter: Any, tries: int) -> None:
        # A list with one reference: Ray would replace a reference that is not in a list by its object
        self._job_ref, self._counter, self._tries = job_ref, counter, tries
        self._job: Job[object, object] | None = None
        self._work: Callable[[object], object] | None = None

    def __call__(self, batch: Mapping[str, NDArray[np.generic]]) -> dict[str, NDArray[np.generic]]:
        results = np.empty(len(batch["part"]), object)
        for row, (number, part) in enumerate(zip(batch["number"].tolist(), batch["part"], strict=True)):
            try:
                results[row] = load_ray().cloudpickle.dumps((self._result(number, part), None, ""))
            except Exception as error:
                results[row] = pickled_error(error)
        return {"number": batch["number"], "result": results}

    def _result(self, number: int, pickled: bytes) -> object:
        ray = load_ray()
        job: Job[object, object] = self._job or ray.get(self._job_ref[0])
        self._job, part = job, ray.cloudpickle.loads(pickled)
        if ray.get(self._counter.begin.remote(number)) > self._tries:
            raise StorageError(
                f"Workers died {self._tries} times while they worked on {job.name_of(part)}.",
                advice="They may have run out of memory, or a file breaks the program: run it without Ray to see.",
            )
        if self._work is None:
            self._work = job.begin(Team(1), SILENT)
        return self._work(part)


class _AttemptCounter:
    """Counts the attempts per part; if its machine dies, the counts restart, which only allows more attempts."""

    def __init__(self) -> None:
        self._attempts: Counter[int] = Counter()

    def begin(self, number: int) -> int:
        """Count an attempt of a part, and return the number of its attempts."""
        self._attempts[number] += 1
        return self._attempts[number]


def pickled_error(error: Exception) -> bytes:
    """Pickle an error with its traceback in place of a result; only its text if it cannot be pickled."""
    pickler, trace = load_ray().cloudpickle, "".join(traceback.format_exception(error))
    try:
        pickled: bytes = pickler.dumps((None, error, trace))
        pickler.loads(pickled)
    except Exception:
        pickled = pickler.dumps((None, RuntimeError(f"{type(error).__name__}: {error}"), trace))
    return pickled


@contextmanager
def running_cluster(address: str, n_jobs: int | None = None) -> Iterator[int]:
    """Connect to the cluster at an address, or start one on this machine, and yield the number of workers to use.

    "auto" and "HOST:PORT" connect to a cluster that was started with ``ray start``. At most `n_jobs` workers are used;
    None: one per processor. The connection is closed at the end; if this process was already connected to a cluster,
    that connection is used and left open. Raises UserError if there is no cluster at the address.
    """
    ray = load_ray()
    must_connect = not ray.is_initialized()

    def log_lines(data: Mapping[str, Iterable[str]], **_: object) -> None:
        logging.getLogger(__name__).info("%s", "\n".join(data["lines"]))

    # Ray's own messages about lost workers and machines go to the log, as standard output is for results.
    # `log_to_driver` would only affect the output of workers.
    ray._private.worker.print_to_stdstream = log_lines
    if must_connect:
        _connect(ray, address, n_jobs)
    try:
        n_cpus = int(ray.cluster_resources().get("CPU", 0))
        if n_cpus < 1:
            advice = "Start its nodes with some: ray start --num-cpus N"
            raise UserError(f"The Ray cluster at '{address}' has no free processor.", setting="ray", advice=advice)
        yield n_cpus if n_jobs in (None, -1) else min(n_cpus, resolve_jobs(n_jobs))
    finally:
        if must_connect:
            ray.shutdown()


def load_ray() -> Any:
    """Import Ray without its messages and usage statistics."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # its core writes to standard error
    import ray

    return ray


def load_ray_data() -> Any:
    """Import Ray Data without progress bars, logging only errors."""
    import ray.data

    logging.getLogger("ray.data").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"`use_\w+` is deprecated", DeprecationWarning)  # Ray uses them itself
        context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    return ray.data


def _connect(ray: ModuleType, address: str, n_jobs: int | None) -> None:
    """Connect to the cluster at an address, or start one."""
    options = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address == LOCAL:
        limits = {"num_cpus": resolve_jobs(n_jobs), "object_store_memory": STORE_BYTES, "include_dashboard": False}
        with _silenced_errors():
            ray.init("local", **limits, **options)
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        if host and port.isdigit():  # if nothing listens at the address, Ray would retry for many minutes
            socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_TIMEOUT_SECONDS).close()
        with _silenced_errors():
            ray.init(address, **options)
    except (OSError, ValueError, RuntimeError) as error:
        raise UserError(
            f"There is no Ray cluster at '{address}' ({str(error).splitlines()[0]}).", setting="ray", value=address,
            advice=f"Start one with 'ray start --head' and pass its HOST:PORT, or '{LOCAL}' to use this machine alone.",
        ) from error  # fmt: skip


@contextmanager
def _silenced_errors() -> Iterator[None]:
    """Hide messages of Ray's core on standard error while it starts; errors are still raised."""
    standard_error, null_device = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null_device, 2)
        yield
    finally:
        os.dup2(standard_error, 2)
        os.close(standard_error)
        os.close(null_device)
