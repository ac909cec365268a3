"""The first page: photos found by words, by filters or by another photo, as many as one scrolls to."""

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
from visterm.web.pages.render import PageRoute, is_for_script, local, render
from visterm.web.service import Service, service_of
from visterm.web.uploads import read_uploads

router = APIRouter(include_in_schema=False, route_class=PageRoute)
Shared = Annotated[Service, Depends(service_of)]

FOLDERS = 200
GROUPED = 6  # Photos of each part or similar thing
PAGE = 48  # Photos of a page
MOST = 5000  # Photos that one search can be scrolled through
LONGEST = 1000  # Letters of a field that are read


class Shown(NamedTuple):
    """A photo in the grid."""

    record: ImageRecord
    hit: Hit
    tags: list[str]  # The tags that it has
    shares: list[Share]  # Why it was found; empty unless it was found by words


class Results(NamedTuple):
    """A page of photos, notes on the search, and the address of the next page."""

    shown: list[Shown]
    notes: list[str]
    more: str | None


@router.get("/")
async def search_page(request: Request, service: Shared) -> Response:
    """Show what a search finds; for the script, only the next photos."""
    form = SearchForm.read(request.query_params)
    catalogue = service.catalogue
    results = await service.searching.run(_results, catalogue, form)
    if is_for_script(request):
        return render("_grid.html", results=results, form=form)
    relations = catalogue.tagger.relations
    expands = form.q and not form.start and (len(relations.part_of) or len(relations.is_a))
    related = local("/related", q=form.q) if expands else None
    facts = await service.searching.run(_facts, catalogue)
    return render(
        "search.html", query=form.q, form=form, results=results, related=related, words=_words(form, results), **facts
    )


@router.get("/related")
async def related(request: Request, service: Shared, q: str = "") -> Response:
    """Show photos of the parts of what a search is for, and of similar things."""
    groups = await service.searching.run(_related, service.catalogue, q)
    return render("_related.html" if is_for_script(request) else "related.html", groups=groups, query=q)


@router.post("/like")
@takes_pictures
async def by_picture(request: Request, service: Shared) -> Response:
    """Show photos that are similar to an uploaded one, which isn't stored."""
    (picture,) = await read_uploads(request, 1)
    pixels = await service.pixels(picture.content)
    found = await service.encoding.run(service.catalogue.like, pixels, PAGE)
    items = await service.searching.run(shown, service.catalogue, found.hits)
    results = Results(items, ["Photos similar to yours, which isn't stored."], None)
    facts = await service.searching.run(_facts, service.catalogue)
    form = SearchForm(like="sent")
    return render("search.html", query="", form=form, results=results, related=None, words=[], **facts)


def shown(catalogue: Catalogue, hits: Sequence[Hit], words: str = "") -> list[Shown]:
    """Return what the grid shows of each hit."""
    ids = [hit.id for hit in hits if hit.id is not None]
    records = {record.id: record for record in catalogue.stored.images.get_many(ids)}
    tags = catalogue.stored.tags.held(ids)
    shares: list[list[Share]] = search_shares(catalogue, words, ids) if words else [[] for _ in ids]
    return [
        Shown(records[image_id], hit, tags.get(image_id, []), parts)
        for image_id, hit, parts in zip(ids, hits, shares, strict=True)
        if image_id in records
    ]


def _results(catalogue: Catalogue, form: SearchForm) -> Results:
    """Return one page of a search; what is wrong with the search becomes a note."""
    try:
        found, notes = _find(catalogue, form)
    except UserError as error:
        return Results([], [str(error)], None)
    hits = found[:PAGE]
    more = None
    if len(found) > PAGE:
        more = form.address(start=form.start + PAGE if form.q or form.like else hits[-1].id)
    return Results(shown(catalogue, hits, form.q), notes, more)


