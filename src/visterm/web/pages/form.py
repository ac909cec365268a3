"""A search from the form or an address, and its results, which are in the same order on all pages."""

from __future__ import annotations

import calendar
import re
import threading
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from starlette.datastructures import QueryParams

from visterm.core.errors import UserError
from visterm.core.types import Hit
from visterm.core.vocabulary import STOP_WORDS, quoted
from visterm.library.any_word import search_any_word
from visterm.library.catalogue import Catalogue
from visterm.library.search.result import Share
from visterm.store.filters import MATCH, MAX_INT, PREDICTED_FROM, TAKEN, Filter, is_date
from visterm.store.images import ImageRecord
from visterm.web.pages.render import local

LABELS = {
    "tag": "With tags", "without": "Without tags", "predicted": "Predicted tags", "sure": "Predicted with at least (%)",
    "folder": "Folder", "taken_from": "Taken from", "taken_to": "Taken up to", "min_mb": "At least (MB)",
    "max_mb": "At most (MB)", "type": "File type",
}  # fmt: skip
"""Labels of the form's fields; errors use these names, too."""

MAX_LETTERS = 1000  # Maximum length of a field
UPLOAD = "sent"  # Value of `like` for an uploaded photo
PHOTOS_PER_PAGE = 48  # Photos per page
MAX_PHOTOS = 5000  # Maximum number of photos on all pages of a search
MAX_KEPT_SEARCHES = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchForm:
    """A search as typed into the form; fields without a value are empty texts."""

    q: str = ""  # Words
    # Tags separated by commas
    tag: str = ""
    without: str = ""
    predicted: str = ""
    sure: str = ""  # Minimum confidence of the predicted tags, in percent; empty: 50
    folder: str = ""
    taken_from: str = ""
    taken_to: str = ""
    type: str = ""
    # Sizes in megabytes
    min_mb: str = ""
    max_mb: str = ""
    unreviewed: str = ""  # "1" or empty
    like: str = ""  # Id of the photo to compare with; `UPLOAD` for an uploaded one
    sort: str = ""  # One of `SORTS`; empty: by chance; by date without words and photo
    start: int = 0  # Number of photos on the previous pages

    @classmethod
    def read(cls, query: QueryParams) -> SearchForm:
        """Read a form from an address; other names in it are ignored."""
        fields = {name: query[name][:MAX_LETTERS] for name in asdict(cls()) if name in query and name != "start"}
        fields = {name: text if name == "folder" else text.strip() for name, text in fields.items()}
        start = query.get("start", "")
        return cls(**fields, start=int(start) if re.fullmatch(r"\d{1,12}", start) else 0)

    @property
    def filters(self) -> dict[str, str]:
        """The filters that are set."""
        others = ("q", "like", "sort", "start")
        return {name: value for name, value in asdict(self).items() if value and name not in others}

    @property
    def among(self) -> Filter | None:
        """The filter of the images to search. Raises UserError if a date or a number is invalid."""
        if not self.filters:
            return None
        min_mb, max_mb, percent = (_number(name, getattr(self, name)) for name in ("min_mb", "max_mb", "sure"))
        return Filter(
            tags=tags_in(self.tag), without=tags_in(self.without), predicted=tags_in(self.predicted),
            min_confidence=None if percent is None else percent / 100, folder=self.folder or None,
            taken_from=self.taken_from or None, taken_to=self.taken_to or None, file_type=self.type or None,
            min_bytes=None if min_mb is None else int(min_mb * 1e6),
            max_bytes=None if max_mb is None else int(max_mb * 1e6), unreviewed=bool(self.unreviewed),
        )  # fmt: skip

    @property
    def sorted_by(self) -> str:
        """The order of the photos."""
        return self.sort or (MATCH if self.q or self.like else TAKEN)

    @property
    def period(self) -> str:
        """The year, month or day in which all photos were taken, such as "2024-07"; empty without such a filter."""
        first, last = first_day(self.taken_from), last_day(self.taken_to)
        for period in filter(None, (first[:4], first[:7], first)):
            if (first_day(period), last_day(period)) == (first, last):
                return period
        return ""

    def address(self, page: str = "/", **changed: object) -> str:
        """Return the address of this search with some fields changed; without `start`, of its first page."""
        return local(page, **{**asdict(self), "start": None, **changed})

    def photo(self, image_id: int, position: int, at: float | None = None) -> str:
        """Return the address of the photo at a position of this search; for a video, of its moment in seconds."""
        page = f"/image/{image_id}"
        return local(page, at=at) if self.like == UPLOAD else self.address(page, n=position, at=at)

    def with_tag(self, tag: str) -> str:
        """Return the address of this search, limited to photos with one more tag."""
        return self.address(tag=", ".join([*tags_in(self.tag), tag]))


