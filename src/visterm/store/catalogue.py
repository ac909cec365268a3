"""A catalogue: what SQLite knows of images, tags, runs and jobs, and rows to search in segments beside it.

CATALOGUE
├── manifest.json       says that the folder is a catalogue; its files change, so there are no checksums of them
├── catalogue.sqlite    the truth: a row exists when its transaction has committed
├── mistakes.json       tags that are probably wrong or missing, as they were found last
├── writer.lock         held by the process that writes rows, which writer.lock.json names
├── rows/<segment>/     see `segments`
├── lance/              tables of rows, where these are kept so and no other place was named, see `lance_rows`
├── runs/<fingerprint>/ copies of the runs
├── previews/           of a library of another program: what it showed of each photo, by numbers of our own
└── features/<encoder fingerprint>/   feature rows, so that models learn again without decoding images
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from visterm.core.checks import as_rows
from visterm.core.errors import CorruptFileError, DataError, InUseError, ShapeError, StorageError
from visterm.core.persist import open_folder
from visterm.core.types import Matrix, Ranking
from visterm.core.writing import locked
from visterm.store.connected import Connected
from visterm.store.current_rows import CurrentRows
from visterm.store.database import MOST_KEPT, Database, as_text
from visterm.store.filters import COLUMNS, Filter, conditions_of, image_ids, in_order
from visterm.store.history import History, Jobs, Runs, WrittenTags
from visterm.store.images import AMONG, Frames, Images, NewImage, SkippedFiles, as_list
from visterm.store.lance_rows import LancePlace, lance_uri
from visterm.store.stored_rows import VERSION, RowStore, build_indexes, how_it_searches, indexes_are_due, no_current_run
from visterm.store.tags import ManualJudgements, Tags

DATABASE, LOCK, RUNS, FEATURES = "catalogue.sqlite", "writer.lock", "runs", "features"
SKIPPED = "skipped.jsonl"
"""The list of files that were left out, for people and other programs; the truth is in the database."""

CURRENT_RUN = "SELECT folder, fingerprint, encoder_fingerprint FROM runs WHERE current = 1"
ONE_BY_ONE = 50  # Images below which it is quicker to ask for their names one after another

Ids: TypeAlias = NDArray[np.int64]


class ImageLocation(NamedTuple):
    """Which image an id is, and where it lies."""

    name: str
    path: str | None
    id: int
    at: float | None = None  # Of a video: the moment that was found, in seconds
    link: str | None = None  # Its page in the program that the catalogue is connected to


@dataclass(frozen=True, slots=True)
class Origin:
    """What made the rows of a catalogue."""

    run: str  # The folder of the run, in full; empty if it was never saved
    fingerprint: str  # Of the encoder and the model together: rows of another cannot be compared with these
    encoder_fingerprint: str = ""  # Of the encoder alone: features of another cannot be learned from with these


@dataclass(eq=False)
class WriterLock:
    """The right to write rows, of one process and in it of one thread at a time; held more than once by that thread.

    `path` is the lock's file; None of a catalogue in memory, which has no other process.
    """

    path: Path | None
    _thread: AbstractContextManager[object] = field(default_factory=threading.RLock, init=False)
    _holder: int | None = field(default=None, init=False)  # The thread that holds it

    @property
    def is_mine(self) -> bool:
        """Whether the calling thread holds it."""
        return self._holder == threading.get_ident()

    @contextmanager
    def held(self) -> Iterator[bool]:
        """Hold the lock, and say whether this thread did not hold it before; other threads of this process wait.

        Raises InUseError if another process holds it: "in use by PID on HOST since ...".
        """
        with self._thread:
            if self.is_mine:
                yield False
                return
            with nullcontext() if self.path is None else locked(self.path, self._refusal):
                self._holder = threading.get_ident()
                try:
                    yield True
                finally:
                    self._holder = None

    def _refusal(self, holder: str) -> InUseError:
        assert self.path is not None
        return InUseError(
            f"{self.path.parent} is in use by {holder}, which is writing rows into it. Wait until it is done; searches "
            "and feedback go on meanwhile."
        )


class StoredCatalogue:
    """A catalogue in memory, or in a folder; see `write_into` and `open`.

    All methods may be called from several threads. What is committed is seen by searches from then on, in this and in
    other processes. Statements on single tables go through the parts (`images`, `tags`, `judgements`, `runs`, `jobs`,
    `history`, `written`, `skipped`, `connected`); what changes rows goes through the methods here, which hold the
    writer's lock.
    `origin` is the run that makes the rows: it becomes the current one. `folder` is None in memory.
    """

    def __init__(self, origin: Origin) -> None:
        self._begin(Database(), None)
        with self.database.transaction():
            run_id = self.runs.add(origin.fingerprint, origin.encoder_fingerprint, folder=origin.run)
            self.use_run(run_id)

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Self:
        """Open a catalogue; rows stay on disk, memory-mapped.

        Raises StorageError if there is none, or its format is not read here; CorruptFileError if its database or its
        rows are damaged.
        """
        path = open_folder(folder, "catalogue")
        if not (path / DATABASE).is_file():
            raise CorruptFileError(
                f"{path / DATABASE} is missing: restore it from a backup, or index the images again."
            )
        catalogue = cls.__new__(cls)
        catalogue._begin(Database(path / DATABASE), path.absolute())
        catalogue.current_rows()
        catalogue._rows.check(sampled=True)
        return catalogue

    def check(self) -> None:
        """Check the database, and all rows in files by their checksums. Raises CorruptFileError if one is damaged."""
        if faults := self.database.check():
            raise CorruptFileError(
                f"{self.database.path} is damaged: {faults[0]} ({len(faults)} such). Restore it from a backup, or "
                "index the images again."
            )
        self._rows.check()

    def _begin(self, database: Database, folder: Path | None) -> None:
        self.folder = folder
        self.database = database
        self.images = Images(database)
        self.frames = Frames(database)
        self.tags = Tags(database)
        self.judgements = ManualJudgements(database, self.tags)
        self.runs = Runs(database)
        self.jobs = Jobs(database)
        self.history = History(database)
        self.written = WrittenTags(database, self.tags)
        self.skipped = SkippedFiles(database)
        self.connected = Connected(database)
        self._lock = WriterLock(folder / LOCK if folder else None)
        self._rows = RowStore(database, folder)
        self._current: CurrentRows | None = None

    def close(self) -> None:
        """Close the database, and the maps of rows that were not given out; those that were stay valid."""
        self._current = None
        self.database.close()

    @property
    def origin(self) -> Origin:
        """The current run, as what made the rows. Raises CorruptFileError if the database names none."""
        rows = self.database.keep("current run", partial(self.database.rows, CURRENT_RUN))
        if not rows:
            raise no_current_run(self.database)
        return Origin(*rows[0])

    @property
    def run_folder(self) -> Path:
        """Where the copy of the current run lies; of a catalogue on disk."""
        if self.folder is None:
            raise StorageError("This catalogue is in memory only and has no copy of its run. Save it first.")
        return self.folder / RUNS / self.origin.fingerprint

    def __len__(self) -> int:
        """Return how many images can be searched: here, and with a row of the current run."""
        return len(self.current_rows())

    def current_rows(self) -> CurrentRows:
        """Return the current run's rows as they are committed now: what a search looks at from its start to its end.

        They are the last ones again, while nothing has changed. Raises ReplacedError if the catalogue was removed or
        replaced since it was opened: the maps are of files that are gone.
        """
        self.database.check_in_place()
        read_version = partial(self.database.keep, "rows", partial(self.database.rows, VERSION))
        rows, version = self._current, read_version()
        while rows is None or [(rows.version,)] != version:
            try:
                rows = self._current = self._rows.read_current()
                break
            except CorruptFileError:
                before, version = version, read_version()
                if version == before:  # else another process compacted just now, and removed what was old
                    raise
        return rows

    def search(self, q: ArrayLike | Matrix, k: int = 10, *, among: ArrayLike | None = None) -> Ranking:
        """Find the k images (0: all) with the largest dot products with a query row, (width,), or with each of several.

        `q` is array-like or CSR. `among` are ids of the images to search (see `find`); those without a row are left
        out. Returns ids of images and scores, (n_queries, min(k, n_searched)), best first.
        """
        return self.current_rows().search(q, k, among=among)

    def find(self, among: Filter, sort: str | None = None) -> Ids:
        """Return the ids of the images that pass a filter, ascending, or sorted by one of `COLUMNS`."""
        conditions, values = conditions_of(among, self.tags.active())
        if sort is not None:
            return self.database.keep(("find", sort, *conditions, *values), lambda: self.sorted(self.find(among), sort))
        key = ("find", *conditions, *values)
        return self.database.keep(key, lambda: image_ids(self.database, conditions, values))

    def sorted(self, ids: Ids, sort: str) -> Ids:
        """Return ids of images sorted by one of `COLUMNS`."""
        values = dict(self.database.rows(f"SELECT id, {COLUMNS[sort]} FROM images WHERE {AMONG}", (as_list(ids),)))
        return in_order(sort, ids, [values.get(i) for i in ids.tolist()])

    def called(self, name: str) -> list[int]:
        """Return the images of a name, or whose path ends so."""
        rows = self.database.rows(
            "SELECT id FROM images WHERE state = 'here' AND (name = CAST(? AS TEXT) OR "
            "substr(path, -length(CAST(? AS TEXT)) - 1) = '/' || CAST(? AS TEXT)) ORDER BY id",
            [as_text(name)] * 3,
        )
        return [int(image_id) for (image_id,) in rows]

    def where(self, ids: Sequence[int], q: Matrix | None = None) -> list[ImageLocation]:
        """Return which images some ids are; of videos the moment with the largest product with a row, (1, width)."""
        known: dict[int, ImageLocation] = self.database.keep("locations", dict)
        locations = {int(i): location for i in ids if (location := known.get(int(i))) is not None}
        missing = [int(i) for i in ids if int(i) not in locations]
        if len(missing) < ONE_BY_ONE:
            statement = "SELECT name, path, id FROM images WHERE id = ?"
            rows = [row for i in missing for row in self.database.rows(statement, (i,))]
        else:
            rows = self.database.rows(f"SELECT name, path, id FROM images WHERE {AMONG}", (as_list(missing),))
        extras = "SELECT EXISTS (SELECT 1 FROM connection), EXISTS (SELECT 1 FROM frames)"
        [(is_connected, has_videos)] = self.database.keep("extras", partial(self.database.rows, extras))
        links = self.connected.links(missing) if is_connected and missing else {}
        for name, path, number in rows:
            locations[number] = ImageLocation(name, path, number, link=links.get(number))

        if len(known) > MOST_KEPT:
            known.clear()
        known.update(locations)
        if not has_videos:
            return [locations[int(i)] for i in ids]
        moments = self._moments(ids, q)
        return [locations[int(i)]._replace(at=moments.get(int(i))) for i in ids]

    def _moments(self, ids: Sequence[int], q: Matrix | None) -> dict[int, float]:
        """Return the moment of those of some images that are videos: the best for a row, or the first."""
        videos = self.frames.by_video(ids)
        if q is None or not videos:
            return {video: frames[0].at for video, frames in videos.items()}
        every = [frame for frames in videos.values() for frame in frames]
        products = self.current_rows().frames_apart.products(q, [frame.image_id for frame in every])[:, 0].tolist()
        by_product = sorted(zip(products, every, strict=True), key=lambda pair: (pair[0], -pair[1].at))
        return {frame.video_id: frame.at for _, frame in by_product}  # the last of each counts: the best

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the right to write rows, over many transactions; what a killed process left uncommitted is cut first.

        The methods that change rows take it themselves; a job holds it all along. Raises StorageError if another
        process holds it: "in use by process PID on HOST since ...".
        """
        if not self._lock.is_mine and self.database.in_transaction:
            raise StorageError("Rows are written inside StoredCatalogue.transaction(), not Database.transaction().")
        with self._lock.held() as first:
            if first and self.folder is not None:
                self._rows.cut_what_is_not_committed()
            yield

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Change rows and tables together, all or nothing: holds the right to write rows too."""
        with self.writing(), self.database.transaction():
            yield

    def add(self, records: Sequence[NewImage], U: ArrayLike | Matrix) -> list[int]:
        """Take images in, with their tags and a row of the current run each, and return their ids.

        Raises ShapeError if there is not one row a record, or the rows are not as wide as those that are there;
        DataError if a row is not finite.
        """
        U = as_rows(U, "U")
        if U.shape[0] != len(records):
            raise ShapeError(f"There are {len(records)} records, but {U.shape[0]} rows; expected one each.")
        with self.transaction():
            ids = self.images.add(records)
            self.tags.give_many(((i, record.tags) for i, record in zip(ids, records, strict=True)), "file")
            self.set_rows(ids, U)
        return ids

    def set_rows(self, ids: Sequence[int], U: ArrayLike | Matrix, *, run_id: int | None = None) -> None:
        """Keep a row of a run (None: the current one) for each of some images, in place of any it had.

        Raises ShapeError if there is not one row an image, or the rows are not as wide as those that are there;
        DataError if a row is not finite, or an image is given twice.
        """
        U = as_rows(U, "U")
        numbers = np.asarray(ids, np.int64).ravel()
        if U.shape[0] != len(numbers):
            raise ShapeError(f"There are {len(numbers)} images, but {U.shape[0]} rows; expected one each.")
        if len(np.unique(numbers)) < len(numbers):
            raise DataError("An image is given twice; expected one row each.")
        if len(numbers) == 0:
            return
        which, values = ("current = 1", ()) if run_id is None else ("id = ?", (run_id,))
        with self.transaction():
            rows_of = self.database.value(f"SELECT coalesce(rows_of, id) FROM runs WHERE {which}", values)
            if rows_of is None:
                raise StorageError(f"The catalogue has no run {run_id}.")
            self._rows.append(int(rows_of), numbers, U)

    def mark(self, ids: Iterable[int], state: str) -> None:
        """Mark images as "here" or "gone"; those that are gone are not found any more, but keep their rows."""
        with self.database.transaction():
            self.images.mark(ids, state)
            self._rows.have_changed()

    def use_run(self, run_id: int) -> None:
        """Search by the rows of a run from now on. Raises StorageError if there is no such run."""
        with self.database.transaction():
            self.database.write("UPDATE runs SET current = 0 WHERE current = 1")
            if self.database.write("UPDATE runs SET current = 1 WHERE id = ?", (run_id,)) == 0:
                raise StorageError(f"The catalogue has no run {run_id}.")
            self._rows.have_changed()

    def compact(self, *, least: float = 0.2) -> bool:
        """Write the rows of each segment anew without the dead ones, where these are at least that share.

        Returns whether there was anything to do.
        """
        with self.writing():
            self._current = None  # Windows removes no file that is mapped
            return self._rows.compact(least)

    def index_is_due(self) -> bool:
        """Return whether the current run has enough dense rows outside an index to make one (again)."""
        return indexes_are_due(self.database)

    def build_index(self, queries: NDArray[np.float32]) -> bool:
        """Make an index (faiss or LanceDB) of each large dense segment of the current run, where searches gain.

        Searches stay exact among filtered images, of more than 100 results, and of rows that came after the index.
        `queries`, (n_queries, width), are rows like those of real searches: on the first 200 it is measured whether an
        index pays, and how many of the best it finds. Returns whether there is an index now.

        Raises StorageError if the catalogue is in memory only; MissingExtraError if faiss is not installed.
        """
        if self.folder is None:
            raise StorageError("This catalogue is in memory only, where searches are exact. Save it first.")
        with self.writing():
            return build_indexes(self._rows, queries)

    def how_it_searches(self) -> str:
        """Return how searches go: exactly, or through an index, with what was measured of it."""
        return how_it_searches(self.database)

    def keep_in_lance(self, uri: str = "") -> None:
        """Keep rows in Lance tables, in place of files, from the first one on.

        `uri` is a folder, or one of an object store (``s3://bucket/folder``); empty: in the catalogue's own folder.
        Raises StorageError if the catalogue has rows already, or is in memory only, or nothing can be kept there;
        MissingExtraError if lancedb is not installed.
        """
        if self.folder is None:
            raise StorageError("This catalogue is in memory only, and so are its rows. Save it first.")
        with self.transaction():
            self._rows.keep_in_lance(uri)

    def keeps_rows_in(self, store: str) -> bool:
        """Return whether rows are kept in a store: "files", "lance" or "lance:URI"."""
        uri, tables = lance_uri(store), self._rows.lance
        return tables is None if uri is None else tables is not None and LancePlace.at(uri).uri == tables.uri

    def where_rows_are(self) -> str:
        """Return where the rows lie: in files, or in Lance tables at a place."""
        tables = self._rows.lance
        return "files" if tables is None or self.folder is None else f"Lance tables at {tables.uri_of(self.folder)}"

    def write_into(self, folder: Path) -> None:
        """Write the catalogue's database and rows into a folder that is being made."""
        with self.database.transaction(writes=False):
            self._rows.copy_to(folder)
            self.database.copy_to(folder / DATABASE)
        copied = Database(folder / DATABASE)
        copied.write("DELETE FROM indexes")
        copied.write("UPDATE segments SET table_version = NULL")  # a copy keeps its rows in files
        copied.write("DELETE FROM meta WHERE key = 'lance'")
        copied.close()
