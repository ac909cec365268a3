"""PhotoPrism's library: photos, what people said about their labels, and labels written one by one, as its API does."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar
from urllib.parse import urlencode

from visterm.connectors.contract import Page, PhotoTag, Recent, RefusedTag, batches
from visterm.connectors.json_answers import JsonServer, checked, clock, field, optional
from visterm.connectors.photoprism_photos import (
    GONE,
    UID,
    LabelledPhoto,
    PhotoPrismMark,
    read_photo,
    time_text,
    uid_of,
    updated_at,
)
from visterm.core.errors import DataError, ServiceError
from visterm.core.web_client import Patience, ServerAnswer, server_address
from visterm.store.connected import PROGRAMS

LISTED, DETAILED = 1000, 500  # Photos of a page of the search, and of a page that is yielded
MOST_RESTARTS = 20  # Of a list of photos that changes while it is read
MOST_PREVIEW = 2**25  # Bytes
AT_ONCE = 4  # Photos that are asked for at a time, and then changed
LOOK_AT_ALL = 86_400  # Seconds: some changes of labels move no photo's time, so all photos are read once a day
SETTLED = 60  # Seconds after which no change can have a time any more, also where a proxy's clock differs a bit
MOST_KNOWN = 5000  # Photos whose preview's name is kept
NOBODY = "ps00000000000000"
SCOPES = "photos config"
SEES, CHANGES = f"to view photos (scope {SCOPES!r})", f"to edit photos (scope {SCOPES!r}, and a user who may)"
READS = f"to read the config (scope {SCOPES!r})"
PICTURES = (b"\xff\xd8", b"\x89PNG\r\n\x1a\n", b"RIFF")
_TOKEN = re.compile("[0-9A-Za-z_-]{1,128}")


class PhotoPrismLibrary:
    """The photos that a user of PhotoPrism sees, through its API.

    What was checked against PhotoPrism's sources: searches return no labels, so that each photo that changed is asked
    for. A label that comes by the API is "manual"; removing such a label deletes it, while one of PhotoPrism's own
    models stays with an uncertainty of 100, as a "no". A label that a person adds or confirms has an uncertainty of 0.
    So labels that are written here have one of 1 to 99, and only such labels are taken out again: neither a person's
    labels nor the models' are ever touched. Names begin with capitals there; names that differ by accents or signs only
    are one label, and so are the first and the present name of a label. Editing several photos at once, renaming and
    deleting labels, and the vision worker move no photo's time of change: `changes` reads all photos once a day.
    Nothing is queued behind a request. But another request, or the metadata worker, that read a photo before a label
    was removed and saves it afterwards puts the label back.

    Parameters
    ----------
    address : str
        ``http://host:2342``, with or without ``/api/v1``.
    key : str
        An app password or access token with the scopes `SCOPES`, of a user who may edit photos.
    patience : Patience
        How long the server is waited for.
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
        """Ask for the version, for a photo, and to change one that is not there. Raises ServiceError if one fails."""
        self._ask_photos(count=1)
        config = self._config()
        self._ask("PUT", f"/photos/{NOBODY}/label/0", {"Uncertainty": GONE}, needs=CHANGES)  # 404: the key was checked
        return f"PhotoPrism {field(config, 'version', str)}"

    def count(self) -> int:
        """Return how many photos there are now, without videos."""
        counts = field(self._config(), "count", dict)
        return field(counts, "photos", int) + field(counts, "live", int)

    def ids(self) -> Iterator[list[str]]:
        """Yield the ids of all photos that are there now, those in the archive left out."""
        yield from batches(self._list_photos()[0], LISTED)

    def changes(self, since: str = "") -> Iterator[Page]:
        """Yield changed photos, by the time of their last change.

        A mark is a time by the server's clock, in seconds, and the last photo of that second where no more changes can
        have it. No mark is later than the last change that there was when the list was begun: what changes while it is
        read comes again. Once a day, reading begins with the oldest change again.
        """
        mark = PhotoPrismMark.read(since)
        newest, now = self._ask_photos(count=1, order="updated")
        if now and not -SETTLED <= now - mark.all < LOOK_AT_ALL:
            mark = PhotoPrismMark(all=now)
        query = {"updated": time_text(mark.time)} if mark.time else {}
        times, first, now = self._list_photos(**query)
        begun = max((*map(updated_at, newest), *first, mark.time), default=0)
        settled = min(begun, now - SETTLED)
        changed = sorted((time, uid) for uid, time in times.items() if (time, uid) > mark[:2])
        for some in batches(changed, DETAILED):
            photos = self._photos([uid for _, uid in some])
            time, uid = some[-1]
            mark = PhotoPrismMark(min(time, begun), uid if time <= settled else "", mark.all)
            yield Page([photo.remote() for photo in photos.values() if not photo.archived], mark.text())

    def preview(self, photo: str) -> bytes:
        """Return PhotoPrism's preview of at most 1,920 by 1,200 pixels. Raises DataError if there is none (yet)."""
        name = self._hashes.get(photo)
        if name is None:
            current = self._photo(photo)
            name = "" if current is None or current.archived else current.hash
        if name:
            for _ in range(2):  # tokens change, and are asked for again
                token = self._preview_token or field(self._config(), "previewToken", str)
                if not _TOKEN.fullmatch(token):
                    raise ServiceError("PhotoPrism answers with a preview token that no address can have.")
                self._preview_token = token
                path = f"/t/{name}/{token}/fit_1920"
                answer = self._server.ask("GET", path, needs=SEES, most=MOST_PREVIEW, also=(403, 404), secret=token)
                if answer.status != 403:
                    break
                self._preview_token = ""
            else:
                raise ServiceError(f"PhotoPrism answers 403 to previews. The key lacks a permission: {SEES}.")
            if answer.status == 200 and answer.content.startswith(PICTURES):  # else a drawing that stands for it
                return answer.content
        raise DataError(f"PhotoPrism has no preview of the photo {photo[:40]!r}: it was deleted, or cannot be shown.")

    def existing(self, pairs: Collection[PhotoTag]) -> set[tuple[str, str]]:
        """Return those of some pairs that a person or the API gave, in the archive too, by a request for each photo."""
        photos = self._photos({pair.photo for pair in pairs})
        return {pair[:2] for pair in pairs if pair.photo in photos and photos[pair.photo].has(pair.tag)}

    def recent(self, since: str = "") -> Recent:
        """Return nothing: a request has changed a photo's labels once it is answered."""
        return Recent(since, {})

    def add(self, pairs: Collection[PhotoTag]) -> list[RefusedTag]:
        """Write labels, each with its uncertainty; what somebody removed, and what a model gave, stays as it is."""
        refused = []
        for photo, of_photo in self._photos_with_pairs(pairs):
            for pair in of_photo:
                reason = "the photo is not there any more"
                if photo is not None and not photo.archived:
                    photo, reason = self._add(photo, pair)
                if reason:
                    refused.append(RefusedTag(pair, reason))
        return refused

    def take(self, pairs: Collection[PhotoTag]) -> list[RefusedTag]:
        """Take labels out that the API wrote. A person's labels are refused, a model's are not counted as there."""
        refused = []
        for photo, of_photo in self._photos_with_pairs(pairs):
            if photo is None:
                continue
            for pair in of_photo:
                for written in photo.written(pair.tag):
                    self._ask("DELETE", f"/photos/{photo.id}/label/{written.id}", needs=CHANGES)
                label = photo.label(pair.tag)
                if label is not None and label.given and not label.written:
                    refused.append(RefusedTag(pair, "a person gave or confirmed it in PhotoPrism"))
        return refused

    def _photos_with_pairs(self, pairs: Iterable[PhotoTag]) -> Iterator[tuple[LabelledPhoto | None, list[PhotoTag]]]:
        """Yield photos with their pairs, a few asked for at a time: people may change them until just before."""
        by_photo: dict[str, list[PhotoTag]] = {}
        for pair in pairs:
            by_photo.setdefault(pair.photo, []).append(pair)
        for some in batches(by_photo, AT_ONCE):
            photos = self._photos(some)
            yield from ((photos.get(uid), by_photo[uid]) for uid in some)

    def _add(self, photo: LabelledPhoto, pair: PhotoTag) -> tuple[LabelledPhoto, str]:
        """Write one label; return the photo as it is then, and why the label was not taken."""
        label = photo.label(pair.tag)
        if label is not None and label.given:
            return photo, ""
        if label is not None:
            why = "somebody removed it in PhotoPrism" if label.uncertainty >= GONE else "PhotoPrism's own model gave it"
            return photo, why
        near = photo.near(pair.tag)
        if near is not None:
            how = "somebody removed there" if near.uncertainty >= GONE else "the photo has"
            return photo, f"PhotoPrism takes it for {near.name!r}, which {how}"
        if keywords := sorted(word for word in photo.keywords if word in pair.tag.lower()):
            return photo, f"the photo has the keyword {keywords[0]!r}, which PhotoPrism removes together with the label"
        body = {"Name": pair.tag, "Uncertainty": uncertainty_of(pair.confidence), "Priority": 0}
        answer = self._ask("POST", f"/photos/{photo.id}/label", body, needs=CHANGES, also=(400, 404))
        if answer.status != 200:
            gone = answer.status == 404
            return photo, "the photo is not there any more" if gone else "PhotoPrism accepts no label of this name"

        now = read_photo(self._server.parsed(answer, "POST label"))
        if now.label(pair.tag) is not None:
            return now, ""
        known = {each.id for each in photo.labels}
        written = [each for each in now.labels if each.id not in known and each.given and each.uncertainty > 0]

        for each in written:  # under another name than was meant
            self._ask("DELETE", f"/photos/{now.id}/label/{each.id}", needs=CHANGES)
        names = ", ".join(repr(each.name) for each in written)
        return photo, f"PhotoPrism would keep it as {names}" if names else "PhotoPrism took it and did not keep it"

    def _photos(self, uids: Collection[str]) -> dict[str, LabelledPhoto]:
        """Return the photos that are not deleted, asked for by a few threads; some may be in the archive."""
        if not uids:
            return {}
        with ThreadPoolExecutor(min(AT_ONCE, len(uids)), thread_name_prefix="visterm-photoprism") as pool:
            photos = list(pool.map(self._photo, uids))
        return {photo.id: photo for photo in photos if photo is not None}

    def _photo(self, uid: str) -> LabelledPhoto | None:
        if not UID.fullmatch(uid):
            raise DataError(f"{uid[:60]!r} is no id of a photo in PhotoPrism.")
        answer = self._ask("GET", f"/photos/{uid}", needs=SEES)
        if answer.status == 404:
            return None
        photo = read_photo(self._server.parsed(answer, "GET photo"))
        if photo.id != uid:
            raise ServiceError(f"PhotoPrism answers with the photo {photo.id}; {uid} was asked for.")
        if photo.archived:
            return photo
        self._hashes[uid] = photo.hash
        if len(self._hashes) > MOST_KNOWN:
            self._hashes.popitem(last=False)
        return photo

    def _list_photos(self, **query: object) -> tuple[dict[str, int], list[int], int]:
        """List photos, those added last first: when each changed last, by its id.

        Also returned are the times of the first page, of which none is later than when the list was begun, and the
        server's time then (0: unknown). Pages are counted by rows, so each begins with the last row of the page before:
        if that is another one by now, a photo came or went meanwhile, and the list is read again.
        """
        for _ in range(MOST_RESTARTS):
            photos: dict[str, int] = {}
            first: list[int] = []
            last, offset, now = "", 0, 0
            while True:
                records, seconds = self._ask_photos(count=LISTED, offset=offset, order="added", **query)
                if offset and (not records or uid_of(records[0]) != last):
                    break
                if not offset:
                    first, now = [updated_at(record) for record in records], seconds
                shown = [record for record in records if (optional(record, "Quality", int) or 0) >= 0]  # by PhotoPrism
                photos.update((uid_of(record), updated_at(record)) for record in shown)
                if len(records) < LISTED:
                    if not query and not photos and self.count():  # else all photos would be taken for deleted
                        raise ServiceError("PhotoPrism counts photos, but lists none.")
                    return photos, first, now
                last, offset = uid_of(records[-1]), offset + LISTED - 1
        raise ServiceError(f"The photos of {self.address} change too fast to be listed. Try again later.")

    def _ask_photos(self, *, count: int, **query: object) -> tuple[list[object], int]:
        """Return at most `count` photos of a search, and the server's time in seconds since 1970; 0: unknown."""
        path = f"/photos?{urlencode({'primary': 'true', 'photo': 'true', 'count': count, **query})}"
        answer = self._server.ask("GET", path, needs=SEES)
        records = checked(self._server.parsed(answer, "GET /photos"), "photos", list)
        if len(records) > count:
            raise ServiceError(f"PhotoPrism answers with {len(records):,} photos; {count:,} were asked for.")
        now = clock(answer)
        return records, 0 if now is None else int(now.timestamp())

    def _ask(
        self, method: str, path: str, body: object = None, *, needs: str, also: tuple[int, ...] = (404,)
    ) -> ServerAnswer:
        """Return an answer; a status in `also` has to be PhotoPrism's own: a proxy's 404 says nothing of a photo."""
        answer = self._server.ask(method, path, {} if method == "DELETE" else body, needs=needs, also=also)
        if answer.status in also:
            try:
                field(self._server.parsed(answer, f"{method} {path}"), "error", str)
            except ServiceError as error:
                raise self._server.refused(method, path, answer) from error
        return answer

    def _config(self) -> object:
        """Return the configuration; PhotoPrism answers with that of the login page where the key may not see it."""
        config = self._server.json("GET", "/config", needs=READS)
        if field(config, "mode", str) == "public":
            raise ServiceError(f"PhotoPrism answers GET /config as if without a key; it lacks a permission: {READS}.")
        return config


def uncertainty_of(confidence: float) -> int:
    """Return what PhotoPrism stores for a confidence (0-1): 0 is a person's, and 100 is not there."""
    return min(max(round(100 - 100 * confidence), 1), GONE - 1)
