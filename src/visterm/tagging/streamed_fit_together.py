"""Ranking models learn in several processes: all train the same weights, each on shards of its own."""

from __future__ import annotations

import os
import secrets
import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Listener
from typing import Any, NamedTuple

from visterm.core.errors import UserError
from visterm.core.executor import Executor, Group, Member
from visterm.core.progress import SILENT, Progress
from visterm.core.tables import MODELS
from visterm.core.threads import one_blas_thread
from visterm.core.wording import first_or
from visterm.features.streaming.handed_over import HandedOver, take_part
from visterm.features.streaming.memory import Plan
from visterm.features.streaming.shards import Shards
from visterm.models.base import Annotator
from visterm.models.ranking.worker_sync import Exchange, LeftAloneError, MeetingPlace
from visterm.tagging.run import Run
from visterm.tagging.streamed_fit import fit_streamed


def check_learns_together(model: Annotator) -> None:
    """Refuse a model that several workers cannot train on features in shards.

    Raises UserError if so; it names those that they can.
    """
    if getattr(model, "learns_together", False):
        return
    known = {entry.name: MODELS.load(entry.name) for entry in MODELS if not entry.extra}
    able = [name for name, kind in known.items() if getattr(kind, "learns_together", False)]
    raise UserError(
        f"--ray needs another model than {MODELS.name_of(model)}: add --model {first_or(able)}, or leave --ray out."
    )


