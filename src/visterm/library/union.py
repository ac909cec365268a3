"""Catalogues that are searched as one: more photos than one machine holds, or libraries that are kept apart."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Self

from visterm.core.errors import EncoderMismatchError, UserError
from visterm.core.executor import LOCAL, Executor, Shards, for_parts
from visterm.core.persist import new_folder, open_folder, read_json, write_json
from visterm.library.search import Searchable
from visterm.store.catalogue import StoredCatalogue
from visterm.store.searched import SearchedUnion
from visterm.tagging.run_files import open_run
from visterm.tagging.tagger import Tagger

UNION = "union"  # The kind of the folder, and the name of the list in it


class CatalogueUnion(Searchable):
    """Several catalogues, searched as one; none of them is changed.

    They have the same run, so that their rows and scores can be compared. What is found, its order and its scores are
    those of one catalogue that took in their images one catalogue after another; of equal ones the first in that order
    comes first. Each hit names its catalogue, and has its id there.

    Parameters
    ----------
    catalogues : sequence of path-like
        At least one, none twice.
    executor : Executor
        Opens the catalogues. With one of several machines they are searched at the same time, and must lie where all
        machines find them; a single catalogue is opened here all the same.
    n_jobs : int, optional
        Threads of the tagger.

    Raises
    ------
    StorageError
        If a catalogue is not there, or damaged.
    EncoderMismatchError
        If two have different runs.
    UserError
        If there is none, one is given twice, or there is no engine at the address.

    Examples
    --------
    >>> with CatalogueUnion(["holidays", "work"]) as both:  # doctest: +SKIP
    ...     both.search("snow tree", k=3).hits
    [Hit('7.jpg', confidence=0.93, id=6, catalogue='/photos/holidays'), ...]
    """

    def __init__(
        self, catalogues: Sequence[str | os.PathLike[str]], *, executor: Executor = LOCAL, n_jobs: int | None = None
    ) -> None:
        if not catalogues:
            raise UserError("A union of no catalogues cannot be searched. Name one or more.")
        self._typed = [os.fspath(path) for path in catalogues]
        self.paths = [os.path.realpath(path) for path in self._typed]
        twice = [typed for typed, path in zip(self._typed, self.paths, strict=True) if self.paths.count(path) > 1]
        if twice:
            raise UserError(f"The catalogue {twice[0]} is given twice. Name each once.")
        self._opened = ExitStack()
        try:
            opening = for_parts(executor, self.paths).open_each(StoredCatalogue.open, self.paths)
            self._shards: Shards = self._opened.enter_context(opening)
            first = StoredCatalogue.open(self.paths[0])
            self._opened.callback(first.close)
            tagger = open_run(Tagger, first.run_folder, n_jobs)
            self._fingerprint = tagger.fingerprint
            self.refresh()
            self.searched = SearchedUnion(self._shards, self.paths)
            self.tagger = tagger
        except BaseException:
            self.close()
            raise

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, executor: Executor = LOCAL, n_jobs: int | None = None) -> Self:
        """Open what `save` wrote.

        Raises StorageError if there is no union at `path`.
        """
        listed = read_json(open_folder(path, UNION) / f"{UNION}.json")
        return cls(
            [os.path.join(os.path.abspath(path), one) for one in listed["catalogues"]], executor=executor, n_jobs=n_jobs
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the list of catalogues as a small folder, by their full paths, in place of a union that is there.

        Raises StorageError if something else lies at `path`.
        """
        with new_folder(path, UNION, check=lambda folder: self.load(folder).close()) as folder:
            write_json(folder / f"{UNION}.json", {"catalogues": self.paths})

    def close(self) -> None:
        """Close the catalogues, and let go of the engine."""
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        """Return how many images can be searched."""
        return sum(self.counts())

    def counts(self) -> list[int]:
        """Return how many images of each catalogue can be searched."""
        return [int(n) for n in self._shards.ask("__len__", [{}] * len(self.paths))]

    def refresh(self) -> bool:
        """Refuse catalogues of another run than that of the first: one may have learned since."""
        found = self._shards.ask("fingerprint", [{}] * len(self.paths))
        first = self._typed[0]
        for path, fingerprint in zip(self._typed, found, strict=True):
            if fingerprint != self._fingerprint:
                raise EncoderMismatchError(
                    f"The catalogue {path} has another run ({fingerprint}) than {first} ({self._fingerprint}), "
                    "so their scores cannot be compared. Index all with one run: visterm index RUN PHOTOS -o CATALOGUE"
                )
        return False
