"""Small disks in memory that tests fill up."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class SmallDisk:
    """A small disk in memory, of which all but a few bytes can be taken."""

    def __init__(self, folder: Path, size: int) -> None:
        self.folder, self.size = folder, size
        self.filler = folder / "filler"

    def used(self) -> int:
        """Return how many bytes are taken."""
        return self.size - shutil.disk_usage(self.folder).free

    def leave(self, room: int) -> None:
        """Take all but some bytes, by a file."""
        with self.filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(1, shutil.disk_usage(self.folder).free - room))

    def free(self) -> None:
        """Remove that file."""
        self.filler.unlink(missing_ok=True)

    def listed(self) -> dict[Path, bytes]:
        """Return the bytes of each file, but of those that a database writes into."""
        files = [path for path in self.folder.rglob("*") if path.is_file() and path != self.filler]
        return {path.relative_to(self.folder): path.read_bytes() for path in files if ".sqlite" not in path.name}

    def restore(self, kept: Path) -> None:
        """Put the files of a folder in place of all that is here."""
        gc.collect()  # files that are still open take space after they are removed
        gc.freeze()  # what lives on need not be looked at each time: it was two thirds of the tests' time
        for path in self.folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copytree(kept, self.folder, dirs_exist_ok=True)

    def mount_again(self, how: str) -> None:
        """Mount it in another way: read-only ("ro"), or to be written ("rw")."""
        subprocess.run(["mount", "-o", f"remount,{how}", str(self.folder)], check=True)


@contextmanager
def small_disk(size: int) -> Iterator[SmallDisk]:
    """Mount a disk of so many bytes.

    Raises
    ------
    OSError
        Where that is not allowed, as it mostly is for all but root.
    """
    folder = Path(tempfile.mkdtemp(prefix="visterm-small-disk-"))
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        folder.rmdir()
        raise OSError(f"no disk can be mounted here: {done.stderr.strip()}")
    try:
        yield SmallDisk(folder, size)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
        folder.rmdir()
