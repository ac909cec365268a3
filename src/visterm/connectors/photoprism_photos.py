"""Parse PhotoPrism's answers: photos with their labels; and the position of a reader of its changes."""

from __future__ import annotations

import re
import unicodedata
from datetime import UTC, datetime
from typing import NamedTuple

from visterm.connectors.json_answers import YEARS, field, optional
from visterm.core.errors import DataError, ServiceError
from visterm.core.vocabulary import tag_key
from visterm.store.connected import RemotePhoto

PEOPLE_SOURCES = ("manual", "batch")  # Sources of people's and the API's labels; others are PhotoPrism's predictions
REMOVED = 100  # Uncertainty of a removed label, which PhotoPrism keeps so that no model adds it again
UID = re.compile("p[0-9a-z]{15}")
ALL_PREFIX = "all="  # In a mark's text: precedes the time when all photos were last read
_HASH = re.compile("[0-9a-f]{8,128}")


class Label(NamedTuple):
    """A label of a photo."""

    id: int
    name: str
    source: str
    uncertainty: int
    slug: str = ""  # Slug of the original name, which renaming does not change

    @property
    def is_given(self) -> bool:
        """Whether a person or the API added it, and nobody removed it."""
        return self.source in PEOPLE_SOURCES and self.uncertainty < REMOVED

    @property
    def is_written(self) -> bool:
        """Whether the API added it with an uncertainty, as visterm does; labels by people have none."""
        return self.is_given and self.uncertainty > 0


class PhotoPrismMark(NamedTuple):
    """The position of a reader: all changes before `time`, and those at `time` for ids up to `uid`, are read."""

    time: int = 0  # Seconds since 1970
    uid: str = ""
    all_read_at: int = 0  # When all photos were last read, by the server's clock; 0: unknown

    @classmethod
    def read(cls, text: str) -> PhotoPrismMark:
        """Parse the text of a mark. Raises DataError if it is invalid."""
        if not text:
            return cls()
        time, *parts = text.split(" ")
        all_read = [part.removeprefix(ALL_PREFIX) for part in parts if part.startswith(ALL_PREFIX)]
        uid = "".join(part for part in parts if not part.startswith(ALL_PREFIX))
        return cls(_time(time, DataError), uid, _time(all_read[0], DataError) if all_read else 0)

    def text(self) -> str:
        """Return the text for a catalogue."""
        all_read = f"{ALL_PREFIX}{time_text(self.all_read_at)}" if self.all_read_at else ""
        return " ".join(filter(None, (time_text(self.time), self.uid, all_read)))


class LabelledPhoto(NamedTuple):
    """A photo with its labels."""

    id: str
    name: str
    hash: str
    labels: list[Label]
    keywords: frozenset[str] = frozenset()  # From people or the file, without words that PhotoPrism adds
    archived: bool = False

    def label(self, tag: str) -> Label | None:
        """Return the label with a name, ignoring case; the most certain if there are several."""
        labels = [label for label in self.labels if tag_key(label.name) == tag_key(tag)]
        return min(labels, key=lambda label: label.uncertainty, default=None)

    def similar_label(self, tag: str) -> Label | None:
        """Return the label that PhotoPrism considers equal to a tag: by a similar name, or by its original name."""
        slug = slug_of(tag)
        return next((label for label in self.labels if slug and slug in (slug_of(label.name), label.slug)), None)

    def written_labels(self, tag: str) -> list[Label]:
        """Return the labels with a name that the API added with an uncertainty, including renamed labels."""
        return [label for label in self.labels if label.is_written and (
            tag_key(label.name) == tag_key(tag) or label.slug == slug_of(tag) != "")]  # fmt: skip

    def has(self, tag: str) -> bool:
        """Return whether a person or the API added a tag to the photo."""
        label = self.label(tag)
        return (label is not None and label.is_given) or bool(self.written_labels(tag))

    def remote(self) -> RemotePhoto:
        """Return the photo for a catalogue, with labels that people added, and labels that people removed.

        Labels added by the API (visterm or another program) are in `guessed`. So are original names of renamed labels,
        and keywords, which visterm need not write again.
        """
        tags = [label.name for label in self.labels if label.is_given and not label.is_written]
        removed = [label.name for label in self.labels if label.uncertainty >= REMOVED]
        visible = [label for label in self.labels if label.uncertainty < REMOVED]
        guessed = [label.name for label in visible if label.is_written or not label.is_given]
        guessed += [label.slug.replace("-", " ") for label in visible if label.slug not in ("", slug_of(label.name))]
        guessed += sorted(self.keywords)
        given, denied, others = (tuple(dict.fromkeys(names)) for names in (tags, removed, guessed))
        return RemotePhoto(self.id, self.name, self.hash, given, denied, others)


