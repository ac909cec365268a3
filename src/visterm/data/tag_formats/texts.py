"""Tags in a ``.txt`` file per image, next to it or in another folder, and notes on what visterm wrote into texts."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from visterm.core.errors import DataError, StorageError, TagFileError
from visterm.core.files import MB
from visterm.core.types import NO_TAGS, Skipped
from visterm.core.vocabulary import clean_tag, tag_fault, tag_key
from visterm.core.wording import count_of, json_text
from visterm.core.writing import writing
from visterm.data.image_folders import Unsearched, files_below, name_key, suffix_of
from visterm.data.sidecars import check_stays_inside, content_of
from visterm.data.tag_formats.record import LINE_END, Splitter, TagRecord, TagsFound, record, without_minus
from visterm.data.text_files import read_text

SUFFIX = ".txt"
MAX_TEXT_BYTES = 16 * MB  # Maximum size of the text of one image in bytes
_BOX = re.compile(r"\d+( [01]?(\.\d+)?(e[+-]\d+)?){4,} *", re.IGNORECASE)  # A line of YOLO: a class, box or outline
NOTES = ".visterm_texts.jsonl"  # Notes on what visterm wrote into a folder's texts, which have no metadata


def read_sidecars(folder: Path, images: Sequence[Path], separator: str | None = None) -> TagsFound:
    """Read the tags of each image from the text next to it, if it exists: ``1.txt`` or ``1.jpg.txt`` for ``1.jpg``.

    `separator` separates the tags of a line (see `Splitter`).
    """
    pairs = [(image, text) for image in images if (text := sidecar(image)) is not None]
    records, skipped = _read_texts(folder, pairs, separator)
    return TagsFound(records, ["Tags: a .txt beside each image."], "without a .txt", skipped=skipped)


def sidecar(image: Path) -> Path | None:
    """Find the text next to an image, whose suffix may be in capitals."""
    suffixes = (SUFFIX, SUFFIX.upper(), SUFFIX.title())
    candidates = (image.with_name(f"{name}{suffix}") for name in (image.name, image.stem) for suffix in suffixes)
    return next((path for path in candidates if os.path.isfile(path)), None)


def read_text_folder(texts: Path, folder: Path, images: Sequence[Path], separator: str | None = None) -> TagsFound:
    """Read the tags of each image from its text in another folder.

    The text of ``sea/1.jpg`` is ``sea/1.txt`` or ``sea/1.jpg.txt``; otherwise the only text in the folder that has the
    same name and belongs to no other image. A remark counts texts without an image. `separator` is as in
    `read_sidecars`. Raises TagFileError if `texts` has no text, no text belongs to an image, or a match is ambiguous.
    """
    unsearched = Unsearched()
    names = sorted(name for name in files_below(texts, unsearched) if suffix_of(name) == SUFFIX)
    by_key = {name_key(name)[: -len(SUFFIX)]: texts / name for name in names}
    if not by_key:
        expected = f"one for each image (1{SUFFIX} for 1.jpg), or the name of a table"
        raise TagFileError(f"The tag folder {texts} has no {SUFFIX} file; expected {expected}.")

    text_of = {  # 1.jpg.txt before 1.txt
        image: by_key[key] for image in images for key in reversed(_keys(image.relative_to(folder))) if key in by_key
    }
    used_texts = set(text_of.values())
    unused_texts = {key: path for key, path in by_key.items() if path not in used_texts}
    text_of |= _match(texts, folder, [image for image in images if image not in text_of], unused_texts)
    if not text_of:
        raise TagFileError(
            f"No text in {texts} has the name of an image in {folder}: the texts are "
            f"named like '{min(by_key)}{SUFFIX}', the images like '{images[0].relative_to(folder).as_posix()}'."
        )

    used_texts = set(text_of.values())
    unused_keys = sorted(key for key, path in by_key.items() if path not in used_texts)
    n_unused = count_of(len(unused_keys), "text")
    remarks = [f"Left out: {n_unused} of no image, such as '{key}{SUFFIX}'." for key in unused_keys[:1]]
    records, skipped = _read_texts(folder, [(image, text_of[image]) for image in images if image in text_of], separator)
    return TagsFound(records, remarks, f"without a {SUFFIX} in {texts}", skipped=[*skipped, *unsearched.closed])


def text_tags(text: str, separator: str | None = None) -> list[str]:
    """Split the text of one image into tags; each line is a cell (see `Splitter`)."""
    return Splitter(lambda: [text], separator).split(text)


def _read_texts(
    folder: Path, pairs: Iterable[tuple[Path, Path]], separator: str | None
) -> tuple[list[TagRecord], list[Skipped]]:
    """Read the texts of images, without tags that visterm predicted, so no run learns from predictions.

    Also returns the texts that this user may not read, with the reasons.
    """
    records, skipped = [], []
    notes: dict[Path, TextNotes] = {}
    for image, path in pairs:
        try:
            text = read_text(path, limit=MAX_TEXT_BYTES)
        except TagFileError as error:
            skipped.append(skipped_for_permission(error))
            continue
        if path.parent not in notes:
            notes[path.parent] = TextNotes(path.parent)
        note = notes[path.parent].of(path, content_of(path))
        predicted_keys = set(map(tag_key, note.predicted if note else ()))
        tags = [tag for tag in text_tags(text, separator) if tag_key(tag) not in predicted_keys]
        source = str(path)
        if any(tags) and all(map(_BOX.fullmatch, filter(None, tags))):
            raise TagFileError(f"{path} has boxes of YOLO, no tags.", advice="Make a table of file names and tags.")
        invalid_tag = next((tag for tag in tags if (name := without_minus(clean_tag(tag))) and tag_fault(name)), None)
        if invalid_tag is not None:
            source += f", line {next(n for n, line in enumerate(re.split(LINE_END, text), 1) if invalid_tag in line)}"
        name = image.relative_to(folder).as_posix()
        records.append(record(name, tags, None, source=source)._replace(is_known=any(tags)))
    return records, skipped


def skipped_for_permission(error: DataError) -> Skipped:
    """Return a `Skipped` with the file of a permission error; re-raise any other error."""
    if not isinstance(error.__cause__, PermissionError):
        raise error
    return Skipped(os.fspath(error.__cause__.filename), f"{NO_TAGS}: {error.__cause__.strerror}")


def _match(texts: Path, folder: Path, images: Sequence[Path], unused_texts: Mapping[str, Path]) -> dict[Path, Path]:
    """Match images with texts by the names of the files alone. Raises TagFileError if a match is ambiguous."""
    by_name: defaultdict[str, list[str]] = defaultdict(list)
    for key in unused_texts:
        by_name[PurePosixPath(key).name].append(key)
    images_of: defaultdict[str, list[Path]] = defaultdict(list)
    for image in images:
        name = next((name for name in _keys(Path(image.name)) if name in by_name), None)
        if name is not None:
            images_of[name].append(image)

    for name, candidates in images_of.items():
        if len(candidates) > 1 or len(by_name[name]) > 1:
            raise TagFileError(
                f"In {texts} the texts {_first3([f'{key}{SUFFIX}' for key in by_name[name]])} may belong to the images "
                f"{_first3([image.relative_to(folder).as_posix() for image in candidates])}. Put each text into the "
                "sub-folder that its image has in the image folder."
            )
    return {images[0]: unused_texts[by_name[name][0]] for name, images in images_of.items()}


def _keys(image: Path) -> tuple[str, str]:
    """Return the two names that the text of an image may have, without the suffix."""
    return name_key(image.as_posix()), name_key(image.with_suffix("").as_posix())


def _first3(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")


class TextNote(NamedTuple):
    """A record of the tags that visterm wrote into one text."""

    file: str  # Name of the text
    # The tags that people gave, and those that a run predicted; both empty if all tags were removed
    given: list[str]
    predicted: list[str]
    made: bool  # Whether visterm created the text
    length: int | None  # Size of the text before visterm wrote it, in bytes; None if a person has changed it since
    sha256: str  # Hash of the text as visterm wrote it
    done: bool = True  # Whether the text is known to be written; visterm may be killed between note and text

    @property
    def tags(self) -> list[str]:
        """All tags that were written."""
        return [*self.given, *self.predicted]


class TextNotes:
    """The notes on the texts of one folder, one per line; the latest note on a text counts.

    Raises DataError if the notes are damaged.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / NOTES
        self._notes: dict[str, list[TextNote]] = {}  # text name -> its latest note that is done, and later notes
        content = content_of(self._path) or b""
        self._incomplete_from: int | None = None

        for number, line in enumerate(content.splitlines(keepends=True), start=1):
            try:
                note = TextNote(**json.loads(line))
            except (ValueError, TypeError, RecursionError) as error:
                if not line.endswith(b"\n"):  # the process was killed while writing the note: the text is unchanged
                    self._incomplete_from = len(content) - len(line)
                    break
                raise DataError(
                    f"{self._path}, line {number} is damaged: it records what visterm wrote into this folder's texts. "
                    "Remove the line; its tags then count as a person's."
                ) from error
            self._keep(note)

    def of(self, text: Path, content: bytes | None) -> TextNote | None:
        """Return the note on a text with this content; None if visterm wrote nothing into it.

        After a kill between writing a note and its text, the content decides: if it differs from the note, the
        previous note counts.
        """
        sha256 = hashlib.sha256(content or b"").hexdigest()
        notes = reversed(self._notes.get(text.name, []))
        note = next((note for note in notes if note.done or note.sha256 == sha256), None)
        return note if note is not None and note.tags else None

    def put(self, note: TextNote) -> None:
        """Save a note before the text is written, so no tag is without a note, even after a crash."""
        self._append(note._replace(done=False))

    def mark_done(self, text: Path) -> None:
        """Record that a text was written as its latest note says."""
        self._append(self._notes[text.name][-1]._replace(done=True))

    def forget(self, text: Path) -> None:
        """Record that a text no longer has tags of visterm."""
        if any(note.tags for note in self._notes.get(text.name, [])):
            self._append(TextNote(text.name, [], [], False, None, ""))

    def _append(self, note: TextNote) -> None:
        fields = note._asdict()
        if note.done:
            del fields["done"]  # all versions of visterm can read notes without it
        check_stays_inside(self._path)

        try:
            if self._incomplete_from is not None:
                os.truncate(self._path, self._incomplete_from)
                self._incomplete_from = None
            with writing(self._path), self._path.open("ab") as file:
                file.write(json_text(fields).encode() + b"\n")
                file.flush()
                if not (note.done and note.tags):  # it does no harm to lose a note that a text was written
                    os.fsync(file.fileno())
        except OSError as error:
            raise StorageError(f"{self._path} cannot be written: {error.strerror or error}.") from error
        self._keep(note)

    def _keep(self, note: TextNote) -> None:
        """Remember a note, and drop the notes that it replaces."""
        notes = self._notes.setdefault(note.file, [])
        if note.done:
            notes.clear()
        notes.append(note)

    def clean(self) -> None:
        """Delete the notes file if no text has tags of visterm."""
        if self._notes and not any(note.tags for notes in self._notes.values() for note in notes):
            self._path.unlink(missing_ok=True)
