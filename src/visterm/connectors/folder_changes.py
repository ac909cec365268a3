"""Detect changed files in folders: by reports of the operating system, or by polling on network drives."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from watchfiles import watch

from visterm.core.errors import StorageError
from visterm.core.wording import count_of
from visterm.data.contents import file_state
from visterm.data.image_folders import is_excluded_folder, suffix_of
from visterm.library.files import is_inside

TICK_SECONDS = 0.5  # Time between two checks for reports
MAX_WAITS = 10  # See `ChangedFiles`
OCTAL = re.compile(r"\\([0-7]{3})")  # Octal escapes in mount points: \040 is a space

NETWORK_FILE_SYSTEMS = frozenset(
    {"9p", "afs", "afpfs", "ceph", "cifs", "coda", "davfs", "drvfs", "gfs2", "glusterfs", "lustre", "ncpfs", "nfs"}
    | {"nfs4", "ocfs2", "prl_fs", "smb2", "smb3", "smbfs", "vboxsf", "virtiofs", "vmhgfs-fuse"}
)
"""File systems that don't report changes by other machines; neither, presumably, do ``fuse.*`` (sshfs, rclone)."""


def mounts(table: Path = Path("/proc/self/mounts")) -> dict[str, str]:
    """Return mount point -> type of its file system; empty on systems without a mount table."""
    try:
        lines = table.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return {}
    fields = [line.split(" ") for line in lines]
    return {OCTAL.sub(lambda code: chr(int(code[1], 8)), mount_point): kind for _, mount_point, kind, *_ in fields}


def is_on_network(folder: str, fs_types: Mapping[str, str]) -> bool:
    """Return whether a folder or one of its subfolders is on a network file system."""
    mount_point = max((point for point in fs_types if is_inside(f"{folder}/", point)), key=len, default="")
    kinds = [fs_types.get(mount_point, ""), *(kind for point, kind in fs_types.items() if is_inside(point, folder))]
    return any(kind in NETWORK_FILE_SYSTEMS or kind.startswith("fuse.") for kind in kinds)


class Stop:
    """A flag to stop a loop. It has no lock, unlike `threading.Event`, so that signal handlers may set it."""

    def __init__(self) -> None:
        self._set = False

    def set(self) -> None:
        """Request the stop."""
        self._set = True

    def is_set(self) -> bool:
        """Return whether a stop was requested."""
        return self._set

    def wait(self, seconds: float) -> bool:
        """Wait for `seconds`, or until shortly after a stop is requested; return whether it was requested."""
        deadline = time.monotonic() + seconds
        while not self._set and (remaining := deadline - time.monotonic()) > 0:
            time.sleep(min(remaining, TICK_SECONDS))
        return self._set


