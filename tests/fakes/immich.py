"""Immich on the loopback address: its library of photos and tags, with the traps of the real one.

Made from Immich's own sources (`tag.service.ts`, `tag.repository.ts`, `search.service.ts`, `search.dto.ts`,
`database.ts`, `metadata.service.ts`, `job.service.ts`) and checked against its OpenAPI file. What the tests rely on:

* a search for a tag finds the photos of all tags under it, too; items of a search carry no tags;
* tags that are set are replaced some seconds later by those of the file, and only then `updatedAt` moves (see
  `immich_jobs`, which was measured on a real server). What is set in between is lost, and what is taken comes back;
* deleting a tag moves no `updatedAt` at all, and leaves it in the files;
* ids in `PUT /tags/assets` that are not there, or not allowed, are dropped without a word;
* statistics count photos without a preview, and `PUT /tags/assets` takes 45 ms a photo.
"""

from __future__ import annotations

import copy
import json
import random
import time
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

from fakes.immich_jobs import PER_PHOTO, Jobs
from fakes.immich_search import BOTH, FLAT, NEW, Photo, RefusedError, Searches, Tag, iso, owner_id
from fakes.served import Asked, FakeServer, Reply, reply

KEY = "immich-key-of-the-tests"
KEPT = ("photos", "tags", "writes", "clock", "_random", "_last")
PERMISSIONS = ("asset.read", "asset.view", "asset.statistics", "tag.create", "tag.read", "tag.asset", "user.read")


