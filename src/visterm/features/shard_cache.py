"""Shards of an object store kept on this machine's disk while they may be needed: the latest, up to so many bytes."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

SHARE = 0.5
"""Of what is free on the disk of temporary files (TMPDIR), taken at most."""

LEAST = 8
"""Shards that are kept whatever their size: they are being read."""


class ShardCache:
    """Files by the SHA-256 of their content, which is looked at once, when they come.

    Parameters
    ----------
    most : int, optional
        Bytes; None: half of what the disk has free when the first file comes.
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
        found = self.find(sha256)
        if found is not None:
            return found
        content = fetch()
        if hashlib.sha256(content).hexdigest() != sha256:
            return None
        with self._lock:
            place = self._place(sha256)
            self._make_room(len(content))
            place.write_bytes(content)
            self._sizes[sha256] = len(content)
            return place

    def _place(self, sha256: str) -> Path:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="visterm-shards-"))
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
            if self._most is None:
                self._most = int(SHARE * shutil.disk_usage(self._folder).free)
        return self._folder / f"{sha256}.parquet"

    def _make_room(self, n_bytes: int) -> None:
        while len(self._sizes) >= LEAST and sum(self._sizes.values()) + n_bytes > (self._most or 0):
            oldest, _ = self._sizes.popitem(last=False)
            self._place(oldest).unlink(missing_ok=True)


CACHE = ShardCache()
"""That of this process; it goes with it."""
