"""PhotoPrism on the loopback address: its photos and labels, with the traps of the real one.

Made from PhotoPrism's own sources (`photo_label.go`, `photos_search.go`, `search/photos.go`, `entity/label.go`,
`entity/photo_label.go`, `entity/photo.go`, `batch/apply_labels.go`, `api_auth.go`, `thumbnails.go`,
`client_config.go`). What the tests rely on:

* searches return no labels; they page by rows, newest photo first with ``order=added``, and ``order=updated`` leaves
  out photos that never changed; times are in seconds;
* a label that comes by the API is "manual", keeps the lower of two uncertainties, and finds an older label by its slug:
  names that differ by capitals, accents or signs only are one label; names get capitals;
* removing a manual label deletes it; another one stays with an uncertainty of 100 (and is manual from 2025 on: `new`);
* removing a label removes the keywords that are within its name, whoever gave them; in 2024 labels become keywords;
* editing labels of several photos, renaming and deleting labels, the vision worker and the archive move no time;
* a renamed label is found by its first slug, too; writing one that somebody deleted makes it again;
* who read a photo before (`saving`) puts all its labels back as they were, but for those that came since;
* the configuration is answered without a key or its permission, too, as that of the login page; a wrong token for
  previews gets a drawing and 403, a photo without a preview a drawing and 200;
* a body must be JSON by its type, too; a key without the scope gets 403.
"""

from __future__ import annotations

import copy
import hashlib
import json
import random
import re
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from fakes.served import Asked, FakeServer, Reply, reply

KEY = "photoprism-key-of-the-tests"
UID = re.compile("p[0-9a-z]{15}")
DRAWING = b'<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"/>'
SMALL_WORDS = {"a", "an", "and", "at", "by", "for", "in", "of", "on", "or", "the", "to", "und", "with"}
MOST_RESULTS = 100_000
SEARCH = {"count", "offset", "order", "primary", "photo", "merged", "updated", "quality", "q", "uid"}
LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"


@dataclass
class OnPhoto:
    """A label of a photo."""

    source: str
    uncertainty: int


@dataclass
class Photo:
    """A picture and its primary file."""

    uid: str
    number: int  # Its id in the database
    name: str
    preview: bytes | None
    created: int
    updated: int
    labels: dict[int, OnPhoto] = field(default_factory=dict)
    keywords: list[str] = field(default_factory=list)
    trashed: bool = False  # In the archive
    type: str = "image"
    quality: int = 3
    edition: int = 0  # Counts other files in its place

    @property
    def hash(self) -> str:
        """SHA1 of its file."""
        return hashlib.sha1(f"{self.uid} {self.edition}".encode()).hexdigest()


@dataclass
class Label:
    """A label; photos are found by its slugs."""

    id: int
    name: str
    slug: str
    custom_slug: str
    deleted: bool = False


