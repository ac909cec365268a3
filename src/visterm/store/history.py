"""What was done to a catalogue: its runs, the jobs that work at it, its history, and the tags in files."""

from __future__ import annotations

import json
import os
import socket
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from visterm.core.errors import CorruptFileError
from visterm.core.system import is_alive
from visterm.core.wording import json_text
from visterm.store.database import CatalogueTable, as_text, now
from visterm.store.tags import Tags

T = TypeVar("T")

SHORT = 12  # Letters of a run's fingerprint that people see and type
JOB_COLUMNS = "id, kind, state, done, total, message, started, finished, error, pid, host"
WRITTEN = "SELECT image_id, tags.name, target, at FROM written_tags JOIN tags ON tags.id = tag_id"
OPEN = "('waiting', 'running', 'cancelling')"

_STARTED_HERE: set[tuple[str, int]] = set()
"""Jobs that this process wrote down or runs, by catalogue: others with its number are of an earlier process."""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """One run of a catalogue."""

    id: int
    fingerprint: str  # Of encoder and model together: rows of another cannot be compared with these
    encoder_fingerprint: str
    folder: str  # Where it was made; empty if it was never saved
    rows_of: int  # The run whose image rows serve this one: itself, or an earlier one of which only tag rows have moved
    added: str  # UTC
    facts: dict[str, Any]  # Whatever is to be shown of it: counts, validation figures, cut-offs
    current: bool  # The one that searches and answers now


class Runs(CatalogueTable):
    """The table of runs; `StoredCatalogue.use_run` changes the current one."""

    def add(
        self,
        fingerprint: str,
        encoder_fingerprint: str,
        *,
        folder: str = "",
        rows_of: int | None = None,
        facts: Mapping[str, object] | None = None,
    ) -> int:
        """Write down a run, and return its id; one that is known keeps its id, and takes the new facts."""
        with self._database.transaction() as connection:
            rows = connection.execute(
                "INSERT INTO runs (fingerprint, encoder_fingerprint, folder, rows_of, added, facts) "
                "VALUES (?, ?, CAST(? AS TEXT), ?, ?, ?) ON CONFLICT (fingerprint) DO UPDATE SET facts = "
                "CASE WHEN ? THEN excluded.facts ELSE facts END RETURNING id",
                (
                    fingerprint, encoder_fingerprint, as_text(folder), rows_of, now(), json_text(facts or {}),
                    facts is not None,
                ),
            ).fetchall()  # fmt: skip
        return int(rows[0][0])

    def current(self) -> StoredRun:
        """Return the run that searches. Raises CorruptFileError if the database names none."""
        for run in self._select("WHERE current = 1"):
            return run
        raise CorruptFileError(f"{self._database.path} names no current run. Index the images again.")

    def all(self) -> list[StoredRun]:
        """List the runs, oldest first."""
        return self._select("ORDER BY id")

    def _select(self, where: str) -> list[StoredRun]:
        rows = self._database.rows(
            "SELECT id, fingerprint, encoder_fingerprint, folder, coalesce(rows_of, id), added, facts, current "
            f"FROM runs {where}"
        )
        return [StoredRun(*[*known, json.loads(facts), bool(current)]) for *known, facts, current in rows]


@dataclass(frozen=True, slots=True)
class StoredJob:
    """One job: "index", "fit", ..."""

    id: int
    kind: str
    state: str  # "waiting", "running", "cancelling", "done", "failed", "cancelled" or "lost" (its process was killed)
    done: int
    total: int | None  # None while it is not known
    message: str  # What it is at, or what came of it
    # UTC
    started: str
    finished: str | None
    error: str | None
    pid: int
    host: str

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self.state not in ("waiting", "running", "cancelling")


