"""The SQLite file of a catalogue: opened safely, migrated, with one connection a thread and transactions that nest."""

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
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from visterm.core.errors import CorruptFileError, DiskError, InUseError, ReplacedError, StorageError
from visterm.core.remote import in_full
from visterm.core.writing import disk_error, why_refused, writing

APPLICATION_ID = int.from_bytes(b"vist", "big")  # SQLite keeps it in the file: it tells a catalogue from all else
FORMAT = 1  # Of the tables, which SQLite keeps in the file as ``user_version``
MIGRATIONS: dict[int, Callable[[sqlite3.Connection], None]] = {}
"""The step from format n to n + 1, by n: a newer visterm opens every catalogue from format 1 on.

Whoever changes the tables raises `FORMAT` by one, changes ``schema.sql``, and adds a migration that makes the old
tables the new ones and loses nothing that people gave: tags, judgements, history. A migration stays as it is for ever.
Each runs in one transaction together with the change of the number, so that a kill leaves the old format or the new
one, and the next opening goes on from there. What opens runs and features folders reads all formats up to
`persist.FORMAT`, too.
"""

SYNCHRONOUS = "FULL"  # What is committed is on disk, though the power fails
BUSY_SECONDS = 30.0  # How long a statement waits while another process commits
MOST_KEPT = 50_000  # Answers that are kept until the database changes
MOST_KEPT_BYTES = 2**26  # Of the arrays among them
T = TypeVar("T")
Values: TypeAlias = Sequence[object]  # To be bound to the question marks of a statement