def stream_on_machines(
    tagger: Run,
    features: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    tags: Any,
    plan: Plan,
    *,
    executor: Executor,
    **how: Any,
) -> list[str]:
    """Fit a tagger on features on disk by the workers of an executor, one a processor; return remarks for the user.

    Each worker has shards of its own. The weights are those of one training: see `visterm.models.ranking.worker_sync`.
    Where a worker or a machine is lost, all begin again from the last checkpoint and end with the same bytes, on
    however few processors: a worker then stands for several.

    For `features`, `tags`, `plan` and `how` see `fit_streamed`; they, and the folder for files on the way, lie where
    all machines see them. The memory is that of a machine, which its workers share. Raises UserError if the model
    cannot, or the executor has no machines; StorageError if workers were lost again and again, or do not see the files.
    """
    check_learns_together(tagger.model)
    n_shards = len(Shards(features))
    if n_shards < 2 or executor.n_jobs == 1:
        why = "The features are one shard" if n_shards < 2 else "One worker was requested"
        return [*fit_streamed(tagger, features, tags, plan, **how), f"{why}: learned here, without Ray."]
    with executor.connect() as there:
        n_workers = min(there.n_workers, n_shards)
        on_one = -(-n_workers // there.n_machines)
        plan = plan._replace(memory=plan.memory // on_one)
        if n_workers < 2:
            lines = fit_streamed(tagger, features, tags, plan, **how)
            return [*lines, "The engine has one processor: learned here, without its workers."]
        return fit_streamed(tagger, features, tags, plan, workers=ExecutorWorkers(executor, n_workers), **how)


@dataclass(frozen=True)
class ExecutorWorkers:
    """Workers of an executor that is connected."""

    executor: Executor
    n_workers: int  # Parts that the shards are dealt into; as many processes, while there is room for them

    def train(self, model: Annotator, handed: HandedOver, progress: Progress) -> None:
        """Train a model, see `fit_streamed`."""
        unfitted = type(model)(**{**model.get_params(deep=False), "n_jobs": 1})
        work = SharedFit(unfitted, handed._replace(folder=handed.folder.absolute()), self.n_workers)
        self.executor.run_together(work, Group(self.n_workers, 1), handed.folder.absolute(), progress)


@dataclass(frozen=True)
class SharedFit:
    """What each process does."""

    model: Annotator  # Not fitted
    handed: HandedOver
    n_workers: int  # Who share the training, of whom a process stands for one or, after a loss, for several

    def __call__(self, member: Member, progress: Progress) -> list[dict[str, Any]]:
        """Train for the workers that this process stands for, each in a thread; return the history of the training."""
        own = range(member.rank, self.n_workers, member.size)
        meet, close = _meeting_place(member, self.n_workers)

        def train(rank: int) -> list[dict[str, Any]]:
            windows, valid, checkpoints = take_part(self.handed, rank, self.n_workers)
            model = type(self.model)(**self.model.get_params(deep=False))
            model.fit_stream(
                windows,
                valid=valid,
                checkpoints=checkpoints if rank == 0 else _ReadOnlyCheckpoints(checkpoints),
                monitor=progress if rank == 0 else SILENT,
                exchange=Exchange(rank, self.n_workers, meet) if self.n_workers > 1 else None,
            )
            return list(model.history_)

        # Held for all threads at once: they would let go of it one by one, while others still compute.
        with one_blas_thread(), ThreadPoolExecutor(len(own)) as pool:
            histories = []
            for done in as_completed([pool.submit(train, rank) for rank in own]):
                try:
                    histories.append(done.result())
                except BaseException:
                    close()
                    raise
        return histories[0]


class _ReadOnlyCheckpoints:
    """Checkpoints that another worker writes."""

    def __init__(self, checkpoints: Any) -> None:
        self.last = checkpoints.last

    def offer(self, make: Callable[[], Any]) -> None:
        """Leave it to the first worker."""

    keep = offer


def _meeting_place(member: Member, n_workers: int) -> tuple[Callable[[int, str, Any], Any], Callable[[], None]]:
    """Return the meeting and what ends it: in this process if it is the first, else over a line to the first."""
    place = MeetingPlace(n_workers)
    if member.size == 1:
        return place.meet, place.close
    line = member.broadcast(open_line(place, member.host) if member.rank == 0 else None)
    if member.rank == 0:
        return place.meet, place.close
    caller = Caller(Line(*line))
    return caller.meet, caller.close


class Line(NamedTuple):
    """Where a meeting place is, and the key that it asks for."""

    host: str
    port: int
    key: bytes


def open_line(place: MeetingPlace, host: str) -> Line:
    """Let workers of other processes come to a place of this one, until this process ends.

    A worker whose connection ends, as it does when its process is killed, closes the place. The others know this
    machine by the address `host`.
    """
    key = secrets.token_bytes(32)
    listener = Listener((host, 0), backlog=64, authkey=key)
    threading.Thread(target=_let_in, args=(listener, place), daemon=True).start()
    port: int = listener.address[1]  # type: ignore[assignment, unused-ignore]
    return Line(host, port, key)


class Caller:
    """The way of a process to the place of another: a connection for each of its threads."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._own = threading.local()

    def meet(self, rank: int, how: str, value: Any) -> Any:
        """Meet the others, see `MeetingPlace.meet`.

        Raises LeftAloneError if the place is closed, or its process has ended.
        """
        try:
            connection = self._connection()
            connection.send((rank, how, value))
            return connection.recv()
        except (EOFError, OSError) as error:
            raise LeftAloneError("The place where the workers meet is gone.") from error

    def close(self) -> None:
        """Close the place, for all: a connection that ends does so."""
        with suppress(OSError):  # it is gone already
            Client((self._line.host, self._line.port), authkey=self._line.key).close()

    def _connection(self) -> Any:
        if not hasattr(self._own, "connection"):
            self._own.connection = _at_once(Client((self._line.host, self._line.port), authkey=self._line.key))
        return self._own.connection


def _let_in(listener: Listener, place: MeetingPlace) -> None:
    while True:
        try:
            connection = _at_once(listener.accept())
        except (AuthenticationError, EOFError, ConnectionError):  # who does not know the key is no worker
            continue
        threading.Thread(target=_serve, args=(connection, place), daemon=True).start()


def _serve(connection: Any, place: MeetingPlace) -> None:
    try:
        while True:
            connection.send(place.meet(*connection.recv()))
    except (EOFError, OSError):
        place.close()
    except LeftAloneError:
        connection.close()


def _at_once(connection: Any) -> Any:
    """Send the end of a message without waiting for its beginning to be acknowledged, which takes 40 ms."""
    same = socket.socket(fileno=connection.fileno())
    same.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    same.detach()
    return connection
