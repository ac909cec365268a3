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

    def export(self, item: ExportItem, wanted: Sequence[Mark], *, dry_run: bool) -> Change | None:
        """Write the tags of an image; None where nothing is changed and nothing of visterm is found."""
        path = sidecar(item.path) or self._new(item.path)
        notes, old = self._notes_of(path), content_of(path)
        note = notes.of(path, old)
        there = set(map(tag_key, text_tags(read_text(path, limit=MOST_TEXT)))) if old is not None else set()
        noted = {tag_key(tag) for tag in note.tags} if note else set()
        unwritable = {mark.tag for mark in wanted if _PARTING & set(mark.tag) or mark.tag.startswith("-")}
        rejected = set(map(tag_key, item.rejected)) & noted & there
        added = tuple(mark for mark in wanted if tag_key(mark.tag) not in there | noted and mark.tag not in unwritable)
        left_out = tuple(mark.tag for mark in wanted if mark.tag in unwritable or tag_key(mark.tag) in noted - there)
        removed = tuple(tag for tag in (note.tags if note else ()) if tag_key(tag) in rejected)
        if (added or removed) and not dry_run:
            new = _appended(_without(old or b"", rejected), [mark.tag for mark in added])
            if not self._follow_links:
                check_stays_inside(path)  # before it is noted
            notes.put(_noted(path, note, old, new, added, rejected))
            replace_file(path, old, new, follow_links=self._follow_links)
            notes.is_done(path)
        ours = [*(tag for tag in (note.tags if note else ()) if tag not in removed), *(mark.tag for mark in added)]
        changed = Change(str(item.path), str(path), added, removed, left_out, tuple(ours))
        return changed if changed.is_one or changed.found else None

    def undo(self, image: Path, *, dry_run: bool) -> Change | None:
        """Take back what visterm wrote; a text that it made is removed, if nobody has added to it."""
        path = sidecar(image) or self._new(image)
        notes, old = self._notes_of(path), content_of(path)
        note = notes.of(path, old) or self._moved.get(path)
        if not dry_run:
            if note is not None and old is not None:
                replace_file(path, old, _restored(old, note), follow_links=self._follow_links)
            notes.forget(path)
        if note is None or old is None:
            return None
        return Change(str(image), str(path), removed=tuple(note.tags))

    def follow(self, image: Path, formerly: Sequence[Path]) -> None:
        """Find the note of a text that moved along with its image: it is still in a folder where both lay."""
        for before in formerly:
            for text in (before.with_name(f"{before.name}{SUFFIX}"), before.with_suffix(SUFFIX)):
                note = None if text.exists() else self._notes_of(text).of(text, None)
                if note is not None:
                    self._moved[sidecar(image) or self._new(image)] = note

    def close(self) -> None:
        """Remove the notes of folders where all was taken back."""
        for notes in self._notes.values():
            notes.clean()

    def _new(self, image: Path) -> Path:
        shared = self._sidecars.shares_stem(image)
        return image.with_name(f"{image.name}{SUFFIX}") if shared else image.with_suffix(SUFFIX)

    def _notes_of(self, text: Path) -> TextNotes:
        if text.parent not in self._notes:
            self._notes[text.parent] = TextNotes(text.parent, follow_links=self._follow_links)
        return self._notes[text.parent]


def _appended(content: bytes, tags: Sequence[str]) -> bytes:
    if not tags:
        return content
    start = content if not content or content.endswith(b"\n") else content + b"\n"
    return start + "".join(f"{tag}\n" for tag in tags).encode()


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


def _restored(content: bytes, note: TextNote) -> bytes | None:
    """Return the text as it was; None where there was none, and nobody has added to it."""
    if note.length is not None and hashlib.sha256(content).hexdigest() == note.sha256:
        return None if note.made else content[: note.length]
    left = _without(content, {tag_key(tag) for tag in note.tags})
    return None if note.made and not left.strip() else left
