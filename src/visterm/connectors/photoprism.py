"""Connector to PhotoPrism: reads photos and people's changes to labels, and writes labels one by one."""

from __future__ import annotations

import re
import unicodedata
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator
from datetime import UTC, datetime
from typing import ClassVar, NamedTuple
from urllib.parse import urlencode

from visterm.connectors.contract import Page, PairKey, PhotoTag, Recent, batches
from visterm.connectors.json_answers import YEARS, JsonServer, checked, clock, field, optional
from visterm.core.errors import DataError, ServiceError
from visterm.core.threads import map_ahead
from visterm.core.vocabulary import tag_key
from visterm.core.web_client import Patience, ServerAnswer, server_address
from visterm.store.connected import PROGRAMS, RemotePhoto

PEOPLE_SOURCES = ("manual", "batch")  # Sources of people's and the API's labels; others are PhotoPrism's predictions
REMOVED = 100  # Uncertainty of a removed label, which PhotoPrism keeps so that no model adds it again
UID = re.compile("p[0-9a-z]{15}")
ALL_PREFIX = "all="  # In a mark's text: precedes the time when all photos were last read
_HASH = re.compile("[0-9a-f]{8,128}")
SEARCH_PAGE_SIZE, PAGE_SIZE = 1000, 500  # Photos per page of a search, and per page of `changes`
MAX_RESTARTS = 20  # Read the list of photos again at most this often if it changes while it is read
MAX_PREVIEW_BYTES = 2**25
PHOTOS_AT_ONCE = 4  # Number of photos that are queried and then changed at a time
READ_ALL_SECONDS = 86_400  # Read all photos daily, because some changes of labels don't update a photo's time
SETTLED_SECONDS = 60  # No new change is older than this, even if a proxy's clock differs slightly
MAX_CACHED_HASHES = 5000  # Cache the preview hashes of at most this many photos
MISSING_UID = "ps00000000000000"  # A valid id that no photo has
SCOPES = "photos config"
VIEW_PERMISSION = f"to view photos (scope {SCOPES!r})"
EDIT_PERMISSION = f"to edit photos (scope {SCOPES!r}, and a user who may)"
READ_PERMISSION = f"to read the config (scope {SCOPES!r})"
IMAGE_SIGNATURES = (b"\xff\xd8", b"\x89PNG\r\n\x1a\n", b"RIFF")
_TOKEN = re.compile("[0-9A-Za-z_-]{1,128}")


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
    primary = next((file for file in (optional(record, "Files", list) or []) if optional(file, "Primary", bool)), None)
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


