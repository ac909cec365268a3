"""Connector to Immich: reads photos, tags and previews with few requests to its API, and writes tags in batches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import ClassVar, NamedTuple

from visterm.connectors import json_answers
from visterm.connectors.contract import Page, PairKey, PhotoTag, Recent, batches
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

PERMISSIONS = ("asset.read", "asset.view", "asset.statistics", "tag.create", "tag.read", "tag.asset", "user.read")
MIN_VERSION, NESTED_VERSION = (3, 0), (3, 2)  # Oldest supported version, and first version with nested searches
YOUNG_AGE = timedelta(minutes=5)  # Younger photos may still lose tags when Immich reads their metadata
READ_ALL_AFTER = timedelta(days=1)  # Read all photos this often, to find changes that don't update a photo's time
MAX_CLOCK_SKEW = timedelta(minutes=1)  # If the server's clock goes back further, read all photos
PAGES_PER_TAG_QUERY = 10  # Number of pages whose photos' tags are queried together
MAX_PREVIEW_BYTES = 2**25
MAX_DEPTH = 50  # From this depth of tags, query photos individually
BATCH_SIZE = 100  # Photos or tags per writing request: Immich takes at least 45 ms per photo
PHOTOS_PER_SEARCH = 200  # Maximum number of photo ids in one search
OWN_PARENT = "visterm"  # Parent of the tags that visterm writes


class _Tag(NamedTuple):
    id: str
    value: str
    parent: str


class ImmichLibrary:
    """A user's photos in Immich (3.0 or newer), through its API.

    Facts from a real server and Immich's source code: a request to tag a photo queues jobs that write its sidecar, read
    it again, and replace the photo's tags by the tags in it; only then they update its ``updatedAt``, which `changes`
    uses. So all tags of a photo are sent in one request, and `passes` waits before another request for the same photo.
    Deleting a tag updates no photo: `changes` stores the ids of tags, and reads all photos after one has disappeared. A
    search for a tag also finds its child tags: if the result is ambiguous, the photo itself is queried.

    Parameters
    ----------
    address : str
        ``http://host:2283``, with or without ``/api``.
    key : str
        An API key of the user who owns the photos, with the `PERMISSIONS`.
    patience : Patience
        How long to wait for the server.
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
        self._taken: dict[str, str] = {}  # Changed photo -> when it was taken, to limit searches
        self._last_read = ""  # Server time of the last call of `changes`

    def check(self) -> str:
        """Return the version. Raises ServiceError if it is too old, or the key lacks a permission."""
        version = self._server_version()
        permissions = json_answers.field(self._server.json("GET", "/api-keys/me"), "permissions", list)
        if "all" not in permissions and (missing := [name for name in PERMISSIONS if name not in permissions]):
            advice = f"Make one with {', '.join(PERMISSIONS)}."
            raise ServiceError(f"The key of {self.address} lacks permissions: {', '.join(missing)}. {advice}")
        return f"Immich {'.'.join(map(str, version))}"

    def count(self) -> int:
        """Return the current number of photos in the timeline."""
        body = {"filter": Search().nested_body(START)["filter"]} if self._has_nested_search() else {
            "type": "IMAGE", "visibility": "timeline"}  # fmt: skip
        answer = self._server.json("POST", "/search/statistics", body, needs="asset.statistics")
        return json_answers.field(answer, "total", int)

    def ids(self) -> Iterator[list[str]]:
        """Yield the ids of all photos in the timeline, one list per page."""
        for items, _ in self._pages(Search()):
            yield [item.id for item in items]

    def changes(self, since: str = "") -> Iterator[Page]:
        """Yield changed photos, by the time they were taken; reading can continue after any page."""
        mark = ImmichMark.read(since)
        answer, tags = self._tags()
        now = self._clock(answer)
        self._last_read = as_text(now)
        tag_ids = [tag.id[:8] for tag in tags]
        clock_reset = bool(mark.since) and now + MAX_CLOCK_SKEW < as_time(mark.since) + YOUNG_AGE
        if not mark.full or clock_reset or set(mark.tags) - set(tag_ids) or now - as_time(mark.full) > READ_ALL_AFTER:
            mark = ImmichMark(begun=as_text(now), full=as_text(now))
        elif not mark.taken and not mark.token:
            mark = replace(mark, begun=as_text(now))

        mark = replace(mark, tags=tag_ids)
        search, start = Search(updated_since=mark.since), PagePosition(mark.taken, mark.token)
        listed_pages: list[ListedPage] = []
        from_start = start == START

        for items, position in self._pages(search, start):
            listed_pages.append((items, position))
            is_last = position == START
            if is_last or len(listed_pages) == PAGES_PER_TAG_QUERY:
                yield from self._with_tags(mark, search, listed_pages, tags, bounded=not (from_start and is_last))
                listed_pages, from_start = [], False

    def preview(self, photo: str) -> bytes:
        """Return Immich's preview of about 1,440 pixels. Raises DataError if there is none (yet)."""
        path = f"/assets/{checked_id(photo)}/thumbnail?size=preview"
        answer = self._server.ask("GET", path, needs="asset.view", max_bytes=MAX_PREVIEW_BYTES, accept=(400, 404))
        if answer.status != 200:
            raise DataError(f"Immich has no preview of the photo {photo}: it was deleted, or its preview is not made.")
        return answer.content

    def existing(self, pairs: Collection[PhotoTag]) -> set[PairKey]:
        """Return the pairs that exist now; photos with ambiguous search results are queried individually.

        Up to Immich 3.1, this is one search per tag. From 3.2, one search finds photos of a batch with all their tags.
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

        leaf_tags = [value for value in by_tag if ids[value] not in parents]
        ambiguous_photos = {photo for photo, values in by_photo.items() if not values.issubset(leaf_tags)}
        existing: set[tuple[str, str]] = set()

        if self._has_nested_search() and len(by_photo) < PHOTOS_PER_SEARCH * len(leaf_tags):
            certain_photos = sorted(set(by_photo) - ambiguous_photos)
            queries = [(photo, tuple(ids[value] for value in by_photo[photo])) for photo in certain_photos]
            ambiguous_photos = set(by_photo)
            for batch in batches(queries, PHOTOS_PER_SEARCH):
                for items, _ in self._pages(Search(pairs=tuple(batch))):
                    ambiguous_photos.difference_update(item.id for item in items)
            existing = {(photo, value) for photo in set(by_photo) - ambiguous_photos for value in by_photo[photo]}
        elif len(by_photo) > len(leaf_tags):
            times = [self._taken.get(photo, "") for photo in by_photo]
            limited_search = Search().before(max(times)) if all(times) else Search()
            for value in leaf_tags:
                missing = by_tag[value] - self._matching(
                    replace(limited_search, tags=(ids[value],)), PagePosition.at(min(times)), by_tag[value]
                )
                if missing and limited_search != Search():  # a date was changed, or the pair does not exist
                    missing -= self._matching(Search(tags=(ids[value],)), START, missing)
                existing |= {(photo, value) for photo in by_tag[value] - missing}
        else:
            ambiguous_photos = set(by_photo)
        for photo in sorted(ambiguous_photos):
            existing |= {(photo, value) for value in by_photo[photo].intersection(self._tags_of(photo) or ())}
        return existing

    def recent(self, since: str = "") -> Recent:
        """Return the photos that changed in the last five minutes or since the last call of `changes`."""
        if not since:
            begin = as_text(self._clock(self._server.ask("GET", "/server/version")) - YOUNG_AGE)
            since = min(begin, self._last_read or begin)
        items = (item for page, _ in self._pages(Search(updated_since=since)) for item in page)
        return Recent(since, {item.id: item.updated for item in items})

    def add(self, pairs: Collection[PhotoTag]) -> dict[PairKey, str]:
        """Add tags: all tags of a photo in one request, together with other photos that get the same tags."""
        ids: dict[str, str] = {}
        for values in batches(sorted({pair.tag for pair in pairs}), BATCH_SIZE):
            # in each call, because Immich deletes unused tags at night
            answer = self._server.json("PUT", "/tags", {"tags": values}, needs="tag.create")
            ids |= {tag.value: tag.id for tag in _read_tags(answer)}

        by_photo: dict[str, set[str]] = defaultdict(set)
        for pair in pairs:
            if pair.tag in ids:
                by_photo[pair.photo].add(ids[pair.tag])

        groups: dict[frozenset[str], list[str]] = defaultdict(list)
        for photo, tags in by_photo.items():
            groups[frozenset(tags)].append(photo)
        for tag_ids, photos in groups.items():
            for batch in batches(sorted(photos), BATCH_SIZE):
                body = {"tagIds": sorted(tag_ids), "assetIds": batch}
                self._server.json("PUT", "/tags/assets", body, needs="tag.asset")
        return {pair[:2]: "Immich takes no tag of this name" for pair in pairs if pair.tag not in ids}

    def remove(self, pairs: Collection[PhotoTag]) -> dict[PairKey, str]:
        """Remove tags, with separate requests per tag, as Immich's API requires."""
        _, tags = self._tags()
        ids = {tag.value: tag.id for tag in tags}
        photos: dict[str, dict[str, PhotoTag]] = defaultdict(dict)
        for pair in pairs:
            if pair.tag in ids:
                photos[ids[pair.tag]][pair.photo] = pair

        refused: dict[PairKey, str] = {}
        for tag, tag_pairs in photos.items():
            path = f"/tags/{tag}/assets"
            for batch in batches(sorted(tag_pairs), BATCH_SIZE):
                answer = self._server.ask("DELETE", path, {"ids": batch}, needs="tag.asset", accept=(400,))
                if answer.status == 400:
                    if tag not in {current.id for current in self._tags()[1]}:
                        break  # the tag was deleted meanwhile
                    raise self._server.error_for("DELETE", path, answer)
                for result in json_answers.checked(self._server.parse(answer, f"DELETE {path}"), "answer", list):
                    error = json_answers.optional(result, "error", str)
                    photo = checked_id(json_answers.field(result, "id", str))
                    if error not in (None, "not_found") and photo in tag_pairs:
                        refused[tag_pairs[photo][:2]] = f"Immich keeps it: {error}"
        return refused

    def _server_version(self) -> tuple[int, int, int]:
        if self._version is None:
            answer = self._server.json("GET", "/server/version")
            major, minor, patch = (json_answers.field(answer, name, int) for name in ("major", "minor", "patch"))
            if (major, minor) < MIN_VERSION:
                raise ServiceError(f"{self.address} is Immich {major}.{minor}; expected 3.0 or newer: update it.")
            self._version = (major, minor, patch)
        return self._version

    def _clock(self, answer: ServerAnswer) -> datetime:
        """Return the server's time from an answer. Raises ServiceError if it is missing or invalid."""
        now = json_answers.clock(answer)
        if now is None:
            raise ServiceError(
                f"{self.address} answers with the Date {answer.date[:60]!r}; expected the time of day. Check its clock."
            )
        return now

    def _has_nested_search(self) -> bool:
        return self._server_version()[:2] >= NESTED_VERSION

    def _pages(self, search: Search, position: PagePosition = START) -> Iterator[ListedPage]:
        return pages(self._server, search, self._has_nested_search(), position)

    def _tags(self) -> tuple[ServerAnswer, list[_Tag]]:
        answer = self._server.ask("GET", "/tags", needs="tag.read")
        return answer, _read_tags(self._server.parse(answer, "GET /tags"))

    def _tags_of(self, photo: str) -> tuple[str, ...] | None:
        """Return the tags of one photo; None if it was deleted."""
        path = f"/assets/{checked_id(photo)}"
        answer = self._server.ask("GET", path, needs="asset.read", accept=(400, 404))
        if answer.status != 200:
            return None
        record = self._server.parse(answer, f"GET {path}")
        return tuple(sorted(tag.value for tag in _read_tags(json_answers.field(record, "tags", list))))

    def _with_tags(
        self, mark: ImmichMark, search: Search, listed_pages: list[ListedPage], tags: list[_Tag], *, bounded: bool
    ) -> Iterator[Page]:
        """Yield the listed pages with their photos' tags; if `bounded`, limit tag searches to the time of the pages."""
        listed_photos = [item for items, _ in listed_pages for item in items]
        self._taken = {item.id: item.taken for item in listed_photos}
        position = START
        if bounded and listed_photos:
            search, position = search.before(listed_photos[-1].taken), PagePosition.at(listed_photos[0].taken)
        if listed_photos and not self._user:
            answer = self._server.json("GET", "/users/me", needs="user.read")
            self._user = checked_id(json_answers.field(answer, "id", str))

        partner_ids = {item.id for item in listed_photos if item.owner != self._user}  # these photos cannot be tagged
        own_ids = {item.id for item in listed_photos} - partner_ids
        tags_of = self._tags_by_photo(search, position, own_ids, tags) | dict.fromkeys(partner_ids, ())
        oldest_young = as_time(mark.begun) - YOUNG_AGE

        for items, after in listed_pages:
            photos = [
                RemotePhoto(item.id, item.name, item.version, tags_of[item.id],
                            ready=item.id not in partner_ids and as_time(item.created) < oldest_young,
                            folder=NOT_OURS if item.id in partner_ids else item.library)
                for item in items
                if item.id in tags_of
            ]  # fmt: skip
            next_mark = replace(mark, taken=after.taken, token=after.token)
            if after == START:
                next_mark = replace(next_mark, since=as_text(oldest_young), begun="")
            yield Page(photos, next_mark.text())

    def _tags_by_photo(
        self, search: Search, position: PagePosition, photos: set[str], tags: Sequence[_Tag]
    ) -> dict[str, tuple[str, ...]]:
        """Return photo -> its tags, for the photos of a search that still exist, with as few requests as possible."""
        if not tags:
            return dict.fromkeys(photos, ())
        tags_of: dict[str, tuple[str, ...]] = {}
        if len(photos) > 1:
            tags_of |= dict.fromkeys(self._matching(replace(search, untagged=True), position, photos), ())
        remaining = photos - set(tags_of)
        own_tags = [tag for tag in tags if _is_own(tag)]
        other_roots = tuple(tag.id for tag in tags if not tag.parent and not _is_own(tag))
        if self._has_nested_search() and other_roots and len(remaining) > len(own_tags):
            only_own_photos = remaining - self._matching(replace(search, tags=other_roots), position, remaining)
            if len(only_own_photos) > len(own_tags):  # they changed because visterm tagged them
                tags_of |= self._by_tags(search, position, only_own_photos, own_tags)
                remaining -= set(tags_of)

        if len(remaining) > len(tags):
            tags_of |= self._by_tags(search, position, remaining, tags)
        queried = {photo: self._tags_of(photo) for photo in sorted(remaining - set(tags_of))}
        return tags_of | {photo: values for photo, values in queried.items() if values is not None}

    def _matching(self, search: Search, position: PagePosition, photos: set[str]) -> set[str]:
        return photos.intersection(item.id for items, _ in self._pages(search, position) for item in items)

    def _by_tags(
        self, search: Search, position: PagePosition, photos: set[str], tags: Sequence[_Tag]
    ) -> dict[str, tuple[str, ...]]:
        """Return photo -> its tags, from one search per tag, without photos whose results are ambiguous."""
        children: dict[str, list[_Tag]] = defaultdict(list)
        for tag in tags:
            children[tag.parent].append(tag)
        certain_tags: dict[str, list[str]] = defaultdict(list)
        ambiguous_photos: set[str] = set()

        def visit(level: list[_Tag], depth: int = 0) -> set[str]:
            """Return the photos that have any of the tags or of their descendants."""
            photos_of_level: set[str] = set()
            for tag in level:
                tagged_photos = self._matching(replace(search, tags=(tag.id,)), position, photos)
                if tagged_photos and depth == MAX_DEPTH:
                    ambiguous_photos.update(tagged_photos)
                goes_deeper = bool(tagged_photos) and depth < MAX_DEPTH
                photos_of_children = visit(children[tag.id], depth + 1) if goes_deeper else set()
                for photo in tagged_photos - photos_of_children:
                    certain_tags[photo].append(tag.value)
                if tag.value != OWN_PARENT:  # no photo has the parent of visterm's tags itself
                    ambiguous_photos.update(tagged_photos & photos_of_children)
                photos_of_level |= tagged_photos
            return photos_of_level

        visit(children[""])
        return {photo: tuple(sorted(values)) for photo, values in certain_tags.items() if photo not in ambiguous_photos}


def _is_own(tag: _Tag) -> bool:
    return f"{tag.value}/".startswith(f"{OWN_PARENT}/")


def _read_tags(answer: object) -> list[_Tag]:
    tags = []
    for item in json_answers.checked(answer, "tags", list):
        parent = json_answers.optional(item, "parentId", str)
        value = json_answers.field(item, "value", str)
        tags.append(_Tag(checked_id(json_answers.field(item, "id", str)), value, checked_id(parent) if parent else ""))
    return tags