class Jobs(CatalogueTable):
    """The table of jobs. Whoever works at one checks `is_cancelled` now and then."""

    @cached_property
    def _place(self) -> str:
        """What tells this catalogue from others, in this process."""
        return os.path.realpath(self._database.path) if self._database.path else uuid.uuid4().hex

    def start(self, kind: str, *, waiting: bool = False, pid: int | None = None) -> int:
        """Write down a job of a process, None: this one, and return its id."""
        job_id = self._database.insert(
            "INSERT INTO jobs (kind, state, started, pid, host) VALUES (?, ?, ?, ?, ?)",
            (kind, "waiting" if waiting else "running", now(), pid or os.getpid(), socket.gethostname()),
        )
        if pid is None:
            self.adopt(job_id)
        return job_id

    def adopt(self, job_id: int) -> None:
        """Note that this process runs a job that has its number, whichever process wrote it down."""
        _STARTED_HERE.add((self._place, job_id))

    def n_open(self, pid: int) -> int:
        """Return how many jobs of a process on this host run or wait."""
        statement = f"SELECT count(*) FROM jobs WHERE state IN {OPEN} AND pid = ? AND host = ?"
        return int(self._database.value(statement, (pid, socket.gethostname())))

    def existing(self, job_id: int) -> StoredJob:
        """Return a job that exists."""
        job = self.get(job_id)
        assert job is not None
        return job

    def run(self, job_id: int) -> None:
        """Note that a waiting job has begun."""
        self._database.write("UPDATE jobs SET state = 'running' WHERE id = ? AND state = 'waiting'", (job_id,))

    def progress(self, job_id: int, done: int, total: int | None = None, message: str | None = None) -> None:
        """Note how far a job is; what is None stays as it was."""
        self._database.write(
            "UPDATE jobs SET done = ?, total = coalesce(?, total), message = coalesce(CAST(? AS TEXT), message) "
            "WHERE id = ?",
            (done, total, None if message is None else as_text(message), job_id),
        )

    def finish(self, job_id: int, *, error: str | None = None, message: str | None = None) -> None:
        """Note that a job has ended: failed if there is an error, cancelled if someone asked for that, else done."""
        self._database.write(
            "UPDATE jobs SET state = CASE WHEN ?1 IS NOT NULL THEN 'failed' WHEN state = 'cancelling' THEN 'cancelled' "
            "ELSE 'done' END, error = CAST(?1 AS TEXT), message = coalesce(CAST(? AS TEXT), message), finished = ? "
            "WHERE id = ? AND finished IS NULL",
            (*(None if text is None else as_text(text) for text in (error, message)), now(), job_id),
        )

    def cancel(self, job_id: int) -> bool:
        """Ask a job to stop; one that waits is cancelled at once. Return whether there was anything to stop."""
        n_stopped = self._database.write(
            "UPDATE jobs SET finished = CASE state WHEN 'waiting' THEN ? END, "
            "state = CASE state WHEN 'waiting' THEN 'cancelled' ELSE 'cancelling' END "
            f"WHERE id = ? AND state IN {OPEN}",
            (now(), job_id),
        )
        return n_stopped > 0

    def is_cancelled(self, job_id: int) -> bool:
        """Return whether a job was cancelled."""
        return self._database.value("SELECT state FROM jobs WHERE id = ?", (job_id,)) in ("cancelling", "cancelled")

    def get(self, job_id: int) -> StoredJob | None:
        """Return one job; None where the id is not known."""
        return next(iter(self._records(StoredJob, f"SELECT {JOB_COLUMNS} FROM jobs WHERE id = ?", (job_id,))), None)

    def latest(self, limit: int = 50, *, before: int | None = None) -> list[StoredJob]:
        """List jobs, the newest first; `before` is the last id of the page before."""
        statement = f"SELECT {JOB_COLUMNS} FROM jobs WHERE id < coalesce(?, id + 1) ORDER BY id DESC LIMIT ?"
        return self._records(StoredJob, statement, (before, limit))

    def mark_lost(self) -> list[int]:
        """Mark jobs whose process on this host is gone as lost, and return their ids.

        A process number comes again: a service in a container is number 1 after each start.
        """
        statement = f"SELECT id, pid FROM jobs WHERE state IN {OPEN} AND host = ?"
        lost = [
            job_id
            for job_id, pid in self._database.rows(statement, (socket.gethostname(),))
            if not is_alive(pid) or (pid == os.getpid() and (self._place, job_id) not in _STARTED_HERE)
        ]
        self._database.write_many(
            "UPDATE jobs SET state = 'lost', finished = ?, error = 'its process was killed' WHERE id = ?",
            [(now(), job_id) for job_id in lost],
        )
        return lost


