"""The SQLite file of a catalogue: safe opening, migrations, one connection per thread and nested transactions."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import tempfile
import threading
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from visterm.core.errors import CorruptFileError, DiskError, InUseError, ReplacedError, StorageError
from visterm.core.persist import check_format
from visterm.core.remote import absolute
from visterm.core.writing import disk_error, find_write_error, whole_file, writing

APPLICATION_ID = int.from_bytes(b"vist", "big")  # SQLite stores it in the file: identifies a catalogue
FORMAT = 3  # Version of the tables, which SQLite stores in the file as ``user_version``


def _add_who(connection: sqlite3.Connection) -> None:
    for table in ("given", "feedback"):
        connection.execute(f"ALTER TABLE {table} ADD COLUMN who TEXT NOT NULL DEFAULT ''")


def _add_place(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE images ADD COLUMN place TEXT NOT NULL DEFAULT ''")


MIGRATIONS: dict[int, Callable[[sqlite3.Connection], None]] = {1: _add_who, 2: _add_place}
"""Format n -> the migration to format n + 1. Formats from the first of them on are opened; older ones are refused.

To change the tables, raise `FORMAT` by one, edit ``schema.sql``, and add a migration that converts the old tables and
keeps everything that people entered: tags, judgements, history. Never edit a released migration.
"""

TAG_TRIGGERS = tuple(
    f"CREATE TEMP TRIGGER {table}_{event}_{row} AFTER {event} ON main.{table} BEGIN INSERT INTO meta VALUES "
    f"({source.format(row)} || ' tags ' || {row}.tag_id, hex(randomblob(8))) "
    "ON CONFLICT DO UPDATE SET value = excluded.value; END"
    for table, source in (("given", "{}.source"), ("verdicts", "'person'"))
    for event, row in (("INSERT", "new"), ("UPDATE", "old"), ("UPDATE", "new"), ("DELETE", "old"))
)
"""Triggers of a connection, which change a value of a tag whenever a file or a person gives, judges or removes it."""

WHO: ContextVar[str] = ContextVar("who", default="")
"""Who gives the tags and verdicts that are stored; empty: not known."""

SYNCHRONOUS = "FULL"  # Committed changes survive a power failure
MAX_WAIT_SECONDS = 30.0  # Maximum time that a statement waits while another process writes
MAX_CACHED_RESULTS = 50_000  # Maximum number of cached results; a change of the database empties the cache
MAX_CACHED_BYTES = 2**26  # Maximum total size of the arrays in cached results
T = TypeVar("T")
Values: TypeAlias = Sequence[object]  # Values for the question marks of a statement


class Database:
    """A catalogue's tables, in a file or in memory (`path` None); with `new`, creates the file.

    For a file, each thread has its own connection, so reads continue while another thread or process writes. In memory,
    all threads share one connection. In a folder that is not writable, such as a snapshot, the file is opened
    read-only. Raises StorageError if the file does not exist or has a format that is not read; CorruptFileError if it
    is not a catalogue's database.
    """

    def __init__(self, path: Path | None = None, *, new: bool = False) -> None:
        self.path = path
        self._of_thread = threading.local()
        self._connections: list[sqlite3.Connection] = []
        # a connection refers to itself: left to the garbage collector, it would keep its files for any time
        weakref.finalize(self, _close_all, self._connections).atexit = False
        self._lock = threading.Lock()
        self._memory_lock: AbstractContextManager[object] = threading.RLock() if path is None else nullcontext()
        self._identity: list[tuple[int, ...] | None] = []
        self._cache: dict[Hashable, Any] = {}
        self._cached_bytes = 0
        self._snapshot: Path | None = None  # In a read-only folder: the file to read, the original or a copy
        self._is_read_only = False
        connection = self._connect()
        self._shared = connection if path is None else None
        self._of_thread.connection = connection
        if path is None or new:
            with self.transaction() as connection:
                _make_tables(connection)
            return

        pragmas = "SELECT application_id, user_version FROM pragma_application_id, pragma_user_version"
        [(marker, stored_format)] = self.rows(pragmas)
        if marker != APPLICATION_ID or stored_format < 1:
            raise CorruptFileError(
                f"{self.path} is not a catalogue's database: its application_id is {marker:#x} and its user_version "
                f"{stored_format}; expected {APPLICATION_ID:#x}, and 1 or more. Restore it from a backup, or index the "
                "images again into a new folder."
            )

        check_format(path, stored_format, FORMAT, MIGRATIONS)
        if stored_format < FORMAT:
            if self._snapshot or not os.access(path, os.W_OK) or not self._can_create_files():
                self.close()
                self._snapshot = self._temporary_copy()  # the copy is upgraded instead of the original
            self._upgrade()
        if self._snapshot is not None:
            self.close()
            self._is_read_only = True
            return
        for copy in path.parent.glob(f"{path.name}.format-*"):  # the upgrade that needed it has succeeded
            with suppress(OSError):
                copy.unlink()

    def _upgrade(self) -> None:
        """Upgrade the tables in one transaction, with a copy of the file until it is done; if that fails, raise."""
        with self.transaction() as connection:
            stored_format = int(self.value("PRAGMA user_version"))
            if stored_format >= FORMAT:
                return  # another process has just upgraded it
            if self._snapshot is None:
                self._copy_before(stored_format)
            for version in range(stored_format, FORMAT):
                MIGRATIONS[version](connection)

            if problems := self.check():
                advice = "It is unchanged: use it with the visterm that wrote it, or restore a backup."
                raise CorruptFileError(f"{self.path} cannot be upgraded: {problems[0]}. {advice}")
            connection.execute(f"PRAGMA user_version = {FORMAT}")

    def _copy_before(self, stored_format: int) -> None:
        """Copy the committed state of the file, through a connection that does not see the open transaction."""
        assert self.path is not None
        with whole_file(self.path.with_name(f"{self.path.name}.format-{stored_format}")) as part:
            part.unlink(missing_ok=True)
            with closing(sqlite3.connect(absolute(self.path))) as source, closing(sqlite3.connect(part)) as target:
                target.execute("PRAGMA journal_mode = OFF")
                source.backup(target)

    def check_in_place(self) -> None:
        """Check that the catalogue's files are still those that were opened; the first call records their identity.

        The files are the database and its write-ahead log (``-wal``), with the latest commits. Raises ReplacedError
        if they were removed or replaced, because further changes would be lost.
        """
        if self.path is None or not self._connections:
            return
        identity: list[tuple[int, ...] | None] = []  # Device and inode of each file; None if it is missing
        for file in (self.path, f"{self.path}-wal"):
            try:
                state = os.stat(file)
            except OSError:
                identity.append(None)
            else:
                content = () if self._snapshot is None else (state.st_size, state.st_mtime_ns)
                identity.append((state.st_dev, state.st_ino, *content))

        self._identity = self._identity or identity
        if identity != self._identity:
            change = "removed" if None in identity[: 1 if self._snapshot else 2] else "replaced by another"
            if self._snapshot is not None:
                raise ReplacedError(f"The catalogue {self.path.parent} was {change} or written to. Restart visterm.")
            raise ReplacedError(
                f"The catalogue {self.path.parent} was {change} while it was open, so nothing more is written to it: "
                "it would be lost. Restart visterm to use the catalogue that is there now; end visterm before you "
                "restore or remove a catalogue."
            )

    def rows(self, statement: str, values: Values = ()) -> list[Any]:
        """Run a SELECT statement, and return all its rows."""
        with self._connection() as connection:
            return connection.execute(statement, values).fetchall()

    def batches(self, statement: str, values: Values = (), size: int = 10_000) -> Iterator[list[Any]]:
        """Run a SELECT statement, and yield its rows in lists of up to `size`, so that not all are in memory."""
        with self._connection() as connection:
            cursor = connection.execute(statement, values)
            while batch := cursor.fetchmany(size):
                yield batch

    def value(self, statement: str, values: Values = ()) -> Any:
        """Run a SELECT statement, and return the first value of its first row, or None."""
        with self._connection() as connection:
            row = connection.execute(statement, values).fetchone()
        return None if row is None else row[0]

    def keep(self, key: Hashable, read: Callable[[], T]) -> T:
        """Return the cached result of `read` for a key; call `read` again after any thread or process has committed.

        Results belong to the state of the tables that this thread sees. Inside a transaction nothing is cached, because
        it may be rolled back.
        """
        with self._connection() as connection:
            if connection.in_transaction:
                return read()
            # `data_version` counts commits by other connections, `total_changes` those of this connection
            version = connection.execute("PRAGMA data_version").fetchone()[0], connection.total_changes

        with self._lock:
            is_full = len(self._cache) > MAX_CACHED_RESULTS or self._cached_bytes > MAX_CACHED_BYTES
            if is_full or getattr(self._of_thread, "seen", None) != version:
                self._of_thread.seen, self._cache, self._cached_bytes = version, {}, 0
            cache = self._cache

        if key in cache:
            cached: T = cache[key]
            return cached
        result = read()
        n_bytes = sum(getattr(part, "nbytes", 0) for part in (result if isinstance(result, tuple) else (result,)))
        if n_bytes < MAX_CACHED_BYTES // 4:
            cache[key] = result
            self._cached_bytes += n_bytes
        return result

    def write(self, statement: str, values: Values = ()) -> int:
        """Run a writing statement in a transaction, and return the number of rows it changed."""
        with self.transaction() as connection:
            return connection.execute(statement, values).rowcount

    def insert(self, statement: str, values: Values = ()) -> int:
        """Run an INSERT statement in a transaction, and return the id of the new row."""
        with self.transaction() as connection:
            return int(connection.execute(statement, values).lastrowid or 0)

    def write_many(self, statement: str, values: Iterable[Values]) -> None:
        """Run a writing statement once per item of `values`, in one transaction."""
        with self.transaction() as connection:
            connection.executemany(statement, values)

    @property
    def in_transaction(self) -> bool:
        """Whether the calling thread is inside a transaction."""
        with self._connection() as connection:
            return connection.in_transaction

    @contextmanager
    def transaction(self, *, writes: bool = True) -> Iterator[sqlite3.Connection]:
        """Run the block as one transaction, on disk when the block ends; inside another transaction, as part of it.

        Without `writes`, all statements of the block see the same state of the tables.

        Raises StorageError if another process has been writing for too long, ReplacedError if the catalogue was removed
        or replaced since it was opened, DiskError if the disk is full or another disk error occurs, and
        CorruptFileError if the file is damaged. After an error nothing is changed.
        """
        with self._connection() as connection:
            is_inner = connection.in_transaction
            if is_inner:
                yield connection
                return
            if writes and self._is_read_only:
                raise self._read_only_error()
            try:
                connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
            except sqlite3.OperationalError as error:
                self.check_in_place()
                raise self._storage_error(error) or self._in_use_error(error) from error
            try:
                if writes:
                    self.check_in_place()
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def check_readable(self) -> None:
        """Check that the file exists and can be read, with a new connection that has nothing in its cache.

        Raises StorageError if the file was removed or replaced, or cannot be read.
        """
        self.check_in_place()
        if self.path is None:
            return
        uri = f"{self.path.absolute().as_uri()}?{'mode=ro' if self._snapshot is None else 'immutable=1'}"
        with self._connection(), closing(sqlite3.connect(uri, uri=True)) as reader:
            reader.execute("SELECT value FROM meta").fetchall()

    def check(self) -> list[str]:
        """Return the problems found by SQLite's integrity and foreign key checks; empty for an intact file."""
        return [line for (line,) in self.rows("PRAGMA integrity_check") if line != "ok"] + [
            f"foreign key broken: {tuple(line)}" for line in self.rows("PRAGMA foreign_key_check")
        ]

    def copy_to(self, path: Path) -> None:
        """Write all tables into a new file."""
        with self._connection(path) as connection, closing(sqlite3.connect(absolute(path))) as target:
            target.execute(f"PRAGMA synchronous = {SYNCHRONOUS}")
            connection.backup(target)
            target.execute("PRAGMA journal_mode = WAL")

    def close(self) -> None:
        """Close the connections of all threads."""
        with self._lock:
            _close_all(self._connections)
            self._identity = []
            self._of_thread = threading.local()
            self._shared = None

    @contextmanager
    def _connection(self, path: Path | None = None) -> Iterator[sqlite3.Connection]:
        """Yield the calling thread's connection, and convert SQLite's errors into visterm's.

        Errors caused by a wrong statement are not converted. Messages name `path`; None: the database.
        """
        with self._memory_lock:
            try:
                connection: sqlite3.Connection | None = self._shared or getattr(self._of_thread, "connection", None)
                if connection is None:
                    if self.path is None:
                        raise StorageError("This catalogue was closed. Open it again.")
                    self.check_in_place()  # otherwise this thread could open another catalogue than the other threads
                    connection = self._of_thread.connection = self._connect()
                elif self._snapshot is not None:
                    self.check_in_place()
                yield connection
            except sqlite3.DatabaseError as error:
                storage_error = self._storage_error(error, path)
                if storage_error is None:
                    raise
                raise storage_error from error

    def _storage_error(self, error: sqlite3.Error, path: Path | None = None) -> StorageError | None:
        """Convert an SQLite error caused by the disk or the file; None for any other error."""
        file = path or self.path
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK) & 0xFF
        if file is None:
            return None
        if code == sqlite3.SQLITE_FULL:
            return disk_error(errno.ENOSPC, file)
        if code == sqlite3.SQLITE_IOERR:
            return find_write_error(file) or disk_error(errno.EIO, file)
        if code == sqlite3.SQLITE_CANTOPEN:
            return find_write_error(file) or StorageError(
                f"{file} cannot be opened: {error}. Its folder must be writable."
            )

        if code == sqlite3.SQLITE_READONLY:
            return self._read_only_error()
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return self._in_use_error(error)
        # Opening checks only the format number, so a wrong schema shows up in the first statement that uses it
        has_wrong_schema = isinstance(error, sqlite3.OperationalError) and str(error).startswith(
            ("no such table", "no such column")
        )
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or has_wrong_schema:
            return CorruptFileError(
                f"{file} is damaged ({error}). Restore it from a backup, or index the images again into a new folder."
            )
        return None

    def _read_only_error(self) -> DiskError:
        return DiskError(
            f"{self.path} cannot be written: the file, its folder or its disk is read-only. To change the catalogue, "
            "copy it to a folder in which you can write."
        )

    def _in_use_error(self, error: sqlite3.Error) -> InUseError:
        return InUseError(
            f"{self.path} cannot be used now: {error}. Another process has been writing for {MAX_WAIT_SECONDS:g} s; "
            "try again when it is done."
        )

    def _connect(self) -> sqlite3.Connection:
        """Open the file for concurrent access; in a read-only folder open it unchanged, or a temporary copy of it."""
        file = self._snapshot or self.path
        is_immutable = file is not None and file is self._snapshot is self.path
        target = ":memory:" if file is None else absolute(file)
        target = f"{file.absolute().as_uri()}?immutable=1" if file is not None and is_immutable else target
        connection = None
        try:
            connection = sqlite3.connect(
                target, timeout=MAX_WAIT_SECONDS, isolation_level=None, check_same_thread=False, uri=is_immutable
            )
            # file names may not be valid UTF-8: decode them like Python decodes file names
            connection.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")
            connection.execute("PRAGMA foreign_keys = ON")
            if file is not None and not is_immutable:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute(f"PRAGMA synchronous = {SYNCHRONOUS}")
            connection.execute(f"PRAGMA query_only = {self._is_read_only:d}")
            has_tables = "SELECT count(*) FROM sqlite_schema WHERE name = 'given'"  # creates the write-ahead log
            if connection.execute(has_tables).fetchone()[0] and not self._is_read_only:
                _add_triggers(connection)
        except sqlite3.Error as error:
            if connection is not None:
                connection.close()
            if self._snapshot is None and not self._identity and not self._can_create_files():
                log = Path(f"{self.path}-wal")  # write-ahead log, which may have commits that are not in the file yet
                self._snapshot = self._temporary_copy() if log.is_file() and log.stat().st_size else self.path
                return self._connect()
            if isinstance(error, sqlite3.OperationalError):
                raise self._storage_error(error) or StorageError(
                    f"{self.path} cannot be opened: {error}. Its folder must be writable."
                ) from error
            raise CorruptFileError(
                f"{self.path} is not a catalogue's database: {error}. Restore it from a backup, or index the images "
                "again."
            ) from error

        with self._lock:
            self._connections.append(connection)
            if not self._identity:
                self.check_in_place()
        return connection

    def _can_create_files(self) -> bool:
        """Return whether files can be created next to the database, as SQLite does for concurrent access."""
        if self.path is None or not self.path.is_file():
            return True
        try:
            with tempfile.TemporaryFile(dir=self.path.parent):
                return True
        except OSError as error:
            return error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM)

    def _temporary_copy(self) -> Path:
        """Copy the database and its write-ahead log to a temporary folder, which is deleted with this object."""
        assert self.path is not None
        copy = Path(tempfile.mkdtemp(prefix="visterm-")) / self.path.name
        weakref.finalize(self, shutil.rmtree, copy.parent, ignore_errors=True)
        for suffix in ("", "-wal"):
            with writing(copy), suppress(FileNotFoundError):
                shutil.copyfile(f"{self.path}{suffix}", f"{copy}{suffix}")
        return copy


