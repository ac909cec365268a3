"""What visterm wrote into texts beside images: a text has no place to say so, so a hidden file in its folder does."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import NamedTuple

from visterm.core.errors import DataError, StorageError
from visterm.core.jsonlines import json_text
from visterm.core.vocabulary import tag_key
from visterm.core.writing import writing
from visterm.data.sidecars import check_stays_inside, content_of

NOTES = ".visterm_texts.jsonl"


class TextNote(NamedTuple):
    """What visterm wrote into one text."""

    file: str  # Name of the text
    # The tags, by where they are from; none where all were taken back
    given: list[str]
    predicted: list[str]
    made: bool  # Whether the text was not there before
    length: int | None  # Bytes that were there before; None where a person has changed the text since
    sha256: str  # Of the text as it was written
    done: bool = True  # Whether the text is known to be written: a note comes first, and a kill may fall in between

    @property
    def tags(self) -> list[str]:
        """All that was written."""
        return [*self.given, *self.predicted]


class TextNotes:
    """The notes of the texts of one folder: a line each, of which the last of a text counts.

    With `follow_links`, they are written where they are a link out of the folder. Raises DataError if they cannot be
    understood.
    """

    def __init__(self, folder: Path, *, follow_links: bool = False) -> None:
        self._path = folder / NOTES
        self._follow_links = follow_links
        self._notes: dict[str, list[TextNote]] = {}  # of each text the last that is done, and those after it
        content = content_of(self._path) or b""
        self._cut: int | None = None
        for number, line in enumerate(content.splitlines(keepends=True), start=1):
            try:
                note = TextNote(**json.loads(line))
            except (ValueError, TypeError, RecursionError) as error:
                if not line.endswith(b"\n"):  # the process was killed while it wrote this: the text is as it was
                    self._cut = len(content) - len(line)
                    break
                raise DataError(
                    f"{self._path}, line {number} is damaged: it notes what visterm wrote into the texts beside it. "
                    "Take the line out; what it noted then counts as a person's."
                ) from error
            self._keep(note)

    def of(self, text: Path, content: bytes | None) -> TextNote | None:
        """Return the note of a text with this content; None where visterm wrote nothing into it.

        Where a kill fell between a note and its text, the content decides: if it is not what was to be written, the
        note before that counts.
        """
        found = hashlib.sha256(content or b"").hexdigest()
        notes = reversed(self._notes.get(text.name, []))
        note = next((note for note in notes if note.done or note.sha256 == found), None)
        return note if note is not None and note.tags else None

    def put(self, note: TextNote) -> None:
        """Write a note down, before the text is written: whatever happens then, no tag is without one."""
        self._append(note._replace(done=False))

    def is_done(self, text: Path) -> None:
        """Note that a text is written as the last note says."""
        self._append(self._notes[text.name][-1]._replace(done=True))

    def forget(self, text: Path) -> None:
        """Note that nothing of visterm is left in a text."""
        if any(note.tags for note in self._notes.get(text.name, [])):
            self._append(TextNote(text.name, [], [], False, None, ""))

    def _append(self, note: TextNote) -> None:
        fields = note._asdict()
        if note.done:
            del fields["done"]  # as all visterms read it
        if not self._follow_links:
            check_stays_inside(self._path)
        try:
            if self._cut is not None:
                os.truncate(self._path, self._cut)
                self._cut = None
            with writing(self._path), self._path.open("ab") as file:
                file.write(json_text(fields).encode() + b"\n")
                file.flush()
                if not (note.done and note.tags):  # nothing is lost with a note that a text is written
                    os.fsync(file.fileno())
        except OSError as error:
            raise StorageError(f"{self._path} cannot be written: {error.strerror or error}.") from error
        self._keep(note)

    def _keep(self, note: TextNote) -> None:
        """Remember a note, and forget those that it replaces."""
        notes = self._notes.setdefault(note.file, [])
        if note.done:
            notes.clear()
        notes.append(note)

    def clean(self) -> None:
        """Remove the notes where nothing is left of what was written."""
        if self._notes and not any(note.tags for notes in self._notes.values() for note in notes):
            self._path.unlink(missing_ok=True)

    def predicted(self, text: Path) -> set[str]:
        """Return the keys of the tags of a text that a run predicted."""
        note = self.of(text, content_of(text))
        return set() if note is None else {tag_key(tag) for tag in note.predicted}
