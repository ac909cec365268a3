"""Finished fits and judgements as JSON files, so that a comparison goes on where it was stopped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import CorruptFileError
from visterm.core.packing import jsonable
from visterm.core.writing import whole_file, write_whole

Record = dict[str, Any]


class Records:
    """A folder of results, one file each, named by what they depend on.

    Parameters
    ----------
    folder : Path
        Made when the first result is kept.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, group: str, key: str) -> Record | None:
        """Find a result that was kept; None where there is none.

        Raises
        ------
        CorruptFileError
            If the file is not what was written.
        """
        path = self._path(group, key)
        if not path.is_file():
            return None
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise CorruptFileError(f"{path} is not a result of this command. Remove it to compute it again.") from error
        if not isinstance(record, dict):
            raise CorruptFileError(f"{path} is not a result of this command. Remove it to compute it again.")
        return record

    def put(self, group: str, key: str, record: Record) -> None:
        """Keep a result, whole or not at all."""
        path = self._path(group, key)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, (json.dumps(jsonable(record), indent=1, ensure_ascii=False) + "\n").encode("utf-8"))

    def get_values(self, group: str, key: str) -> dict[str, NDArray[np.float64]] | None:
        """Find the values image by image that were kept with a result."""
        path = self._path(group, key).with_suffix(".npz")
        if not path.is_file():
            return None
        with np.load(path, allow_pickle=False) as stored:
            return {name.replace("_at_", "@"): stored[name] for name in stored.files}

    def put_values(self, group: str, key: str, values: dict[str, NDArray[np.float64]]) -> None:
        """Keep values image by image; call it before `put`, which marks the result as finished."""
        path = self._path(group, key).with_suffix(".npz")
        path.parent.mkdir(parents=True, exist_ok=True)
        named: dict[str, Any] = {name.replace("@", "_at_"): array for name, array in values.items()}
        with whole_file(path, shared=True) as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, **named)

    def _path(self, group: str, key: str) -> Path:
        return self._folder / group / f"{key}.json"
