"""Making the parts of a folder one after the other: a part is named by its inputs, noted, and never made twice."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from visterm.core.errors import CorruptFileError
from visterm.core.progress import Progress
from visterm.core.types import Skipped
from visterm.core.wording import json_text
from visterm.core.writing import write_whole
from visterm.features.folder import NOTE, FeatureFolder, ShardEntry, read_checked


class PartDone(NamedTuple):
    """The result for the images of a part: rows or lines in the file of `entry`, and skipped images."""

    entry: ShardEntry | None  # None if no image could be read
    skipped: list[Skipped]
    n_new: int  # Images that were encoded or tagged now, not reused
    width: int = 0  # Numbers in a row; 0 without rows
    layout: str = ""  # "dense", "sparse", or empty without rows


class PartWork:
    """Makes the parts of a folder; subclasses define the command, the suffix of files, and the fields of notes.

    `known` are the undamaged parts that the folder had before, by file name, which is a hash of the part's inputs;
    `facts` are values of the fields in `fields` that all known parts share. `fingerprint` identifies what makes the
    parts: an encoder, or a run and a request.
    """

    command: ClassVar[str]
    suffix: ClassVar[str]
    fields: ClassVar[tuple[str, ...]] = ()  # Fields of `PartDone` in notes, in addition to entry and skipped images

    def __init__(self, folder: FeatureFolder, known: Mapping[str, ShardEntry], fingerprint: str, **facts: Any) -> None:
        self._folder, self._known, self._fingerprint, self._facts = folder, known, fingerprint, facts

    def _reuse_or_make(
        self,
        images: Sequence[str],
        contents: Sequence[str | None],
        n_images: int,
        progress: Progress,
        make: Callable[[], PartDone],
    ) -> PartDone:
        """Return the part of these images with these contents; make and note it unless it exists already.

        A part with skipped images from an earlier job is made again.
        """
        note = self._folder.unfinished / f"{self._digest(images, contents)}.json"
        result = self._read_note(note)
        if result is None and None not in contents:
            entry = self._known.get(self._file_name(images, contents))
            result = None if entry is None else PartDone(entry, [], 0, **self._facts)
        if result is not None:
            progress.advance(n_images)
            return result
        result = make()
        facts = {"entry": result.entry and asdict(result.entry), "skipped": [asdict(item) for item in result.skipped]}
        write_whole(note, json_text(facts | {name: getattr(result, name) for name in self.fields}).encode())
        return result

    def _write(
        self, images: Sequence[str], contents: Sequence[str | None], n_rows: int, make: Callable[[], bytes]
    ) -> ShardEntry:
        """Write a part, unless the folder already has it."""
        file = self._file_name(images, contents)
        entry = self._known.get(file)
        if entry is None:
            content = make()
            write_whole(self._folder.shard_to_write(file), content)
            entry = ShardEntry(file, n_rows, hashlib.sha256(content).hexdigest())
        return entry

    def _read_note(self, note: Path) -> PartDone | None:
        """Return the result of a killed job for the same images, or None."""
        if not note.exists():
            return None
        value = read_checked(note, NOTE)
        try:
            entry = None if value["entry"] is None else ShardEntry(**value["entry"])
            skipped = [Skipped(**item) for item in value["skipped"]]
            result = PartDone(entry, skipped, 0, *(value[name] for name in self.fields))
        except (KeyError, TypeError) as error:
            raise CorruptFileError(f"{note} is not a progress file of {self.command}: {error}. Remove it.") from error
        if entry is None or entry == self._known.get(entry.file):
            return result
        return result if self._folder.is_written(entry) else None

    def _file_name(self, images: Sequence[str], contents: Sequence[str | None]) -> str:
        return f"part-{self._digest(images, contents)}{self.suffix}"

    def _digest(self, images: Sequence[str], contents: Sequence[str | None]) -> str:
        """Return a hash of 24 letters of the part's fingerprint, images and contents."""
        return hashlib.sha256(json.dumps([self._fingerprint, list(images), list(contents)]).encode()).hexdigest()[:24]