class Database:
    """A catalogue's tables, in a file or in memory (`path` None); with `new`, in a file that is made now.

    Of a file each thread has its own connection, so that readers go on while one thread or process writes. In memory
    there is one, and threads take turns. In a folder that takes no files, such as a snapshot, the file is read as it
    is, and what writes is refused. Raises StorageError if there is no file at `path`, or a newer visterm wrote
    it; CorruptFileError if the file is no catalogue's database.
    """

    def __init__(self, path: Path | None = None, *, new: bool = False) -> None:
        self.path = path
        self._of_thread = threading.local()
        self._opened: list[sqlite3.Connection] = []
        self._opening = threading.Lock()
        self._turns: AbstractContextManager[object] = threading.RLock() if path is None else nullcontext()
        self._identity: list[tuple[int, ...] | None] = []
        self._kept: dict[Hashable, Any] = {}
        self._kept_bytes = 0
        self._snapshot: Path | None = None  # What is read where nothing can be written: the file, or a copy of it
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

        if stored_format > FORMAT:
            raise StorageError(
                f"{self.path} has format {stored_format}; this visterm reads up to {FORMAT}. Install a newer visterm."
            )
        if stored_format < FORMAT and (self._snapshot or not os.access(path, os.W_OK) or not self._takes_files()):
            self.close()
            self._snapshot = self._copied()  # which is brought up to date in its place

        for version in range(stored_format, FORMAT):
            with self.transaction() as connection:
                if self.value("PRAGMA user_version") > version:
                    continue  # another process has done it meanwhile
                MIGRATIONS[version](connection)
                connection.execute(f"PRAGMA user_version = {version + 1}")
        if self._snapshot is not None:
            self.close()
            self._is_read_only = True

    def check_in_place(self) -> None:
        """Check that the files at the catalogue's path are still those that were opened; the first time, note which.

        These are the database and its log of writes (``-wal``), which holds what was committed last. Raises
        ReplacedError if they were removed, or others were put in their place: what is written would be lost with them.
        """
        if self.path is None or not self._opened:
            return
        identity: list[tuple[int, ...] | None] = []  # Device and inode of each file; None where there is none
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
        """Run one statement that reads, and return all its rows."""
        with self._used() as connection:
            return connection.execute(statement, values).fetchall()

    def value(self, statement: str, values: Values = ()) -> Any:
        """Run one statement that reads, and return the first value of its first row, or None."""
        with self._used() as connection:
            row = connection.execute(statement, values).fetchone()
        return None if row is None else row[0]

    def keep(self, key: Hashable, read: Callable[[], T]) -> T:
        """Return what `read` returned for a key, until any thread or process commits something; then call it again.

        Answers belong to the state of the tables that this thread sees. Inside a transaction nothing is kept, as that
        may be rolled back.
        """
        with self._used() as connection:
            if connection.in_transaction:
                return read()
            # SQLite counts the commits of others for each connection, and its own changes apart
            seen = connection.execute("PRAGMA data_version").fetchone()[0], connection.total_changes

        with self._opening:
            full = len(self._kept) > MOST_KEPT or self._kept_bytes > MOST_KEPT_BYTES
            if full or getattr(self._of_thread, "seen", None) != seen:
                self._of_thread.seen, self._kept, self._kept_bytes = seen, {}, 0
            kept = self._kept
        if key in kept:
            known: T = kept[key]
            return known
        answer = read()
        n_bytes = sum(getattr(part, "nbytes", 0) for part in (answer if isinstance(answer, tuple) else (answer,)))
        if n_bytes < MOST_KEPT_BYTES // 4:
            kept[key] = answer
            self._kept_bytes += n_bytes
        return answer

    def write(self, statement: str, values: Values = ()) -> int:
        """Run one statement that writes, in a transaction, and return how many rows it changed."""
        with self.transaction() as connection:
            return connection.execute(statement, values).rowcount

    def insert(self, statement: str, values: Values = ()) -> int:
        """Run one statement that inserts a row, in a transaction, and return the number of the row."""
        with self.transaction() as connection:
            return int(connection.execute(statement, values).lastrowid or 0)

    def write_many(self, statement: str, values: Iterable[Values]) -> None:
        """Run one statement that writes for each of many values, in a transaction."""
        with self.transaction() as connection:
            connection.executemany(statement, values)

    @property
    def in_transaction(self) -> bool:
        """Whether the calling thread is inside a transaction."""
        with self._used() as connection:
            return connection.in_transaction

    @contextmanager
    def transaction(self, *, writes: bool = True) -> Iterator[sqlite3.Connection]:
        """Do all that is inside or nothing; it is on disk when this ends. Inside another, it is part of that one.

        Without `writes`, several statements see one state of the tables, whatever others commit in between.

        Raises StorageError if another process has been writing for too long. Raises ReplacedError if the catalogue was
        removed or replaced since it was opened. Raises DiskError if the disk is full, or refuses in another way;
        nothing of it is done then. Raises CorruptFileError if the file is damaged.
        """
        with self._used() as connection:
            is_inner = connection.in_transaction
            if is_inner:
                yield connection
                return
            if writes and self._is_read_only:
                raise self._read_only()
            try:
                connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
            except sqlite3.OperationalError as error:
                self.check_in_place()
                raise self._refused(error) or self._in_use(error) from error
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
        """Check that the file is in place and can be read, from the disk and not from what a connection remembers.

        Raises StorageError if it was removed or replaced, or cannot be read.
        """
        self.check_in_place()
        if self.path is None:
            return
        how = "mode=ro" if self._snapshot is None else "immutable=1"
        with self._used(), closing(sqlite3.connect(f"{self.path.absolute().as_uri()}?{how}", uri=True)) as afresh:
            afresh.execute("SELECT value FROM meta").fetchall()

    def check(self) -> list[str]:
        """Return what SQLite's integrity check and its check of foreign keys find wrong: nothing, of a sound file."""
        return [line for (line,) in self.rows("PRAGMA integrity_check") if line != "ok"] + [
            f"foreign key broken: {tuple(line)}" for line in self.rows("PRAGMA foreign_key_check")
        ]

    def copy_to(self, path: Path) -> None:
        """Write all tables into a file that is not there yet."""
        with self._used(path) as connection, closing(sqlite3.connect(in_full(path))) as target:
            target.execute(f"PRAGMA synchronous = {SYNCHRONOUS}")
            connection.backup(target)
            target.execute("PRAGMA journal_mode = WAL")

    def close(self) -> None:
        """Close the connections of all threads."""
        with self._opening:
            for connection in self._opened:
                connection.close()
            self._opened.clear()
            self._identity = []
            self._of_thread = threading.local()
            self._shared = None

    @contextmanager
    def _used(self, path: Path | None = None) -> Iterator[sqlite3.Connection]:
        """Yield the calling thread's connection, and turn SQLite's errors into ours.

        Those that a statement of ours is to blame for stay as they are. Messages name `path`; None: the database.
        """
        with self._turns:
            try:
                connection: sqlite3.Connection | None = self._shared or getattr(self._of_thread, "connection", None)
                if connection is None:
                    if self.path is None:
                        raise StorageError("This catalogue was closed. Open it again.")
                    self.check_in_place()  # else this thread would read another catalogue than the others
                    connection = self._of_thread.connection = self._connect()
                elif self._snapshot is not None:
                    self.check_in_place()
                yield connection
            except sqlite3.DatabaseError as error:
                ours = self._refused(error, path)
                if ours is None:
                    raise
                raise ours from error

    def _refused(self, error: sqlite3.Error, path: Path | None = None) -> StorageError | None:
        """Return the error of ours that an error of SQLite means, if the disk or the file is to blame."""
        where = path or self.path
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK) & 0xFF
        if where is None:
            return None
        if code == sqlite3.SQLITE_FULL:
            return disk_error(errno.ENOSPC, where)
        if code == sqlite3.SQLITE_IOERR:
            return why_refused(where) or disk_error(errno.EIO, where)
        if code == sqlite3.SQLITE_CANTOPEN:
            return why_refused(where) or StorageError(
                f"{where} cannot be opened: {error}. Its folder must be one to write in."
            )

        if code == sqlite3.SQLITE_READONLY:
            return self._read_only()
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return self._in_use(error)
        # Tables are checked at opening by their format's number alone: another schema is found by a statement
        other_schema = isinstance(error, sqlite3.OperationalError) and str(error).startswith(
            ("no such table", "no such column")
        )
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or other_schema:
            return CorruptFileError(
                f"{where} is damaged ({error}). Restore it from a backup, or index the images again into a new folder."
            )
        return None

    def _read_only(self) -> DiskError:
        return DiskError(
            f"{self.path} cannot be written: the file, its folder or its disk is read-only. To change the catalogue, "
            "copy it to where files can be written."
        )

    def _in_use(self, error: sqlite3.Error) -> InUseError:
        return InUseError(
            f"{self.path} cannot be used now: {error}. Another process has been writing for {BUSY_SECONDS:g} s; "
            "try again when it is done."
        )

    def _connect(self) -> sqlite3.Connection:
        """Open the file as SQLite reads it while others write; where a folder takes no files, as it is, or a copy."""
        file = self._snapshot or self.path
        as_it_is = file is not None and file is self._snapshot is self.path
        target = ":memory:" if file is None else in_full(file)
        target = f"{file.absolute().as_uri()}?immutable=1" if file is not None and as_it_is else target
        connection = None
        try:
            connection = sqlite3.connect(
                target, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, uri=as_it_is
            )
            # file names may be no UTF-8: they are read as Python reads file names
            connection.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")
            connection.execute("PRAGMA foreign_keys = ON")
            if file is not None and not as_it_is:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute(f"PRAGMA synchronous = {SYNCHRONOUS}")
            connection.execute(f"PRAGMA query_only = {self._is_read_only:d}")
            connection.execute("SELECT count(*) FROM sqlite_schema")  # its log of writes is there from now on
        except sqlite3.Error as error:
            if connection is not None:
                connection.close()
            if self._snapshot is None and not self._identity and not self._takes_files():
                log = Path(f"{self.path}-wal")  # of writes: what was committed last may be in it alone
                self._snapshot = self._copied() if log.is_file() and log.stat().st_size else self.path
                return self._connect()
            if isinstance(error, sqlite3.OperationalError):
                raise self._refused(error) or StorageError(
                    f"{self.path} cannot be opened: {error}. Its folder must be one to write in."
                ) from error
            raise CorruptFileError(
                f"{self.path} is not a catalogue's database: {error}. Restore it from a backup, or index the images "
                "again."
            ) from error

        with self._opening:
            self._opened.append(connection)
            if not self._identity:
                self.check_in_place()
        return connection

    def _takes_files(self) -> bool:
        """Return whether files can be made beside the database, which SQLite does to read one as others write it."""
        if self.path is None or not self.path.is_file():
            return True
        try:
            with tempfile.TemporaryFile(dir=self.path.parent):
                return True
        except OSError as error:
            return error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM)

    def _copied(self) -> Path:
        """Copy the database and its log of writes to where temporary files are, until this object is gone."""
        assert self.path is not None
        copy = Path(tempfile.mkdtemp(prefix="visterm-")) / self.path.name
        weakref.finalize(self, shutil.rmtree, copy.parent, ignore_errors=True)
        for end in ("", "-wal"):
            with writing(copy), suppress(FileNotFoundError):
                shutil.copyfile(f"{self.path}{end}", f"{copy}{end}")
        return copy


@dataclass(eq=False)
class CatalogueTable:
    """One or some tables of a catalogue, with their statements."""

    _database: Database

    def _records(self, kind: Callable[..., T], statement: str, values: Values = ()) -> list[T]:
        return [kind(*row) for row in self._database.rows(statement, values)]


def _make_tables(connection: sqlite3.Connection) -> None:
    """Make the tables inside the transaction (`executescript` would commit it first)."""
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {FORMAT}")
    statement = ""
    for line in files("visterm.store").joinpath("schema.sql").read_text(encoding="utf-8").splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            connection.execute(statement)
            statement = ""
    connection.execute("INSERT INTO meta VALUES ('rows', '')")


def as_text(text: str | os.PathLike[str]) -> str | bytes:
    """Return a file name as a parameter for ``CAST(? AS TEXT)``: those that are not UTF-8 as their bytes."""
    text = os.fspath(text)
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogateescape")
    return text


def now() -> str:
    """Return the time as the tables hold it: UTC, in ISO 8601, to the microsecond."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
