"""A features folder in an object store: the same files, each put in one step, the manifest last.

Shards are written where they stay, as nothing can be renamed there; those of a job that is not finished are named by
its notes alone. They are read through a cache on this machine's disk.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import tempfile
import threading
import time
import uuid
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

from visterm.core.errors import StorageError
from visterm.core.persist import MANIFEST, folder_kind, open_folder
from visterm.core.remote import RemotePath, is_remote
from visterm.core.system import is_alive
from visterm.core.types import Skipped
from visterm.data.contents import READERS
from visterm.encoders.contract import AnyEncoder
from visterm.features.contents import Contents, FirstJob, ShardEntry
from visterm.features.folder import DATA, ENCODER, LEASE, SKIPPED, FeatureFolder, T

BEGUN = "begun"

SHARE = 0.5  # Of what is free on the disk of temporary files (TMPDIR), taken at most
LEAST = 8  # Shards that are kept whatever their size: they are being read

RENEWED = 30.0  # Seconds after which the object is written anew
ABANDONED = 180.0  # Seconds without that, after which another process may take over: clocks may differ by a minute
SETTLED = 1.0  # Seconds after which one of two processes that took over at once sees that the other did so later

_OUR_TOKENS: set[str] = set()


def feature_folder(path: str | os.PathLike[str]) -> FeatureFolder:
    """Return the features folder at a path of this machine, or at an address."""
    return RemoteFeatureFolder(path) if is_remote(path) else FeatureFolder(path)


class RemoteFeatureFolder(FeatureFolder):
    """The files of a features folder at an address; what is not here is as in `FeatureFolder`."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path)
        self._lease: Lease | None = None
        self._listed: set[str] | None = None

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_lease": None, "_listed": None}  # who writes is the process that took the lease

    def check_place(self) -> None:
        """Refuse a place where anything else lies, before any long work."""
        if not self.is_begun() and folder_kind(self.path) != self.kind and self.path.exists():
            raise StorageError(
                f"{self.path} exists and is not a {self.kind} of visterm, so it is not replaced. Choose another name."
            )

    def is_begun(self) -> bool:
        """Return whether a job was killed here before anything was whole."""
        names = set(_remote(self.path).children())
        return self.unfinished.name in names <= {ENCODER, DATA, SKIPPED, self.unfinished.name}

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from writing here, by a lease that is renewed (see `Lease`)."""
        self._lease = Lease(self.unfinished / LEASE, self.path)
        try:
            with self._lease.held():
                yield
        finally:
            self._lease = None

    def begin(self) -> None:
        """Finish a change that a kill cut off."""
        self.settle()
        self._listed = None

    def shard_to_write(self, file: str) -> Path:
        """Return the place of a shard of this job: that of all shards, as it is not named by the manifest yet."""
        return self.data / file

    def is_written(self, entry: ShardEntry) -> bool:
        """Return whether a shard of this job is there: it is whole then."""
        return self.shard_to_write(entry.file).is_file()

    def is_whole(self, entry: ShardEntry) -> bool:
        """Return whether a shard is there; its bytes are looked at when it is fetched."""
        if self._listed is None:
            self._listed = set(_remote(self.data).children())
        return entry.file in self._listed

    def local(self, entry: ShardEntry) -> Path:
        """Fetch a shard, unless it is on this machine's disk already, and see that it is as it was written."""
        try:
            file = CACHE.get(entry.sha256, (self.data / entry.file).read_bytes)
        except FileNotFoundError:
            file = None
        if file is None:
            raise self.damaged(entry)
        return file

    def source(self, entry: ShardEntry) -> Path:
        """Return where parts of a shard may be read: on this machine's disk, if it is there, or in the store."""
        return CACHE.find(entry.sha256) or self.data / entry.file

    def read_each(self, read: Callable[[Path], T], files: Iterable[Path]) -> Iterator[T]:
        """Read some files of the folder, in their order, many at the same time."""
        with ThreadPoolExecutor(READERS, thread_name_prefix="visterm-fetch") as pool:
            yield from pool.map(read, files)

    def save_encoder(self, encoder: AnyEncoder, first: FirstJob) -> None:
        """Keep the fitted encoder, with what was requested; its manifest is put last."""
        with tempfile.TemporaryDirectory(prefix="visterm-") as temporary:
            copy = FeatureFolder(temporary)
            copy.save_encoder(encoder, first)
            (self.unfinished / BEGUN).write_bytes(b"")  # whoever stops from here on finds a job of visterm
            files = sorted((copy.path / ENCODER).iterdir(), key=lambda file: (file.name == MANIFEST, file.name))
            for file in files:
                (self.path / ENCODER / file.name).write_bytes(file.read_bytes())

    def load_encoder(self, n_jobs: int | None) -> tuple[AnyEncoder, FirstJob]:
        """Return the fitted encoder, to be used with `n_jobs` threads, and what was requested."""
        open_folder(self.path / ENCODER, ENCODER)
        with tempfile.TemporaryDirectory(prefix="visterm-") as temporary:
            copy = FeatureFolder(temporary)
            (copy.path / ENCODER).mkdir()
            for file in self.files_of(self.path / ENCODER):
                (copy.path / ENCODER / file.name).write_bytes(file.read_bytes())
            return copy.load_encoder(n_jobs)

    def commit(self, contents: Contents, skipped: Sequence[Skipped]) -> None:
        """Put new contents in place of the old, if this process is still the one that writes here."""
        if self._lease is not None:
            self._lease.check()
        super().commit(contents, skipped)

    def settle(self) -> None:
        """Finish a change whose manifest is written, step by step as a kill left it; then drop what is left over."""
        pending = self.unfinished / MANIFEST
        if not pending.exists():
            return
        skipped = self.unfinished / SKIPPED
        if skipped.exists():
            (self.path / SKIPPED).write_bytes(skipped.read_bytes())
        (self.path / MANIFEST).write_bytes(pending.read_bytes())
        self._sweep()
        for file in self.files_of(self.unfinished):
            if file.name not in (LEASE, MANIFEST):
                file.unlink(missing_ok=True)
        pending.unlink(missing_ok=True)

    def check(self, entry: ShardEntry) -> None:
        """Refuse a shard that is missing, or was changed since it was written, by fetching it."""
        self.local(entry)

    def files_of(self, folder: Path) -> list[Path]:
        """List the files in a folder of this one."""
        return [folder / name for name in _remote(folder).children()]


