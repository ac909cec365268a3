"""The checkpoints of a streamed fit, in its folder: the last is what it goes on from after a kill."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

from safetensors import safe_open

from visterm.core.persist import save_arrays
from visterm.core.writing import whole_file
from visterm.models.ranking.streamed_fit import Checkpoint

EVERY = 20.0  # Seconds between checkpoints, at least, and 20 times as long as one takes
CHECKPOINT = "checkpoint.safetensors"
OF, FACTS = "of", "facts"


class FileCheckpoints:
    """Keeps the last checkpoint in a folder, at least `every` seconds after the one before; 0 keeps each.

    `of` names the data, the settings and the windows: checkpoints of others are ignored. `went_on` says whether `last`
    found one.
    """

    def __init__(self, folder: Path, of: str, every: float = EVERY) -> None:
        self._file, self._of, self._every = folder / CHECKPOINT, of, every
        self._next = time.monotonic() + every
        self.went_on = False

    def last(self) -> Checkpoint | None:
        """Return the last checkpoint; None if there is none of the same data and settings."""
        if not self._file.exists():
            return None
        with safe_open(self._file, framework="numpy") as file:
            metadata = file.metadata() or {}
            if metadata.get(OF) != self._of:
                return None
            self.went_on = True
            return Checkpoint(json.loads(metadata[FACTS]), {name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118

    def there(self) -> bool:
        """Return whether there is a checkpoint of the same data and settings."""
        if not self._file.exists():
            return False
        with safe_open(self._file, framework="numpy") as file:
            return bool((file.metadata() or {}).get(OF) == self._of)

    def offer(self, make: Callable[[], Checkpoint]) -> None:
        """Write a checkpoint if enough time has passed; after a kill the one before is still whole."""
        began = time.monotonic()
        if began < self._next:
            return
        made = make()
        with whole_file(self._file) as temporary:
            save_arrays(temporary, made.arrays, {OF: self._of, FACTS: json.dumps(made.facts)})
        done = time.monotonic()
        self._next = done + max(self._every, 20 * (done - began) if self._every else 0.0)