class CatalogueJob:
    """A job of a catalogue while it goes on, to be used in a ``with`` statement; it fails where that ends by an error.

    `kind` is "index", "fit", ...; `job_id` is a job that was written down already, None a new one. `message` says what
    came of it. The job is cancelled, too, once `stop` returns True.
    """

    def __init__(self, jobs: Jobs, kind: str, job_id: int | None, stop: Callable[[], bool] = lambda: False) -> None:
        self._jobs, self._kind, self._given, self._stop = jobs, kind, job_id, stop
        self.id = -1
        self.message: str | None = None

    def __enter__(self) -> Self:
        self._jobs.mark_lost()
        self.id = self._jobs.start(self._kind) if self._given is None else self._given
        self._jobs.run(self.id)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        reason = None if error is None else str(error) or type(error).__name__
        self._jobs.finish(self.id, error=reason, message=self.message)

    @property
    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        if self._stop():
            self._jobs.cancel(self.id)
        return self._jobs.is_cancelled(self.id)

    def chunks(self, items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
        """Yield items chunk by chunk, until the job is cancelled."""
        for start in range(0, len(items), size):
            if self.cancelled:
                return
            yield items[start : start + size]

    def advance(self, done: int, total: int) -> None:
        """Write down how far it is."""
        self._jobs.progress(self.id, done, total)


class Event(NamedTuple):
    """One entry of the history: what was done, and whatever belongs to it."""

    id: int
    at: str
    what: str
    details: dict[str, Any]


class History(CatalogueTable):
    """The table of what was done to a catalogue."""

    def note(self, what: str, **details: object) -> int:
        """Write down what was done, and return the number of the entry."""
        return self._database.insert(
            "INSERT INTO history (at, what, details) VALUES (?, ?, ?)", (now(), what, json_text(details))
        )

    def get(self, number: int) -> Event | None:
        """Return one entry; None if there is none of this number."""
        return next(iter(self._select("WHERE id = ?", number)), None)

    def details_of(self, what: str) -> list[dict[str, Any]]:
        """Return the details of all entries of a kind, the oldest first."""
        return [event.details for event in self.of(what)]

    def of(self, *kinds: str) -> list[Event]:
        """List all entries of some kinds, the oldest first."""
        return self._select("WHERE what IN (SELECT value FROM json_each(?)) ORDER BY id", json_text(kinds))

    def latest(self, limit: int = 50) -> list[Event]:
        """List what was done, the newest first."""
        return self._select("ORDER BY id DESC LIMIT ?", limit)

    def _select(self, which: str, *values: object) -> list[Event]:
        rows = self._database.rows(f"SELECT id, at, what, details FROM history {which}", values)
        return [Event(event_id, at, what, json.loads(details)) for event_id, at, what, details in rows]


class WrittenTag(NamedTuple):
    """A tag that was written back into a file: `target` says which ("xmp", "embedded", "txt", ...)."""

    image_id: int
    tag: str
    target: str
    at: str


@dataclass(eq=False)
class WrittenTags(CatalogueTable):
    """The table of tags that were written into files, so that they can be taken back."""

    _tags: Tags

    def note(self, target: str, written: Iterable[tuple[int, str]]) -> None:
        """Remember tags that were written into files of one kind, pairs of an image's id and a tag."""
        pairs = list(written)
        with self._database.transaction() as connection:
            ids = self._tags.ids((tag for _, tag in pairs), create=True)
            connection.executemany(
                "INSERT INTO written_tags (target, image_id, tag_id, at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
                ((target, image_id, ids[tag], now()) for image_id, tag in pairs),
            )

    def forget(self, target: str, written: Iterable[tuple[int, str]]) -> None:
        """Forget tags that were taken back out of files."""
        pairs = list(written)
        ids = self._tags.ids(tag for _, tag in pairs)
        self._database.write_many(
            "DELETE FROM written_tags WHERE target = ? AND image_id = ? AND tag_id = ?",
            [(target, image_id, ids[tag]) for image_id, tag in pairs if tag in ids],
        )

    def of_target(self, target: str) -> list[WrittenTag]:
        """List the tags that were written into files of one kind, by image and tag."""
        return self._records(WrittenTag, f"{WRITTEN} WHERE target = ? ORDER BY image_id, tags.name", (target,))

    def of_image(self, image_id: int) -> list[WrittenTag]:
        """List the tags that were written into files of one image, by kind of file and tag."""
        return self._records(WrittenTag, f"{WRITTEN} WHERE image_id = ? ORDER BY target, tags.name", (image_id,))

    def elsewhere(self, target: str) -> list[tuple[str, int]]:
        """List where photos lay, with their ids, that moved or went after tags were written into their files."""
        return self._database.rows(
            "SELECT path, image_id FROM left_places WHERE target = ?1 UNION SELECT path, image_id FROM written_tags "
            "JOIN images ON images.id = image_id "
            "WHERE target = ?1 AND state = 'gone' AND path IS NOT NULL ORDER BY path",
            (target,),
        )

    def forget_elsewhere(self, target: str, paths: Iterable[str]) -> None:
        """Forget paths of `elsewhere` where nothing is left of what was written."""
        values = [(target, as_text(path)) for path in paths]
        for statement in (
            "DELETE FROM left_places WHERE target = ? AND path = CAST(? AS TEXT)",
            "DELETE FROM written_tags WHERE target = ? AND image_id IN "
            "(SELECT id FROM images WHERE state = 'gone' AND path = CAST(? AS TEXT))",
        ):
            self._database.write_many(statement, values)
