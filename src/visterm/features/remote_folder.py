"""A features folder in an object store: the same files, each written atomically, the manifest last.

Shards are written at their final place, as objects cannot be renamed; shards of an unfinished job are listed only in
its notes. They are read through a cache on this machine's disk.
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
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from visterm.core.errors import StorageError
from visterm.core.persist import MANIFEST, folder_kind, open_folder
from visterm.core.remote import RemotePath, is_remote
from visterm.core.system import is_alive
from visterm.core.types import Skipped
from visterm.data.contents import READERS
from visterm.data.feature_shards import SUFFIX
from visterm.encoders.contract import AnyEncoder
from visterm.features.folder import DATA, ENCODER, LEASE, SKIPPED, Contents, FeatureFolder, FirstJob, ShardEntry, T

BEGUN = "begun"

CACHE_DISK_SHARE = 0.5  # Maximum share of the free space on the disk of temporary files (TMPDIR)
MIN_SHARDS = 8  # Shards that are kept regardless of their size, as they may be in use

RENEWAL_SECONDS = 30.0  # Seconds between renewals of the lease
ABANDONED_SECONDS = 180.0  # Seconds without a renewal until another process may take over: clocks may differ
SETTLING_SECONDS = 1.0  # Seconds to wait after taking over, to see whether another process took over at the same time

_OUR_TOKENS: set[str] = set()


def feature_folder(path: str | os.PathLike[str]) -> FeatureFolder:
    """Return the features folder at a path on this machine, or at an address in an object store."""
    return RemoteFeatureFolder(path) if is_remote(path) else FeatureFolder(path)


class RemoteFeatureFolder(FeatureFolder):
    """The files of a features folder in an object store; other methods are inherited from `FeatureFolder`."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path)
        self._lease: Lease | None = None
        self._listed: set[str] | None = None

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_lease": None, "_listed": None}  # only the process that took the lease writes

    def check_path(self) -> None:
        """Check, before any long work, that the address can be used for a features folder."""
        if not self.is_begun() and folder_kind(self.path) != self.kind and self.path.exists():
            raise StorageError(
                f"{self.path} exists and is not a {self.kind} of visterm, so it is not replaced. Choose another name."
            )

    def is_begun(self) -> bool:
        """Return whether a job was killed here before it finished for the first time."""
        names = set(_remote(self.path).children())
        return self.unfinished.name in names <= {ENCODER, DATA, SKIPPED, self.unfinished.name}

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder against writing by other processes, with a renewed lease (see `Lease`)."""
        self._lease = Lease(self.unfinished / LEASE, self.path)
        try:
            with self._lease.held():
                yield
        finally:
            self._lease = None

    def begin(self) -> None:
        """Complete an interrupted change."""
        self.settle()
        self._listed = None

    def shard_to_write(self, file: str) -> Path:
        """Return the path where a job writes a shard: its final place, as the manifest does not list it yet."""
        return self.data / file

    def is_written(self, entry: ShardEntry) -> bool:
        """Return whether a shard of this job exists; existing objects are complete."""
        return self.shard_to_write(entry.file).is_file()

    def is_intact(self, entry: ShardEntry) -> bool:
        """Return whether a shard exists; its bytes are checked when it is fetched."""
        if self._listed is None:
            self._listed = set(_remote(self.data).children())
        return entry.file in self._listed

    def local(self, entry: ShardEntry) -> Path:
        """Fetch a shard, unless it is cached on this machine, and check that it is unchanged."""
        try:
            file = CACHE.get(entry.sha256, (self.data / entry.file).read_bytes)
        except FileNotFoundError:
            file = None
        if file is None:
            raise self.damaged(entry)
        return file

    def source(self, entry: ShardEntry) -> Path:
        """Return a path for reading parts of a shard: in the local cache, or else in the store."""
        return CACHE.find(entry.sha256) or self.data / entry.file

    def read_each(self, read: Callable[[Path], T], files: Iterable[Path]) -> Iterator[T]:
        """Read files of the folder in parallel; results are in the given order."""
        with ThreadPoolExecutor(READERS, thread_name_prefix="visterm-fetch") as pool:
            yield from pool.map(read, files)

    def save_encoder(self, encoder: AnyEncoder, first: FirstJob) -> None:
        """Save the fitted encoder, with the request of the first job; its manifest is written last."""
        with tempfile.TemporaryDirectory(prefix="visterm-") as temporary:
            copy = FeatureFolder(temporary)
            copy.save_encoder(encoder, first)
            (self.unfinished / BEGUN).write_bytes(b"")  # marks the folder as visterm's after a kill
            for file in sorted((copy.path / ENCODER).iterdir(), key=lambda file: (file.name == MANIFEST, file.name)):
                (self.path / ENCODER / file.name).write_bytes(file.read_bytes())

    def load_encoder(self, n_jobs: int | None) -> tuple[AnyEncoder, FirstJob]:
        """Return the fitted encoder, set to `n_jobs` threads, and the request of the first job."""
        open_folder(self.path / ENCODER, ENCODER)
        with tempfile.TemporaryDirectory(prefix="visterm-") as temporary:
            copy = FeatureFolder(temporary)
            (copy.path / ENCODER).mkdir()
            for file in self.files_of(self.path / ENCODER):
                (copy.path / ENCODER / file.name).write_bytes(file.read_bytes())
            return copy.load_encoder(n_jobs)

    def commit(self, contents: Contents, skipped: Sequence[Skipped]) -> None:
        """Replace the contents, if this process still holds the lease."""
        if self._lease is not None:
            self._lease.check()
        super().commit(contents, skipped)

    def settle(self) -> None:
        """Complete a change whose manifest is written, from any step at which it stopped; then remove old shards."""
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
        """Raise `CorruptFileError` if a shard is missing or was changed, by fetching it."""
        self.local(entry)

    def files_of(self, folder: Path) -> list[Path]:
        """List the files in a sub-folder."""
        return [folder / name for name in _remote(folder).children()]


def _remote(path: Path) -> RemotePath:
    return cast("RemotePath", path)


class Lease:
    """The exclusive right of one process to write at an address, as the object `file`; messages name `target`.

    A killed process leaves its object behind. Another process on the same machine detects that and takes over at once;
    on other machines, it takes over when the lease has not been renewed for a while. In stores without conditional
    writes, two processes that start at the same moment may both get the lease.
    """

    def __init__(self, file: Path, target: Path) -> None:
        self._file, self._target = cast("RemotePath", file), target
        self._token = uuid.uuid4().hex
        self._facts = {
            "token": self._token, "host": socket.gethostname(), "pid": os.getpid(), "since": time.time(),
        }  # fmt: skip

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold and renew the lease while the block runs, and release it at the end.

        Raises StorageError if another process has it.
        """
        if not (self._file.create(self._content()) and self._is_own()):
            current = self._read()
            if current is not None and not _is_abandoned(current):
                raise self._refusal(current)
            self._file.write_bytes(self._content())
            time.sleep(SETTLING_SECONDS)
            if not self._is_own():
                raise self._refusal(self._read())

        released = threading.Event()

        def renew() -> None:
            while not released.wait(RENEWAL_SECONDS):
                with suppress(StorageError):  # the store may be reachable again in time
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
            with suppress(StorageError):  # an earlier error is more informative
                if self._is_own():
                    self._file.unlink(missing_ok=True)

    def check(self) -> None:
        """Check that this process still holds the lease.

        Raises StorageError if another has taken over, because this machine slept or was cut off from the store.
        """
        if not self._is_own():
            raise StorageError(
                f"Another process has taken over writing into {self._target}, because this one was silent for "
                f"{ABANDONED_SECONDS:.0f} seconds ({_describe(self._read())}). Its finished work is kept."
            )

    def _is_own(self) -> bool:
        return (self._read() or {}).get("token") == self._token

    def _read(self) -> dict[str, Any] | None:
        try:
            content = json.loads(self._file.read_text())
        except (FileNotFoundError, ValueError):
            return None
        return content if isinstance(content, dict) else None

    def _content(self) -> bytes:
        return json.dumps({**self._facts, "renewed": time.time()}).encode()

    def _refusal(self, current: dict[str, Any] | None) -> StorageError:
        return StorageError(
            f"Another process is writing into {self._target} ({_describe(current)}). Wait until it is done, or choose "
            f"another place. If it was killed, try again {ABANDONED_SECONDS:.0f} s after its last sign of life."
        )