def read_photo(record: object) -> LabelledPhoto:
    """Parse a photo of PhotoPrism's answer. Raises ServiceError if it is invalid."""
    labels = []
    for item in optional(record, "Labels", list) or []:
        label = optional(item, "Label", dict)
        if label is not None:
            source = optional(item, "LabelSrc", str) or ""
            labels.append(Label(field(item, "LabelID", int), field(label, "Name", str), source,
                                 field(item, "Uncertainty", int), optional(label, "Slug", str) or ""))  # fmt: skip
    files = optional(record, "Files", list) or []
    primary = next((file for file in files if optional(file, "Primary", bool)), None)
    file_hash = "" if primary is None else field(primary, "Hash", str)
    name = field(record, "Name", str) if primary is None else field(primary, "Name", str)

    # keep only keywords by people or the file: PhotoPrism of 2024 adds the words of labels, and indexing adds the words
    # of the file's path and its colour
    details = optional(record, "Details", dict)
    keywords = "" if details is None else optional(details, "Keywords", str) or ""
    added_texts = [label.name for label in labels if label.uncertainty < REMOVED]
    added_texts += [optional(record, name, str) or "" for name in ("Path", "Name", "OriginalName")]
    added_texts.append("" if primary is None else optional(primary, "MainColor", str) or "")

    file_hash = file_hash if _HASH.fullmatch(file_hash) else ""
    archived = bool(optional(record, "DeletedAt", str))
    words = frozenset(_words(keywords)).difference(*map(_words, added_texts))
    return LabelledPhoto(uid_of(record), name, file_hash, labels, words, archived)


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.lower())


def uid_of(record: object) -> str:
    """Return the id of a photo. Raises ServiceError unless it is safe in a path."""
    uid = field(record, "UID", str)
    if not UID.fullmatch(uid):
        raise ServiceError(f"The server answers with {uid[:60]!r} for the id of a photo.")
    return uid


def updated_at(record: object) -> int:
    """Return the time of a photo's last change, in seconds since 1970."""
    return _time(field(record, "UpdatedAt", str), ServiceError)


def time_text(seconds: int) -> str:
    """Format a time for PhotoPrism's searches."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def _time(text: str, error: type[DataError | ServiceError]) -> int:
    """Parse a time to whole seconds since 1970, as PhotoPrism stores it; raise `error` if it is invalid."""
    try:
        time = datetime.fromisoformat(text)
        if time.tzinfo is None or time.year >= YEARS.stop:
            raise ValueError("it has no zone, or an implausible year")
        return max(int(time.timestamp()), 0)
    except ValueError as cause:
        raise error(f"{text[:60]!r} is not the time of a change in PhotoPrism.") from cause


def slug_of(name: str) -> str:
    """Return approximately PhotoPrism's slug of a name: without capitals, accents and punctuation."""
    letters = unicodedata.normalize("NFKD", name.casefold())
    return re.sub(r"[\W_]+", "-", "".join(letter for letter in letters if not unicodedata.combining(letter))).strip("-")