def _remote(path: Path) -> RemotePath:
    return cast("RemotePath", path)


class Lease:
    """The right to write at an address, for one process at a time: the object `file`, for what messages call `of`.

    A process that is killed leaves its object behind. On the same machine the next one sees that it is gone and takes
    over at once, elsewhere when it has not been renewed for a while. Stores without conditional writes keep two
    processes apart that start more than a moment after each other, no others.
    """

    def __init__(self, file: Path, of: Path) -> None:
        self._file, self._of = cast("RemotePath", file), of
        self._token = uuid.uuid4().hex
        self._since = time.time()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lease while the block runs; it is renewed meanwhile, and released at the end.

        Raises StorageError if another process has it.
        """
        if not (self._file.create(self._content()) and self._is_own()):
            current = self._read()
            if current is not None and not _is_abandoned(current):
                raise self._refusal(current)
            self._file.write_bytes(self._content())
            time.sleep(SETTLED)
            if not self._is_own():
                raise self._refusal(self._read())

        released = threading.Event()

        def renew() -> None:
            while not released.wait(RENEWED):
                with suppress(StorageError):  # the store may be back in time
                    if self._is_own():
                        self._file.write_bytes(self._content())

        _OUR_TOKENS.add(self._token)
        renewing = threading.Thread(target=renew, daemon=True, name="visterm-lease")
        renewing.start()
        try:
            yield
        finally:
            released.set()
            renewing.join()
            _OUR_TOKENS.discard(self._token)
            with suppress(StorageError):  # what went wrong before says more
                if self._is_own():
                    self._file.unlink(missing_ok=True)

    def check(self) -> None:
        """Refuse to go on where another process has taken over.

        Raises StorageError if one has: this machine slept, or was cut off from the store.
        """
        if not self._is_own():
            raise StorageError(
                f"Another process has taken over writing into {self._of}, as this one was not heard of for "
                f"{ABANDONED:.0f} seconds ({_in_words(self._read())}). What this one did is not lost."
            )

    def _is_own(self) -> bool:
        current = self._read()
        return current is not None and current.get("token") == self._token

    def _read(self) -> dict[str, Any] | None:
        try:
            content = json.loads(self._file.read_text())
        except (FileNotFoundError, ValueError):
            return None
        return content if isinstance(content, dict) else None

    def _content(self) -> bytes:
        content = {
            "token": self._token, "host": socket.gethostname(), "pid": os.getpid(), "since": self._since,
            "renewed": time.time(),
        }  # fmt: skip
        return json.dumps(content).encode()

    def _refusal(self, current: dict[str, Any] | None) -> StorageError:
        return StorageError(
            f"Another process is writing into {self._of} ({_in_words(current)}). Wait until it is done, or choose "
            f"another place. If it was killed, it is passed over {ABANDONED:.0f} seconds after its last sign of life."
        )


def _is_abandoned(current: dict[str, Any]) -> bool:
    try:
        pid, renewed = int(current["pid"]), float(current["renewed"])
    except (KeyError, TypeError, ValueError):
        return True
    if current.get("host") == socket.gethostname() and current.get("token") not in _OUR_TOKENS:
        was_before = pid == os.getpid()  # in a container begun anew
        if was_before or not is_alive(pid):
            return True
    return time.time() - renewed > ABANDONED


def _in_words(current: dict[str, Any] | None) -> str:
    if current is None:
        return "it is unknown which"
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(float(current.get("since", 0))))
    return f"process {current.get('pid')} on {current.get('host')} since {since}"


class ShardCache:
    """Files by the SHA-256 of their content, which is checked once, when they arrive.

    It takes at most `most` bytes; None: half of what the disk has free when the first file comes.
    """

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._folder: Path | None = None
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, sha256: str) -> Path | None:
        """Return the file of this content, if it is here."""
        with self._lock:
            if sha256 not in self._sizes:
                return None
            self._sizes.move_to_end(sha256)
            return self._place(sha256)

    def get(self, sha256: str, fetch: Callable[[], bytes]) -> Path | None:
        """Return the file of this content, fetched if it is not here; None where what was fetched has another."""
        path = self.find(sha256)
        if path is not None:
            return path
        content = fetch()
        if hashlib.sha256(content).hexdigest() != sha256:
            return None
        with self._lock:
            path = self._place(sha256)
            while len(self._sizes) >= LEAST and sum(self._sizes.values()) + len(content) > (self._most or 0):
                oldest, _ = self._sizes.popitem(last=False)
                self._place(oldest).unlink(missing_ok=True)
            path.write_bytes(content)
            self._sizes[sha256] = len(content)
            return path

    def _place(self, sha256: str) -> Path:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="visterm-shards-"))
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
            if self._most is None:
                self._most = int(SHARE * shutil.disk_usage(self._folder).free)
        return self._folder / f"{sha256}.parquet"


CACHE = ShardCache()  # That of this process; it goes with it
