"""The first page: photos found by words, by filters or by another picture, as many as one scrolls to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Depends, Request
from starlette.datastructures import QueryParams
from starlette.responses import Response

from visterm.core.errors import UserError, VistermError
from visterm.core.types import Hit
from visterm.library.catalogue import Catalogue
from visterm.library.expansion import EXPANSIONS, Group
from visterm.library.search_shares import Share, search_shares
from visterm.store.filters import LARGEST, Filter, is_date
from visterm.store.images import ImageRecord
from visterm.web.body_limit import takes_pictures
from visterm.web.pages.render import PageRoute, local, render, wants_part
from visterm.web.pages.shelf import kept_of
from visterm.web.service import Service, service_of
from visterm.web.uploads import read_uploads

router = APIRouter(include_in_schema=False, route_class=PageRoute)
Shared = Annotated[Service, Depends(service_of)]

FOLDERS = 200
GROUPED = 6
"""Pictures of each part or sibling."""

PAGE = 48
"""Pictures that are shown at a time."""

MOST = 5000
"""Pictures that one search can be scrolled through."""

LONGEST = 1000
"""Letters of a field that are read."""


class Shown(NamedTuple):
    """A picture in the grid.

    Attributes
    ----------
    record : ImageRecord
    hit : Hit
    tags : list of str
        That it has.
    shares : list of Share
        Why it was found; empty where it was not by words.
    """

    record: ImageRecord
    hit: Hit
    tags: list[str]
    shares: list[Share]


class Results(NamedTuple):
    """A page of pictures, notes on the search, and where the next ones are."""

    shown: list[Shown]
    told: list[str]
    more: str | None


@router.get("/")
async def search_page(request: Request, service: Shared) -> Response:
    """Show what a search finds; for the script, only the next pictures."""
    asked = Asked.of(request.query_params)
    catalogue = service.catalogue
    results = await service.searching.run(find, catalogue, asked)
    if wants_part(request):
        return render("_grid.html", results=results, asked=asked)
    facts = await service.searching.run(_facts, catalogue)
    return render(
        "search.html", query=asked.q, asked=asked, results=results, related=_related_address(catalogue, asked), **facts
    )


@router.get("/related")
async def related(request: Request, service: Shared, q: str = "") -> Response:
    """Show photos of the parts of what a search is for, and of its siblings."""
    groups = await service.searching.run(_related, service.catalogue, q)
    return render("_related.html" if wants_part(request) else "related.html", groups=groups, query=q)


@router.post("/like")
@takes_pictures
async def by_picture(request: Request, service: Shared) -> Response:
    """Search by a picture that is sent; it is not kept."""
    (picture,) = await read_uploads(request, 1)
    pixels = await service.pixels(picture.content)
    found = await service.encoding.run(service.catalogue.like, pixels, PAGE)
    items = await service.searching.run(shown, service.catalogue, found.hits)
    told = ["Pictures like the one that was sent; it is not kept."]
    facts = await service.searching.run(_facts, service.catalogue)
    asked = Asked(like="sent")
    return render("search.html", query="", asked=asked, results=Results(items, told, None), related=None, **facts)


def find(catalogue: Catalogue, asked: Asked) -> Results:
    """Find the pictures of one page."""
    try:
        found, told = _found(catalogue, asked)
    except UserError as error:
        return Results([], [str(error)], None)
    hits = found[:PAGE]
    more = None
    if len(found) > PAGE:
        more = asked.address(start=asked.start + PAGE if asked.q or asked.like else hits[-1].id)
    return Results(shown(catalogue, hits, asked.q), told, more)


def shown(catalogue: Catalogue, hits: Sequence[Hit], words: str = "") -> list[Shown]:
    """Return what the grid shows of images."""
    ids = [hit.id for hit in hits if hit.id is not None]
    records = {record.id: record for record in catalogue.stored.images.get_many(ids)}
    tags = catalogue.stored.tags.held(ids)
    shares: list[list[Share]] = search_shares(catalogue, words, ids) if words else [[] for _ in ids]
    return [
        Shown(records[image_id], hit, tags.get(image_id, []), parts)
        for image_id, hit, parts in zip(ids, hits, shares, strict=True)
        if image_id in records
    ]


def _found(catalogue: Catalogue, asked: Asked) -> tuple[list[Hit], list[str]]:
    """Return one picture more than the page shows, if there are that many, and notes on the search."""
    among = asked.among
    if not asked.q and not asked.like:
        return catalogue.browse(among, PAGE + 1, after=asked.start if asked.start else -1).hits, []
    if asked.start >= MOST:
        return [], [f"No more than {MOST:,} pictures are shown of one search. Add a word or a filter."]
    k = asked.start + PAGE + 1
    if asked.image_id is not None:
        return catalogue.like(asked.image_id, k, among=among).hits[asked.start :], []
    found = catalogue.search(asked.q, k, among=among)
    told = []
    if found.unknown:
        told.append(f"Not in the vocabulary, left out of the search: {', '.join(found.unknown)}.")
    if found.untrained:
        told.append(f"No pictures to learn from, found by what the word means: {', '.join(found.untrained)}.")
    return found.hits[asked.start :], told


def _facts(catalogue: Catalogue) -> dict[str, Any]:
    return kept_of(catalogue).get(
        "facts",
        lambda: {
            "n_images": len(catalogue),
            "folders": [
                row[0]
                for row in catalogue.stored.database.rows(
                    "SELECT DISTINCT folder FROM images WHERE state = 'here' AND folder != '' ORDER BY folder LIMIT ?",
                    (FOLDERS,),
                )
            ],
            "types": [
                row[0]
                for row in catalogue.stored.database.rows(
                    "SELECT DISTINCT file_type FROM images WHERE state = 'here' AND file_type != '' ORDER BY file_type"
                )
            ],
        },
    )


def _related_address(catalogue: Catalogue, asked: Asked) -> str | None:
    relations = catalogue.tagger.relations
    if not asked.q or asked.start or not (len(relations.part_of) or len(relations.is_a)):
        return None
    return local("/related", q=asked.q)


def _related(catalogue: Catalogue, words: str) -> list[tuple[Group, list[Shown]]]:
    """Return groups of what belongs to the words; none of a kind that the run knows nothing of."""
    found: list[tuple[Group, list[Shown]]] = []
    for how in EXPANSIONS:
        try:
            groups = catalogue.expand(words, how, GROUPED)
        except VistermError:  # the run knows no relations of this kind, or no word is wanted: there is nothing to show
            continue
        found += [(group, shown(catalogue, group.hits)) for group in groups]
    return found


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
        raise UserError(f"{text!r} is not a date. Give a year, a month or a day: 2019, 2019-07 or 2019-07-31.")
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
