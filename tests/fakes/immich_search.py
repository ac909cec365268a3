"""Immich's searches: both shapes of their requests, refused as Immich refuses them, and what they find."""

from __future__ import annotations

import base64
import hashlib
import re
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

UUID = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", re.IGNORECASE)
DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
FLAT = {"type", "visibility", "tagIds", "updatedAfter", "updatedBefore", "createdAfter", "createdBefore", "takenAfter",
        "takenBefore", "order", "page"}  # fmt: skip
BOTH = {"size", "withExif"}
NEW = {"filter", "orderBy", "cursor"}


@dataclass
class Photo:
    """An asset."""

    id: str
    name: str
    preview: bytes | None
    created: float
    taken: float
    updated: float
    tags: set[str] = field(default_factory=set)  # Ids: what the database holds
    in_file: set[str] = field(default_factory=set)  # Values: what the file and its sidecar hold
    visibility: str = "timeline"
    type: str = "IMAGE"
    trashed: bool = False
    library: str | None = None  # Of an external library: its id
    read_only: bool = False  # Its sidecar can't be written
    partner: bool = False  # Somebody else's: seen, but not to be changed
    picture: int = 0  # Counts edits


@dataclass
class Tag:
    """A tag; its value is its path."""

    id: str
    value: str
    parent: str | None
    created: float


class RefusedError(Exception):
    def __init__(self, status: int, message: object) -> None:
        super().__init__(status)
        self.status, self.message = status, message


