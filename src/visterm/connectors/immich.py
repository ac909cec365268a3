"""Immich's library: photos, their tags and previews by its API, in few requests, and tags written there in batches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import ClassVar, NamedTuple

from visterm.connectors import json_answers
from visterm.connectors.contract import Page, PhotoTag, Recent, RefusedTag, batches
from visterm.connectors.immich_search import (
    START,
    ImmichMark,
    ListedPage,
    PagePosition,
    Search,
    as_text,
    as_time,
    checked_id,
    pages,
)
from visterm.connectors.json_answers import JsonServer
from visterm.core.errors import DataError, ServiceError
from visterm.core.web_client import Patience, ServerAnswer, server_address
from visterm.store.connected import NOT_OURS, PROGRAMS, RemotePhoto

NEEDED = ("asset.read", "asset.view", "asset.statistics", "tag.create", "tag.read", "tag.asset", "user.read")
OLDEST, NESTED = (3, 0), (3, 2)  # The first version that is spoken with, and the first with searches of the new shape
YOUNG = timedelta(minutes=5)  # In which Immich may still read the metadata of a photo, and replace its tags by these
LOOK_AT_ALL = timedelta(days=1)  # How late changes are found that move no time of a photo
SKEW = timedelta(minutes=1)  # By which the server's clock may go back without a reason to look at all photos
AT_ONCE = 10  # Pages whose tags are asked for together
MOST_PREVIEW = 2**25  # Bytes
DEEPEST = 50  # Tags under each other, from where on photos are asked for themselves
BATCH = 100  # Photos or tags of a request that writes: Immich takes 45 ms and more for each photo
BRANCHES = 200  # Photos that are looked for by their ids at once
OWN = "visterm"  # Our own tags are under this one


class _Tag(NamedTuple):
    id: str
    value: str
    parent: str


class ImmichLibrary:
    """A user's photos in Immich (3.0 or newer), seen through its API.

    What was seen on a real server and in Immich's sources: a request that tags a photo queues jobs that write its
    sidecar, read it again, and replace the photo's tags by what they read; only then its ``updatedAt`` moves, by which
    `changes` finds it. So all tags of a photo go in one request, and `passes` waits before it touches a photo again.
    Deleting a tag changes no photo: `changes` keeps the ids of tags, and lists all photos once one has vanished. A
    search for a tag finds those under it, too: where that leaves a doubt, the photo itself is asked for.

    Parameters
    ----------
    address : str
        ``http://host:2283``, with or without ``/api``.
    key : str
        An API key of the user whose photos these are, with the permissions `NEEDED`.
    patience : Patience
        How long the server is waited for.
    """

    kind: ClassVar[str] = "immich"
    title: ClassVar[str] = PROGRAMS["immich"]
    nested: ClassVar[bool] = True
    queued: ClassVar[bool] = True
    key_variable: ClassVar[str] = "IMMICH_API_KEY"

    def __init__(self, address: str, key: str, patience: Patience = Patience()) -> None:  # noqa: B008
        self.address = server_address(address, "url").removesuffix("/api")
        self._server = JsonServer(self.title, f"{self.address}/api", key, {"x-api-key": key}, patience)
        self.pause = patience.pause
        self._version: tuple[int, int, int] | None = None
        self._user = ""
        self._taken: dict[str, str] = {}  # When photos were taken that have changed, for searches of these
        self._read = ""  # The server's time of the last call of `changes`

    def check(self) -> str:
        """Ask for the version, and whether the key has all permissions. Raises ServiceError if not."""
        version = self._server_version()
        permissions = json_answers.field(self._server.json("GET", "/api-keys/me"), "permissions", list)
        if "all" not in permissions and (missing := [each for each in NEEDED if each not in permissions]):
            raise ServiceError(
                f"The key of {self.address} lacks permissions: {', '.join(missing)}. Make one with {', '.join(NEEDED)}."
            )
        return f"Immich {'.'.join(map(str, version))}"

    def count(self) -> int:
        """Return how many photos of the timeline there are now."""
        body = {"filter": Search().nested(START)["filter"]} if self._has_nested_search() else {
            "type": "IMAGE", "visibility": "timeline"}  # fmt: skip
        answer = self._server.json("POST", "/search/statistics", body, needs="asset.statistics")
        return json_answers.field(answer, "total", int)

    def ids(self) -> Iterator[list[str]]:
        """Yield the ids of all photos of the timeline, a page at a time."""
        for items, _ in self._pages(Search()):
            yield [item.id for item in items]

    def changes(self, since: str = "") -> Iterator[Page]:
        """Yield changed photos, by the time they were taken; marks lead on from any page."""
        mark = ImmichMark.read(since)
        answer, tags = self._tags()
        now = self._clock(answer)
        self._read = as_text(now)
        known = [tag.id[:8] for tag in tags]
        set_back = bool(mark.since) and now + SKEW < as_time(mark.since) + YOUNG
        if not mark.full or set_back or set(mark.tags) - set(known) or now - as_time(mark.full) > LOOK_AT_ALL:
            mark = ImmichMark(begun=as_text(now), full=as_text(now))
        elif not mark.taken and not mark.token:
            mark = replace(mark, begun=as_text(now))
        mark = replace(mark, tags=known)
        search, start = Search(updated=mark.since), PagePosition(mark.taken, mark.token)
        read: list[ListedPage] = []
        from_start = start == START

        for items, position in self._pages(search, start):
            read.append((items, position))
            end = position == START
            if end or len(read) == AT_ONCE:
                yield from self._with_tags(mark, search, read, tags, bounded=not (from_start and end))
                read, from_start = [], False

    def preview(self, photo: str) -> bytes:
        """Return Immich's preview, of some 1,440 pixels. Raises DataError if there is none (yet)."""
        path = f"/assets/{checked_id(photo)}/thumbnail?size=preview"
        answer = self._server.ask("GET", path, needs="asset.view", most=MOST_PREVIEW, also=(400, 404))
        if answer.status != 200:
            raise DataError(f"Immich has no preview of the photo {photo}: it was deleted, or its preview is not made.")
        return answer.content

    def existing(self, pairs: Collection[PhotoTag]) -> set[tuple[str, str]]:
        """Return those of some pairs that are there now; photos in doubt are asked for one by one.

        Up to 3.1 there is a search for each tag. From 3.2 on, one finds the photos of a batch that have all their tags.
        """
        _, tags = self._tags()
        parents = {tag.parent for tag in tags}
        ids = {tag.value: tag.id for tag in tags}
        by_photo: dict[str, set[str]] = defaultdict(set)
        by_tag: dict[str, set[str]] = defaultdict(set)

        for pair in pairs:
            if pair.tag in ids:
                by_photo[checked_id(pair.photo)].add(pair.tag)
                by_tag[pair.tag].add(checked_id(pair.photo))
        plain = [value for value in by_tag if ids[value] not in parents]
        unsure = {photo for photo, values in by_photo.items() if not values.issubset(plain)}
        existing: set[tuple[str, str]] = set()

        if self._has_nested_search() and len(by_photo) < BRANCHES * len(plain):
            sets = [(photo, tuple(ids[value] for value in by_photo[photo])) for photo in sorted(set(by_photo) - unsure)]
            unsure = set(by_photo)
            for some in batches(sets, BRANCHES):
                for items, _ in self._pages(Search(pairs=tuple(some))):
                    unsure.difference_update(item.id for item in items)
            existing = {(photo, value) for photo in set(by_photo) - unsure for value in by_photo[photo]}
        elif len(by_photo) > len(plain):
            times = [self._taken.get(photo, "") for photo in by_photo]
            near = Search().before(max(times)) if all(times) else Search()
            for value in plain:
                missing = by_tag[value] - self._matching(
                    replace(near, tags=(ids[value],)), PagePosition.at(min(times)), by_tag[value]
                )
                if missing and near != Search():  # a date was changed, or the tag is not there
                    missing -= self._matching(Search(tags=(ids[value],)), START, missing)
                existing |= {(photo, value) for photo in by_tag[value] - missing}
        else:
            unsure = set(by_photo)
        for photo in sorted(unsure):
            existing |= {(photo, value) for value in by_photo[photo].intersection(self._tags_of(photo) or ())}
        return existing

    def recent(self, since: str = "") -> Recent:
        """Return the photos that changed in the last five minutes, and since the last call of `changes`."""
        if not since:
            begin = as_text(self._clock(self._server.ask("GET", "/server/version")) - YOUNG)
            since = min(begin, self._read or begin)
        items = (item for some, _ in self._pages(Search(updated=since)) for item in some)
        return Recent(since, {item.id: item.updated for item in items})

    def add(self, pairs: Collection[PhotoTag]) -> list[RefusedTag]:
        """Write tags: all of a photo in one request, photos with the same tags together."""
        ids: dict[str, str] = {}
        for values in batches(sorted({pair.tag for pair in pairs}), BATCH):
            # each time before tags are used: Immich deletes those without photos at night
            answer = self._server.json("PUT", "/tags", {"tags": values}, needs="tag.create")
            ids |= {tag.value: tag.id for tag in _read_tags(answer)}
        by_photo: dict[str, set[str]] = defaultdict(set)
        for pair in pairs:
            if pair.tag in ids:
                by_photo[pair.photo].add(ids[pair.tag])

        groups: dict[frozenset[str], list[str]] = defaultdict(list)
        for photo, tags in by_photo.items():
            groups[frozenset(tags)].append(photo)
        for some, photos in groups.items():
            for batch in batches(sorted(photos), BATCH):
                body = {"tagIds": sorted(some), "assetIds": batch}
                self._server.json("PUT", "/tags/assets", body, needs="tag.asset")
        return [RefusedTag(pair, "Immich takes no tag of this name") for pair in pairs if pair.tag not in ids]

    def take(self, pairs: Collection[PhotoTag]) -> list[RefusedTag]:
        """Take tags out, tag by tag: Immich has no other way."""
        _, tags = self._tags()
        ids = {tag.value: tag.id for tag in tags}
        photos: dict[str, dict[str, PhotoTag]] = defaultdict(dict)
        for pair in pairs:
            if pair.tag in ids:
                photos[ids[pair.tag]][pair.photo] = pair

        refused: list[RefusedTag] = []
        for tag, pairs_of_tag in photos.items():
            path = f"/tags/{tag}/assets"
            for batch in batches(sorted(pairs_of_tag), BATCH):
                answer = self._server.ask("DELETE", path, {"ids": batch}, needs="tag.asset", also=(400,))
                if answer.status == 400:
                    if tag not in {each.id for each in self._tags()[1]}:
                        break  # it was deleted since, with all of its pairs
                    raise self._server.refused("DELETE", path, answer)
                for each in json_answers.checked(self._server.parsed(answer, f"DELETE {path}"), "answer", list):
                    error = json_answers.optional(each, "error", str)
                    photo = checked_id(json_answers.field(each, "id", str))
                    if error not in (None, "not_found") and photo in pairs_of_tag:
                        refused.append(RefusedTag(pairs_of_tag[photo], f"Immich keeps it: {error}"))
        return refused

    def _server_version(self) -> tuple[int, int, int]:
        """Return the server's version, asked for once."""
        if self._version is None:
            answer = self._server.json("GET", "/server/version")
            major, minor, patch = (json_answers.field(answer, name, int) for name in ("major", "minor", "patch"))
            if (major, minor) < OLDEST:
                raise ServiceError(f"{self.address} is Immich {major}.{minor}; expected 3.0 or newer: update it.")
            self._version = (major, minor, patch)
        return self._version

    def _clock(self, answer: ServerAnswer) -> datetime:
        """Return the server's time. Raises ServiceError if an answer has none."""
        now = json_answers.clock(answer)
        if now is None:
            raise ServiceError(
                f"{self.address} answers with the Date {answer.date[:60]!r}; expected the time of day. Check its clock."
            )
        return now

    def _has_nested_search(self) -> bool:
        return self._server_version()[:2] >= NESTED

    def _pages(self, search: Search, position: PagePosition = START) -> Iterator[ListedPage]:
        return pages(self._server, search, self._has_nested_search(), position)

    def _tags(self) -> tuple[ServerAnswer, list[_Tag]]:
        answer = self._server.ask("GET", "/tags", needs="tag.read")
        return answer, _read_tags(self._server.parsed(answer, "GET /tags"))

    def _tags_of(self, photo: str) -> tuple[str, ...] | None:
        """Return the tags of one photo; None if it is not there any more."""
        path = f"/assets/{checked_id(photo)}"
        answer = self._server.ask("GET", path, needs="asset.read", also=(400, 404))
        if answer.status != 200:
            return None
        record = self._server.parsed(answer, f"GET {path}")
        return tuple(sorted(tag.value for tag in _read_tags(json_answers.field(record, "tags", list))))

    def _with_tags(
        self, mark: ImmichMark, search: Search, read: list[ListedPage], tags: list[_Tag], *, bounded: bool
    ) -> Iterator[Page]:
        """Yield pages whose tags are asked for together; where there are others, only for the time of these."""
        listed = [item for items, _ in read for item in items]
        self._taken = {item.id: item.taken for item in listed}
        position = START
        if bounded and listed:
            search, position = search.before(listed[-1].taken), PagePosition.at(listed[0].taken)
        if listed and not self._user:
            answer = self._server.json("GET", "/users/me", needs="user.read")
            self._user = checked_id(json_answers.field(answer, "id", str))
        theirs = {item.id for item in listed if item.owner != self._user}  # partners', which take no tags of ours
        ours = {item.id for item in listed} - theirs
        tags_of = self._tags_by_photo(search, position, ours, tags) | dict.fromkeys(theirs, ())
        old = as_time(mark.begun) - YOUNG

        for items, after in read:
            photos = [
                RemotePhoto(item.id, item.name, item.version, tags_of[item.id],
                            ready=item.id not in theirs and as_time(item.created) < old,
                            folder=NOT_OURS if item.id in theirs else item.library)
                for item in items
                if item.id in tags_of
            ]  # fmt: skip
            until = replace(mark, taken=after.taken, token=after.token)
            if after == START:
                until = replace(until, since=as_text(old), begun="")
            yield Page(photos, until.text())

    def _tags_by_photo(
        self, search: Search, position: PagePosition, photos: set[str], tags: Sequence[_Tag]
    ) -> dict[str, tuple[str, ...]]:
        """Return the tags of the photos of a search, of those that are still there, in as few requests as there are."""
        if not tags:
            return dict.fromkeys(photos, ())
        tags_of: dict[str, tuple[str, ...]] = {}
        if len(photos) > 1:
            tags_of |= dict.fromkeys(self._matching(replace(search, untagged=True), position, photos), ())
        rest = photos - set(tags_of)
        ours = [tag for tag in tags if _is_own(tag)]
        theirs = tuple(tag.id for tag in tags if not tag.parent and not _is_own(tag))
        if self._has_nested_search() and theirs and len(rest) > len(ours):
            alone = rest - self._matching(replace(search, tags=theirs), position, rest)
            if len(alone) > len(ours):  # they changed because visterm tagged them
                tags_of |= self._by_tags(search, position, alone, ours)
                rest -= set(tags_of)

        if len(rest) > len(tags):
            tags_of |= self._by_tags(search, position, rest, tags)
        alone_tags = {photo: self._tags_of(photo) for photo in sorted(rest - set(tags_of))}
        return tags_of | {photo: values for photo, values in alone_tags.items() if values is not None}

    def _matching(self, search: Search, position: PagePosition, photos: set[str]) -> set[str]:
        return photos.intersection(item.id for items, _ in self._pages(search, position) for item in items)

    def _by_tags(
        self, search: Search, position: PagePosition, photos: set[str], tags: Sequence[_Tag]
    ) -> dict[str, tuple[str, ...]]:
        """Return the tags of photos of a search by a search for each tag, of the photos that leave no doubt."""
        under: dict[str, list[_Tag]] = defaultdict(list)
        for tag in tags:
            under[tag.parent].append(tag)
        sure: dict[str, list[str]] = defaultdict(list)
        unsure: set[str] = set()

        def look(level: list[_Tag], deep: int = 0) -> set[str]:
            """Return the photos that have one of some tags, or one under them."""
            every: set[str] = set()
            for tag in level:
                having = self._matching(replace(search, tags=(tag.id,)), position, photos)
                if having and deep == DEEPEST:
                    unsure.update(having)
                below = look(under[tag.id], deep + 1) if having and deep < DEEPEST else set()
                for photo in having - below:
                    sure[photo].append(tag.value)
                if tag.value != OWN:  # the tag above all of ours, which no photo has for itself
                    unsure.update(having & below)
                every |= having
            return every

        look(under[""])
        return {photo: tuple(sorted(values)) for photo, values in sure.items() if photo not in unsure}


def _is_own(tag: _Tag) -> bool:
    return f"{tag.value}/".startswith(f"{OWN}/")


def _read_tags(answer: object) -> list[_Tag]:
    made = []
    for each in json_answers.checked(answer, "tags", list):
        parent = json_answers.optional(each, "parentId", str)
        value = json_answers.field(each, "value", str)
        made.append(_Tag(checked_id(json_answers.field(each, "id", str)), value, checked_id(parent) if parent else ""))
    return made