def first_day(period: str) -> str:
    """Return the first day of a year, month, day or time; empty if the text is not a date."""
    return (period + "-01-01"[len(period[:10]) - 4 :])[:10] if is_date(period) else ""


def last_day(period: str) -> str:
    """Return the last day of a year, month, day or time; empty if the text is not a date."""
    if not is_date(period):
        return ""
    year, month, day = [*map(int, period[:10].split("-")), 0, 0][:3]
    return f"{year:04}-{month or 12:02}-{day or calendar.monthrange(year, month or 12)[1]:02}"


def tags_in(text: str) -> tuple[str, ...]:
    """Split a list of tags at commas."""
    return tuple(filter(None, (" ".join(tag.split()) for tag in text.split(","))))


def _number(name: str, text: str) -> float | None:
    """Return the number in a field; None if it is empty. Raises UserError if the text is not a number of 0 or more."""
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < MAX_INT / 1e6:  # refuses nan, too
        raise UserError(setting=name, value=text, expected="a number of 0 or more")
    return number


class FoundPhotos(NamedTuple):
    """The photos that a search found, in its order."""

    ids: NDArray[np.int64]
    hits: list[Hit]  # One for each id; empty without words and photo
    notes: list[str]
    n_found: int  # Number of all photos; more than `ids` if the search has more than `MAX_PHOTOS`
    n_likely: int | None = None  # Number of photos at least `PREDICTED_FROM` likely; None without confidences
    suggestion: str = ""  # The words with known tags in place of misspelled ones; empty without such tags
    words: str = ""  # The words with tags in place of parts of tags


class GridPhoto(NamedTuple):
    """A photo in the grid."""

    record: ImageRecord
    hit: Hit
    tags: list[str]  # The tags that it has
    shares: list[Share]  # Why it was found; empty unless it was found by words


class PhotoPosition(NamedTuple):
    """The position of a photo in a search."""

    number: int | None  # From 1; None if the search no longer finds the photo
    n_photos: int
    # Addresses of the previous and next photo, and of the page of the search that shows the photo
    previous: str | None
    next: str | None
    back: str
    next_id: int | None  # Id of the next photo


def label_of(name: str) -> str:
    """Return the label of a field in quotation marks; any other name unchanged."""
    return f"“{LABELS[name]}”" if name in LABELS else name


def search_photos(catalogue: Catalogue, form: SearchForm, *, refresh: bool = False) -> FoundPhotos:
    """Search, or return the last result of the same search by the same run, unless `refresh` is set.

    Errors in the search become a note.
    """
    results = _SEARCHES.setdefault(catalogue, {})
    key = (catalogue.tagger.fingerprint, replace(form, start=0))
    result = None if refresh else results.get(key)
    if result is None:
        try:
            result = _find(catalogue, form)
        except UserError as error:
            suggestion = _suggest(catalogue, form.q, re.split(r"[\s,;]+", form.q))
            result = FoundPhotos(np.empty(0, np.int64), [], [error.wording(label_of)], 0, suggestion=suggestion)
        with _SEARCHES_LOCK:
            results.pop(key, None)
            if len(results) >= MAX_KEPT_SEARCHES:
                results.pop(next(iter(results)))
            results[key] = result
    return result


