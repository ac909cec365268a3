"""Finished trials as JSON lines beside the run that is being made, so that a search goes on where it was stopped."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from visterm.core.errors import CorruptFileError
from visterm.core.files import GB, read_regular
from visterm.core.writing import writing


@dataclass(frozen=True)
class Trial:
    """One setting that was tried.

    Attributes
    ----------
    settings : dict
        What was searched over, by parameter.
    value : float or None
        Of the metric, on the validation rows; None where training diverged.
    epochs : int or None
        Epochs of the best weights; None for models that learn in one go.
    seconds : float
    error : str or None
        Why there is no value.
    history : list of dict
        What the model was after each epoch.
    """

    settings: dict[str, Any]
    value: float | None
    epochs: int | None
    seconds: float
    error: str | None = None
    history: list[dict[str, Any]] = field(default_factory=list, repr=False)

    def as_dict(self) -> dict[str, Any]:
        """Return the trial as it stands in JSON, without its history."""
        return {name: value for name, value in asdict(self).items() if name != "history"}


class TrialLog:
    """A file of finished trials, one JSON object a line, found by what they depend on.

    Parameters
    ----------
    path : Path
        The file; what other searches left in it stays. A line that a kill cut off is dropped.

    Raises
    ------
    CorruptFileError
        If another line is not one that was written here.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._trials: dict[str, Trial] = {}
        if path.exists():
            self._read()

    def get(self, key: str) -> Trial | None:
        """Find a finished trial; None where there is none."""
        return self._trials.get(key)

    def __getitem__(self, key: str) -> Trial:
        return self._trials[key]

    def put(self, key: str, trial: Trial) -> None:
        """Keep a finished trial, on disk when this returns."""
        line = json.dumps({"key": key, **asdict(trial)}, ensure_ascii=False) + "\n"
        size = self.path.stat().st_size if self.path.exists() else 0
        with writing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with self.path.open("a", encoding="utf-8") as file:
                    file.write(line)
                    file.flush()
                    os.fsync(file.fileno())
            except OSError:
                self._cut(size)
                raise
        self._trials[key] = trial

    def _cut(self, size: int) -> None:
        """Take out the half line that a full disk left, and the file with it if it holds nothing else."""
        if size:
            os.truncate(self.path, size)
        else:
            self.path.unlink(missing_ok=True)

    def _read(self) -> None:
        try:
            content = read_regular(self.path, GB)
        except OSError as error:
            raise CorruptFileError(f"{self.path} cannot be read: {error.strerror or error}.") from error
        whole = content[: content.rfind(b"\n") + 1]
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                entry = json.loads(line)
                key = entry.pop("key")
                self._trials[key] = Trial(**entry)
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                raise CorruptFileError(
                    f"{self.path}, line {number}, is no trial of visterm tune ({error}). Remove the file to begin anew."
                ) from error
        if len(whole) < len(content):
            os.truncate(self.path, len(whole))