class Searches:
    """The part of the fake that searches."""

    version: tuple[int, int, int]
    photos: dict[str, Photo]
    tags: dict[str, Tag]

    def _search(self, body: dict[str, Any]) -> dict[str, Any]:
        new = NEW & set(body)
        if new and FLAT & set(body):
            raise RefusedError(400, ["the flat fields and filter, orderBy, cursor exclude each other"])
        size, page = body.get("size", 250), body.get("page", 1)
        if not 1 <= size <= 1000 or page < 1:
            raise RefusedError(400, ["size must be 1 to 1000, page at least 1"])
        start = (page - 1) * size
        if "cursor" in body:
            try:
                start = int(base64.b64decode(body["cursor"], validate=True).decode().removeprefix("offset "))
            except ValueError as error:
                raise RefusedError(400, ["Invalid cursor"]) from error
        order = body.get("order", "desc") if not new else body.get("orderBy", {}).get("direction", "desc")
        if order not in ("asc", "desc"):
            raise RefusedError(400, ["order must be asc or desc"])
        found = sorted(self._found(body), key=lambda photo: (photo.taken, photo.id), reverse=order == "desc")
        items = [self._asset(photo) for photo in found[start : start + size]]
        more = start + size < len(found)
        assets = {"total": len(items), "count": len(items), "items": items, "facets": []}
        assets["nextPage"] = str(page + 1) if more and not new else None
        if self.version >= (3, 2):
            assets["nextCursor"] = base64.b64encode(b"offset %d" % (start + size)).decode() if more and new else None
        return {"albums": {"total": 0, "count": 0, "items": [], "facets": []}, "assets": assets}

    def _found(self, body: dict[str, Any]) -> list[Photo]:
        tests = self._filter(body["filter"]) if "filter" in body else self._flat(body)
        return [photo for photo in self.photos.values() if all(test(photo) for test in tests)]

    def _flat(self, body: dict[str, Any]) -> list[Any]:
        tests: list[Any] = [lambda photo: not photo.trashed]
        visibility = body.get("visibility")
        tests.append(lambda photo: photo.visibility == visibility if visibility else photo.visibility != "locked")
        if "type" in body:
            tests.append(lambda photo: photo.type == body["type"])
        for name, of in (("updated", "updated"), ("created", "created"), ("taken", "taken")):
            if f"{name}After" in body:
                after = time_of(body[f"{name}After"])
                tests.append(lambda photo, of=of, after=after: getattr(photo, of) >= after)
            if f"{name}Before" in body:
                before = time_of(body[f"{name}Before"])
                tests.append(lambda photo, of=of, before=before: getattr(photo, of) <= before)
        if "tagIds" in body:
            if body["tagIds"] is None:
                tests.append(lambda photo: not photo.tags)
            elif asked := [self._under(tag) for tag in self._ids(body, "tagIds")]:
                tests.append(lambda photo: all(photo.tags & under for under in asked))
        return tests

    def _filter(self, given: dict[str, Any]) -> list[Any]:
        dates = {"updatedAt": "updated", "createdAt": "created", "takenAt": "taken"}
        known = {"type", "visibility", "tagIds", "hasTags", "trashedAt", "id", *dates}
        tests: list[Any] = [lambda photo: photo.visibility != "locked"]
        if branches := given.get("or"):
            ways = [self._filter(branch) for branch in branches]
            tests.append(lambda photo: any(all(test(photo) for test in way) for way in ways))
            given = {name: value for name, value in given.items() if name != "or"}
        if set(given) - known or not all(isinstance(value, dict) and value for value in given.values()):
            raise RefusedError(400, [f"filter holds what the fake does not know: {given}"])
        if "id" in given:
            wanted = self._id(given["id"]["eq"])
            tests.insert(0, lambda photo: photo.id == wanted)
        for name, of in dates.items():
            for how, value in given.get(name, {}).items():
                when = time_of(value)
                test = {"gt": float.__gt__, "gte": float.__ge__, "lt": float.__lt__, "lte": float.__le__}[how]
                tests.append(lambda photo, of=of, test=test, when=when: test(getattr(photo, of), when))
        for name in {"type", "visibility"} & set(given):
            tests += [lambda photo, name=name: getattr(photo, name) == given[name]["eq"]]
        if "trashedAt" in given:  # without it, photos in the bin are found
            tests.append(lambda photo: not photo.trashed if given["trashedAt"]["eq"] is None else photo.trashed)
        if "hasTags" in given:
            tests.append(lambda photo: bool(photo.tags) == given["hasTags"]["eq"])
        for how in given.get("tagIds", {}):
            asked = [self._under(tag) for tag in self._ids(given["tagIds"], how)]
            if not asked:
                raise RefusedError(400, [f"tagIds.{how} must have one id"])
            combine = {"any": any, "all": all, "none": lambda found: not any(found)}[how]
            tests.append(
                lambda photo, asked=asked, combine=combine: combine(bool(photo.tags & under) for under in asked)
            )
        return tests

    def _under(self, tag: str) -> set[str]:
        """Return a tag and all that are under it, as Immich's closure table does."""
        value = self.tags[tag].value if tag in self.tags else "\0"
        return {each.id for each in self.tags.values() if each.value == value or each.value.startswith(f"{value}/")}

    def _texts(self, body: dict[str, Any], name: str) -> list[str]:
        given = body.get(name)
        if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
            raise RefusedError(400, [f"{name} must be a list of texts"])
        return given

    def _ids(self, body: dict[str, Any], name: str) -> list[str]:
        return [self._id(each) for each in self._texts(body, name)]

    def _id(self, text: str) -> str:
        if not UUID.fullmatch(text):
            raise RefusedError(400, ["id must be a UUID"])
        return text.lower()

    def _asset(self, photo: Photo) -> dict[str, Any]:
        taken, digest = iso(photo.taken), hashlib.sha1(photo.id.encode()).digest()
        thumbhash = None if photo.preview is None else base64.b64encode(b"%d" % photo.picture + digest[:20]).decode()
        return {
            "id": photo.id, "ownerId": owner_id(partner=photo.partner), "type": photo.type,
            "originalFileName": photo.name, "originalPath": f"/data/{photo.name}", "visibility": photo.visibility,
            "checksum": base64.b64encode(digest).decode(), "thumbhash": thumbhash, "createdAt": iso(photo.created),
            "fileCreatedAt": taken, "fileModifiedAt": taken, "localDateTime": taken, "updatedAt": iso(photo.updated),
            "isArchived": photo.visibility == "archive", "isEdited": False, "isFavorite": False, "isOffline": False,
            "isTrashed": photo.trashed, "libraryId": photo.library, "hasMetadata": True, "duration": None, "width": 640,
            "height": 480,
        }  # fmt: skip


def owner_id(*, partner: bool) -> str:
    """Return the id of the user, or of a partner."""
    return str(uuid.UUID(int=2**76 * 4 + 2**63 + partner))


def iso(seconds: float) -> str:
    """Return a time as Immich writes it, cut to milliseconds."""
    shown = datetime.fromtimestamp(int(seconds * 1000) / 1000, UTC)
    return shown.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def time_of(text: object) -> float:
    if not isinstance(text, str) or not DATE.fullmatch(text):
        raise RefusedError(400, [f"expected a date and time, not {text!r}"])
    return datetime.fromisoformat(text).timestamp()