class FolderChanges:
    """Collects the paths that change in folders after its creation; call `close` when done.

    Parameters
    ----------
    reported, polled : sequence of str
        Absolute paths of existing folders: those whose changes the system reports, and those to poll.
    suffixes : collection of str
        Suffixes of relevant files, in lower case. Folders and deleted paths are always reported.
    seconds : float
        Interval for polling the `polled` folders.
    stop : Stop
        Ends waiting early.

    Attributes
    ----------
    end_reason : str
        Why the system's reports ended, which may have lost changes; empty while they work.

    Raises StorageError if the system cannot watch more folders.
    """

    def __init__(
        self, reported: Sequence[str], polled: Sequence[str], suffixes: Collection[str], seconds: float, stop: Stop
    ) -> None:
        self._folders, self._suffixes, self._stop = [*reported, *polled], suffixes, stop
        self._seconds = seconds
        self._polled_states = {folder: self._file_states(folder) for folder in polled}
        self._next_poll = time.monotonic() + seconds
        self.end_reason = ""
        self._events = _events(reported, stop) if reported else None
        self._pending = self._reported_paths()  # starts watching

    def wait(self) -> set[str]:
        """Return the paths that changed since the last call, after waiting briefly."""
        changed, self._pending = self._pending | self._reported_paths(), set()
        if time.monotonic() >= self._next_poll:
            for folder, before in self._polled_states.items():
                after = self._polled_states[folder] = self._file_states(folder)
                changed |= {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
            self._next_poll = time.monotonic() + self._seconds
        return {path for path in changed if self._is_relevant(path)}

    def close(self) -> None:
        """Stop watching."""
        if self._events is not None:
            self._events.close()

    def _reported_paths(self) -> set[str]:
        """Return the paths that the system reports, after waiting briefly."""
        try:
            paths = None if self._events is None else next(self._events, None)
        except (UnicodeError, RuntimeError) as error:  # from watchfiles, which cannot handle names that are not UTF-8
            paths, self.end_reason = None, str(error)
        if paths is None:
            self._events = None
            self._stop.wait(TICK_SECONDS)
        return paths or set()

    def _is_relevant(self, path: str) -> bool:
        """Return whether a changed path may affect photos or their tags; hidden files and folders do not."""
        folder = next((folder for folder in self._folders if is_inside(path, folder)), None)
        if folder is None:
            return path in self._folders
        *folders, name = os.path.relpath(path, folder).split(os.sep)
        if any(map(is_excluded_folder, folders)) or is_excluded_folder(name):
            return False
        return suffix_of(name) in self._suffixes or not os.path.isfile(path)

    def _file_states(self, folder: str) -> dict[str, tuple[int, int] | None]:
        """Return path -> size and date of the relevant files in a folder, without files that cannot be listed."""
        states = {}
        for parent, folders, files in os.walk(folder):
            folders[:] = [name for name in folders if not is_excluded_folder(name)]
            for name in files:
                if suffix_of(name) in self._suffixes and not name.startswith("."):
                    path = os.path.join(parent, name)
                    states[path] = file_state(path)
        return states


def _events(folders: Sequence[str], stop: Stop) -> Generator[set[str]]:
    """Yield sets of changed paths reported by the system; an empty set after a short time without reports."""
    try:
        with closing(
            watch(
                *folders, watch_filter=None, rust_timeout=round(1000 * TICK_SECONDS), yield_on_timeout=True,
                raise_interrupt=False, stop_event=stop, force_polling=False, ignore_permission_denied=True,
            )
        ) as changes:  # fmt: skip
            for events in changes:
                yield {path for _, path in events}
    except FileNotFoundError:  # a folder was just deleted; the caller will notice
        return
    except OSError as error:
        raise StorageError(
            f"The system cannot watch {count_of(len(folders), 'folder')} with their sub-folders: {error}.",
            advice="Raise its limit (sysctl fs.inotify.max_user_watches=1048576), or check them at intervals (`poll`).",
        ) from error


class ChangedFiles:
    """Changed files, which are returned after being stable for `seconds`, so not while they are copied.

    They are returned together, once all are stable; while one of them keeps changing, the others wait `MAX_WAITS` times
    as long. `clock` returns the current time in seconds.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = seconds, clock
        self._since: dict[str, tuple[tuple[int, int] | None, float]] = {}

    def touch(self, paths: Collection[str]) -> None:
        """Add files that were just changed or deleted."""
        self._since.update((path, (file_state(path), self._clock())) for path in paths)

    def settled(self) -> list[str]:
        """Return and remove the files whose size and date have been stable for long enough, sorted."""
        for path, (state, _) in self._since.items():
            current_state = file_state(path)
            if current_state != state:
                self._since[path] = current_state, self._clock()
        waits = {path: self._clock() - since for path, (_, since) in self._since.items()}
        stable = sorted(path for path, wait in waits.items() if wait >= self._seconds)
        if len(stable) < len(waits) and max(waits.values()) < MAX_WAITS * self._seconds:
            return []
        for path in stable:
            del self._since[path]
        return stable
