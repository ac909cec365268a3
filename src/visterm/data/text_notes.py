"""What visterm wrote into texts beside images: a text has no place to say so, so a hidden file in its folder does."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NamedTuple

from visterm.core.errors import DataError, StorageError
from visterm.core.jsonlines import json_text
from visterm.core.vocabulary import tag_key
from visterm.data.sidecars import content_of

NOTES = ".visterm_texts.jsonl"


class TextNote(NamedTuple):
    """What visterm wrote into one text.

    Attributes
    ----------
    file : str
        Name of the text.
    given, predicted : list of str
        The tags, by where they are from; none where all were taken back.
    made : bool
        Whether the text was not there before.
    length : int or None
        Bytes that were there before; None where a person has changed the text since.
    sha256 : str
        Of the text as it was written.
    """

    file: str
    given: list[str]
    predicted: list[str]
    made: bool
    length: int | None
    sha256: str

    @property
    def tags(self) -> list[str]:
        """All that was written."""
        return [*self.given, *self.predicted]


class TextNotes:
    """The notes of the texts of one folder: a line each, of which the last of a text counts.

    Raises
    ------
    DataError
        If they cannot be understood.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / NOTES
        self._notes: dict[str, TextNote] = {}
        for number, line in enumerate((content_of(self._path) or b"").splitlines(), start=1):
            try:
                note = TextNote(**json.loads(line))
            except (ValueError, TypeError) as error:
                raise DataError(
                    f"{self._path}, line {number} is damaged: it notes what visterm wrote into the texts beside it. "
                    "Take the line out; what it told of then counts as a person's."
                ) from error
            self._notes[note.file] = note

    def get(self, text: Path) -> TextNote | None:
        """Give the note of a text; None where visterm wrote nothing into it."""
        note = self._notes.get(text.name)
        return note if note is not None and note.tags else None

    def put(self, note: TextNote) -> None:
        """Write a note down, before the text is written: whatever happens then, no tag is without one."""
        try:
            with self._path.open("ab") as file:
                file.write(json_text(note._asdict()).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise StorageError(f"{self._path} cannot be written: {error.strerror or error}.") from error
        self._notes[note.file] = note

    def clean(self) -> None:
        """Remove the notes where nothing is left of what was written."""
        if self._notes and not any(note.tags for note in self._notes.values()):
            self._path.unlink(missing_ok=True)

    def predicted(self, text: Path) -> set[str]:
        """Give the keys of the tags of a text that a run predicted."""
        note = self.get(text)
        return set() if note is None else {tag_key(tag) for tag in note.predicted}
