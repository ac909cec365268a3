"""The search page: photos found by words, filters or another photo, and tags for several chosen ones."""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple
from urllib.parse import urlsplit

from fastapi import APIRouter, Request, Response

from visterm.core.checks import check_choice
from visterm.core.errors import UserError, VistermError
from visterm.core.wording import count_of
from visterm.library.catalogue import Catalogue
from visterm.library.search.result import EXPANSIONS, Group
from visterm.library.steps import MAX_PHOTOS
from visterm.store.filters import MATCH, MAX_INT, SORTS
from visterm.web.api.images import StepNumber, store_step, undo_stored_step
from visterm.web.bodies import MEDIUM_BODY, allow_body, allow_pictures, read_uploads
from visterm.web.pages.browse import crumbs, folders_to_choose, narrower_facets
from visterm.web.pages.form import (
    LABELS,
    PHOTOS_PER_PAGE,
    UPLOAD,
    FoundPhotos,
    GridPhoto,
    SearchForm,
    first_day,
    grid_photos,
    last_day,
    search_photos,
    tags_in,
)
from visterm.web.pages.library import start_values
from visterm.web.pages.render import PageRoute, is_for_script, local, render
from visterm.web.security import local_address
from visterm.web.service import ServiceDep, in_threads

router = APIRouter(include_in_schema=False, route_class=PageRoute)

PHOTOS_PER_GROUP = 6  # Number of photos of each part or similar thing
MESSAGES = {
    "give": "“{}” added to {}", "take": "“{}” removed from {}",
    "right": "“{}” is right for {}", "wrong": "“{}” is wrong for {}",
}  # fmt: skip
"""What people can say about a tag of several photos, and the message that the page then shows."""


class Results(NamedTuple):
    """A page of photos, and notes on the search."""

    photos: list[GridPhoto]
    notes: list[str]
    more: str | None  # Address of the next page
    earlier: str | None = None  # Address of the previous page
    total: str = ""  # Number of photos on all pages, in words
    suggestion: str = ""  # The words with known tags in place of misspelled ones


@router.get("/")
@in_threads("searching")
def search_page(request: Request, service: ServiceDep) -> Response:
    """Show the photos that a search finds; for the script, only the next photos."""
    form = SearchForm.read(request.query_params)
    catalogue = service.catalogue
    results = _results(catalogue, form, refresh=not is_for_script(request))
    if is_for_script(request):
        return render("_grid.html", results=results, form=form)
    relations = catalogue.tagger.relations
    expands = form.q and not form.start and (len(relations.part_of) or len(relations.is_a))
    words = [share.word for item in results.photos[:1] for share in item.shares if share.wanted]
    return render(
        "search.html", query=form.q, form=form, results=results, start=start_values(service),
        related=local("/related", q=form.q) if expands else None,
        words=list(dict.fromkeys([*words, *tags_in(form.predicted), *tags_in(form.tag)])), **_facts(catalogue, form),
    )  # fmt: skip


@router.get("/related")
@in_threads("searching")
def related(request: Request, service: ServiceDep, q: str = "") -> Response:
    """Show photos of parts of the things that a search is for, and of similar things, if the run knows any."""
    groups: list[tuple[Group, list[GridPhoto]]] = []
    for relation in EXPANSIONS:
        with suppress(VistermError):  # the run has no relations of this kind, or all words have a minus
            expanded = service.catalogue.expand(q, relation, PHOTOS_PER_GROUP)
            groups += [(group, grid_photos(service.catalogue, group.hits)) for group in expanded]
    return render("_related.html" if is_for_script(request) else "related.html", groups=groups, query=q)


@router.post("/like")
@allow_pictures
async def by_picture(request: Request, service: ServiceDep) -> Response:
    """Show photos that are similar to an uploaded one, which isn't stored."""
    (picture,) = await read_uploads(request, 1)
    pixels = await service.pixels(picture.content)
    result = await service.encoding.run(service.catalogue.like, pixels, PHOTOS_PER_PAGE)
    items = await service.searching.run(grid_photos, service.catalogue, result.hits)
    results = Results(items, ["Photos similar to yours, which isn't stored."], None)
    form = SearchForm(like=UPLOAD)
    facts = await service.searching.run(_facts, service.catalogue, form)
    return render("search.html", query="", form=form, results=results, related=None, words=[], start=None, **facts)