class FakeImmich(Searches, Jobs, FakeServer):
    """Immich's server, of one user; its people's side is in methods of Python."""

    kind = "immich"
    key = KEY
    guarded: ClassVar = {"asset.read": "changes", "tag.read": "changes", "asset.view": "preview",
                         "asset.statistics": "count", "user.read": "changes", "tag.create": "add",
                         "tag.asset": "add"}  # fmt: skip
    """What of a connector fails without a permission."""
    ours = ("visterm/cat", "visterm/dog")
    scripts = (
        "猫/三毛猫",
        "Überraschung",
        "e\u0301tude",
        "🐈\u200d⬛",
        "שלום",
        "a, b; c",
        'say "cheese"',
        "50 % & more",
        "C#",
    )
    pictures = "GET .*/thumbnail"

    def __init__(self, version: tuple[int, int, int] = (3, 1, 0), log: Path | None = None, seed: int = 0) -> None:
        super().__init__(log)
        self.version = version
        self.keys: dict[str, tuple[str, ...]] = {KEY: PERMISSIONS}
        self.photos: dict[str, Photo] = {}
        self.tags: dict[str, Tag] = {}
        self.writes: list[tuple[str, str, str]] = []  # Each new pair and each one taken: "add" or "take", photo, value
        self._random = random.Random(seed)
        self._last = 0.0
        self._set_up_jobs(time.time())

    def now(self) -> float:
        """Return the time by its clock, which requests and `advance` move."""
        return self.clock + self.offset

    def forbid(self, permission: str) -> None:
        """Take a permission from the key."""
        self.keys[KEY] = tuple(each for each in self.keys[KEY] if each != permission)

    # What people do.

    def add_photo(
        self,
        name: str,
        preview: bytes | None = b"\xff\xd8 a picture",
        tags: tuple[str, ...] = (),
        *,
        age: float = 86_400.0,
        taken: float | None = None,
        **more: Any,
    ) -> str:
        """Upload a photo some seconds ago, with tags in its file, and return its id."""
        now = self._tick()
        made = Photo(self._uuid(), name, preview, now - age, now - age if taken is None else taken, now - age, **more)
        with self.lock:
            self.photos[made.id] = made
            made.in_file = set(tags)
            made.tags = {self.tag(value).id for value in tags}
        return made.id

    def tag(self, value: str) -> Tag:
        """Return a tag, made with its parents where it is not there."""
        parent: Tag | None = None
        path = ""
        for part in value.split("/"):
            path = f"{path}/{part}" if parent else part
            found = next((tag for tag in self.tags.values() if tag.value == path), None)
            if found is None:
                found = Tag(self._uuid(), path, parent.id if parent else None, self._tick())
                self.tags[found.id] = found
            parent = found
        assert parent is not None
        return parent

    def person_tags(self, photo: str, value: str) -> None:
        """Tag a photo in the web page."""
        with self.lock:
            self._endanger(photo, value)
            if self._link(photo, self.tag(value).id):
                self._queue_write(photo, ours=False)

    def person_untags(self, photo: str, value: str) -> None:
        """Take a tag off a photo in the web page."""
        with self.lock:
            self._endanger(photo, value)
            if self._unlink(photo, self.tag(value).id):
                self._queue_write(photo, ours=False)

    def _endanger(self, photo: str, value: str) -> None:
        """Note that Immich itself may lose what a person does now, as a job of ours is under way."""
        if self.unfinished_ours[photo]:
            self.endangered.add((photo, value))

    def delete_tag(self, value: str) -> None:
        """Delete a tag with those under it: no photo's `updatedAt` moves."""
        with self.lock:
            gone = {tag.id for tag in self.tags.values() if tag.value == value or tag.value.startswith(f"{value}/")}
            for photo in self.photos.values():
                photo.tags -= gone
            for tag in gone:
                del self.tags[tag]

    def trash(self, photo: str) -> None:
        """Throw a photo away."""
        with self.lock:
            self.photos[photo].trashed = True
            self.photos[photo].updated = self._tick()

    def edit(self, photo: str, preview: bytes) -> None:
        """Change a picture."""
        with self.lock:
            found = self.photos[photo]
            found.preview, found.picture, found.updated = preview, found.picture + 1, self._tick()

    def clean_tags(self) -> None:
        """Delete empty tags, as the nightly job does."""
        with self.lock:
            used = {tag for photo in self.photos.values() for tag in photo.tags}
            for tag in [each for each in self.tags if not used & self._under(each)]:
                del self.tags[tag]

    def read_file(self, photo: str) -> None:
        """Extract a photo's metadata: its tags become those of the file."""
        with self.lock:
            self._replace(photo, self.photos[photo].in_file)

    def tags_of(self, photo: str) -> set[str]:
        """Return the values of a photo's tags."""
        return {self.tags[tag].value for tag in self.photos[photo].tags if tag in self.tags}

    def kept(self) -> dict[str, Any]:
        """Return a copy of what the server holds; no job may be under way."""
        with self.lock:
            assert not self.unfinished.total(), "jobs are under way"
            return {name: copy.deepcopy(getattr(self, name)) for name in KEPT}

    def put_back(self, before: dict[str, Any], seed: int = 0) -> None:
        """Put what `kept` returned in place of what is there; what is drawn from then on differs by the seed."""
        with self.lock:
            for name, value in before.items():
                setattr(self, name, copy.deepcopy(value))
            self._random.seed(f"put back {seed}")
            self._set_up_jobs(self.clock)

    def state(self) -> dict[str, tuple[str, ...]]:
        """Return the tags of all photos that are there, by the names of their files."""
        with self.lock:
            return {
                photo.name: tuple(sorted(self.tags_of(photo.id))) for photo in self.photos.values() if not photo.trashed
            }

    # What the server does.

    def answer(self, asked: Asked) -> Reply:
        """Route a request as Immich does; errors are Immich's."""
        try:
            self.advance(self.per_request)
            made = self._answer(asked)
        except RefusedError as error:
            reason = {400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found"}[error.status]
            return reply({"message": error.message, "error": reason, "statusCode": error.status}, error.status)
        return made

    def _answer(self, asked: Asked) -> Reply:
        route = (asked.method, *asked.path.strip("/").split("/"))
        if route[1] != "api":
            return Reply(406, b"<!doctype html><title>Immich</title>", "text/html")
        match route:
            case ("GET", "api", "server", "version"):
                major, minor, patch = self.version
                return reply({"major": major, "minor": minor, "patch": patch, "prerelease": None})
            case ("GET", "api", "api-keys", "me"):
                held = self._held(asked)
                now = iso(self.now())
                return reply({"id": str(uuid.UUID(int=2**76 * 4 + 2**63)), "name": "visterm", "createdAt": now,
                              "updatedAt": now, "permissions": list(held)})  # fmt: skip
            case ("GET", "api", "users", "me"):
                self._needs(asked, "user.read")
                now = iso(self.now())
                return reply({
                    "id": owner_id(partner=False), "name": "Me", "email": "me@example.com", "avatarColor": "pink",
                    "profileImagePath": "", "profileChangedAt": now, "createdAt": now, "updatedAt": now,
                    "license": None, "deletedAt": None, "isAdmin": False, "oauthId": "", "quotaSizeInBytes": None,
                    "status": "active", "quotaUsageInBytes": 0, "shouldChangePassword": False, "storageLabel": None,
                })  # fmt: skip
            case ("GET", "api", "tags"):
                self._needs(asked, "tag.read")
                return reply([self._tag_shown(tag) for tag in sorted(self.tags.values(), key=lambda tag: tag.value)])
            case ("PUT", "api", "tags"):
                self._needs(asked, "tag.create")
                values = self._texts(self._body(asked, {"tags"}), "tags")
                return reply([self._tag_shown(self.tag(value)) for value in dict.fromkeys(values)])
            case ("PUT", "api", "tags", "assets"):
                self._needs(asked, "tag.asset")
                body = self._body(asked, {"tagIds", "assetIds"})
                return reply({"count": self._tag_assets(self._ids(body, "tagIds"), self._ids(body, "assetIds"))})
            case ("DELETE", "api", "tags", tag, "assets"):
                self._needs(asked, "tag.asset")
                return reply(self._untag(self._id(tag), self._ids(self._body(asked, {"ids"}), "ids")))
            case ("POST", "api", "search", "metadata"):
                self._needs(asked, "asset.read")
                return reply(self._search(self._body(asked, FLAT | BOTH | (NEW if self.version >= (3, 2) else set()))))
            case ("POST", "api", "search", "statistics"):
                self._needs(asked, "asset.statistics")
                known = FLAT - {"order", "page"} | ({"filter"} if self.version >= (3, 2) else set())
                return reply({"total": len(self._found(self._body(asked, known)))})
            case ("GET", "api", "assets", photo):
                self._needs(asked, "asset.read")
                found = self._photo(photo, "asset.read")
                return reply(
                    {**self._asset(found), "tags": [self._tag_shown(self.tags[tag]) for tag in sorted(found.tags)]}
                )
            case ("GET", "api", "assets", photo, "thumbnail"):
                self._needs(asked, "asset.view")
                if asked.query.get("size", "thumbnail") != "preview" or set(asked.query) - {"size"}:
                    raise RefusedError(400, ["the fake has previews only"])
                preview = self._photo(photo, "asset.view").preview
                if preview is None:
                    raise RefusedError(404, "Asset media not found")
                return Reply(200, preview, "image/jpeg")
        raise RefusedError(404, f"Cannot {asked.method} {asked.path}")

    def _tag_assets(self, tags: list[str], photos: list[str]) -> int:
        """Set all pairs at once, and then queue a job for each photo that got a new one."""
        allowed = [each for each in photos if each in self.photos and not self.photos[each].partner]
        new = [photo for photo in allowed for tag in tags if tag in self.tags and self._link(photo, tag)]
        self._queue_writes(dict.fromkeys(new))
        return len(new)

    def _untag(self, tag: str, photos: list[str]) -> list[dict[str, Any]]:
        if tag not in self.tags:
            raise RefusedError(400, "Not found or no tag.asset access")
        taken = {photo: photo in self.photos and self._unlink(photo, tag) for photo in photos}
        self._queue_writes([photo for photo, done in taken.items() if done])
        return [
            {"id": photo, "success": done} | ({} if done else {"error": "not_found"}) for photo, done in taken.items()
        ]

    def _queue_writes(self, photos: Iterable[str]) -> None:
        for photo in photos:
            self.advance(PER_PHOTO)
            self._queue_write(photo, ours=True)

    def _link(self, photo: str, tag: str) -> bool:
        asset = self.photos[photo]
        if tag in asset.tags:
            return False
        asset.tags.add(tag)
        self.writes.append(("add", photo, self.tags[tag].value))
        return True

    def _unlink(self, photo: str, tag: str) -> bool:
        if tag not in self.photos[photo].tags:
            return False
        self.photos[photo].tags.discard(tag)
        self.writes.append(("take", photo, self.tags[tag].value))
        return True

    def _photo(self, photo: str, permission: str) -> Photo:
        found = self.photos.get(self._id(photo))
        if found is None:
            raise RefusedError(400, f"Not found or no {permission} access")
        return found

    def _held(self, asked: Asked) -> tuple[str, ...]:
        key = asked.headers.get("x-api-key")
        if key is None:
            raise RefusedError(401, "Authentication required")
        if key not in self.keys:
            raise RefusedError(401, "Invalid API key")
        return self.keys[key]

    def _needs(self, asked: Asked, permission: str) -> None:
        if permission not in self._held(asked):
            raise RefusedError(403, f"Missing required permission: {permission}")

    def _body(self, asked: Asked, known: set[str]) -> dict[str, Any]:
        if not asked.headers.get("content-type", "").startswith("application/json"):
            raise RefusedError(400, ["expected a body of JSON"])
        try:
            body = json.loads(asked.body)
        except ValueError as error:
            raise RefusedError(400, "Unexpected token in JSON") from error
        if not isinstance(body, dict) or set(body) - known:
            raise RefusedError(400, [f"expected {sorted(known)}"])
        return body

    def _tag_shown(self, tag: Tag) -> dict[str, Any]:
        made = {"id": tag.id, "name": tag.value.rsplit("/", 1)[-1], "value": tag.value}
        made |= {"createdAt": iso(tag.created), "updatedAt": iso(tag.created)}
        return made | ({"parentId": tag.parent} if tag.parent else {})

    def _uuid(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def set_clock(self) -> None:
        """Let changes have the clock's time, though it was set back."""
        self._last = 0.0

    def _tick(self) -> float:
        """Return the time by the server's clock, later than at the last change."""
        self._last = max(self.now(), self._last + 1e-6)
        return self._last
