"""Searches of Immich's library in both formats of its API; paging misses no photo while the library changes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple, TypeAlias

from visterm.connectors.json_answers import YEARS, JsonServer, checked, field, optional
from visterm.core.errors import DataError, ServiceError

PAGE_SIZE = 1000  # Immich's maximum
MAX_PAGES = 100_000  # Maximum per search, in case a faulty server never ends
_SEARCHABLE_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
UUID = re.compile("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class PagePosition(NamedTuple):
    """Position in a search: the time when photos were taken, and the server's token within photos of the same time."""

    taken: str = ""
    token: str = ""

    @classmethod
    def at(cls, taken: str) -> PagePosition:
        """Return the position of a time; the start if its year has more than four digits, which searches reject."""
        return cls(taken if _SEARCHABLE_TIME.fullmatch(taken) else "")


@dataclass(frozen=True)
class Search:
    """A search for photos of the timeline: no videos, and no archived, hidden, locked or deleted photos."""

    updated_since: str = ""
    taken_before: str = ""
    tags: tuple[str, ...] = ()  # With any of these tags or their descendants; up to Immich 3.1 at most one
    untagged: bool = False
    pairs: tuple[tuple[str, tuple[str, ...]], ...] = ()  # From Immich 3.2: these photos, each with all its tags

    def flat_body(self, position: PagePosition) -> dict[str, object]:
        """Return the request body for Immich up to 3.1."""
        body: dict[str, object] = {"type": "IMAGE", "visibility": "timeline", "size": PAGE_SIZE, "order": "asc"}
        times = {"updatedAfter": self.updated_since, "takenBefore": self.taken_before, "takenAfter": position.taken}
        body |= {name: time for name, time in times.items() if time}
        if self.tags or self.untagged:
            body["tagIds"] = list(self.tags) or None
        if re.fullmatch("[0-9]{1,9}", position.token):  # ignore the cursor of a newer server version
            body["page"] = int(position.token)
        return body

    def nested_body(self, position: PagePosition) -> dict[str, object]:
        """Return the request body for Immich from 3.2, which would also find deleted photos."""
        constants = {"type": "IMAGE", "visibility": "timeline", "trashedAt": None}
        conditions: dict[str, object] = {name: {"eq": value} for name, value in constants.items()}
        if self.updated_since:
            conditions["updatedAt"] = {"gte": self.updated_since}
        if self.taken_before or position.taken:
            limits = {"lte": self.taken_before, "gte": position.taken}
            conditions["takenAt"] = {name: value for name, value in limits.items() if value}

        if self.tags:
            conditions["tagIds"] = {"any": list(self.tags)}
        if self.untagged:
            conditions["hasTags"] = {"eq": False}
        if self.pairs:
            conditions["or"] = [{"id": {"eq": photo}, "tagIds": {"all": list(tags)}} for photo, tags in self.pairs]
        body = {"filter": conditions, "size": PAGE_SIZE, "orderBy": {"field": "fileCreatedAt", "direction": "asc"}}
        return body | ({"cursor": position.token} if position.token else {})

    def before(self, taken: str) -> Search:
        """Return the same search limited to photos taken up to a time; Immich cuts times to milliseconds."""
        try:
            end = datetime.fromisoformat(taken) + timedelta(milliseconds=1)
        except (ValueError, OverflowError):
            return self
        return replace(self, taken_before=as_text(end))


@dataclass(frozen=True)
class ListedPhoto:
    """The fields of a listed photo that are used; times are in Immich's format."""

    id: str
    name: str
    version: str  # "": no preview yet
    taken: str
    created: str
    owner: str
    updated: str  # Last change: updated by the jobs that a request queues, not by the request
    library: str  # Id of an external library; "": uploaded


START = PagePosition()
ListedPage: TypeAlias = "tuple[list[ListedPhoto], PagePosition]"  # The photos of a page, and the position after it


