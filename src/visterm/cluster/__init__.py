"""Jobs on several machines: the work of one, handed out in parts by Ray Data. The only room that knows Ray."""

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

LOCAL = "local"  # The address of an engine on this machine alone, which ends with the job
PATIENCE = 5.0  # Seconds that an address may take to answer
OBJECT_STORE = 512 * 2**20  # Bytes of shared memory that an engine started here may take
MISSING = "Jobs on several machines need the package 'ray'. Install it with: pip install 'visterm[ray]'"

MOST_BLOCKS = 20_000
"""Tasks that a job is split into, at most: of more parts several go together, as each takes Ray a moment."""

AHEAD = 2  # Tasks that wait for or are with an actor: it never waits for the next, and few are bound to one that dies
TRIES = 5  # How often a part is begun: one that kills its workers would otherwise be tried for ever


class RayExecutor(Executor):
    """Runs parts on the workers of a Ray engine; see `visterm.core.executor.Executor`.

    The engine is reached, or started, when there is work, and Ray is imported no earlier. The address "local" starts an
    engine on this machine, which ends with the job; "auto" and "HOST:PORT" reach one that was started with ``ray
    start``. It uses at most `n_jobs` workers; None: one for each processor. Raises MissingExtraError if Ray is not
    installed, UserError if there is no engine at the address.
    """

    remote = True

    def __init__(self, address: str, n_jobs: int | None = None) -> None:
        super().__init__(n_jobs)
        self.address = address
        if find_spec("ray") is None:
            raise MissingExtraError(MISSING)

    def run(self, job: Job[P, R], parts: Sequence[P], progress: Progress) -> Iterator[R]:
        """Do all parts of a job, and yield the results in the order of the parts."""
        with running_engine(self.address, self.n_jobs) as n_workers:
            for part, (_, result) in zip(parts, results_of(job, parts, n_workers), strict=True):
                progress.advance(job.size_of(part))
                yield result

    def run_as_done(self, job: Job[P, R], parts: Sequence[P], finished: Callable[[int, R], None]) -> None:
        """Do all parts of a job, and call `finished` as each ends."""
        with running_engine(self.address, self.n_jobs) as n_workers:
            for number, result in results_of(job, parts, n_workers, ordered=False):
                finished(number, result)


def results_of(
    job: Job[P, R], parts: Sequence[P], n_workers: int, *, ordered: bool = True, tries: int = TRIES
) -> Iterator[tuple[int, R]]:
    """Do parts of a job on the workers of the connected engine, and yield each part's number and result, once.

    They come in the order of the parts if `ordered`, else as each ends. At most `n_workers` actors are started, each of
    one thread. One that dies with its worker or its machine is started elsewhere as often as it takes, and its parts
    are done again: Ray Data's own rule for actors. Where there is no room for it, it waits for another to be through;
    so the pool may shrink to one. A part is begun at most `tries` times. The first error that a part raises is raised
    here, and the others are stopped. Raises StorageError if a part kills its workers; or if results are missing or come
    twice, which would be Ray's fault.
    """
    ray, data = load_ray(), load_ray_data()
    counting = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(_AttemptCounter)
    n_actors = min(n_workers, len(parts))
    rows = [{"number": number, "part": ray.cloudpickle.dumps(part)} for number, part in enumerate(parts)]
    done = data.from_items(rows, override_num_blocks=min(len(rows), MOST_BLOCKS)).map_batches(
        _PartWorker,
        fn_constructor_args=([ray.put(job)], counting.remote(), tries),
        batch_size=1,
        batch_format="numpy",
        compute=data.ActorPoolStrategy(
            min_size=1, max_size=n_actors, initial_size=n_actors, max_tasks_in_flight_per_actor=AHEAD
        ),
        num_cpus=1,
    )
    done.context.execution_options.preserve_order = ordered
    waited_for = dict.fromkeys(range(len(parts)))

    for batch in done.iter_batches(batch_size=None, batch_format="numpy", prefetch_batches=0):
        for number, sent in zip(batch["number"].tolist(), batch["result"], strict=True):
            if number not in waited_for or (ordered and number != next(iter(waited_for))):
                raise StorageError(f"Part {number} of the job came twice or out of turn. Run the same command again.")
            del waited_for[number]
            result, error, trace = ray.cloudpickle.loads(sent)
            if error is not None:
                error.add_note(f"In a worker:\n{trace}")
                raise error
            yield number, result

    if waited_for:
        raise StorageError(
            f"Of {count_of(len(parts), 'part')} of the job, {len(waited_for):,} were not done. Run the same command "
            "again."
        )


