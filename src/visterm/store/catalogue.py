"""A catalogue: images, tags, runs and jobs in an SQLite database, and image rows to search in segment files.

CATALOGUE
├── manifest.json       marks the folder as a catalogue; it has no checksums, because the files change
├── catalogue.sqlite    the database; an image row is valid when the transaction that added it has committed
├── mistakes.json       tags that are probably wrong or missing, from the latest check
├── writer.lock         locked by the process that writes rows; writer.lock.json names that process
├── rows/<segment>/     see `segments`
├── lance/              Lance tables of rows, if the catalogue uses Lance without another location, see `lance_rows`
├── runs/<fingerprint>/ copies of the runs
├── previews/           previews downloaded from a connected program, one file per photo id
└── features/<encoder fingerprint>/   stored features, to train models without decoding images again
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from visterm.core.checks import as_rows
from visterm.core.errors import CorruptFileError, DataError, InUseError, ShapeError, StorageError
from visterm.core.id_sets import Ids
from visterm.core.persist import open_folder
from visterm.core.types import Matrix, Place, Ranking
from visterm.core.writing import locked
from visterm.store import DATABASE, RUNS
from visterm.store.connected import Connected
from visterm.store.current_rows import CurrentRows
from visterm.store.database import MAX_CACHED_RESULTS, Database, as_text
from visterm.store.filters import COLUMNS, NAME, OLDEST, Filter, conditions_of, name_key
from visterm.store.history import History, Jobs, Runs, WrittenTags
from visterm.store.images import AMONG, Frames, Images, NewImage, SkippedFiles, as_list
from visterm.store.lance_rows import LanceLocation, lance_uri
from visterm.store.stored_rows import VERSION, RowStore, build_indexes, how_it_searches, indexes_are_due
from visterm.store.tags import ManualJudgements, Tags

LOCK, FEATURES = "writer.lock", "features"
SKIPPED = "skipped.jsonl"
"""List of skipped files for people and other programs; the database has the authoritative list."""


class ImageLocation(NamedTuple):
    """Name, path and id of an image."""

    name: str
    path: str | None
    id: int
    at: float | None = None  # For a video: the moment that matched, in seconds
    link: str | None = None  # Address of its page in the connected program


@dataclass(frozen=True, slots=True)
class Origin:
    """The run that computed the rows of a catalogue."""

    run: str  # Absolute path of the run's folder; empty if it was never saved
    fingerprint: str  # Of encoder and model: only rows with the same fingerprint are comparable
    encoder_fingerprint: str = ""  # Of the encoder: only features with the same fingerprint can be mixed


@dataclass(eq=False)
class WriterLock:
    """Lock for writing rows, which one thread of one process can have at a time. That thread may acquire it repeatedly.

    `path` is the lock file; None for a catalogue in memory, which no other process can use.
    """

    path: Path | None
    _thread: AbstractContextManager[object] = field(default_factory=threading.RLock, init=False)
    _holder: int | None = field(default=None, init=False)  # Id of the thread that has the lock

    @property
    def is_mine(self) -> bool:
        """Whether the calling thread has the lock."""
        return self._holder == threading.get_ident()

    @contextmanager
    def acquire(self) -> Iterator[bool]:
        """Acquire the lock; yield True if this thread did not have it before. Other threads of this process wait.

        Raises InUseError if another process has the lock: "in use by PID on HOST since ...".
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
            "and corrections continue."
        )


