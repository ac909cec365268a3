"""Pieces of a job, worked on by Ray Data's actors: each result comes once and in order, whichever machines are lost."""

from __future__ import annotations

import logging
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from visterm.cluster.engine import load_ray
from visterm.core.errors import StorageError
from visterm.core.executor import Job
from visterm.core.progress import SILENT
from visterm.core.threads import Team
from visterm.core.wording import count_of

P = TypeVar("P")
R = TypeVar("R")

MOST_BLOCKS = 20_000
"""Tasks that a job is split into, at most: of more pieces several go together, as each takes Ray a moment."""

AHEAD = 2  # Tasks that wait for or are with an actor: it never waits for the next, and few are bound to one that dies
TRIES = 5  # How often a piece is begun: one that kills its workers would otherwise be tried for ever


class _Failed:
    """An error of a worker on its way here, with its traceback."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.traceback = "".join(traceback.format_exception(error))


class _Worker:
    """What an actor runs. It begins with its first piece, so that errors of that come back as those of pieces do."""

    def __init__(self, job: list[Any], begun: Any, tries: int) -> None:
        self._ref, self._begun, self._tries = job, begun, tries
        self._job: Any = None
        self._work: Callable[[Any], Any] | None = None

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        pickler = load_ray().cloudpickle
        results = np.empty(len(batch["piece"]), object)
        for place, (number, piece) in enumerate(zip(batch["number"].tolist(), batch["piece"], strict=True)):
            results[place] = _sent(self._done(number, piece), pickler)
        return {"number": batch["number"], "result": results}

    def _done(self, number: int, pickled: bytes) -> Any:
        """Return the result of a piece, or its error."""
        ray = load_ray()
        try:
            if self._job is None:
                self._job = ray.get(self._ref[0])
            piece = ray.cloudpickle.loads(pickled)
            if ray.get(self._begun.begin.remote(number)) > self._tries:
                raise StorageError(
                    f"Workers died {self._tries} times while they were at {self._job.name_of(piece)}. They may have "
                    "run out of memory, or a file breaks the program: leave out --ray to see."
                )
            if self._work is None:
                self._work = self._job.begin(Team(1), SILENT)
            return self._work(piece)
        except Exception as error:
            return _Failed(error)


class _Begun:
    """How often each piece was begun; forgotten with its machine, which only allows some more tries."""

    def __init__(self) -> None:
        self._times: Counter[int] = Counter()

    def begin(self, number: int) -> int:
        """Count one more time."""
        self._times[number] += 1
        return self._times[number]


def in_order(job: Job[P, R], pieces: Sequence[P], n_workers: int, *, tries: int = TRIES) -> Iterator[R]:
    """Do pieces of a job on the workers of the connected engine, and yield their results in the order of the pieces.

    At most `n_workers` actors are started, each of one thread. One that dies with its worker or its machine is started
    elsewhere as often as it takes, and its pieces are done again: Ray Data's own rule for actors. Where there is no
    room for it, it waits for another to be through; so the pool may shrink to one. A piece is begun at most `tries`
    times. The first error that a piece raises is raised here. Raises StorageError if a piece kills its workers; or if
    results are missing or come twice, which would be Ray's fault.
    """
    ray = load_ray()
    data = _quiet_data()
    counting = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(_Begun)
    n_actors = min(n_workers, len(pieces))
    rows = [{"number": number, "piece": ray.cloudpickle.dumps(piece)} for number, piece in enumerate(pieces)]
    done = data.from_items(rows, override_num_blocks=min(len(rows), MOST_BLOCKS)).map_batches(
        _Worker,
        fn_constructor_args=([ray.put(job)], counting.remote(), tries),
        batch_size=1,
        batch_format="numpy",
        compute=data.ActorPoolStrategy(
            min_size=1, max_size=n_actors, initial_size=n_actors, max_tasks_in_flight_per_actor=AHEAD
        ),
        num_cpus=1,
    )
    done.context.execution_options.preserve_order = True
    n_done = 0
    for row in done.iter_rows():
        if row["number"] != n_done:
            raise StorageError(f"Piece {row['number']} of the job came out of turn. Run the same command again.")
        result = ray.cloudpickle.loads(row["result"])
        if isinstance(result, _Failed):
            result.error.add_note(f"In a worker:\n{result.traceback}")
            raise result.error
        yield result
        n_done += 1
    if n_done != len(pieces):
        raise StorageError(
            f"Of {count_of(len(pieces), 'piece')} of the job, {n_done:,} were done. Run the same command again."
        )


def _sent(result: Any, pickler: Any) -> bytes:
    """Pickle a result; of an error that cannot be pickled, only its text."""
    sent: bytes
    try:
        sent = pickler.dumps(result)
        if isinstance(result, _Failed):
            pickler.loads(sent)
    except Exception:
        if not isinstance(result, _Failed):
            raise
        result.error = RuntimeError(f"{type(result.error).__name__}: {result.error}")
        sent = pickler.dumps(result)
    return sent


def _quiet_data() -> Any:
    """Import Ray Data, set to draw nothing and to log errors only."""
    import ray.data

    logging.getLogger("ray.data").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"`use_\w+` is deprecated", DeprecationWarning)  # which it uses itself
        context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    return ray.data