class _PartWorker:
    """What an actor runs. It begins with its first part, so that errors of that come back as those of parts do."""

    def __init__(self, job: list[object], begun: Any, tries: int) -> None:
        self._ref, self._begun, self._tries = job, begun, tries
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
        job: Job[object, object] = self._job or ray.get(self._ref[0])
        self._job, part = job, ray.cloudpickle.loads(pickled)
        if ray.get(self._begun.begin.remote(number)) > self._tries:
            raise StorageError(
                f"Workers died {self._tries} times while they were at {job.name_of(part)}.",
                advice="They may have run out of memory, or a file breaks the program: run it without Ray to see.",
            )
        if self._work is None:
            self._work = job.begin(Team(1), SILENT)
        return self._work(part)


class _AttemptCounter:
    """How often each part was begun; forgotten with its machine, which only allows some more tries."""

    def __init__(self) -> None:
        self._times: Counter[int] = Counter()

    def begin(self, number: int) -> int:
        """Count one more time."""
        self._times[number] += 1
        return self._times[number]


def pickled_error(error: Exception) -> bytes:
    """Pickle an error in place of a result, with its traceback; of one that cannot be pickled, only its text."""
    pickler, trace = load_ray().cloudpickle, "".join(traceback.format_exception(error))
    try:
        sent: bytes = pickler.dumps((None, error, trace))
        pickler.loads(sent)
    except Exception:
        sent = pickler.dumps((None, RuntimeError(f"{type(error).__name__}: {error}"), trace))
    return sent


@contextmanager
def running_engine(address: str, n_jobs: int | None = None) -> Iterator[int]:
    """Reach the engine at an address, or start one here ("local"), and yield how many workers it has.

    "auto" and "HOST:PORT" reach an engine that was started with ``ray start``. It has at most `n_jobs` workers; None:
    one for each processor. In the end it is disconnected; what this process is connected to already is used and left as
    it is. Raises MissingExtraError if Ray is not installed; UserError if there is no engine at the address.
    """
    ray = load_ray()
    connects = not ray.is_initialized()

    def logged(data: Mapping[str, Iterable[str]], **_: object) -> None:
        logging.getLogger(__name__).info("%s", "\n".join(data["lines"]))

    # What Ray itself prints when a worker or a machine is lost goes to the log: standard output is for results.
    # `log_to_driver` does not do that: it is about what workers print.
    ray._private.worker.print_to_stdstream = logged
    if connects:
        _connect(ray, address, n_jobs)
    try:
        n_cpus = int(ray.cluster_resources().get("CPU", 0))
        if n_cpus < 1:
            advice = "Start its nodes with some: ray start --num-cpus N"
            raise UserError(f"The Ray engine at '{address}' has no free processor.", setting="ray", advice=advice)
        yield n_cpus if n_jobs in (None, -1) else min(n_cpus, resolve_jobs(n_jobs))
    finally:
        if connects:
            ray.shutdown()


def load_ray() -> Any:
    """Import Ray, set to be quiet and to send nothing home; raise `MissingExtraError` if it is not installed."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # its core writes to our standard error
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError(MISSING) from error
    return ray


def load_ray_data() -> Any:
    """Import Ray Data, set to draw nothing and to log errors only."""
    import ray.data

    logging.getLogger("ray.data").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"`use_\w+` is deprecated", DeprecationWarning)  # which it uses itself
        context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    return ray.data


def _connect(ray: ModuleType, address: str, n_jobs: int | None) -> None:
    """Reach the engine at an address, or start one."""
    shared = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address == LOCAL:
        limits = {"num_cpus": resolve_jobs(n_jobs), "object_store_memory": OBJECT_STORE, "include_dashboard": False}
        with _silenced_errors():
            ray.init("local", **limits, **shared)
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        if host and port.isdigit():  # where nothing listens, Ray itself would go on trying for many minutes
            socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE).close()
        with _silenced_errors():
            ray.init(address, **shared)
    except (OSError, ValueError, RuntimeError) as error:
        raise UserError(
            f"There is no Ray engine at '{address}' ({str(error).splitlines()[0]}).", setting="ray", value=address,
            advice=f"Start one with 'ray start --head' and pass its HOST:PORT, or '{LOCAL}' to use this machine alone.",
        ) from error  # fmt: skip


@contextmanager
def _silenced_errors() -> Iterator[None]:
    """Hide what Ray's core writes to standard error as it starts; errors are raised."""
    standard_error, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(standard_error, 2)
        os.close(standard_error)
        os.close(nowhere)
