"""Who may write at an address: an object that says so and is renewed, as a store keeps no locks for processes."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

from visterm.core.errors import StorageError
from visterm.core.remote import RemotePath
from visterm.core.system import is_alive

RENEWED = 30.0  # Seconds after which the object is written anew
ABANDONED = 180.0
"""Seconds without that after which another process may take over: clocks of machines may differ by a minute."""

SETTLED = 1.0
"""Seconds after which one of two processes that took over at the same moment sees that the other did so later."""

_OWN: set[str] = set()


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
            found = self._read()
            if found is not None and not _is_abandoned(found):
                raise self._refusal(found)
            self._file.write_bytes(self._content())
            time.sleep(SETTLED)
            if not self._is_own():
                raise self._refusal(self._read())

        over = threading.Event()

        def renew() -> None:
            while not over.wait(RENEWED):
                with suppress(StorageError):  # the store may be back in time
                    if self._is_own():
                        self._file.write_bytes(self._content())

        _OWN.add(self._token)
        renewing = threading.Thread(target=renew, daemon=True, name="visterm-lease")
        renewing.start()
        try:
            yield
        finally:
            over.set()
            renewing.join()
            _OWN.discard(self._token)
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
        found = self._read()
        return found is not None and found.get("token") == self._token

    def _read(self) -> dict[str, Any] | None:
        try:
            found = json.loads(self._file.read_text())
        except (FileNotFoundError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def _content(self) -> bytes:
        content = {
            "token": self._token, "host": socket.gethostname(), "pid": os.getpid(), "since": self._since,
            "renewed": time.time(),
        }  # fmt: skip
        return json.dumps(content).encode()

    def _refusal(self, found: dict[str, Any] | None) -> StorageError:
        return StorageError(
            f"Another process is writing into {self._of} ({_in_words(found)}). Wait until it is done, or choose "
            f"another place. If it was killed, it is passed over {ABANDONED:.0f} seconds after its last sign of life."
        )


def _is_abandoned(found: dict[str, Any]) -> bool:
    try:
        pid, renewed = int(found["pid"]), float(found["renewed"])
    except (KeyError, TypeError, ValueError):
        return True
    if found.get("host") == socket.gethostname() and found.get("token") not in _OWN:
        was_before = pid == os.getpid()  # in a container begun anew
        if was_before or not is_alive(pid):
            return True
    return time.time() - renewed > ABANDONED


def _in_words(found: dict[str, Any] | None) -> str:
    if found is None:
        return "it is unknown which"
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(float(found.get("since", 0))))
    return f"process {found.get('pid')} on {found.get('host')} since {since}"
