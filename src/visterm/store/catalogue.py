"""The catalogue on disk: records of images, their rows to search, and which run made them, whole or not there."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.errors import CorruptFileError, EncoderMismatchError, ShapeError
from visterm.core.persist import new_folder, open_folder, read_json, write_json
from visterm.core.types import Matrix, Ranking
from visterm.store.base import as_rows
from visterm.store.exact import ExactStore
from visterm.store.records import Record, Records
from visterm.store.rows import open_rows, stack_rows, write_rows

DESCRIPTION = "catalogue.json"
RECORDS = "images.jsonl"
ROWS = "rows"


@dataclass(frozen=True, slots=True)
class Origin:
    """What made the rows of a catalogue.

    Attributes
    ----------
    run : str
        The folder of the run, in full; empty if it was never saved.
    fingerprint : str
        Of the encoder and the model together: rows of another cannot be compared with these.
    """

    run: str
    fingerprint: str


class StoredCatalogue:
    """Records of images and their rows, numbered from 0 in the order in which they came.

    Parameters
    ----------
    origin : Origin
        What makes the rows.

    Attributes
    ----------
    origin : Origin
    records : Records
        A sequence of `Record`, one an image.
    """

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.records = Records()
        self._store = ExactStore()
        self._parts: list[Matrix] = []

    def __len__(self) -> int:
        return len(self.records)

    def add(self, records: Sequence[Record], U: Any) -> None:
        """Take images in, with one row each.

        Raises
        ------
        ShapeError
            If there is not one row a record, or the rows are not as wide as those that are there.
        DataError
            If a row is not finite.
        """
        U = as_rows(U, "U")
        if U.shape[0] != len(records):
            raise ShapeError(f"There are {len(records)} records, but {U.shape[0]} rows; expected one each.")
        if len(records) == 0:
            return
        self._store.add(np.arange(len(self), len(self) + len(records)), U)
        self.records.extend(records)
        self._parts.append(U)

    def search(self, q: Any, k: int = 10) -> Ranking:
        """Find the images with the largest dot products: ids are places in `records`, as `Store.search` says."""
        return self._store.search(q, k)

    def products(self, q: Any, places: NDArray[np.int64] | None = None) -> NDArray[np.float32]:
        """Give the dot products of images with query rows, in the order of `records`, unsorted.

        Parameters
        ----------
        q : array or CSR of float32, shape (n_queries, width)
        places : ndarray of int64, optional
            Of some images; None: of all.

        Returns
        -------
        ndarray of float32, shape (n_images, n_queries)
        """
        Q = as_rows(q, "q")
        columns = Q.toarray().T if isinstance(Q, sp.csr_array) else Q.T
        found = np.empty((len(self) if places is None else len(places), Q.shape[0]), np.float32)
        first = 0
        for part in self._parts:
            last = first + part.shape[0]
            if places is None:
                found[first:last] = part @ columns
            else:
                inside = (places >= first) & (places < last)
                found[inside] = part[places[inside] - first] @ columns
            first = last
        return found

    def check_origin(self, fingerprint: str) -> None:
        """Refuse queries and rows of anything but what made the rows that are here.

        Raises
        ------
        EncoderMismatchError
            If `fingerprint` is not that of `origin`.
        """
        if fingerprint != self.origin.fingerprint:
            raise EncoderMismatchError(
                f"This catalogue was made by {self.origin.run or 'an unsaved run'} ({self.origin.fingerprint}), "
                f"not by this run ({fingerprint}): their rows cannot be compared. Index the images again with this run."
            )

    def write_into(self, folder: Path) -> None:
        """Write the catalogue's files into a folder that is being made."""
        write_json(folder / DESCRIPTION, {"origin": asdict(self.origin), "n_images": len(self)})
        self.records.write(folder / RECORDS)
        write_rows(folder, ROWS, stack_rows(self._parts))

    @classmethod
    def read_from(cls, folder: Path) -> Self:
        """Open what `write_into` wrote, from a folder whose checksums hold; rows stay on disk, memory-mapped.

        Raises
        ------
        CorruptFileError
            If records and rows do not fit each other.
        """
        description = read_json(folder / DESCRIPTION)
        catalogue = cls(Origin(**description["origin"]))
        records = Records.open(folder / RECORDS)
        U = open_rows(folder, ROWS)
        if not len(records) == U.shape[0] == description["n_images"]:
            raise CorruptFileError(
                f"{folder} should hold {description['n_images']} images, but has {len(records)} records "
                f"and {U.shape[0]} rows. Index the images again."
            )
        if len(records):
            catalogue._store.add(np.arange(len(records)), U)
            catalogue._parts = [U]
            catalogue.records = records
        return catalogue


def write_catalogue(path: str | os.PathLike[str], catalogue: StoredCatalogue) -> None:
    """Write a catalogue as a folder: a kill on the way leaves the old one or the new one.

    Raises
    ------
    StorageError
        If something that is not a catalogue lies at `path`.
    """
    with new_folder(path, "catalogue") as folder:
        catalogue.write_into(folder)


def open_catalogue(path: str | os.PathLike[str]) -> StoredCatalogue:
    """Open a catalogue, and check that no file has changed since it was written.

    Raises
    ------
    StorageError
        If there is none at `path`, or it was damaged.
    """
    return StoredCatalogue.read_from(open_folder(path, "catalogue"))
