"""PhotoPrism's answers: photos with their labels, checked; and how far a reader of its changes has come."""

from __future__ import annotations

import re
import unicodedata
from datetime import UTC, datetime
from typing import NamedTuple

from visterm.connectors.json_answers import YEARS, field, optional
from visterm.core.errors import DataError, ServiceError
from visterm.core.vocabulary import tag_key
from visterm.store.connected import RemotePhoto

PEOPLE = ("manual", "batch")  # Sources of labels of a person or the API; the others are PhotoPrism's own guesses
GONE = 100  # Uncertainty of a label that somebody removed: PhotoPrism keeps it, so that no model gives it again
UID = re.compile("p[0-9a-z]{15}")
ALL = "all="  # Begins the time of the last reading of all photos in a mark's text
_HASH = re.compile("[0-9a-f]{8,128}")


class Label(NamedTuple):
    """A label of a photo."""

    id: int
    name: str
    source: str
    uncertainty: int
    slug: str = ""  # Of its first name: renaming a label changes another slug

    @property
    def given(self) -> bool:
        """Whether the photo has it because of a person or the API."""
        return self.source in PEOPLE and self.uncertainty < GONE

    @property
    def written(self) -> bool:
        """Whether it came by the API with an uncertainty, as ours do: a person's label has none."""
        return self.given and self.uncertainty > 0


class PhotoPrismMark(NamedTuple):
    """How far a reader has come: to all changes before a time, and those of photos up to one at that time."""

    time: int = 0  # Seconds since 1970
    uid: str = ""
    all: int = 0  # When all photos were last read, by the server's clock; 0: unknown

    @classmethod
    def read(cls, text: str) -> PhotoPrismMark:
        """Return a mark from its text. Raises DataError if it is none."""
        if not text:
            return cls()
        time, *more = text.split(" ")
        all_read = [each.removeprefix(ALL) for each in more if each.startswith(ALL)]
        uid = "".join(each for each in more if not each.startswith(ALL))
        return cls(_time(time, DataError), uid, _time(all_read[0], DataError) if all_read else 0)

    def text(self) -> str:
        """Return what a catalogue holds."""
        all_read = f"{ALL}{time_text(self.all)}" if self.all else ""
        return " ".join(filter(None, (time_text(self.time), self.uid, all_read)))


class LabelledPhoto(NamedTuple):
    """A photo with its labels."""

    id: str
    name: str
    hash: str
    labels: list[Label]
    keywords: frozenset[str] = frozenset()  # Without the words of labels, and those that PhotoPrism itself makes again
    archived: bool = False

    def label(self, tag: str) -> Label | None:
        """Return its label of a name, in capitals or not; the surest if there are several."""
        labels = [label for label in self.labels if tag_key(label.name) == tag_key(tag)]
        return min(labels, key=lambda label: label.uncertainty, default=None)

    def near(self, tag: str) -> Label | None:
        """Return its label that PhotoPrism takes for a tag: of a name that differs by signs, or that was another."""
        slug = plain(tag)
        return next((label for label in self.labels if slug and slug in (plain(label.name), label.slug)), None)

    def written(self, tag: str) -> list[Label]:
        """Return its labels of a name that came by the API with an uncertainty, also those that somebody renamed."""
        return [each for each in self.labels if each.written and (
            tag_key(each.name) == tag_key(tag) or each.slug == plain(tag) != "")]  # fmt: skip

    def has(self, tag: str) -> bool:
        """Return whether a person or the API gave it a tag."""
        label = self.label(tag)
        return (label is not None and label.given) or bool(self.written(tag))

    def remote(self) -> RemotePhoto:
        """Return what of it a catalogue reads: labels that people gave, and those that somebody removed.

        Labels that came by the API are among the guesses: they are ours, or another program's, never a person's. So are
        first names of labels that somebody renamed, and keywords, beside which ours need not be.
        """
        tags = [label.name for label in self.labels if label.given and not label.written]
        removed = [label.name for label in self.labels if label.uncertainty >= GONE]
        visible = [label for label in self.labels if label.uncertainty < GONE]
        guessed = [label.name for label in visible if label.written or not label.given]
        guessed += [label.slug.replace("-", " ") for label in visible if label.slug not in ("", plain(label.name))]
        guessed += sorted(self.keywords)
        given, denied, others = (tuple(dict.fromkeys(names)) for names in (tags, removed, guessed))
        return RemotePhoto(self.id, self.name, self.hash, given, denied, others)


def read_photo(record: object) -> LabelledPhoto:
    """Return a photo from PhotoPrism's answer. Raises ServiceError if it is none."""
    labels = []
    for each in optional(record, "Labels", list) or []:
        label = optional(each, "Label", dict)
        if label is not None:
            source = optional(each, "LabelSrc", str) or ""
            labels.append(Label(field(each, "LabelID", int), field(label, "Name", str), source,
                                 field(each, "Uncertainty", int), optional(label, "Slug", str) or ""))  # fmt: skip
    files = optional(record, "Files", list) or []
    primary = next((file for file in files if optional(file, "Primary", bool)), None)
    hashed = "" if primary is None else field(primary, "Hash", str)
    name = field(record, "Name", str) if primary is None else field(primary, "Name", str)

    # keywords that people or its file gave: PhotoPrism of 2024 adds the words of labels, and indexing adds those of
    # the file's path and its colour again
    details = optional(record, "Details", dict)
    keywords = "" if details is None else optional(details, "Keywords", str) or ""
    added = [label.name for label in labels if label.uncertainty < GONE]
    added += [optional(record, each, str) or "" for each in ("Path", "Name", "OriginalName")]
    added.append("" if primary is None else optional(primary, "MainColor", str) or "")

    hashed = hashed if _HASH.fullmatch(hashed) else ""
    archived = bool(optional(record, "DeletedAt", str))
    words = frozenset(_words(keywords)).difference(*map(_words, added))
    return LabelledPhoto(uid_of(record), name, hashed, labels, words, archived)


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.lower())


def uid_of(record: object) -> str:
    """Return the id of a photo, which may become a part of a path."""
    uid = field(record, "UID", str)
    if not UID.fullmatch(uid):
        raise ServiceError(f"The server answers with {uid[:60]!r} for the id of a photo.")
    return uid


def updated_at(record: object) -> int:
    """Return when a photo was last changed, in seconds since 1970."""
    return _time(field(record, "UpdatedAt", str), ServiceError)


def time_text(seconds: int) -> str:
    """Return a time as PhotoPrism's searches take it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def _time(text: str, error: type[DataError | ServiceError]) -> int:
    """Return a time in seconds since 1970; PhotoPrism stores whole seconds."""
    try:
        made = datetime.fromisoformat(text)
        if made.tzinfo is None or made.year >= YEARS.stop:
            raise ValueError("it has no zone, or is none of these days")
        return max(int(made.timestamp()), 0)
    except ValueError as wrong:
        raise error(f"{text[:60]!r} is no time of a change in PhotoPrism.") from wrong


def plain(name: str) -> str:
    """Return about what PhotoPrism finds a label by, its slug: a name without capitals, accents and signs."""
    letters = unicodedata.normalize("NFKD", name.casefold())
    return re.sub(r"[\W_]+", "-", "".join(each for each in letters if not unicodedata.combining(each))).strip("-")
