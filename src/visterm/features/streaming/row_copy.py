"""Dense rows copied out of Parquet once, as plain numbers: to unpack them takes half as long as an epoch on them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import StorageError
from visterm.features.streaming.shards import Shards

FILE = "rows.f32"

SPARE = 2
"""Times the size of the copy that must be free on the disk: otherwise none is made."""


class RowCopy:
    """The rows of dense shards in one file, in the order of their positions.

    Parameters
    ----------
    file : Path
    width : int
    """

    def __init__(self, file: Path, width: int) -> None:
        self._file, self._width = file, width

    @classmethod
    def where_it_fits(cls, folder: Path, shards: Shards) -> Self | None:
        """Begin a copy; None for sparse rows, which unpack quickly, and where the disk has no room."""
        room = shutil.disk_usage(folder).free
        if shards.contents.layout != "dense" or room < SPARE * int(shards.sizes.sum()):
            return None
        begun = cls.written(folder, shards)
        begun._file.write_bytes(b"")
        return begun

    @classmethod
    def written(cls, folder: Path, shards: Shards) -> Self:
        """Return the copy that is there."""
        return cls(folder / FILE, shards.contents.width)

    def add(self, rows: NDArray[np.float32]) -> None:
        """Write the rows that come next."""
        with self._file.open("ab") as file:
            file.write(memoryview(np.ascontiguousarray(rows, np.float32)).cast("B"))

    def read_into(self, first: int, room: NDArray[np.float32]) -> None:
        """Read rows from position `first` on, as many as there is room for, shape (n, width).

        Raises
        ------
        StorageError
            If the file is shorter than it was.
        """
        with self._file.open("rb", buffering=0) as file:
            file.seek(4 * self._width * first)
            wanted = memoryview(room.reshape(-1)).cast("B")
            done = 0
            while done < len(wanted):
                n = file.readinto(wanted[done:])
                if not n:
                    raise StorageError(f"{self._file} was cut short while it was in use. Give the same command again.")
                done += n
