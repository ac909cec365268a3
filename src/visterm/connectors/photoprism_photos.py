"""PhotoPrism's answers: photos with their labels, checked; and how far a reader of its changes has come."""

from __future__ import annotations

import re
import unicodedata
from datetime import UTC, datetime
from typing import Any, NamedTuple

from visterm.connectors.contract import RemotePhoto
from visterm.connectors.json_answers import YEARS, field, optional
from visterm.core.errors import DataError, ServiceError
from visterm.core.vocabulary import tag_key

PEOPLE = ("manual", "batch")
"""The sources of labels that a person gave, or that came by the API; the others are PhotoPrism's own guesses."""
GONE = 100  # Uncertainty of a label that somebody removed: PhotoPrism keeps it, so that no model gives it again
UID = re.compile("p[0-9a-z]{15}")
_HASH = re.compile("[0-9a-f]{8,128}")


class Label(NamedTuple):
    """A label of a photo."""

    id: int
    name: str
    source: str
    uncertainty: int

    @property
    def given(self) -> bool:
        """Whether the photo has it because of a person or the API."""
        return self.source in PEOPLE and self.uncertainty < GONE


class Mark(NamedTuple):
    """How far a reader has come: to all changes before a time, and those of photos up to one at that time."""

    time: int = 0  # Seconds since 1970
    uid: str = ""

    @classmethod
    def read(cls, text: str) -> Mark:
        """Return a mark from its text. Raises DataError if it is none."""
        if not text:
            return cls()
        time, _, uid = text.partition(" ")
        return cls(_time(time, DataError), uid)

    def text(self) -> str:
        """Return what a catalogue holds."""
        return f"{time_text(self.time)} {self.uid}".rstrip()


class Photo(NamedTuple):
    """A photo with its labels."""

    id: str
    name: str
    hash: str
    labels: list[Label]

    def label(self, tag: str) -> Label | None:
        """Return its label of a name, in capitals or not; the surest if there are several."""
        found = [label for label in self.labels if tag_key(label.name) == tag_key(tag)]
        return min(found, key=lambda label: label.uncertainty, default=None)

    def near(self, tag: str) -> Label | None:
        """Return its label of a name that differs by accents and signs only: PhotoPrism takes both for one."""
        return next((label for label in self.labels if _plain(label.name) == _plain(tag)), None)

    def remote(self) -> RemotePhoto:
        """Return what of it a catalogue reads: labels that people gave, and those that somebody removed."""
        tags = tuple(dict.fromkeys(label.name for label in self.labels if label.given))
        gone = (label.name for label in self.labels if label.uncertainty >= GONE)
        guessed = tuple(each.name for each in self.labels if not each.given and each.uncertainty < GONE)
        return RemotePhoto(self.id, self.name, self.hash, tags, tuple(dict.fromkeys(gone)), guessed)


def read_photo(record: Any) -> Photo:
    """Return a photo from PhotoPrism's answer. Raises ServiceError if it is none."""
    labels = []
    for each in optional(record, "Labels", list) or []:
        label = optional(each, "Label", dict)
        if label is not None:
            source = optional(each, "LabelSrc", str) or ""
            labels.append(Label(field(each, "LabelID", int), field(label, "Name", str), source,
                                 field(each, "Uncertainty", int)))  # fmt: skip
    files = optional(record, "Files", list) or []
    primary = next((file for file in files if optional(file, "Primary", bool)), None)
    hashed = "" if primary is None else field(primary, "Hash", str)
    name = field(record, "Name", str) if primary is None else field(primary, "Name", str)
    return Photo(uid_of(record), name, hashed if _HASH.fullmatch(hashed) else "", labels)


def uid_of(record: Any) -> str:
    """Return the id of a photo, which may become a part of a path."""
    uid = field(record, "UID", str)
    if not UID.fullmatch(uid):
        raise ServiceError(f"The server answers with {uid[:60]!r} for the id of a photo.")
    return uid


def is_shown(record: Any) -> bool:
    """Return whether a photo of a search is one that PhotoPrism shows: others have no file that it can read."""
    return (optional(record, "Quality", int) or 0) >= 0


def updated_at(record: Any) -> int:
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


def _plain(name: str) -> str:
    letters = unicodedata.normalize("NFKD", name.casefold())
    return re.sub(r"[\W_]+", "-", "".join(each for each in letters if not unicodedata.combining(each))).strip("-")
