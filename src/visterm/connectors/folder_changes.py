"""Which files of folders change: as the system reports it, or, on network drives, by looking every so often."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from visterm.core.errors import MissingExtraError, StorageError
from visterm.core.wording import count_of
from visterm.data.contents import file_state
from visterm.data.image_folders import is_set_aside, suffix_of
from visterm.library.files import is_inside

TICK = 0.5  # Seconds between two looks at what is reported
ESCAPED = re.compile(r"\\([0-7]{3})")  # A space in a mount point is written \040

NETWORK = frozenset(
    {"9p", "afs", "afpfs", "ceph", "cifs", "coda", "davfs", "drvfs", "gfs2", "glusterfs", "lustre", "ncpfs", "nfs"}
    | {"nfs4", "ocfs2", "prl_fs", "smb2", "smb3", "smbfs", "vboxsf", "virtiofs", "vmhgfs-fuse"}
)
"""File systems where other machines write, which this system does not report. So may all ``fuse.*`` (sshfs, rclone)."""


def mounts(table: Path = Path("/proc/self/mounts")) -> dict[str, str]:
    """Return the file system of each mount point; nothing on systems that keep no such table."""
    try:
        lines = table.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return {}
    fields = [line.split(" ") for line in lines]
    return {ESCAPED.sub(lambda code: chr(int(code[1], 8)), mount_point): kind for _, mount_point, kind, *_ in fields}


def is_on_network(folder: str, mounted: Mapping[str, str]) -> bool:
    """Return whether a folder, or one in it, lies on a file system of the network."""
    around = max((point for point in mounted if is_inside(f"{folder}/", point)), key=len, default="")
    kinds = [mounted.get(around, ""), *(kind for point, kind in mounted.items() if is_inside(point, folder))]
    return any(kind in NETWORK or kind.startswith("fuse.") for kind in kinds)


class Stop:
    """Whether to end. A handler of signals may set it: it waits for no lock, as `threading.Event` would."""

    def __init__(self) -> None:
        self._set = False

    def set(self) -> None:
        """Ask to end."""
        self._set = True

    def is_set(self) -> bool:
        """Return whether it was asked for."""
        return self._set

    def wait(self, seconds: float) -> bool:
        """Wait that long, or until a moment after it is set; return whether it is."""
        until = time.monotonic() + seconds
        while not self._set and (remaining := until - time.monotonic()) > 0:
            time.sleep(min(remaining, TICK))
        return self._set


class FolderChanges:
    """Collects the paths that change in folders, from the moment when it is made; close it in the end.

    Parameters
    ----------
    reported, polled : sequence of str
        Folders in full that are there: those whose changes the system reports, and those to look at.
    suffixes : collection of str
        Endings, in small letters, of the files that count. Folders count, too, and whatever is not there any more.
    seconds : float
        Between two looks at the `polled` ones.
    stop : Stop
        Ends a wait.

    Attributes
    ----------
    ended : str
        Why the system's reports ended, before which some were lost; empty while they go on.

    Raises MissingExtraError if anything is `reported` and watchfiles is not installed; StorageError if the system
    watches no more folders.
    """

    def __init__(
        self, reported: Sequence[str], polled: Sequence[str], suffixes: Collection[str], seconds: float, stop: Stop
    ) -> None:
        self._folders, self._suffixes, self._stop = [*reported, *polled], suffixes, stop
        self._seconds = seconds
        self._seen = {folder: self._file_states(folder) for folder in polled}
        self._next = time.monotonic() + seconds
        self.ended = ""
        self._events = _events(reported, stop) if reported else None
        self._pending = self._reported_paths()  # from now on

    def wait(self) -> set[str]:
        """Return the paths that changed since the last call, after a moment at most."""
        changed, self._pending = self._pending | self._reported_paths(), set()
        if time.monotonic() >= self._next:
            for folder, before in self._seen.items():
                after = self._seen[folder] = self._file_states(folder)
                changed |= {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
            self._next = time.monotonic() + self._seconds
        return {path for path in changed if self._counts(path)}

    def close(self) -> None:
        """End the watch of the system."""
        if self._events is not None:
            self._events.close()

    def _reported_paths(self) -> set[str]:
        """Return what the system reports within a moment."""
        try:
            paths = None if self._events is None else next(self._events, None)
        except (UnicodeError, RuntimeError) as error:  # of watchfiles, which can't name what is not UTF-8
            paths, self.ended = None, str(error)
        if paths is None:
            self._events = None
            self._stop.wait(TICK)
        return paths or set()

    def _counts(self, path: str) -> bool:
        """Return whether a change may be one of photos or their tags: hidden files and folders aside."""
        folder = next((folder for folder in self._folders if is_inside(path, folder)), None)
        if folder is None:
            return path in self._folders
        *folders, name = os.path.relpath(path, folder).split(os.sep)
        if any(map(is_set_aside, folders)) or is_set_aside(name):
            return False
        return suffix_of(name) in self._suffixes or not os.path.isfile(path)

    def _file_states(self, folder: str) -> dict[str, tuple[int, int] | None]:
        """Return size and date of the files of a folder that count; those that cannot be listed are not there."""
        states = {}
        for parent, folders, files in os.walk(folder):
            folders[:] = [name for name in folders if not is_set_aside(name)]
            for name in files:
                if suffix_of(name) in self._suffixes and not name.startswith("."):
                    path = os.path.join(parent, name)
                    states[path] = file_state(path)
        return states


def _events(folders: Sequence[str], stop: Stop) -> Generator[set[str]]:
    """Yield sets of paths as the system reports them; an empty one after each moment without any."""
    try:
        from watchfiles import watch
    except ImportError as error:
        advice = "Install it with: pip install 'visterm[watch]'. Or look at the folders every so often, by `poll`."
        raise MissingExtraError("To watch folders, the package 'watchfiles' is needed.", advice=advice) from error

    def paths() -> Generator[set[str]]:
        try:
            with closing(
                watch(
                    *folders, watch_filter=None, rust_timeout=round(1000 * TICK), yield_on_timeout=True,
                    raise_interrupt=False, stop_event=stop, force_polling=False, ignore_permission_denied=True,
                )
            ) as changes:  # fmt: skip
                for events in changes:
                    yield {path for _, path in events}
        except FileNotFoundError:  # one of them went just now, which the caller sees
            return
        except OSError as error:
            raise StorageError(
                f"The system does not watch {count_of(len(folders), 'folder')} with all that is in them: {error}.",
                advice="Raise its limit (sysctl fs.inotify.max_user_watches=1048576), or look now and then, by `poll`.",
            ) from error

    return paths()


class Settling:
    """Files that changed, until they stay as they are for some time: a file that is still copied waits.

    `seconds` is that time; `clock` tells the seconds that have passed.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = seconds, clock
        self._since: dict[str, tuple[tuple[int, int] | None, float]] = {}

    def touch(self, paths: Collection[str]) -> None:
        """Take in files that changed just now, or went."""
        self._since.update((path, (file_state(path), self._clock())) for path in paths)

    def settled(self) -> list[str]:
        """Return, and forget, those whose size and date have not changed for long enough, sorted."""
        done = []
        for path, (state, since) in list(self._since.items()):
            now = file_state(path)
            if now != state:
                self._since[path] = now, self._clock()
            elif self._clock() - since >= self._seconds:
                done.append(path)
                del self._since[path]
        return sorted(done)