@dataclass(frozen=True)
class ImmichMark:
    """The position of a reader of changes; catalogues store it as JSON."""

    since: str = ""  # List photos with `updatedAt` at or after this time; empty: all
    begun: str = ""  # Server time when the current reading started
    full: str = ""  # Server time when the last reading of all photos started
    taken: str = ""
    token: str = ""
    tags: Sequence[str] = ()  # First letters of the ids of all tags, to notice deleted tags

    @classmethod
    def read(cls, text: str) -> ImmichMark:
        """Parse the text in a catalogue. Raises DataError if it is invalid."""
        if not text:
            return cls()
        try:
            mark = cls(**json.loads(text))
            for time in (mark.since, mark.begun, mark.full):
                as_time(time or "2000-01-01T00:00:00Z")
            if not isinstance(mark.taken, str) or not isinstance(mark.token, str) or isinstance(mark.tags, (str, dict)):
                raise TypeError("a field of another type")
        except (ValueError, TypeError, ServiceError) as error:
            raise DataError(f"{text[:60]!r} is not a checkpoint of Immich's changes; read all photos.") from error
        return mark

    def text(self) -> str:
        """Return the text for a catalogue."""
        return json.dumps({name: value for name, value in asdict(self).items() if value}, separators=(",", ":"))


def pages(server: JsonServer, search: Search, nested: bool, position: PagePosition = START) -> Iterator[ListedPage]:
    """Yield the photos of a search, oldest first, with the position after each page; `START` after the last page.

    Immich numbers pages by rows, so deleting a photo between two requests would skip another photo. Therefore each page
    starts at the time of the previous page's last photo; page numbers are only used if a whole page has the same time.
    """
    previous_ids: set[str] = set()
    for _ in range(MAX_PAGES):
        body = search.nested_body(position) if nested else search.flat_body(position)
        assets = field(server.json("POST", "/search/metadata", body, needs="asset.read"), "assets", dict)
        items = [_read_item(record) for record in field(assets, "items", list)]
        token = optional(assets, "nextCursor" if nested else "nextPage", str) or ""
        if token and (not items or token == position.token or not (nested or re.fullmatch("[0-9]{1,9}", token))):
            raise ServiceError(f"{server.program} answers with pages that have no end.")
        last = items[-1].taken if items else ""
        if not token:
            position = START
        elif last != position.taken and _SEARCHABLE_TIME.fullmatch(last):
            position = PagePosition(last)
        else:
            position = PagePosition(position.taken, token)
        new_items = [item for item in items if item.id not in previous_ids]
        previous_ids = {item.id for item in items}
        yield new_items, position
        if not token:
            return
    raise ServiceError(f"{server.program} answers with more than {MAX_PAGES:,} pages.")


def checked_id(value: object) -> str:
    """Return an id from an answer. Raises ServiceError unless it is a UUID, which is safe in a path."""
    text = checked(value, "id", str)
    if not UUID.fullmatch(text):
        raise ServiceError(f"The server answers with the id {text[:60]!r}; expected a UUID.")
    return text.lower()


def _read_item(record: object) -> ListedPhoto:
    thumbnail_hash = optional(record, "thumbhash", str)
    return ListedPhoto(
        checked_id(field(record, "id", str)),
        field(record, "originalFileName", str),
        "" if thumbnail_hash is None else f"{field(record, 'checksum', str)} {thumbnail_hash}",
        field(record, "fileCreatedAt", str),
        field(record, "createdAt", str),
        checked_id(field(record, "ownerId", str)),
        field(record, "updatedAt", str),
        optional(record, "libraryId", str) or "",
    )


def as_text(time: datetime) -> str:
    """Format a time like Immich."""
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def as_time(text: str) -> datetime:
    """Parse a time of an answer. Raises ServiceError if it is invalid."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise ServiceError(f"The server answers with {text[:60]!r} for a time.") from error
    if time.tzinfo is None or time.year not in YEARS:
        expected = "one of these days, with its zone"
        raise ServiceError(f"The server answers with {text[:60]!r} for a time", expected=expected)
    return time
