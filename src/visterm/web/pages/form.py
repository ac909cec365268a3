"""A search as people type it, or as it stands in an address."""

from __future__ import annotations

import calendar
import re
from dataclasses import asdict, dataclass
from typing import Any

from starlette.datastructures import QueryParams

from visterm.core.errors import UserError
from visterm.store.filters import LARGEST, Filter, is_date
from visterm.store.sorting import CHANCE, TAKEN
from visterm.web.pages.render import local

LONGEST = 1000  # Letters of a field that are read
UPLOAD = "sent"  # What stands for an uploaded photo to compare with


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchForm:
    """A search as typed into the form; fields left empty are empty texts."""

    q: str = ""  # Words
    # Tags separated by commas
    tag: str = ""
    without: str = ""
    predicted: str = ""
    sure: str = ""  # Least confidence of the predicted tags, in percent; empty: 50
    folder: str = ""
    taken_from: str = ""
    taken_to: str = ""
    type: str = ""
    # Sizes in megabytes
    min_mb: str = ""
    max_mb: str = ""
    unreviewed: str = ""  # "1" or empty
    like: str = ""  # Id of the photo to compare with; `UPLOAD` for an uploaded one
    sort: str = ""  # One of `SORTS`; empty: by chance, without words and photo by date
    start: int = 0  # Photos shown before

    @classmethod
    def read(cls, query: QueryParams) -> SearchForm:
        """Read a form from an address; other names in it are ignored."""
        sent = {name: query[name][:LONGEST] for name in asdict(cls()) if name in query and name != "start"}
        sent = {name: text if name == "folder" else text.strip() for name, text in sent.items()}
        start = query.get("start", "")
        return cls(**sent, start=int(start) if re.fullmatch(r"\d{1,12}", start) else 0)

    @property
    def filters(self) -> dict[str, str]:
        """The filters that are set."""
        others = ("q", "like", "sort", "start")
        return {name: value for name, value in asdict(self).items() if value and name not in others}

    @property
    def among(self) -> Filter | None:
        """The images to search. Raises UserError if a date or a number is not one."""
        if not self.filters:
            return None
        least, most = _number(self.min_mb, "At least (MB)"), _number(self.max_mb, "At most (MB)")
        sure = _number(self.sure, "Predicted with at least (%)")
        return Filter(
            tags=tags_in(self.tag), without=tags_in(self.without), predicted=tags_in(self.predicted),
            min_confidence=None if sure is None else sure / 100, folder=self.folder or None,
            taken_from=_date(self.taken_from), taken_to=_date(self.taken_to), file_type=self.type or None,
            min_bytes=None if least is None else int(least * 1e6), max_bytes=None if most is None else int(most * 1e6),
            unreviewed=bool(self.unreviewed),
        )  # fmt: skip

    @property
    def image_id(self) -> int | None:
        """The id of the photo to compare with."""
        if not self.like:
            return None
        if not re.fullmatch(r"\d{1,12}", self.like):
            raise UserError(f"like is {self.like!r}; expected the number of a photo.")
        return int(self.like)

    @property
    def sorted_by(self) -> str:
        """The order of the photos."""
        return self.sort or (CHANCE if self.q or self.like else TAKEN)

    @property
    def first_day(self) -> str:
        """The first day of the photos, as fields of dates take it; empty if there is none."""
        return first_day(self.taken_from)

    @property
    def last_day(self) -> str:
        """The last day of the photos."""
        return last_day(self.taken_to)

    @property
    def period(self) -> str:
        """The year, month or day that all photos are of: "2024", "2024-07" or "2024-07-31"; else empty."""
        for length in (4, 7, 10):
            period = self.first_day[:length]
            if period and (first_day(period), last_day(period)) == (self.first_day, self.last_day):
                return period
        return ""

    def address(self, page: str = "/", **changed: Any) -> str:
        """Return the address of this search with some fields changed; without `start`, that of its first page."""
        return local(page, **{**asdict(self), "start": None, **changed})

    def photo(self, image_id: int, place: int, at: float | None = None) -> str:
        """Return the address of a photo at a place of this search, or of a video at a moment."""
        page = f"/image/{image_id}"
        return local(page, at=at) if self.like == UPLOAD else self.address(page, n=place, at=at)

    def with_tag(self, tag: str) -> str:
        """Return the address of this search among the photos that have one more tag."""
        return self.address(tag=", ".join([*tags_in(self.tag), tag]))


def first_day(period: str) -> str:
    """Return the first day of a year, month, day or time; empty if the text is none."""
    return (period + "-01-01"[len(period[:10]) - 4 :])[:10] if is_date(period) else ""


def last_day(period: str) -> str:
    """Return the last day of a year, month, day or time; empty if the text is none."""
    if not is_date(period):
        return ""
    year, month, day = [*map(int, period[:10].split("-")), 0, 0][:3]
    return f"{year:04}-{month or 12:02}-{day or calendar.monthrange(year, month or 12)[1]:02}"


def tags_in(text: str) -> tuple[str, ...]:
    """Split a list of tags at commas."""
    return tuple(filter(None, (" ".join(tag.split()) for tag in text.split(","))))


def _date(text: str) -> str | None:
    """Check a date as typed."""
    if text and not is_date(text):
        raise UserError(f"{text!r} is not a date. Type a year, a month or a day: 2019, 2019-07 or 2019-07-31.")
    return text or None


def _number(text: str, label: str) -> float | None:
    """Read a number as typed into the field of a label."""
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < LARGEST / 1e6:  # refuses nan, too
        raise UserError(f"“{label}” is {text!r}; expected a number of 0 or more.")
    return number