def _find(catalogue: Catalogue, form: SearchForm) -> tuple[list[Hit], list[str]]:
    """Return one photo more than the page shows, if there are that many, and notes on the search."""
    among = form.among
    if not form.q and not form.like:
        return catalogue.browse(among, PAGE + 1, after=form.start if form.start else -1).hits, []
    if form.start >= MOST:
        return [], [f"A search shows at most {MOST:,} photos. Add a word or a filter."]
    k = form.start + PAGE + 1
    if form.image_id is not None:
        return catalogue.like(form.image_id, k, among=among).hits[form.start :], []
    found = catalogue.search(form.q, k, among=among)
    notes = []
    if found.unknown:
        notes.append(f"Not a known tag, so ignored: {', '.join(found.unknown)}.")
    if found.untrained:
        notes.append(f"No tagged photos to learn from, so found by meaning alone: {', '.join(found.untrained)}.")
    return found.hits[form.start :], notes


def _facts(catalogue: Catalogue) -> dict[str, Any]:
    """Return the number of photos, and the folders and file types to choose from."""

    def compute() -> dict[str, Any]:
        rows, here = catalogue.stored.database.rows, "FROM images WHERE state = 'here'"
        inside = "rtrim(rtrim(name, replace(name, '/', '')), '/')"  # all of a name before its last slash
        folders = rows(f"SELECT DISTINCT {inside} AS folder_ {here} AND folder_ != '' ORDER BY 1 LIMIT ?", (FOLDERS,))
        types = rows(f"SELECT DISTINCT file_type {here} AND file_type != '' ORDER BY file_type")
        return {
            "n_images": len(catalogue),
            "folders": [folder for (folder,) in folders],
            "types": [file_type for (file_type,) in types],
        }

    return catalogue.stored.database.keep("facts", compute)


def _words(form: SearchForm, results: Results) -> list[str]:
    """Return the tags that a search is for: its words without a minus, and those of its filters."""
    words = [share.word for item in results.shown[:1] for share in item.shares if share.wanted]
    return list(dict.fromkeys([*words, *_tags(form.predicted), *_tags(form.tag)]))


def _related(catalogue: Catalogue, words: str) -> list[tuple[Group, list[Shown]]]:
    """Return photos of parts of what the words mean, and of similar things, if the run knows any."""
    found: list[tuple[Group, list[Shown]]] = []
    for how in EXPANSIONS:
        try:
            groups = catalogue.expand(words, how, GROUPED)
        except VistermError:  # the run has no relations of this kind, or all words have a minus: nothing to show
            continue
        found += [(group, shown(catalogue, group.hits)) for group in groups]
    return found


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
    like: str = ""  # Id of the photo to compare with; "sent" for an uploaded one
    start: int = 0  # Photos shown before; without words, the last id

    @classmethod
    def read(cls, query: QueryParams) -> SearchForm:
        """Read a form from an address; other names in it are ignored."""
        sent = {name: query[name].strip()[:LONGEST] for name in asdict(cls()) if name in query and name != "start"}
        start = query.get("start", "")
        return cls(**sent, start=int(start) if re.fullmatch(r"\d{1,12}", start) else 0)

    @property
    def filters(self) -> dict[str, str]:
        """The filters that are set."""
        return {name: value for name, value in asdict(self).items() if value and name not in ("q", "like", "start")}

    @property
    def among(self) -> Filter | None:
        """The images to search. Raises UserError if a date or a number is not one."""
        if not self.filters:
            return None
        least, most = _number(self.min_mb, "At least (MB)"), _number(self.max_mb, "At most (MB)")
        sure = _number(self.sure, "Predicted with at least (%)")
        return Filter(
            tags=_tags(self.tag), without=_tags(self.without), predicted=_tags(self.predicted),
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

    def address(self, page: str = "/", **changed: Any) -> str:
        """Return the address of this search with some fields changed; without `start`, that of its first page."""
        return local(page, **{**asdict(self), "start": None, **changed})

    def with_tag(self, tag: str) -> str:
        """Return the address of this search among the photos that have one more tag."""
        return self.address(tag=", ".join([*_tags(self.tag), tag]))


def _tags(text: str) -> tuple[str, ...]:
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
