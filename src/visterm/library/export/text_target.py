"""Tags written into texts beside the images, a line each."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from visterm.core.vocabulary import tag_key
from visterm.data.sidecars import Sidecars, check_stays_inside, content_of, replace_file
from visterm.data.tag_formats.texts import MOST_TEXT, SUFFIX, TextNote, TextNotes, sidecar, text_tags
from visterm.data.text_files import read_text
from visterm.data.xmp.keywords import GIVEN, Mark
from visterm.library.export.items import Change, ExportItem

_PARTING = frozenset(";,\n\r")


class TextTarget:
    """Writes ``photo.txt``, or ``photo.jpg.txt`` where two images share the name; lines that are there stay.

    With `follow_links`, links are written through that lead out of a photo's folder.
    """

    name = "txt"

    def __init__(self, *, follow_links: bool = False) -> None:
        self._follow_links = follow_links
        self._sidecars = Sidecars()
        self._notes: dict[Path, TextNotes] = {}
        self._moved: dict[Path, TextNote] = {}  # By the text as it is called now

    def export(self, item: ExportItem, wanted: Sequence[Mark], *, dry_run: bool) -> Change:
        """Write the tags of an image, and return what is changed."""
        path = self._path(item.path)
        notes, old = self._notes_of(path), content_of(path)
        note = notes.of(path, old)
        existing = set(map(tag_key, text_tags(read_text(path, limit=MOST_TEXT)))) if old is not None else set()
        ours = note.tags if note else []
        noted = set(map(tag_key, ours))
        unwritable = {mark.tag for mark in wanted if _PARTING & set(mark.tag) or mark.tag.startswith("-")}
        rejected = set(map(tag_key, item.rejected)) & noted & existing
        added = tuple(
            mark for mark in wanted if tag_key(mark.tag) not in existing | noted and mark.tag not in unwritable
        )
        left_out = tuple(mark.tag for mark in wanted if mark.tag in unwritable or tag_key(mark.tag) in noted - existing)
        removed = tuple(tag for tag in ours if tag_key(tag) in rejected)
        if (added or removed) and not dry_run:
            new = _without(old or b"", rejected)
            if added:
                lines = "".join(f"{mark.tag}\n" for mark in added)
                new += (b"\n" if new and not new.endswith(b"\n") else b"") + lines.encode()
            if not self._follow_links:
                check_stays_inside(path)  # before it is noted
            notes.put(_noted(path, note, old, new, added, rejected))
            replace_file(path, old, new, follow_links=self._follow_links)
            notes.is_done(path)
        ours = [*(tag for tag in ours if tag not in removed), *(mark.tag for mark in added)]
        return Change(str(item.path), str(path), added, removed, left_out, tuple(ours))

    def undo(self, image: Path, *, dry_run: bool) -> Change:
        """Take back what visterm wrote; a text that it made is removed, if nobody has added to it."""
        path = self._path(image)
        notes, old = self._notes_of(path), content_of(path)
        note = notes.of(path, old) or self._moved.get(path)
        removed: list[str] = []
        if note is not None and old is not None:
            removed = note.tags
            if note.length is not None and hashlib.sha256(old).hexdigest() == note.sha256:
                new = None if note.made else old[: note.length]
            else:
                remaining = _without(old, set(map(tag_key, removed)))
                new = None if note.made and not remaining.strip() else remaining
            if not dry_run:
                replace_file(path, old, new, follow_links=self._follow_links)
        if not dry_run:
            notes.forget(path)
        return Change(str(image), str(path), removed=tuple(removed))

    def follow(self, image: Path, formerly: Sequence[Path]) -> None:
        """Find the note of a text that moved along with its image: it is still in a folder where both lay."""
        for before in formerly:
            for text in (before.with_name(f"{before.name}{SUFFIX}"), before.with_suffix(SUFFIX)):
                note = None if text.exists() else self._notes_of(text).of(text, None)
                if note is not None:
                    self._moved[self._path(image)] = note

    def close(self) -> None:
        """Remove the notes of folders where all was taken back."""
        for notes in self._notes.values():
            notes.clean()

    def _path(self, image: Path) -> Path:
        """Return the text beside an image, or where a new one is made."""
        shared = self._sidecars.shares_stem(image)
        return sidecar(image) or (image.with_name(f"{image.name}{SUFFIX}") if shared else image.with_suffix(SUFFIX))

    def _notes_of(self, text: Path) -> TextNotes:
        if text.parent not in self._notes:
            self._notes[text.parent] = TextNotes(text.parent, follow_links=self._follow_links)
        return self._notes[text.parent]


def _without(content: bytes, keys: set[str]) -> bytes:
    """Leave out the lines that are one of some tags."""
    lines = content.splitlines(keepends=True)
    return b"".join(line for line in lines if tag_key(line.decode("utf-8-sig")) not in keys)


def _noted(
    path: Path, note: TextNote | None, old: bytes | None, new: bytes, added: Sequence[Mark], rejected: set[str]
) -> TextNote:
    given = [mark.tag for mark in added if mark.source == GIVEN]
    predicted = [mark.tag for mark in added if mark.source != GIVEN]
    made, length = old is None, len(old or b"")
    if note is not None:
        given = [*(tag for tag in note.given if tag_key(tag) not in rejected), *given]
        predicted = [*(tag for tag in note.predicted if tag_key(tag) not in rejected), *predicted]
        made = note.made
        untouched = old is not None and hashlib.sha256(old).hexdigest() == note.sha256
        length = note.length if untouched and note.length is not None else -1
    return TextNote(path.name, given, predicted, made, None if length < 0 else length, hashlib.sha256(new).hexdigest())