def grid_photos(catalogue: Catalogue, hits: Sequence[Hit], words: str = "") -> list[GridPhoto]:
    """Return the photos of hits with all that the grid shows."""
    ids = [hit.id for hit in hits if hit.id is not None]
    records = {record.id: record for record in catalogue.stored.images.get_many(ids)}
    tags = catalogue.stored.tags.held(ids)
    shares: list[list[Share]] = catalogue.shares(words, ids) if words else [[] for _ in ids]
    return [
        GridPhoto(records[image_id], hit, tags.get(image_id, []), parts)
        for image_id, hit, parts in zip(ids, hits, shares, strict=True)
        if image_id in records
    ]


def photo_position(catalogue: Catalogue, form: SearchForm, image_id: int, position: int) -> PhotoPosition | None:
    """Return the position of a photo in a search; None if the search finds nothing.

    `position` is the old position of the photo. If the search no longer finds it, the photo now at it comes next.
    """
    ids = search_photos(catalogue, form).ids
    if len(ids) == 0:
        return None
    positions = np.flatnonzero(ids == image_id)
    index = int(positions[0]) if len(positions) else min(position, len(ids))
    next_index = index + 1 if len(positions) else index

    def address(other: int) -> str | None:
        return form.photo(int(ids[other]), other) if 0 <= other < len(ids) else None

    return PhotoPosition(
        index + 1 if len(positions) else None, len(ids), address(index - 1), address(next_index),
        form.address(start=index // PHOTOS_PER_PAGE * PHOTOS_PER_PAGE) + f"#photo-{image_id}",
        int(ids[next_index]) if next_index < len(ids) else None,
    )  # fmt: skip


def _find(catalogue: Catalogue, form: SearchForm) -> FoundPhotos:
    among = form.among
    if not form.q and not form.like:
        ids = catalogue.ids(among or Filter(), form.sorted_by)
        return FoundPhotos(ids, [], [], len(ids))
    notes, suggestion, words = list[str](), "", form.q
    if form.like:
        if not re.fullmatch(r"\d{1,12}", form.like):
            raise UserError(setting="like", value=form.like, expected="the number of a photo")
        result = catalogue.like(int(form.like), MAX_PHOTOS, among=among, sort=form.sorted_by)
    else:
        result, words, also = search_any_word(catalogue, form.q, MAX_PHOTOS, among=among, sort=form.sorted_by)
        notes += [f"{word}: also {', '.join(tags)}." for word, tags in also.items()]
        if result.unknown:
            notes.append(f"Ignored: {catalogue.tagger.vocabulary.unknown_words(result.unknown)}")
            suggestion = _suggest(catalogue, form.q, result.unknown)
        if result.names:
            notes.append(f"In the name, folder, place, date or camera: {', '.join(result.names)}.")
        if result.untrained:
            notes.append(f"No tagged photos to learn from, so found by meaning alone: {', '.join(result.untrained)}.")

    confidences = [hit.confidence for hit in result.hits if hit.confidence is not None]
    n_likely = sum(confidence >= PREDICTED_FROM for confidence in confidences) if confidences else None
    ids = np.array([hit.id for hit in result.hits], np.int64)
    return FoundPhotos(ids, result.hits, notes, result.n_found or 0, n_likely, suggestion, words)


def _suggest(catalogue: Catalogue, words: str, unknown: Iterable[str]) -> str:
    """Return a search with similarly spelled tags in place of its unknown words; empty if there are no such tags."""
    suggestion = words
    for word in (word.strip('-"') for word in unknown):
        tag = catalogue.tagger.vocabulary.nearest_tag(word)
        if tag is not None and word not in STOP_WORDS:
            typed = tag if tag.isalnum() else quoted(tag)
            pattern = rf"(?<!\w){re.escape(word)}(?!\w)"
            suggestion = re.sub(pattern, lambda _, typed=typed: typed, suggestion)  # type: ignore[misc]
    return suggestion if suggestion != words else ""


Searches = dict[tuple[str, SearchForm], FoundPhotos]  # Fingerprint of the run, and search -> result
_SEARCHES: weakref.WeakKeyDictionary[Catalogue, Searches] = weakref.WeakKeyDictionary()
_SEARCHES_LOCK = threading.Lock()
