"""Target for tags of photos in text files beside them, one line per tag."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from visterm.core.vocabulary import tag_key
from visterm.data.sidecars import Sidecars, check_stays_inside, content_of, replace_file, union
from visterm.data.tag_formats.texts import MAX_TEXT_BYTES, SUFFIX, TextNote, TextNotes, sidecar, text_tags
from visterm.data.text_files import read_text
from visterm.data.xmp.keywords import GIVEN, Mark
from visterm.library.export.items import ExportItem, FileChange

_SEPARATORS = frozenset(";,\n\r")  # Characters that a tag in a text file cannot contain


class TextTarget:
    """Writes ``photo.txt``, or ``photo.jpg.txt`` if two images share the name, without changing existing lines.

    `follow_links` allows writing through links that lead out of a photo's folder.
    """

    name = "txt"

    def __init__(self, *, follow_links: bool = False) -> None:
        self._follow_links = follow_links
        self._sidecars = Sidecars()
        self._notes: dict[Path, TextNotes] = {}
        self._notes_of_moved: dict[Path, TextNote] = {}  # Current path of the text file -> its note

    def export(self, item: ExportItem, marks: Sequence[Mark], *, dry_run: bool) -> FileChange:
        """Write the tags of an image, and return the changes."""
        path = self._path(item.path)
        notes, old = self._notes_of(path), content_of(path)
        note = notes.of(path, old)
        existing = set(map(tag_key, text_tags(read_text(path, limit=MAX_TEXT_BYTES)))) if old is not None else set()
        written_tags = note.tags if note else []
        recorded = set(map(tag_key, written_tags))
        unwritable = {mark.tag for mark in marks if _SEPARATORS & set(mark.tag) or mark.tag.startswith("-")}
        rejected = set(map(tag_key, item.rejected)) & recorded & existing
        added = tuple(
            mark for mark in marks if tag_key(mark.tag) not in existing | recorded and mark.tag not in unwritable
        )
        left_out = tuple(
            mark.tag for mark in marks if mark.tag in unwritable or tag_key(mark.tag) in recorded - existing
        )
        removed = tuple(tag for tag in written_tags if tag_key(tag) in rejected)
        if (added or removed) and not dry_run:
            new = _without_tags(old or b"", rejected)
            if added:
                lines = "".join(f"{mark.tag}\n" for mark in added)
                new += (b"\n" if new and not new.endswith(b"\n") else b"") + lines.encode()
            if not self._follow_links:
                check_stays_inside(path)  # check before recording the change
            notes.put(_updated_note(path, note, old, new, added, rejected))
            replace_file(path, old, new, follow_links=self._follow_links)
            notes.mark_done(path)

        written_tags = [*(tag for tag in written_tags if tag not in removed), *(mark.tag for mark in added)]
        change = FileChange(str(item.path), str(path), added, removed, left_out, tuple(written_tags))
        staying = set(map(tag_key, item.rejected)) & existing - recorded
        return replace(change, staying=tuple(union(tag for tag in item.rejected if tag_key(tag) in staying)))

    def undo(self, image: Path, *, dry_run: bool) -> FileChange:
        """Remove the tags that visterm wrote, and delete text files that it created and nobody extended."""
        path = self._path(image)
        notes, old = self._notes_of(path), content_of(path)
        note = notes.of(path, old) or self._notes_of_moved.get(path)
        removed: list[str] = []
        if note is not None and old is not None:
            removed = note.tags
            if note.length is not None and hashlib.sha256(old).hexdigest() == note.sha256:
                new = None if note.made else old[: note.length]
            else:
                remaining = _without_tags(old, set(map(tag_key, removed)))
                new = None if note.made and not remaining.strip() else remaining
            if not dry_run:
                replace_file(path, old, new, follow_links=self._follow_links)
        if not dry_run:
            notes.forget(path)
        return FileChange(str(image), str(path), removed=tuple(removed))

    def follow(self, image: Path, former_paths: Sequence[Path]) -> None:
        """Use the note of a text file that was moved with its image: the note is still in the image's former folder."""
        for old_path in former_paths:
            for text_file in (old_path.with_name(f"{old_path.name}{SUFFIX}"), old_path.with_suffix(SUFFIX)):
                note = None if text_file.exists() else self._notes_of(text_file).of(text_file, None)
                if note is not None:
                    self._notes_of_moved[self._path(image)] = note

    def close(self) -> None:
        """Delete the notes of folders without any written tags."""
        for notes in self._notes.values():
            notes.clean()

    def _path(self, image: Path) -> Path:
        return sidecar(image) or (
            image.with_name(f"{image.name}{SUFFIX}") if self._sidecars.shares_stem(image) else image.with_suffix(SUFFIX)
        )

    def _notes_of(self, text_file: Path) -> TextNotes:
        if text_file.parent not in self._notes:
            self._notes[text_file.parent] = TextNotes(text_file.parent, follow_links=self._follow_links)
        return self._notes[text_file.parent]


def _without_tags(content: bytes, keys: set[str]) -> bytes:
    return b"".join(line for line in content.splitlines(keepends=True) if tag_key(line.decode("utf-8-sig")) not in keys)


def _updated_note(
    path: Path, note: TextNote | None, old: bytes | None, new: bytes, added: Sequence[Mark], rejected: set[str]
) -> TextNote:
    given = [mark.tag for mark in added if mark.source == GIVEN]
    predicted = [mark.tag for mark in added if mark.source != GIVEN]
    sha256 = hashlib.sha256(new).hexdigest()
    if note is None:
        return TextNote(path.name, given, predicted, old is None, len(old or b""), sha256)
    given = [*(tag for tag in note.given if tag_key(tag) not in rejected), *given]
    predicted = [*(tag for tag in note.predicted if tag_key(tag) not in rejected), *predicted]
    is_unchanged = old is not None and hashlib.sha256(old).hexdigest() == note.sha256
    return TextNote(path.name, given, predicted, note.made, note.length if is_unchanged else None, sha256)