class _RefusedError(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(status)
        self.status, self.message = status, message


class FakePhotoPrism(FakeServer):
    """PhotoPrism's server; its people's side is in methods of Python."""

    kind = "photoprism"
    key = KEY
    guarded: ClassVar = {"view": "changes", "edit": "add", "config": "count"}
    """What of a connector fails without a permission."""
    ours = ("striped cat", "dog")
    scripts = ("猫 三毛猫", "Überraschung", "e\u0301tude", "שלום", "a, b; c", 'say "cheese"', "50 % & more", "C#")
    pictures = "GET /api/v1/t/.*"

    def __init__(self, log: Path | None = None, seed: int = 0, *, new: bool = True) -> None:
        super().__init__(log)
        self.new = new
        self.permissions = {"view", "edit", "config"}
        self.preview_token = "1234abcd"
        self.photos: dict[str, Photo] = {}
        self.tags: dict[int, Label] = {}
        self.writes: list[tuple[str, str, str]] = []  # Each new pair and each one taken: "add" or "take", photo, label
        self._random = random.Random(seed)

    # What people do.

    def add_photo(
        self, name: str, preview: bytes | None = b"\xff\xd8\xff a picture", tags: tuple[str, ...] = (), *,
        age: float = 86_400.0, taken: float = 0.0, **more: Any,
    ) -> str:  # fmt: skip
        """Index a photo some seconds ago, with labels that a person gave, and return its id."""
        with self.lock:
            uid = "ps" + "".join(self._random.choices(LETTERS, k=14))
            when = int(self.now() - age)
            self.photos[uid] = Photo(uid, len(self.photos) + 1, name, preview, when, when, **more)
            for tag in tags:
                self.photos[uid].labels[self.label(tag).id] = OnPhoto("manual", 0)
            return uid

    def forbid(self, permission: str) -> None:
        """Take a permission from the key, as a user of another role has it."""
        self.permissions.discard(permission)

    def person_untags(self, uid: str, tag: str) -> None:
        """Remove a label on the page, if the photo has it."""
        with self.lock:
            number = self.label(tag).id
            if number in self.photos[uid].labels:
                self._remove(self.photos[uid], number)
                self._save(uid)

    def give(self, uid: str, tag: str, source: str = "manual", uncertainty: int = 0) -> None:
        """Give a photo a label: a person by default, or a model of PhotoPrism when it indexes."""
        with self.lock:
            self.photos[uid].labels[self.label(tag, restore=True).id] = OnPhoto(source, uncertainty)
            self._save(uid)

    def vision(self, uid: str, tag: str, uncertainty: int) -> None:
        """Let the vision worker find a label (`AddLabels`): no deleted one, nor one that is there and surer."""
        with self.lock:
            label, labels = self.label(tag), self.photos[uid].labels
            surer = label.id in labels and not uncertainty < labels[label.id].uncertainty < 100
            if not label.deleted and not surer:
                labels[label.id] = OnPhoto("image", uncertainty)

    def edit_several(self, uids: Iterable[str], add: str = "", remove: str = "") -> None:
        """Edit the labels of several photos on the page, from 2025 on: no time moves (`ApplyLabels`)."""
        with self.lock:
            for photo in (self.photos[uid] for uid in uids):
                if add:
                    photo.labels[self.label(add, restore=True).id] = OnPhoto("batch", 0)
                number = self.label(remove).id if remove else 0
                if number not in photo.labels:
                    continue
                if photo.labels[number].source not in ("manual", "batch"):
                    photo.labels[number] = OnPhoto("batch", 100)
                elif photo.labels[number].uncertainty < 100:
                    del photo.labels[number]
                photo.keywords = _without(photo.keywords, remove)

    def rename(self, tag: str, name: str) -> None:
        """Rename a label on the page of labels: its first slug stays, and no photo's time moves."""
        with self.lock:
            label = self.label(tag)
            label.name, label.custom_slug = title_of(name), slug_of(title_of(name))

    def delete_label(self, tag: str) -> None:
        """Delete a label on the page of labels, and from all photos; no photo's time moves."""
        with self.lock:
            label = self.label(tag)
            label.deleted = True
            for photo in self.photos.values():
                photo.labels.pop(label.id, None)

    def stack(self, uid: str, other: str) -> None:
        """Merge another photo into one, with its labels (`Merge`)."""
        with self.lock:
            first, second = self.photos[uid], self.photos[other]
            second.trashed, second.quality = True, -1
            for number in [number for number in second.labels if number not in first.labels]:
                first.labels[number] = second.labels.pop(number)

    @contextmanager
    def saving(self, *uids: str) -> Iterator[None]:
        """Read photos, do what the block does, and save them: what it removed comes back (gorm saves what it loaded).

        A request does so within some milliseconds, the worker for metadata within minutes.
        """
        with self.lock:
            read = {uid: copy.deepcopy(self.photos[uid].labels) for uid in uids}
        yield
        with self.lock:
            for uid, labels in read.items():
                self.photos[uid].labels.update(labels)
                self._save(uid)

    def trash(self, uid: str, *, back: bool = False) -> None:
        """Put a photo into the archive, or bring it `back`; its time does not move."""
        with self.lock:
            self.photos[uid].trashed = not back

    def delete(self, uid: str) -> None:
        """Delete a photo for good."""
        with self.lock:
            del self.photos[uid]

    def edit(self, uid: str, preview: bytes) -> None:
        """Put another file in place of a photo's."""
        with self.lock:
            self.photos[uid].preview, self.photos[uid].edition = preview, self.photos[uid].edition + 1
            self._touch(uid)

    def label(self, name: str, *, restore: bool = False) -> Label:
        """Return a label by its name, made if there is none of its slug (`FirstOrCreateLabel`), or was deleted."""
        title = title_of(name) or "Unknown"
        slug = slug_of(title)
        for label in self.tags.values():
            if slug in (label.slug, label.custom_slug):
                label.deleted = label.deleted and not restore
                return label
        number = len(self.tags) + 1
        self.tags[number] = Label(number, title, slug, slug)
        return self.tags[number]

    def tags_of(self, uid: str) -> set[str]:
        """Return the labels that a photo shows."""
        return {self.tags[number].name for number, on in self.photos[uid].labels.items() if on.uncertainty < 100}

    def rejected(self, uid: str) -> set[str]:
        """Return the labels that somebody removed for good."""
        return {self.tags[number].name for number, on in self.photos[uid].labels.items() if on.uncertainty >= 100}

    def state(self) -> dict[str, tuple[str, ...]]:
        """Return the labels of all photos that are there, by the names of their files."""
        with self.lock:
            there = [photo for photo in self.photos.values() if not photo.trashed]
            return {photo.name: tuple(sorted(self.tags_of(photo.uid))) for photo in there}

    # What the server does.

    person_tags = give  # on the page, which confirms a label that is there

    def answer(self, asked: Asked) -> Reply:
        """Route a request as PhotoPrism does; errors are PhotoPrism's."""
        try:
            return self._answer(asked)
        except _RefusedError as error:
            return reply({"code": error.status, "error": error.message}, error.status)

    def _answer(self, asked: Asked) -> Reply:
        route = (asked.method, *asked.path.strip("/").split("/"))
        match route:
            case ("GET", "api", "v1", "config"):
                return reply(self._config(self._key(asked)))
            case ("GET", "api", "v1", "photos"):
                self._needs(asked, "view")
                return reply(self._search(asked.query))
            case ("GET", "api", "v1", "photos", uid):
                self._needs(asked, "view")
                return Reply(200, json.dumps(self._details(self._photo(uid)), indent=4).encode())
            case ("POST", "api", "v1", "photos", uid, "label"):
                self._needs(asked, "edit")
                return reply(self._details(self._add(self._photo(uid), self._body(asked))))
            case ("PUT", "api", "v1", "photos", uid, "label", number):
                self._needs(asked, "edit")
                return reply(self._details(self._update(self._photo(uid), number, asked)))
            case ("DELETE", "api", "v1", "photos", uid, "label", number):
                self._needs(asked, "edit")
                photo = self._photo(uid)
                self._on_photo(photo, number)
                self._remove(photo, int(number))
                self._save(uid)
                return reply(self._details(photo))
            case ("GET", "api", "v1", "t", hashed, token, size):
                return self._thumbnail(hashed, token, size)
        raise _RefusedError(404, "Not found")

    def _config(self, key: str | None) -> dict[str, Any]:
        if key is None or "config" not in self.permissions:
            counts = dict.fromkeys(("all", "photos", "live", "videos"), 0)
            return {"mode": "public", "name": "PhotoPrism", "version": "260101-0123456-Linux-AMD64", "count": counts,
                    "previewToken": "public"}  # fmt: skip
        shown = [photo for photo in self.photos.values() if not photo.trashed and photo.quality >= 0]
        videos = sum(photo.type == "video" for photo in shown)
        live = sum(photo.type == "live" for photo in shown)
        counts = {"all": len(shown), "photos": len(shown) - videos - live, "live": live, "videos": videos}
        return {"mode": "user", "name": "PhotoPrism", "version": "260101-0123456-Linux-AMD64", "count": counts,
                "previewToken": self.preview_token}  # fmt: skip

    def _search(self, query: dict[str, str]) -> list[dict[str, Any]]:
        if set(query) - SEARCH:
            raise _RefusedError(400, f"the fake knows no {set(query) - SEARCH}")
        count, offset = query.get("count", ""), query.get("offset", "0")
        if not count.isdigit() or int(count) == 0 or not offset.isdigit():  # binding:"required"
            raise _RefusedError(400, "Invalid request")
        if query.get("primary") != "true":
            raise _RefusedError(400, "the fake has primary files only")
        found = [photo for photo in self.photos.values() if not photo.trashed]
        if query.get("photo") == "true":
            found = [photo for photo in found if photo.type in ("image", "live", "animated", "vector", "raw")]
        if "updated" in query:
            since = _seconds(query["updated"])
            found = [photo for photo in found if photo.updated >= since]
        order = query.get("order", "")
        if order == "updated":
            found = [photo for photo in found if photo.updated > photo.created]
            found.sort(key=lambda photo: (-photo.updated, -photo.number))
        elif order in ("", "added"):
            found.sort(key=lambda photo: -photo.number)
        else:
            raise _RefusedError(400, "Invalid sort order")
        return [self._hit(photo) for photo in found[int(offset) : int(offset) + min(int(count), MOST_RESULTS)]]

    def _hit(self, photo: Photo) -> dict[str, Any]:
        """Return a photo as searches show it: there is no label in it."""
        name = photo.name.rpartition(".")[0] or photo.name
        return {
            "ID": f"{photo.number}-{photo.number}", "UID": photo.uid, "Type": photo.type, "TypeSrc": "",
            "TakenAt": _time(photo.created), "TakenAtLocal": _time(photo.created), "Path": "2026/11", "Name": name,
            "OriginalName": "", "Title": name, "Quality": photo.quality, "FileUID": f"f{photo.uid[1:]}",
            "FileRoot": "/", "FileName": photo.name, "Hash": photo.hash, "Width": 640, "Height": 480, "Merged": False,
            "CreatedAt": _time(photo.created), "UpdatedAt": _time(photo.updated), "EditedAt": _time(photo.created),
            "Files": [],
        }  # fmt: skip

    def _details(self, photo: Photo) -> dict[str, Any]:
        """Return a photo as it is shown alone."""
        hit = self._hit(photo)
        kept = ("UID", "Type", "TakenAt", "Path", "Name", "OriginalName", "Title", "Quality", "CreatedAt", "UpdatedAt")
        ordered = sorted(photo.labels.items(), key=lambda each: (each[1].uncertainty, -each[0]))
        labels = [
            {"PhotoID": photo.number, "LabelID": number, "LabelSrc": on.source, "Uncertainty": on.uncertainty,
             "Photo": None, "Label": self._label_shown(self.tags[number])}
            for number, on in ordered
        ]  # fmt: skip
        file = {"UID": hit["FileUID"], "PhotoUID": photo.uid, "Name": hit["FileName"], "Root": "/", "Hash": photo.hash,
                "Primary": True, "Sidecar": False, "Missing": False, "Mime": "image/jpeg",
                "MainColor": "teal"}  # fmt: skip
        archived = {"DeletedAt": _time(photo.updated)} if photo.trashed else {}
        details = {"PhotoID": photo.number, "Keywords": ", ".join(photo.keywords), "KeywordsSrc": "meta"}
        return {
            **{name: hit[name] for name in kept},
            "Details": details,
            "Labels": labels,
            "Files": [file],
            "Albums": [],
            **archived,
        }

    def _label_shown(self, label: Label) -> dict[str, Any]:
        return {"ID": label.id, "UID": f"ls{label.id:014d}", "Slug": label.slug, "CustomSlug": label.custom_slug,
                "Name": label.name, "Priority": 0, "Favorite": False}  # fmt: skip

    def _add(self, photo: Photo, body: dict[str, Any]) -> Photo:
        name, uncertainty = body.get("Name", ""), body.get("Uncertainty", 0)
        if (
            not isinstance(name, str)
            or not isinstance(uncertainty, int)
            or not isinstance(body.get("Priority", 0), int)
        ):
            raise _RefusedError(400, "Invalid request")
        if self.new and not slug_of(title_of(name)):
            raise _RefusedError(400, "Invalid name")
        label = self.label(name, restore=True)
        on = photo.labels.get(label.id)
        if on is None:
            photo.labels[label.id] = OnPhoto("manual", uncertainty)
            self.writes.append(("add", photo.uid, label.name))
        elif on.uncertainty > uncertainty:
            on.source, on.uncertainty = "manual", uncertainty
            self.writes.append(("add", photo.uid, label.name))
        self._save(photo.uid)
        return photo

    def _update(self, photo: Photo, number: str, asked: Asked) -> Photo:
        on = self._on_photo(photo, number)
        uncertainty = self._body(asked).get("Uncertainty", on.uncertainty)
        if not isinstance(uncertainty, int) or not 0 <= uncertainty <= 100:
            raise _RefusedError(400, "uncertainty must be between 0 and 100")
        on.uncertainty = uncertainty
        if self.new and uncertainty == 0:
            on.source = "manual"
        self._save(photo.uid)
        return photo

    def _remove(self, photo: Photo, number: int) -> None:
        on = photo.labels[number]
        people = ("manual", "batch") if self.new else ("manual", "title", "subject", "keyword")
        if on.source in people:
            if on.uncertainty < 100 or not self.new:
                del photo.labels[number]
                self.writes.append(("take", photo.uid, self.tags[number].name))
        else:
            on.uncertainty = 100
            on.source = "manual" if self.new else on.source
        photo.keywords = _without(photo.keywords, self.tags[number].name)

    def _thumbnail(self, hashed: str, token: str, size: str) -> Reply:
        if token != self.preview_token:
            return Reply(403, DRAWING, "image/svg+xml")
        photo = next((photo for photo in self.photos.values() if photo.hash == hashed), None)
        if photo is None or photo.preview is None or size not in ("fit_720", "fit_1280", "fit_1920"):
            return Reply(200, DRAWING, "image/svg+xml")
        return Reply(200, photo.preview, "image/jpeg")

    def _photo(self, uid: str) -> Photo:
        if uid not in self.photos:
            raise _RefusedError(404, "Entity not found")
        return self.photos[uid]

    def _on_photo(self, photo: Photo, number: str) -> OnPhoto:
        if not number.isdigit() or int(number) not in photo.labels:
            raise _RefusedError(404, "Label not found")
        return photo.labels[int(number)]

    def _key(self, asked: Asked) -> str | None:
        kind, _, bearer = asked.headers.get("authorization", "").partition(" ")
        key = asked.headers.get("x-auth-token") or (bearer if kind == "Bearer" else "")
        return key if key == KEY else None

    def _needs(self, asked: Asked, permission: str) -> None:
        if self._key(asked) is None:
            raise _RefusedError(401, "Please log in to your account")
        if permission not in self.permissions:
            raise _RefusedError(403, "Permission denied")

    def _body(self, asked: Asked) -> dict[str, Any]:
        if not asked.headers.get("content-type", "").startswith("application/json"):
            raise _RefusedError(400, "Unable to do that")
        try:
            return dict(json.loads(asked.body))
        except (ValueError, TypeError) as error:
            raise _RefusedError(400, "Unable to do that") from error

    def _save(self, uid: str) -> None:
        """Save a photo, as `SaveLabels` does: in 2024 with the words of its labels as keywords."""
        photo = self.photos[uid]
        if not self.new:
            shown = [self.tags[number].name for number, on in photo.labels.items() if on.uncertainty < 100]
            words = {word for name in shown for word in re.findall(r"[\w'-]{3,}", name.lower())}
            photo.keywords = sorted({*photo.keywords, *words})
        self._touch(uid)

    def _touch(self, uid: str) -> None:
        """Move a photo's time of change: times have seconds."""
        self.photos[uid].updated = max(self.photos[uid].updated, int(self.now()))


def title_of(name: str) -> str:
    """Return a name as PhotoPrism writes labels (`txt.Title`), cut to 160 letters."""
    blocks = [block.split() for block in name[:160].replace("_", " ").strip("/ -").split("/")]
    return " / ".join(
        " ".join(
            word.lower() if place and word.lower() in SMALL_WORDS else word[:1].upper() + word[1:]
            for place, word in enumerate(words)
        )
        for words in blocks
        if words
    )


def slug_of(name: str) -> str:
    """Return a name without accents and signs; letters of other scripts stay (gosimple/slug writes them in Latin)."""
    plain = "".join(letter for letter in unicodedata.normalize("NFKD", name) if not unicodedata.combining(letter))
    return re.sub(r"[\W_]+", "-", plain.lower()).strip("-")[:80]


def _without(keywords: list[str], name: str) -> list[str]:
    """Return keywords without those within a name, as PhotoPrism removes them with a label (`RemoveFromWords`)."""
    return [word for word in keywords if word not in name.lower()]


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _seconds(text: str) -> int:
    """Read a time as Go's RFC 3339 does."""
    if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d)", text):
        raise _RefusedError(400, "Invalid request")
    return int(datetime.fromisoformat(text).timestamp())
