"""What a search page was asked for: words, filters and the page, from an address and back into one."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

from starlette.datastructures import QueryParams

from visterm.core.errors import UserError
from visterm.store.filters import LARGEST, Filter, is_date
from visterm.web.pages.render import local

PAGE = 48
"""Pictures that are shown at a time."""

MOST = 5000
"""Pictures that one search can be scrolled through."""

LONGEST = 1000
"""Letters of a field that are read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """A search as the form gives it; texts are as typed, and empty where nothing was.

    Attributes
    ----------
    q : str
        Words.
    tag, without, predicted : str
        Tags separated by commas.
    sure : str
        Least confidence of the predicted ones, in percent.
    folder, taken_from, taken_to, type : str
    min_mb, max_mb : str
        Megabytes.
    unreviewed : str
        "1" or empty.
    like : str
        Id of a picture that others are to be like; "sent" of one that was sent.
    start : int
        Pictures that were shown before; without words, the last id.
    """

    q: str = ""
    tag: str = ""
    without: str = ""
    predicted: str = ""
    sure: str = ""
    folder: str = ""
    taken_from: str = ""
    taken_to: str = ""
    type: str = ""
    min_mb: str = ""
    max_mb: str = ""
    unreviewed: str = ""
    like: str = ""
    start: int = 0

    @classmethod
    def of(cls, query: QueryParams) -> Asked:
        """Read an address; what is not known in it does not matter."""
        given = {name: query[name].strip()[:LONGEST] for name in asdict(cls()) if name in query and name != "start"}
        start = query.get("start", "")
        return cls(**given, start=int(start) if re.fullmatch(r"\d{1,12}", start) else 0)

    @property
    def filters(self) -> dict[str, str]:
        """The filters that are set."""
        return {name: value for name, value in asdict(self).items() if value and name not in ("q", "like", "start")}

    @property
    def among(self) -> Filter | None:
        """The images to search.

        Raises
        ------
        UserError
            If a date or a number is none.
        """
        if not self.filters:
            return None
        return Filter(
            tags=_tags(self.tag),
            without=_tags(self.without),
            predicted=_tags(self.predicted),
            min_confidence=_number(self.sure, "sure", 0.01),
            folder=self.folder or None,
            taken_from=_date(self.taken_from),
            taken_to=_date(self.taken_to),
            file_type=self.type or None,
            min_bytes=_whole(_number(self.min_mb, "at least", 1e6)),
            max_bytes=_whole(_number(self.max_mb, "at most", 1e6)),
            unreviewed=bool(self.unreviewed),
        )

    @property
    def image_id(self) -> int | None:
        """The picture that others are to be like."""
        if not self.like:
            return None
        if not re.fullmatch(r"\d{1,12}", self.like):
            raise UserError(f"like is {self.like!r}; expected the number of a picture.")
        return int(self.like)

    def address(self, **changed: Any) -> str:
        """Return the address of this search, with something changed; the page is the first unless `start` says more."""
        return local("/", **{**asdict(self), "start": None, **changed})


def _tags(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (" ".join(tag.split()) for tag in text.split(","))))


def _date(text: str) -> str | None:
    if not text:
        return None
    if not is_date(text):
        raise UserError(f"{text!r} is no date. Give a year, a month or a day: 2019, 2019-07 or 2019-07-31.")
    return text


def _number(text: str, name: str, unit: float) -> float | None:
    if not text:
        return None
    try:
        number = float(text) * unit
    except ValueError:
        number = -1.0
    if not 0 <= number < LARGEST:  # nan, too
        raise UserError(f"{name} is {text!r}; expected a number of 0 or more.")
    return number


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)
