"""A training on disk, to go on with after a kill: its state as arrays, and of which training it is."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.errors import StorageError
from visterm.core.persist import load_arrays, new_folder, open_folder, read_json, save_arrays, write_json
from visterm.core.types import Matrix

Arrays = dict[str, NDArray[Any]]

KIND = "checkpoint"
SAMPLED_ROWS = 1000
"""Rows of a dense matrix that its fingerprint looks at: all rows of a large library would take minutes."""


class Kept(NamedTuple):
    """What a checkpoint holds."""

    numbers: dict[str, Any]  # What JSON can hold
    arrays: Arrays


class TrainingCheckpoint:
    """The one state kept of a training in a folder (None keeps nothing), replaced whole or not at all.

    `training` makes it this training and no other, as JSON: settings, and fingerprints of data.
    """

    def __init__(self, folder: str | os.PathLike[str] | None, training: dict[str, Any]) -> None:
        self._folder = None if folder is None else Path(folder)
        self._training = json.loads(json.dumps(training))  # as it is read: tuples are lists

    def read(self) -> Kept | None:
        """Return the state, or None where there is none yet.

        Raises StorageError if the checkpoint is of another training, with what differs; or a file was changed.
        """
        if self._folder is None or not self._folder.exists():
            return None
        found = open_folder(self._folder, KIND)
        held = read_json(found / "training.json")
        theirs = held["training"]
        other = [
            f"{key} ({theirs.get(key)!r}, now {self._training.get(key)!r})"
            for key in sorted({*theirs, *self._training})
            if theirs.get(key) != self._training.get(key)
        ]
        if other:
            raise StorageError(
                f"The checkpoint {self._folder} is of another training; different: {', '.join(other)}. "
                "Train as then to go on with it, remove it, or choose another folder."
            )
        return Kept(held["numbers"], load_arrays(found / "arrays.safetensors"))

    def write(self, numbers: dict[str, Any], arrays: Arrays) -> None:
        """Keep a state in place of the one before."""
        if self._folder is None:
            return
        with new_folder(self._folder, KIND) as folder:
            write_json(folder / "training.json", {"training": self._training, "numbers": numbers})
            save_arrays(
                folder / "arrays.safetensors", {name: np.ascontiguousarray(array) for name, array in arrays.items()}
            )

    def remove(self) -> None:
        """Remove what is kept: the training has ended."""
        if self._folder is not None and self._folder.exists():
            shutil.rmtree(open_folder(self._folder, KIND))


def matrix_fingerprint(matrix: Matrix) -> str:
    """Return the start of a SHA-256 of a matrix: of a CSR whole, of a dense one its shape and up to 1,000 rows."""
    digest = hashlib.sha256(str(matrix.shape).encode())
    csr: Any = matrix
    if sp.issparse(matrix):
        parts = [csr.indptr, csr.indices, csr.data]
    else:
        places = np.linspace(0, len(matrix) - 1, min(len(matrix), SAMPLED_ROWS)).astype(np.int64)
        parts = [np.asarray(matrix[places])]
    for part in parts:
        digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest()[:16]