def _is_abandoned(current: dict[str, Any]) -> bool:
    try:
        pid, renewed = int(current["pid"]), float(current["renewed"])
    except (KeyError, TypeError, ValueError):
        return True
    is_here = current.get("host") == socket.gethostname() and current.get("token") not in _OUR_TOKENS
    is_killed = is_here and (pid == os.getpid() or not is_alive(pid))  # in a restarted container, pids repeat
    return is_killed or time.time() - renewed > ABANDONED_SECONDS


def _describe(current: dict[str, Any] | None) -> str:
    if current is None:
        return "it is unknown which"
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(float(current.get("since", 0))))
    return f"process {current.get('pid')} on {current.get('host')} since {since}"


class ShardCache:
    """A cache of files by the SHA-256 of their content, which is checked once, when a file is fetched.

    It uses at most `max_bytes`; None: at most as much as half of the space on the disk that is free.
    """

    def __init__(self, max_bytes: int | None = None) -> None:
        self._limit = max_bytes
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, sha256: str) -> Path | None:
        """Return the cached file with this hash, or None."""
        with self._lock:
            if sha256 not in self._sizes:
                return None
            self._sizes.move_to_end(sha256)
            return self._folder / f"{sha256}{SUFFIX}"

    def get(self, sha256: str, fetch: Callable[[], bytes]) -> Path | None:
        """Return the file with this hash, fetched if it is not cached; None if the fetched content has another hash."""
        path = self.find(sha256)
        if path is not None:
            return path
        content = fetch()
        if hashlib.sha256(content).hexdigest() != sha256:
            return None
        with self._lock:
            path = self._folder / f"{sha256}{SUFFIX}"
            limit = self._limit or int(CACHE_DISK_SHARE * shutil.disk_usage(self._folder).free)
            while len(self._sizes) >= MIN_SHARDS and sum(self._sizes.values()) + len(content) > limit:
                oldest, _ = self._sizes.popitem(last=False)
                (self._folder / f"{oldest}{SUFFIX}").unlink(missing_ok=True)
            path.write_bytes(content)
            self._sizes[sha256] = len(content)
            return path

    @cached_property
    def _folder(self) -> Path:
        folder = Path(tempfile.mkdtemp(prefix="visterm-shards-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        return folder


CACHE = ShardCache()  # The cache of this process, which is deleted with it
