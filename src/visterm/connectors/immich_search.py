"""Searches of Immich's library: both shapes of its API, and pages that leave no photo out while the library changes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple, TypeAlias

from visterm.connectors.json_answers import YEARS, JsonServer, checked, field, optional
from visterm.core.errors import DataError, ServiceError

PAGE = 1000  # Photos of a page: as many as Immich allows
MOST_PAGES = 100_000  # Of one search: a server that never ends is none
_PLAIN = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
UUID = re.compile("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class PagePosition(NamedTuple):
    """How far a search was read: to photos taken at a time, and within those of the same time by the server's token."""

    taken: str = ""
    token: str = ""

    @classmethod
    def at(cls, taken: str) -> PagePosition:
        """Return the place of a time; the beginning if it is of a year with more digits, which searches do not take."""
        return cls(taken if _PLAIN.fullmatch(taken) else "")


@dataclass(frozen=True)
class Search:
    """Photos of the timeline that are looked for: no videos, and none archived, hidden, locked or in the bin."""

    updated: str = ""  # Not before this time
    until: str = ""  # Taken before this time
    tags: tuple[str, ...] = ()  # With one of these, or one under them; up to 3.1 there is at most one
    untagged: bool = False
    pairs: tuple[tuple[str, tuple[str, ...]], ...] = ()  # From 3.2 on: one of these, with all of its tags

    def flat(self, position: PagePosition) -> dict[str, object]:
        """Return the body up to Immich 3.1."""
        body: dict[str, object] = {"type": "IMAGE", "visibility": "timeline", "size": PAGE, "order": "asc"}
        times = {"updatedAfter": self.updated, "takenBefore": self.until, "takenAfter": position.taken}
        body |= {name: time for name, time in times.items() if time}
        if self.tags or self.untagged:
            body["tagIds"] = list(self.tags) or None
        if re.fullmatch("[0-9]{1,9}", position.token):  # not the cursor of a server that was newer then
            body["page"] = int(position.token)
        return body

    def nested(self, position: PagePosition) -> dict[str, object]:
        """Return the body from Immich 3.2 on, where photos in the bin are found unless they are excluded."""
        fixed = {"type": "IMAGE", "visibility": "timeline", "trashedAt": None}
        chosen: dict[str, object] = {name: {"eq": value} for name, value in fixed.items()}
        if self.updated:
            chosen["updatedAt"] = {"gte": self.updated}
        if self.until or position.taken:
            limits = {"lte": self.until, "gte": position.taken}
            chosen["takenAt"] = {name: value for name, value in limits.items() if value}
        if self.tags:
            chosen["tagIds"] = {"any": list(self.tags)}
        if self.untagged:
            chosen["hasTags"] = {"eq": False}
        if self.pairs:
            chosen["or"] = [{"id": {"eq": photo}, "tagIds": {"all": list(tags)}} for photo, tags in self.pairs]
        body = {"filter": chosen, "size": PAGE, "orderBy": {"field": "fileCreatedAt", "direction": "asc"}}
        return body | ({"cursor": position.token} if position.token else {})

    def before(self, taken: str) -> Search:
        """Return the same search for photos that were taken up to a time; Immich's times are cut to milliseconds."""
        try:
            end = datetime.fromisoformat(taken) + timedelta(milliseconds=1)
        except (ValueError, OverflowError):
            return self
        return replace(self, until=as_text(end))


@dataclass(frozen=True)
class ListedPhoto:
    """What is read of a photo in a list; the times are as Immich writes them."""

    id: str
    name: str
    version: str  # "": without a preview, which comes after its metadata was read
    taken: str
    created: str
    owner: str
    updated: str  # When it changed last: the jobs that a request queues move it, and not the request
    library: str  # The id of an external library; "": it was uploaded


START = PagePosition()
ListedPage: TypeAlias = "tuple[list[ListedPhoto], PagePosition]"
"""The photos of a page, and how far they bring a reader."""


