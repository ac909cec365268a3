"""Runs, jobs and history of a catalogue, and the tags that were written into files."""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self, TypeVar

from visterm.core.errors import CorruptFileError
from visterm.core.progress import SILENT, Progress
from visterm.core.system import is_alive
from visterm.core.wording import json_text
from visterm.store.database import WHO, CatalogueTable, as_text, now
from visterm.store.tags import Tags

T = TypeVar("T")

SHORT_FINGERPRINT_LENGTH = 12  # Length of abbreviated fingerprints of runs, for people
JOB_COLUMNS = "id, kind, state, done, total, message, started, finished, error, pid, host"
WRITTEN = "SELECT image_id, tags.name, target, at FROM written_tags JOIN tags ON tags.id = tag_id"
PROGRESS_SECONDS = 0.5  # Time between two updates of the stored progress of a job
UNFINISHED_STATES = "('waiting', 'running', 'cancelling')"

_JOBS_OF_THIS_PROCESS: set[tuple[str, int]] = set()
"""(Catalogue, job id) of the jobs of this process; other jobs with its pid belong to a previous process."""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run that a catalogue knows."""

    id: int
    fingerprint: str  # Of encoder and model: only rows with the same fingerprint are comparable
    encoder_fingerprint: str
    folder: str  # Original folder of the run; empty if it was never saved
    rows_of: int  # Id of the run whose image rows it uses: its own, or those of an earlier run with the same rows
    added: str  # UTC
    facts: dict[str, Any]  # Figures for display: counts, validation results, cut-offs
    current: bool  # Whether it is the run that searches use


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
        """Store a run, and return its id; a run that is already stored keeps its id and gets the new facts."""
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
        """Return the run that searches use. Raises CorruptFileError if no run is current."""
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
        return [StoredRun(*[*columns, json.loads(facts), bool(current)]) for *columns, facts, current in rows]


@dataclass(frozen=True, slots=True)
class StoredJob:
    """The state of a job of a catalogue, such as "index" or "fit"."""

    id: int
    kind: str
    state: str  # "waiting", "running", "cancelling", "done", "failed", "cancelled" or "lost" (its process was killed)
    done: int
    total: int | None  # None while unknown
    message: str  # Current step, or the result
    # UTC
    started: str
    finished: str | None
    error: str | None
    pid: int
    host: str

    @property
    def ended(self) -> bool:
        """Whether the job has ended."""
        return self.state not in ("waiting", "running", "cancelling")


class Jobs(CatalogueTable):
    """The table of jobs. The code that runs a job checks `is_cancelled` regularly."""

    @cached_property
    def _catalogue_key(self) -> str:
        """A text that identifies this catalogue in this process."""
        return os.path.realpath(self._database.path) if self._database.path else uuid.uuid4().hex

    def start(self, kind: str, *, waiting: bool = False, pid: int | None = None) -> int:
        """Store a new job of the process `pid` (None: this process), and return the job's id."""
        job_id = self._database.insert(
            "INSERT INTO jobs (kind, state, started, pid, host) VALUES (?, ?, ?, ?, ?)",
            (kind, "waiting" if waiting else "running", now(), pid or os.getpid(), socket.gethostname()),
        )
        if pid is None:
            self.adopt(job_id)
        return job_id

    def adopt(self, job_id: int) -> None:
        """Record that this process runs a stored job, even if another process with the same pid stored it."""
        _JOBS_OF_THIS_PROCESS.add((self._catalogue_key, job_id))

    def n_open(self, pid: int) -> int:
        """Count the unfinished jobs of a process on this host."""
        statement = f"SELECT count(*) FROM jobs WHERE state IN {UNFINISHED_STATES} AND pid = ? AND host = ?"
        return int(self._database.value(statement, (pid, socket.gethostname())))

    def existing(self, job_id: int) -> StoredJob:
        """Return a job, which must exist."""
        job = self.get(job_id)
        assert job is not None
        return job

    def run(self, job_id: int) -> None:
        """Set a waiting job to "running"."""
        self._database.write("UPDATE jobs SET state = 'running' WHERE id = ? AND state = 'waiting'", (job_id,))

    def progress(self, job_id: int, done: int, total: int | None) -> None:
        """Store the progress of a job; a `total` of None is unknown."""
        self._database.write("UPDATE jobs SET done = ?, total = ? WHERE id = ?", (done, total, job_id))

    def finish(self, job_id: int, *, error: str | None = None, message: str | None = None) -> None:
        """End a job: "failed" with an error, "cancelled" after a request to cancel, else "done"."""
        self._database.write(
            "UPDATE jobs SET state = CASE WHEN ?1 IS NOT NULL THEN 'failed' WHEN state = 'cancelling' THEN 'cancelled' "
            "ELSE 'done' END, error = CAST(?1 AS TEXT), message = coalesce(CAST(? AS TEXT), message), finished = ? "
            "WHERE id = ? AND finished IS NULL",
            (*(None if text is None else as_text(text) for text in (error, message)), now(), job_id),
        )

    def cancel(self, job_id: int) -> bool:
        """Ask a running job to stop, or cancel a waiting job. Return whether the job was unfinished."""
        n_changed = self._database.write(
            "UPDATE jobs SET finished = CASE state WHEN 'waiting' THEN ? END, "
            "state = CASE state WHEN 'waiting' THEN 'cancelled' ELSE 'cancelling' END "
            f"WHERE id = ? AND state IN {UNFINISHED_STATES}",
            (now(), job_id),
        )
        return n_changed > 0

    def is_cancelled(self, job_id: int) -> bool:
        """Return whether a job was cancelled."""
        return self._database.value("SELECT state FROM jobs WHERE id = ?", (job_id,)) in ("cancelling", "cancelled")

    def get(self, job_id: int) -> StoredJob | None:
        """Return one job; None if the id is unknown."""
        return next(iter(self._records(StoredJob, f"SELECT {JOB_COLUMNS} FROM jobs WHERE id = ?", (job_id,))), None)

    def latest(self, limit: int = 50, *, before: int | None = None) -> list[StoredJob]:
        """List jobs, newest first; `before` is the last id of the previous page."""
        statement = f"SELECT {JOB_COLUMNS} FROM jobs WHERE id < coalesce(?, id + 1) ORDER BY id DESC LIMIT ?"
        return self._records(StoredJob, statement, (before, limit))

    def mark_lost(self) -> list[int]:
        """Mark unfinished jobs on this host whose process has ended as "lost", and return their ids.

        Pids are reused: a service in a container has pid 1 after each start.
        """
        statement = f"SELECT id, pid FROM jobs WHERE state IN {UNFINISHED_STATES} AND host = ?"
        lost_ids = [
            job_id
            for job_id, pid in self._database.rows(statement, (socket.gethostname(),))
            if not is_alive(pid) or (pid == os.getpid() and (self._catalogue_key, job_id) not in _JOBS_OF_THIS_PROCESS)
        ]
        self._database.write_many(
            "UPDATE jobs SET state = 'lost', finished = ?, error = 'its process was killed' WHERE id = ?",
            [(now(), job_id) for job_id in lost_ids],
        )
        return lost_ids