def _results(catalogue: Catalogue, form: SearchForm, refresh: bool) -> Results:
    result = search_photos(catalogue, form, refresh=refresh)
    end = form.start + PHOTOS_PER_PAGE
    hits = result.hits[form.start : end] or catalogue.hits(result.ids[form.start : end])
    items, notes = grid_photos(catalogue, hits, result.words), result.notes
    if not items and len(result.ids):
        n_photos = count_of(len(result.ids), "photo")
        notes = [*notes, f"This search shows {n_photos}, and this page is after the last one."]
    more = form.address(start=end) if end < len(result.ids) else None
    earlier = form.address(start=max(form.start - PHOTOS_PER_PAGE, 0)) if form.start and items else None
    return Results(items, notes, more, earlier, _count(form, result), result.suggestion)


def _count(form: SearchForm, result: FoundPhotos) -> str:
    """Return the number of photos that a search found; if it was by words, also how many are likely to match."""
    if form.q and form.sorted_by == MATCH and result.n_likely is not None:
        if result.n_found and not result.n_likely:
            return f"No photo is likely to match. The nearest of {count_of(result.n_found, 'photo')} come first"
        return f"{result.n_likely:,} likely to match, of {count_of(result.n_found, 'photo')}"
    has_confidences = result.n_likely is not None
    note = f", {'those likely to match' if has_confidences else 'the best matches'}" if form.q or form.like else ""
    return count_of(result.n_found, "photo") + ("" if form.sorted_by == MATCH else note)


def _facts(catalogue: Catalogue, form: SearchForm) -> dict[str, object]:
    """Return the number of photos, folders and file types to choose from, and the folder or period of the search."""

    def compute() -> dict[str, object]:
        types = catalogue.stored.database.rows(
            "SELECT DISTINCT file_type FROM images WHERE state = 'here' AND file_type != '' ORDER BY file_type"
        )
        names = [file_type for (file_type,) in types]
        return {"n_images": len(catalogue), "folders": folders_to_choose(catalogue), "types": names}

    facts = catalogue.stored.database.keep("facts", compute)
    facets = narrower_facets(catalogue, form)
    days = {"first_day": first_day(form.taken_from), "last_day": last_day(form.taken_to)}
    return facts | days | {"crumbs": crumbs(form), "narrower": facets, "sorts": SORTS, "labels": LABELS}


@router.post("/chosen")
@allow_body(MEDIUM_BODY)
async def change_chosen(request: Request, service: ServiceDep) -> Response:
    """Store what a person says about a tag of the chosen photos: give, take, right or wrong."""
    async with request.form(max_files=0, max_fields=MAX_PHOTOS + 10) as form:
        ids = [str(value) for value in form.getlist("image")]
        do, tag, word = (str(form.get(name, "")) for name in ("do", "tag", "word"))
    check_choice(do, "do", MESSAGES)
    if not all(number.isascii() and number.isdigit() and int(number) <= MAX_INT for number in ids):
        raise UserError("`image` has a value that isn't a photo's number.", setting="image", advice="Choose photos.")
    tag = tag if do in ("give", "take") else word
    if not tag.strip():
        raise UserError("Type a tag first.", setting="tag", value=tag)
    step = await service.writing.run(store_step, service, [int(number) for number in ids], **{do: [tag]})
    message = MESSAGES[do].format(tag, count_of(len(step.images), "photo"))
    return _message(request, message=message, number=step.number, images=step.images, do=do)


@router.post("/steps/{number}/undo")
@in_threads("writing")
def undo_chosen(service: ServiceDep, number: StepNumber, request: Request) -> Response:
    """Undo a step."""
    step = undo_stored_step(service, number)
    message = f"Undone for {count_of(len(step.images), 'photo')}"
    return _message(request, message=message, number=None, images=step.images, do="undo")


def _message(request: Request, **values: object) -> Response:
    """Return the message of a step with a button that undoes it; without the script, as a page with a link back."""
    if is_for_script(request):
        return render("_step.html", **values)
    address = urlsplit(request.headers.get("referer", ""))
    back = local_address(f"{address.path}?{address.query}" if address.query else address.path)
    return render("step.html", back=back if back != request.url.path else "/", **values)