@dataclass(frozen=True)
class ImmichMark:
    """How far a reader has come; in catalogues it is JSON."""

    since: str = ""  # Photos whose `updatedAt` is not before this time are listed; empty: all
    begun: str = ""  # The server's time when this list was begun
    full: str = ""  # The same of the last list of all photos
    taken: str = ""
    token: str = ""
    tags: Sequence[str] = ()  # First letters of the ids of all tags: those that vanish are noticed

    @classmethod
    def read(cls, text: str) -> ImmichMark:
        """Return a mark from what a catalogue holds. Raises DataError if it is none."""
        if not text:
            return cls()
        try:
            made = cls(**json.loads(text))
            for time in (made.since, made.begun, made.full):
                as_time(time or "2000-01-01T00:00:00Z")
            if not isinstance(made.taken, str) or not isinstance(made.token, str) or isinstance(made.tags, (str, dict)):
                raise TypeError("a field of another kind")
        except (ValueError, TypeError, ServiceError) as error:
            raise DataError(f"{text[:60]!r} is no mark of Immich's changes; ask for all photos.") from error
        return made

    def text(self) -> str:
        """Return what a catalogue holds."""
        return json.dumps({name: value for name, value in asdict(self).items() if value}, separators=(",", ":"))


def pages(server: JsonServer, search: Search, nested: bool, position: PagePosition = START) -> Iterator[ListedPage]:
    """Yield the photos of a search, oldest first, with the position after each page; the last page's is `START`.

    Immich counts pages by rows, so a photo that is deleted between two pages would hide another one. Here a page begins
    at the time of the last photo of the page before. Rows are counted only where more than a page has one time.
    """
    before: set[str] = set()
    for _ in range(MOST_PAGES):
        body = search.nested(position) if nested else search.flat(position)
        assets = field(server.json("POST", "/search/metadata", body, needs="asset.read"), "assets", dict)
        items = [_item(each) for each in field(assets, "items", list)]
        token = optional(assets, "nextCursor" if nested else "nextPage", str) or ""
        if token and (not items or token == position.token or not (nested or re.fullmatch("[0-9]{1,9}", token))):
            raise ServiceError(f"{server.program} answers with pages that have no end.")
        last = items[-1].taken if items else ""
        if not token:
            position = START
        elif last != position.taken and _PLAIN.fullmatch(last):
            position = PagePosition(last)
        else:
            position = PagePosition(position.taken, token)
        new = [item for item in items if item.id not in before]
        before = {item.id for item in items}
        yield new, position
        if not token:
            return
    raise ServiceError(f"{server.program} answers with more than {MOST_PAGES:,} pages.")


def checked_id(value: object) -> str:
    """Return an id of an answer; only what looks like a UUID may become a part of a path."""
    text = checked(value, "id", str)
    if not UUID.fullmatch(text):
        raise ServiceError(f"The server answers with the id {text[:60]!r}; expected a UUID.")
    return text.lower()


def _item(record: object) -> ListedPhoto:
    hashed = optional(record, "thumbhash", str)
    return ListedPhoto(
        checked_id(field(record, "id", str)),
        field(record, "originalFileName", str),
        "" if hashed is None else f"{field(record, 'checksum', str)} {hashed}",
        field(record, "fileCreatedAt", str),
        field(record, "createdAt", str),
        checked_id(field(record, "ownerId", str)),
        field(record, "updatedAt", str),
        optional(record, "libraryId", str) or "",
    )


def as_text(time: datetime) -> str:
    """Return a time as Immich writes it."""
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def as_time(text: str) -> datetime:
    """Return the time of an answer. Raises ServiceError if it is none."""
    try:
        made = datetime.fromisoformat(text)
    except ValueError as error:
        raise ServiceError(f"The server answers with {text[:60]!r} for a time.") from error
    if made.tzinfo is None or made.year not in YEARS:
        expected = "one of these days, with its zone"
        raise ServiceError(f"The server answers with {text[:60]!r} for a time", expected=expected)
    return made