class CatalogueJob:
    """A running job, used in a ``with`` statement; an exception inside marks the job as failed.

    `kind` is "index", "fit", ...; `job_id` is the id of a stored job; None creates a job. Set `message` to the result
    of the job. The job is also cancelled when `stop` returns True.
    """

    def __init__(self, jobs: Jobs, kind: str, job_id: int | None, stop: Callable[[], bool] = lambda: False) -> None:
        self._jobs, self._kind, self._job_id, self._stop = jobs, kind, job_id, stop
        self.id = -1
        self.message: str | None = None

    def __enter__(self) -> Self:
        self._jobs.mark_lost()
        self.id = self._jobs.start(self._kind) if self._job_id is None else self._job_id
        self._jobs.run(self.id)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        reason = None if error is None else str(error) or type(error).__name__
        self._jobs.finish(self.id, error=reason, message=self.message)

    @property
    def cancelled(self) -> bool:
        """Whether the job was cancelled; cancels it first if `stop` returns True."""
        if self._stop():
            self._jobs.cancel(self.id)
        return self._jobs.is_cancelled(self.id)

    def chunks(self, items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
        """Yield items chunk by chunk, until the job is cancelled."""
        for start in range(0, len(items), size):
            if self.cancelled:
                return
            yield items[start : start + size]


class StoredProgress(Progress):
    """Progress of a job, stored in the catalogue every `PROGRESS_SECONDS`, and forwarded to `target`."""

    def __init__(self, jobs: Jobs, job_id: int, target: Progress = SILENT) -> None:
        super().__init__(target)
        self._jobs, self._job_id = jobs, job_id
        self._done, self._stored_at = 0, 0.0
        self._total: int | None = None

    def start(self, task: str, total: int | None = None) -> None:
        """Start a task."""
        super().start(task, total)
        self._done, self._total = 0, total

    def advance(self, steps: int = 1, note: str = "") -> None:
        """Count steps."""
        super().advance(steps, note)
        self._done += steps
        if time.monotonic() - self._stored_at > PROGRESS_SECONDS:
            self._stored_at = time.monotonic()
            self._jobs.progress(self._job_id, self._done, self._total)

    def finish(self) -> None:
        """Store the last steps."""
        super().finish()
        self._jobs.progress(self._job_id, self._done, self._total)


class Event(NamedTuple):
    """An entry of the history: what was done, and its details."""

    id: int
    at: str
    what: str
    details: dict[str, Any]


class History(CatalogueTable):
    """The table of events of a catalogue."""

    def note(self, what: str, **details: object) -> int:
        """Add an entry, with who did it if that is known, and return its id."""
        details |= {"who": WHO.get()} if WHO.get() else {}
        return self._database.insert(
            "INSERT INTO history (at, what, details) VALUES (?, ?, ?)", (now(), what, json_text(details))
        )

    def get(self, number: int) -> Event | None:
        """Return one entry; None if the id is unknown."""
        return next(iter(self._select("WHERE id = ?", number)), None)

    def details_of(self, what: str) -> list[dict[str, Any]]:
        """Return the details of all entries of one kind, oldest first."""
        return [event.details for event in self.of(what)]

    def of(self, *kinds: str) -> list[Event]:
        """List all entries of the given kinds, oldest first."""
        return self._select("WHERE what IN (SELECT value FROM json_each(?)) ORDER BY id", json_text(kinds))

    def latest(self, limit: int = 50) -> list[Event]:
        """List the latest entries, newest first."""
        return self._select("ORDER BY id DESC LIMIT ?", limit)

    def _select(self, clauses: str, *values: object) -> list[Event]:
        rows = self._database.rows(f"SELECT id, at, what, details FROM history {clauses}", values)
        return [Event(event_id, at, what, json.loads(details)) for event_id, at, what, details in rows]


class WrittenTag(NamedTuple):
    """A tag that was written into a file of kind `target` ("xmp", "embedded", "txt", ...)."""

    image_id: int
    tag: str
    target: str
    at: str


@dataclass(eq=False)
class WrittenTags(CatalogueTable):
    """The table of tags that were written into files; visterm can remove these tags from the files."""

    _tags: Tags

    def note(self, target: str, written: Iterable[tuple[int, str]]) -> None:
        """Record tags that were written into files of kind `target`, as (image id, tag)."""
        pairs = list(written)
        with self._database.transaction() as connection:
            ids = self._tags.ids((tag for _, tag in pairs), create=True)
            connection.executemany(
                "INSERT INTO written_tags (target, image_id, tag_id, at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
                ((target, image_id, ids[tag], now()) for image_id, tag in pairs),
            )

    def forget(self, target: str, written: Iterable[tuple[int, str]]) -> None:
        """Delete the records of tags that were removed from files."""
        pairs = list(written)
        ids = self._tags.ids(tag for _, tag in pairs)
        self._database.write_many(
            "DELETE FROM written_tags WHERE target = ? AND image_id = ? AND tag_id = ?",
            [(target, image_id, ids[tag]) for image_id, tag in pairs if tag in ids],
        )

    def of_target(self, target: str) -> list[WrittenTag]:
        """List the tags that were written into files of kind `target`, by image and tag."""
        return self._records(WrittenTag, f"{WRITTEN} WHERE target = ? ORDER BY image_id, tags.name", (target,))

    def of_image(self, image_id: int) -> list[WrittenTag]:
        """List the tags that were written into an image's files, by kind of file and tag."""
        return self._records(WrittenTag, f"{WRITTEN} WHERE image_id = ? ORDER BY target, tags.name", (image_id,))

    def former_paths(self, target: str) -> list[tuple[str, int]]:
        """List former path and id of the photos that were moved or deleted after tags were written into their files."""
        return self._database.rows(
            "SELECT path, image_id FROM left_places WHERE target = ?1 UNION SELECT path, image_id FROM written_tags "
            "JOIN images ON images.id = image_id "
            "WHERE target = ?1 AND state = 'gone' AND path IS NOT NULL ORDER BY path",
            (target,),
        )

    def forget_former_paths(self, target: str, paths: Iterable[str]) -> None:
        """Delete paths that `elsewhere` lists, whose files have no written tags any more."""
        values = [(target, as_text(path)) for path in paths]
        for statement in (
            "DELETE FROM left_places WHERE target = ? AND path = CAST(? AS TEXT)",
            "DELETE FROM written_tags WHERE target = ? AND image_id IN "
            "(SELECT id FROM images WHERE state = 'gone' AND path = CAST(? AS TEXT))",
        ):
            self._database.write_many(statement, values)