@dataclass(eq=False)
class CatalogueTable:
    """Base class of the classes that read and write tables of a catalogue."""

    _database: Database

    def _records(self, kind: Callable[..., T], statement: str, values: Values = ()) -> list[T]:
        return [kind(*row) for row in self._database.rows(statement, values)]


def _close_all(connections: list[sqlite3.Connection]) -> None:
    while connections:
        connections.pop().close()


def _make_tables(connection: sqlite3.Connection) -> None:
    """Create the tables inside the transaction (`executescript` would commit it first)."""
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {FORMAT}")
    statement = ""
    for line in files("visterm.store").joinpath("schema.sql").read_text(encoding="utf-8").splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            connection.execute(statement)
            statement = ""
    connection.execute("INSERT INTO meta VALUES ('rows', '')")
    _add_triggers(connection)


def _add_triggers(connection: sqlite3.Connection) -> None:
    for statement in TAG_TRIGGERS:
        connection.execute(statement)


def as_text(text: str | os.PathLike[str]) -> str | bytes:
    """Return a file name as a parameter for ``CAST(? AS TEXT)``: as bytes if it is not valid UTF-8."""
    text = os.fspath(text)
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogateescape")
    return text


def now() -> str:
    """Return the current time in the format of the tables: UTC, ISO 8601, with microseconds."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
