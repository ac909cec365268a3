"""The plan of `catalogue.py`, which this replaces soon: what SQLite knows of images, tags, runs, jobs; rows beside it.

CATALOGUE
├── manifest.json       says that the folder is a catalogue; its files change, so it has no checksums of them
├── catalogue.sqlite    the truth: a row exists when its transaction has committed
├── writer.lock         held by the process that writes rows
├── rows/<segment>/     see `segments`
├── runs/<fingerprint>/ copies of the runs
└── features/<encoder fingerprint>/   feature rows, so that models learn again without decoding images
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from visterm.core.types import Ranking
from visterm.store.filters import Filter
from visterm.store.records import Record


@dataclass(frozen=True, slots=True)
class Origin:
    """What made the rows of a catalogue.

    Attributes
    ----------
    run : str
        The folder of the run, in full; empty if it was never saved.
    fingerprint : str
        Of the encoder and the model together: rows of another cannot be compared with these.
    encoder_fingerprint : str
        Of the encoder alone: features of another cannot be learned from with these.
    """

    run: str
    fingerprint: str
    encoder_fingerprint: str = ""


class StoredCatalogue:
    """A catalogue in memory, or in a folder; see `create` and `open`.

    All methods may be called from several threads. What is committed is seen by searches from then on, in this and in
    other processes. Statements on single tables go through the parts below; what changes rows goes through the methods
    here, which hold the writer's lock.

    Parameters
    ----------
    origin : Origin
        The run that makes the rows: it becomes the current one.

    Attributes
    ----------
    folder : Path or None
    database : Database
    images : Images
    tags : Tags
    runs : Runs
    jobs : Jobs
    history : History
    skipped : SkippedFiles
    """

    def __init__(self, origin: Origin) -> None: ...

    @classmethod
    def create(cls, folder: str | os.PathLike[str], origin: Origin) -> Self:
        """Make an empty catalogue in a folder that is not there or empty.

        Raises
        ------
        StorageError
            If anything lies there.
        """
        raise NotImplementedError

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Self:
        """Open a catalogue; rows stay on disk, memory-mapped.

        Raises
        ------
        StorageError
            If there is none, or an older visterm (JSON lines) or a newer one wrote it.
        CorruptFileError
            If its database or its rows are damaged.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Close the database; arrays that were given out stay valid."""

    @property
    def origin(self) -> Origin:
        """The current run, as what made the rows."""
        raise NotImplementedError

    def __len__(self) -> int:
        """Give how many images can be searched: here, and with a row of the current run."""
        raise NotImplementedError

    @property
    def width(self) -> int | None:
        """Columns of the current run's rows; None while there are none."""
        raise NotImplementedError

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the right to write rows, over many transactions; what a killed process left uncommitted is cut first.

        The methods that change rows take it themselves; a job holds it all along.

        Raises
        ------
        StorageError
            If another process holds it: "in use by process PID on HOST since ...".
        """
        raise NotImplementedError

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Change rows and tables together, all or nothing: holds the right to write rows too."""
        raise NotImplementedError

    def add(self, records: Sequence[Record], U: Any) -> list[int]:
        """Take images in, with their tags and a row of the current run each, and give their ids.

        Raises
        ------
        ShapeError
            If there is not one row a record, or the rows are not as wide as those that are there.
        DataError
            If a row is not finite.
        """
        raise NotImplementedError

    def set_rows(self, image_ids: Sequence[int], U: Any, *, run_id: int | None = None) -> None:
        """Keep a row of a run (None: the current one) for each of some images, in place of any it had."""

    def mark(self, image_ids: Iterable[int], state: str) -> None:
        """Say that images are "here" or "gone"; those that are gone are not found any more, but keep their rows."""

    def use_run(self, run_id: int) -> None:
        """Search by the rows of a run from now on."""

    def search(self, q: Any, k: int = 10, *, among: Any = None) -> Ranking:
        """Find the images with the largest dot products.

        Parameters
        ----------
        q : array-like or CSR, shape (width,) or (n_queries, width)
        k : int
            How many; 0 means all.
        among : array-like of int, optional
            Ids of the images to search (see `find`); those without a row are left out.

        Returns
        -------
        Ranking
            Ids of images and scores, shape (n_queries, min(k, n_searched)), best first.
        """
        raise NotImplementedError

    def products(self, q: Any, image_ids: Any = None) -> NDArray[np.float32]:
        """Give the dot products of images (None: of `searchable()`) with query rows, in their order, unsorted.

        Returns
        -------
        ndarray of float32, shape (n_images, n_queries)
        """
        raise NotImplementedError

    def rows(self, image_ids: Any) -> Any:
        """Give the current run's rows of some images, array or CSR: what "like this image" searches by."""
        raise NotImplementedError

    def searchable(self) -> NDArray[np.int64]:
        """Give the ids of the images that can be searched, in order."""
        raise NotImplementedError

    def find(self, wanted: Filter) -> NDArray[np.int64]:
        """Give the ids of the images that pass a filter, in order."""
        raise NotImplementedError

    def compact(self, *, least: float = 0.2) -> bool:
        """Write the rows of each segment anew without the dead ones, where these are at least that share."""
        raise NotImplementedError

    def build_index(self, queries: Any = None) -> dict[str, Any] | None:
        """Make an index for approximate search where that pays, and give its facts; None where exact search is kept."""
        raise NotImplementedError

    def how_it_searches(self) -> dict[str, Any]:
        """Say how searches go, for `visterm info`: {"search": "exact"} or "faiss" with what was measured."""
        raise NotImplementedError

    def check_origin(self, fingerprint: str) -> None:
        """Refuse queries and rows of anything but what made the rows that are here."""

    def write_into(self, folder: Path) -> None:
        """Write the catalogue's files into a folder that is being made."""