class StoredCatalogue:
    """A catalogue in memory or in a folder; see `write_into` and `open`.

    All methods are thread-safe. Searches in this and other processes see changes as soon as they are committed. The
    attributes `images`, `tags`, `judgements`, `runs`, `jobs`, `history`, `written`, `skipped` and `connected` read and
    write single tables; only the methods of this class change rows, because they acquire the writer lock.

    `origin` is the run that computes the rows; it becomes the current run. `folder` is None in memory.
    """

    def __init__(self, origin: Origin) -> None:
        self._begin(Database(), None)
        with self.database.transaction():
            self.use_run(self.runs.add(origin.fingerprint, origin.encoder_fingerprint, folder=origin.run))

    @classmethod
    def open(cls, folder: Place) -> Self:
        """Open a catalogue; rows stay on disk, memory-mapped.

        Raises StorageError if `folder` is not a catalogue, or a newer visterm wrote it; CorruptFileError if its
        database or its rows are damaged.
        """
        path = open_folder(folder, "catalogue")
        if not (path / DATABASE).is_file():
            raise CorruptFileError(f"{path / DATABASE} is missing: restore a backup, or index the images again.")
        catalogue = cls.__new__(cls)
        catalogue._begin(Database(path / DATABASE), path.absolute())
        catalogue.current_rows()
        catalogue._rows.check(sampled=True)
        return catalogue

    def check(self) -> None:
        """Check the database, and the checksums of all row files. Raises CorruptFileError if one of them is damaged."""
        if faults := self.database.check():
            raise CorruptFileError(
                f"{self.database.path} is damaged: {faults[0]} ({len(faults)} faults). Restore it from a backup, or "
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
        """Close the database and its memory maps; row arrays that a caller still uses stay valid."""
        self._current = None
        self.database.close()

    @property
    def origin(self) -> Origin:
        """The current run, which computed the rows. Raises CorruptFileError if no run is current."""
        run = self.database.keep("current run", self.runs.current)
        return Origin(run.folder, run.fingerprint, run.encoder_fingerprint)

    @property
    def run_folder(self) -> Path:
        """Folder with the copy of the current run. Raises StorageError for a catalogue in memory."""
        return self._saved_folder() / RUNS / self.origin.fingerprint

    def _saved_folder(self) -> Path:
        if self.folder is None:
            raise StorageError("This catalogue is in memory only. Save it first.")
        return self.folder

    def __len__(self) -> int:
        """Return the number of searchable images: present, and with a row of the current run."""
        return len(self.current_rows())

    def current_rows(self) -> CurrentRows:
        """Return a snapshot of the current run's committed rows, for one search.

        The snapshot is reused until something changes. Raises ReplacedError if the catalogue was removed or replaced
        since it was opened, because the mapped files no longer exist.
        """
        self.database.check_in_place()
        read_version = partial(self.database.keep, "rows", partial(self.database.rows, VERSION))
        rows, version = self._current, read_version()
        while rows is None or [(rows.version,)] != version:
            try:
                rows = self._current = self._rows.read_current()
                break
            except CorruptFileError:
                previous_version, version = version, read_version()
                if version == previous_version:  # otherwise another process has just deleted the old files
                    raise
        return rows

    def search(self, q: ArrayLike | Matrix, k: int = 10, *, among: ArrayLike | None = None) -> Ranking:
        """Find the k images (0: all) with the largest dot products with `q`, shape (width,) or (n_queries, width).

        `q` is array-like or CSR. `among` are ids of the images to search (see `find`); images without a row are left
        out. Returns ids of images and scores, (n_queries, min(k, n_searched)), best first.
        """
        return self.current_rows().search(q, k, among=among)

    def find(self, limits: Filter, sort: str | None = None) -> Ids:
        """Return the ids of the images that pass a filter, ascending, or sorted by one of `COLUMNS`."""
        conditions, values = conditions_of(limits, self.tags.active())
        key = ("find", *conditions, *values)
        if sort is not None:
            return self.database.keep((*key, sort), lambda: self.sorted(self.find(limits), sort))
        where = " AND ".join(["state = 'here'", *conditions])
        statement = f"SELECT id FROM images WHERE {where} ORDER BY id"
        return self.database.keep(
            key, lambda: np.fromiter(chain.from_iterable(self.database.rows(statement, values)), np.int64)
        )

    def sorted(self, ids: Ids, sort: str) -> Ids:
        """Return ids of images sorted by one of `COLUMNS`; photos without a date come last, ties keep their order."""
        values = dict(self.database.rows(f"SELECT id, {COLUMNS[sort]} FROM images WHERE {AMONG}", (as_list(ids),)))
        keys: list[Any] = [values.get(i) or "" for i in ids.tolist()]
        if sort == NAME:
            keys = [name_key(key) for key in keys]
        elif sort == OLDEST:
            keys = [(not key, key) for key in keys]
        order = sorted(range(len(ids)), key=keys.__getitem__, reverse=sort not in (NAME, OLDEST))
        return ids[np.array(order, np.int64)]

    def ids_of_name(self, name: str) -> list[int]:
        """Return the ids of the images with this name, or whose path ends with "/" and this name."""
        rows = self.database.rows(
            "SELECT id FROM images WHERE state = 'here' AND (name = CAST(? AS TEXT) OR "
            "substr(path, -length(CAST(? AS TEXT)) - 1) = '/' || CAST(? AS TEXT)) ORDER BY id",
            [as_text(name)] * 3,
        )
        return [int(image_id) for (image_id,) in rows]

    def locations(self, ids: Sequence[int], q: Matrix | None = None) -> list[ImageLocation]:
        """Return the images with these ids; for a video also the moment that best matches the row `q`, (1, width)."""
        cached: dict[int, ImageLocation] = self.database.keep("locations", dict)
        locations = {int(i): location for i in ids if (location := cached.get(int(i))) is not None}
        uncached_ids = [int(i) for i in ids if int(i) not in locations]
        rows: list[Any] = []
        if uncached_ids:
            rows = self.database.rows(f"SELECT name, path, id FROM images WHERE {AMONG}", (as_list(uncached_ids),))

        statement = "SELECT EXISTS (SELECT 1 FROM connection), EXISTS (SELECT 1 FROM frames)"
        [(is_connected, has_videos)] = self.database.keep("extras", partial(self.database.rows, statement))
        links = self.connected.links(uncached_ids) if is_connected and uncached_ids else {}
        for name, path, image_id in rows:
            locations[image_id] = ImageLocation(name, path, image_id, link=links.get(image_id))

        if len(cached) > MAX_CACHED_RESULTS:
            cached.clear()
        cached.update(locations)
        if not has_videos:
            return [locations[int(i)] for i in ids]
        moments = self._moments(ids, q)
        return [locations[int(i)]._replace(at=moments.get(int(i))) for i in ids]

    def _moments(self, ids: Sequence[int], q: Matrix | None) -> dict[int, float]:
        """Return video -> its moment that best matches `q` (None: its first moment); photos are left out."""
        videos = self.frames.by_video(ids)
        if q is None or not videos:
            return {video: frames[0].at for video, frames in videos.items()}
        all_frames = [frame for frames in videos.values() for frame in frames]
        products = self.current_rows().frames_apart.products(q, [frame.image_id for frame in all_frames])[:, 0].tolist()
        by_product = sorted(zip(products, all_frames, strict=True), key=lambda pair: (pair[0], -pair[1].at))
        return {frame.video_id: frame.at for _, frame in by_product}  # the best frame of each video comes last

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Keep the writer lock over many transactions, after cutting off uncommitted rows of a killed process.

        Methods that change rows acquire the lock themselves; a job keeps it until it ends. Raises StorageError if
        another process has the lock: "in use by process PID on HOST since ...".
        """
        if not self._lock.is_mine and self.database.in_transaction:
            raise StorageError("Rows are written inside StoredCatalogue.transaction(), not Database.transaction().")
        with self._lock.acquire() as is_outermost:
            if is_outermost and self.folder is not None:
                self._rows.remove_uncommitted()
            yield

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Change rows and tables in one transaction, with the writer lock."""
        with self.writing(), self.database.transaction():
            yield

    def add(self, records: Sequence[NewImage], U: ArrayLike | Matrix) -> list[int]:
        """Add images with their tags and one row of the current run per image, and return their ids.

        Raises ShapeError if `U` has another number of rows than there are records, or another width than the stored
        rows; DataError if a value is not finite.
        """
        with self.transaction():
            ids = self.images.add(records)
            self.tags.give_many(((i, record.tags) for i, record in zip(ids, records, strict=True)), "file")
            self.set_rows(ids, U)
        return ids

    def set_rows(self, ids: Sequence[int], U: ArrayLike | Matrix, *, run_id: int | None = None) -> None:
        """Store one row of a run (None: the current run) per image, replacing its previous row.

        Raises ShapeError if `U` has another number of rows than there are ids, or another width than the stored rows;
        DataError if a value is not finite, or an id is repeated.
        """
        U = as_rows(U, "U")
        id_array = np.asarray(ids, np.int64).ravel()
        if U.shape[0] != len(id_array):
            raise ShapeError(f"There are {len(id_array)} images, but {U.shape[0]} rows; expected one row per image.")
        if len(np.unique(id_array)) < len(id_array):
            raise DataError("An image is given twice; expected one row per image.")
        if len(id_array) == 0:
            return
        condition, values = ("current = 1", ()) if run_id is None else ("id = ?", (run_id,))
        with self.transaction():
            source_id = self.database.value(f"SELECT coalesce(rows_of, id) FROM runs WHERE {condition}", values)
            if source_id is None:
                raise StorageError(f"The catalogue has no run {run_id}.")
            self._rows.append(int(source_id), id_array, U)  # the run whose rows this run shares

    def mark(self, ids: Iterable[int], state: str) -> None:
        """Mark images as "here" or "gone". Images that are gone keep their rows, but searches skip them."""
        with self.database.transaction():
            self.images.mark(ids, state)
            self._rows.mark_changed()

    def use_run(self, run_id: int) -> None:
        """Make a run the current one, whose rows are searched. Raises StorageError if the run does not exist."""
        with self.database.transaction():
            self.database.write("UPDATE runs SET current = 0 WHERE current = 1")
            if self.database.write("UPDATE runs SET current = 1 WHERE id = ?", (run_id,)) == 0:
                raise StorageError(f"The catalogue has no run {run_id}.")
            self._rows.mark_changed()

    def compact(self, *, least: float = 0.2) -> bool:
        """Rewrite each segment in which at least the share `least` of the rows is dead, without the dead rows.

        Returns whether any segment was rewritten.
        """
        with self.writing():
            self._current = None  # Windows cannot delete mapped files
            return self._rows.compact(least)

    def index_is_due(self) -> bool:
        """Return whether the current run has enough dense rows without an index to build a new index."""
        return indexes_are_due(self.database)

    def build_index(self, queries: NDArray[np.float32]) -> bool:
        """Index (with faiss or LanceDB) each large dense segment of the current run, if that makes searches faster.

        Searches with a filter, for more than 100 results, or of rows added after the index was built stay exact.
        `queries`, shape (n_queries, width), are typical query rows: the first 200 of them are used to measure the speed
        and the recall of an index. Returns whether an index is used from now on.

        Raises StorageError if the catalogue is in memory only; MissingExtraError if faiss is not installed.
        """
        self._saved_folder()
        with self.writing():
            return build_indexes(self._rows, queries)

    def how_it_searches(self) -> str:
        """Describe how images are searched: exactly, or with an index and its measured speed and recall."""
        return how_it_searches(self.database)

    def keep_in_lance(self, uri: str = "") -> None:
        """Store the rows of a catalogue that is still empty in Lance tables instead of files.

        `uri` is a folder, local or in an object store (``s3://bucket/folder``); if empty, the catalogue's own folder.
        Raises StorageError if the catalogue already has rows, is in memory, or cannot store tables at `uri`;
        MissingExtraError if lancedb is not installed.
        """
        self._saved_folder()
        with self.transaction():
            self._rows.keep_in_lance(uri)

    def keeps_rows_in(self, store: str) -> bool:
        """Return whether rows are stored in `store`: "files", "lance" or "lance:URI"."""
        uri, tables = lance_uri(store), self._rows.lance
        return tables is None if uri is None else tables is not None and LanceLocation.at(uri).uri == tables.uri

    def where_rows_are(self) -> str:
        """Describe where the rows are stored: "files", or Lance tables with their location."""
        tables = self._rows.lance
        return "files" if tables is None or self.folder is None else f"Lance tables at {tables.uri_of(self.folder)}"

    def write_into(self, folder: Path) -> None:
        """Write the catalogue's database and rows into a new folder."""
        with self.database.transaction(writes=False):
            self._rows.copy_to(folder)
            self.database.copy_to(folder / DATABASE)
        copied_database = Database(folder / DATABASE)
        copied_database.write("DELETE FROM indexes")
        copied_database.write("UPDATE segments SET table_version = NULL")  # the copy stores its rows in files
        copied_database.write("DELETE FROM meta WHERE key = 'lance'")
        copied_database.close()