class PhotoPrismLibrary:
    """The photos that a user of PhotoPrism sees, through its API.

    Facts from PhotoPrism's source code: searches return no labels, so each changed photo is queried. A label written
    through the API is "manual"; removing it deletes it, while a label by PhotoPrism's own models is kept with an
    uncertainty of 100, as rejected. A label that a person adds or confirms has an uncertainty of 0. So visterm writes
    labels with 1 to 99, and only removes such labels: labels by people and by the models are never changed. Names are
    capitalised; names that only differ in accents or punctuation are the same label, and so are the original and the
    current name of a label. Batch editing of photos, renaming and deleting labels, and the vision worker don't update
    a photo's time of change: therefore `changes` reads all photos once a day. Requests queue no jobs. But if another
    request or the metadata worker reads a photo before a label is removed and saves it afterwards, the label is
    restored.

    Parameters
    ----------
    address : str
        ``http://host:2342``, with or without ``/api/v1``.
    key : str
        An app password or access token with the scopes `SCOPES`, of a user who may edit photos.
    patience : Patience
        How long to wait for the server.
    """

    kind: ClassVar[str] = "photoprism"
    title: ClassVar[str] = PROGRAMS["photoprism"]
    nested: ClassVar[bool] = False
    queued: ClassVar[bool] = False
    key_variable: ClassVar[str] = "PHOTOPRISM_TOKEN"

    def __init__(self, address: str, key: str, patience: Patience = Patience()) -> None:  # noqa: B008
        self.address = server_address(address, "url").removesuffix("/api/v1")
        headers = {"Authorization": f"Bearer {key}"}
        self._server = JsonServer(self.title, f"{self.address}/api/v1", key, headers, patience)
        self.pause = patience.pause
        self._preview_token = ""
        self._hashes: OrderedDict[str, str] = OrderedDict()

    def check(self) -> str:
        """Test all needed permissions, without changes; return the version. Raises ServiceError if a test fails."""
        self._ask_photos(count=1)
        config = self._config()
        # A valid key gets the status 404
        self._ask("PUT", f"/photos/{MISSING_UID}/label/0", {"Uncertainty": REMOVED}, needs=EDIT_PERMISSION)
        return f"PhotoPrism {field(config, 'version', str)}"

    def count(self) -> int:
        """Return the current number of photos, without videos."""
        counts = field(self._config(), "count", dict)
        return field(counts, "photos", int) + field(counts, "live", int)

    def ids(self) -> Iterator[list[str]]:
        """Yield the ids of all current photos, without archived photos."""
        yield from batches(self._list_photos()[0], SEARCH_PAGE_SIZE)

    def changes(self, since: str = "") -> Iterator[Page]:
        """Yield changed photos, by the time of their last change.

        A mark is a server time in seconds and, if no more changes can get that time, the last photo of that second. It
        is never later than the last change before reading started, so photos that change meanwhile are listed again.
        Once a day, all photos are read.
        """
        mark = PhotoPrismMark.read(since)
        newest_photos, now = self._ask_photos(count=1, order="updated")
        if now and not -SETTLED_SECONDS <= now - mark.all_read_at < READ_ALL_SECONDS:
            mark = PhotoPrismMark(all_read_at=now)
        times, first_page, now = self._list_photos(**({"updated": time_text(mark.time)} if mark.time else {}))
        newest_time = max((*map(updated_at, newest_photos), *first_page, mark.time), default=0)
        settled_time = min(newest_time, now - SETTLED_SECONDS)
        changed = sorted((time, uid) for uid, time in times.items() if (time, uid) > mark[:2])
        for batch in batches(changed, PAGE_SIZE):
            photos = self._photos([uid for _, uid in batch])
            time, uid = batch[-1]
            mark = PhotoPrismMark(min(time, newest_time), uid if time <= settled_time else "", mark.all_read_at)
            yield Page([photo.remote() for photo in photos.values() if not photo.archived], mark.text())

    def preview(self, photo: str) -> bytes:
        """Return PhotoPrism's preview of at most 1,920 by 1,200 pixels. Raises DataError if there is none (yet)."""
        name = self._hashes.get(photo)
        if name is None:
            current = self._photo(photo)
            name = "" if current is None or current.archived else current.hash
        if name:
            for _ in range(2):  # tokens expire; get a new one and try again
                token = self._preview_token or field(self._config(), "previewToken", str)
                if not _TOKEN.fullmatch(token):
                    raise ServiceError("PhotoPrism answers with a preview token that cannot be part of an address.")
                self._preview_token = token
                path = f"/t/{name}/{token}/fit_1920"
                answer = self._server.ask(
                    "GET", path, needs=VIEW_PERMISSION, max_bytes=MAX_PREVIEW_BYTES, accept=(403, 404), secret=token
                )
                if answer.status != 403:
                    break
                self._preview_token = ""
            else:
                problem = "PhotoPrism answers 403 to previews. The key lacks a permission"
                raise ServiceError(f"{problem}: {VIEW_PERMISSION}.")
            if answer.status == 200 and answer.content.startswith(IMAGE_SIGNATURES):  # otherwise a placeholder
                return answer.content
        raise DataError(f"PhotoPrism has no preview of the photo {photo[:40]!r}: it was deleted, or cannot be shown.")

    def existing(self, pairs: Collection[PhotoTag]) -> set[PairKey]:
        """Return the pairs added by a person or the API, including archived photos; one request per photo."""
        photos = self._photos({pair.photo for pair in pairs})
        return {pair[:2] for pair in pairs if pair.photo in photos and photos[pair.photo].has(pair.tag)}

    def recent(self, since: str = "") -> Recent:
        """Return no photos: requests take effect immediately."""
        return Recent(since, {})

    def add(self, pairs: Collection[PhotoTag]) -> dict[PairKey, str]:
        """Add labels with their uncertainty; labels that people removed or models gave are not changed."""
        refused: dict[PairKey, str] = {}
        for photo, photo_pairs in self._photos_with_pairs(pairs):
            for pair in photo_pairs:
                reason = "the photo no longer exists"
                if photo is not None and not photo.archived:
                    photo, reason = self._add(photo, pair)
                if reason:
                    refused[pair[:2]] = reason
        return refused

    def remove(self, pairs: Collection[PhotoTag]) -> dict[PairKey, str]:
        """Remove labels that the API added. Labels by people are refused, labels by models are ignored."""
        refused: dict[PairKey, str] = {}
        for photo, photo_pairs in self._photos_with_pairs(pairs):
            if photo is None:
                continue
            for pair in photo_pairs:
                for written in photo.written_labels(pair.tag):
                    self._ask("DELETE", f"/photos/{photo.id}/label/{written.id}", needs=EDIT_PERMISSION)
                label = photo.label(pair.tag)
                if label is not None and label.is_given and not label.is_written:
                    refused[pair[:2]] = "a person gave or confirmed it in PhotoPrism"
        return refused

    def _photos_with_pairs(self, pairs: Iterable[PhotoTag]) -> Iterator[tuple[LabelledPhoto | None, list[PhotoTag]]]:
        """Yield photos with their pairs, querying only a few at a time, so that the photos are up to date."""
        by_photo: dict[str, list[PhotoTag]] = {}
        for pair in pairs:
            by_photo.setdefault(pair.photo, []).append(pair)
        for uids in batches(by_photo, PHOTOS_AT_ONCE):
            photos = self._photos(uids)
            yield from ((photos.get(uid), by_photo[uid]) for uid in uids)

    def _add(self, photo: LabelledPhoto, pair: PhotoTag) -> tuple[LabelledPhoto, str]:
        """Add one label; return the updated photo, and the reason if the label was refused, or ""."""
        label = photo.label(pair.tag)
        if label is not None and label.is_given:
            return photo, ""
        if label is not None:
            was_removed = label.uncertainty >= REMOVED
            return photo, "somebody removed it in PhotoPrism" if was_removed else "PhotoPrism's own model gave it"
        similar = photo.similar_label(pair.tag)
        if similar is not None:
            state = "somebody removed there" if similar.uncertainty >= REMOVED else "the photo has"
            return photo, f"PhotoPrism takes it for {similar.name!r}, which {state}"
        if keywords := sorted(word for word in photo.keywords if word in pair.tag.lower()):
            return photo, f"the photo has the keyword {keywords[0]!r}, which PhotoPrism removes together with the label"
        body = {"Name": pair.tag, "Uncertainty": uncertainty_of(pair.confidence), "Priority": 0}
        answer = self._ask("POST", f"/photos/{photo.id}/label", body, needs=EDIT_PERMISSION, accept=(400, 404))
        if answer.status != 200:
            deleted = answer.status == 404
            return photo, "the photo no longer exists" if deleted else "PhotoPrism accepts no label of this name"

        updated = read_photo(self._server.parse(answer, "POST label"))
        if updated.label(pair.tag) is not None:
            return updated, ""
        old_ids = {label.id for label in photo.labels}
        new_labels = [label for label in updated.labels if label.id not in old_ids and label.is_written]

        for label in new_labels:  # it got another name than requested
            self._ask("DELETE", f"/photos/{updated.id}/label/{label.id}", needs=EDIT_PERMISSION)
        names = ", ".join(repr(label.name) for label in new_labels)
        return photo, f"PhotoPrism would keep it as {names}" if names else "PhotoPrism took it and did not keep it"

    def _photos(self, uids: Collection[str]) -> dict[str, LabelledPhoto]:
        """Query photos in a few threads; the result has archived photos, but no deleted ones."""
        photos = map_ahead(self._photo, uids, PHOTOS_AT_ONCE, 2 * PHOTOS_AT_ONCE, "visterm-photoprism")
        return {photo.id: photo for photo in photos if photo is not None}

    def _photo(self, uid: str) -> LabelledPhoto | None:
        if not UID.fullmatch(uid):
            raise DataError(f"{uid[:60]!r} is not the id of a photo in PhotoPrism.")
        answer = self._ask("GET", f"/photos/{uid}", needs=VIEW_PERMISSION)
        if answer.status == 404:
            return None
        photo = read_photo(self._server.parse(answer, "GET photo"))
        if photo.id != uid:
            raise ServiceError(f"PhotoPrism answers with the photo {photo.id}; {uid} was asked for.")
        if photo.archived:
            return photo
        self._hashes[uid] = photo.hash
        if len(self._hashes) > MAX_CACHED_HASHES:
            self._hashes.popitem(last=False)
        return photo

    def _list_photos(self, **query: object) -> tuple[dict[str, int], list[int], int]:
        """List photos: id -> time of the last change, latest added first.

        Also returns the times on the first page, which are not later than the start of reading, and the server's time
        then (0: unknown). Pages are numbered by rows, so each page starts with the last row of the previous page: if
        that row is a different photo now, photos were added or deleted meanwhile, and the list is read again.
        """
        for _ in range(MAX_RESTARTS):
            photos: dict[str, int] = {}
            first_times: list[int] = []
            last_uid, offset, now = "", 0, 0
            while True:
                records, seconds = self._ask_photos(count=SEARCH_PAGE_SIZE, offset=offset, order="added", **query)
                if offset and (not records or uid_of(records[0]) != last_uid):
                    break
                if not offset:
                    first_times, now = [updated_at(record) for record in records], seconds
                visible_records = [record for record in records if (optional(record, "Quality", int) or 0) >= 0]
                photos.update((uid_of(record), updated_at(record)) for record in visible_records)
                if len(records) < SEARCH_PAGE_SIZE:
                    if not query and not photos and self.count():  # otherwise all photos would count as deleted
                        raise ServiceError("PhotoPrism counts photos, but lists none.")
                    return photos, first_times, now
                last_uid, offset = uid_of(records[-1]), offset + SEARCH_PAGE_SIZE - 1
        raise ServiceError(f"The photos of {self.address} change too fast to be listed. Try again later.")

    def _ask_photos(self, *, count: int, **query: object) -> tuple[list[object], int]:
        """Return at most `count` photos of a search, and the server's time in seconds since 1970 (0: unknown)."""
        path = f"/photos?{urlencode({'primary': 'true', 'photo': 'true', 'count': count, **query})}"
        answer = self._server.ask("GET", path, needs=VIEW_PERMISSION)
        records = checked(self._server.parse(answer, "GET /photos"), "photos", list)
        if len(records) > count:
            raise ServiceError(f"PhotoPrism answers with {len(records):,} photos; {count:,} were asked for.")
        now = clock(answer)
        return records, 0 if now is None else int(now.timestamp())

    def _ask(
        self, method: str, path: str, body: object = None, *, needs: str, accept: tuple[int, ...] = (404,)
    ) -> ServerAnswer:
        """Return an answer; check that a status in `accept` is from PhotoPrism itself and not from a proxy."""
        answer = self._server.ask(method, path, {} if method == "DELETE" else body, needs=needs, accept=accept)
        if answer.status in accept:
            try:
                field(self._server.parse(answer, f"{method} {path}"), "error", str)
            except ServiceError as error:
                raise self._server.error_for(method, path, answer) from error
        return answer

    def _config(self) -> object:
        """Return the configuration. Raises ServiceError if the key may only read that of the login page."""
        config = self._server.json("GET", "/config", needs=READ_PERMISSION)
        if field(config, "mode", str) == "public":
            problem = "PhotoPrism answers GET /config as if without a key; it lacks a permission"
            raise ServiceError(f"{problem}: {READ_PERMISSION}.")
        return config


def uncertainty_of(confidence: float) -> int:
    """Convert a confidence (0-1) to an uncertainty of 1 to 99: 0 is for people, 100 for removed labels."""
    return min(max(round(100 - 100 * confidence), 1), REMOVED - 1)
