"""The images of a folder as their names, from which a path is made when it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import overload


class ListedImages(Sequence[Path]):
    """Paths of images, for those who look at few of many.

    Parameters
    ----------
    folder : Path
    names : sequence of str
        Paths inside the folder.
    """

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self._folder, self._names = folder, names

    def __len__(self) -> int:
        return len(self._names)

    @overload
    def __getitem__(self, which: int) -> Path: ...

    @overload
    def __getitem__(self, which: slice) -> list[Path]: ...

    def __getitem__(self, which: int | slice) -> Path | list[Path]:
        if isinstance(which, slice):
            return [self._folder / name for name in self._names[which]]
        return self._folder / self._names[which]
