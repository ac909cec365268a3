"""The pages of tags: all of them with counts and precision, one with its neighbours, which to merge, and the map."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
from fastapi import APIRouter, Form, Request
from starlette.responses import Response

from visterm.core.errors import UserError
from visterm.core.vocabulary import tag_key
from visterm.data.relation_files import Alias
from visterm.library.catalogue import Catalogue
from visterm.library.dictionary import merge_tags
from visterm.library.feedback import TagCount
from visterm.store.filters import Filter
from visterm.tagging.tag_groups import suggest_aliases
from visterm.tagging.tag_map import PlacedTag
from visterm.web.errors import Refused
from visterm.web.pages.render import PageRoute, local, render, send_on, wants_part
from visterm.web.pages.search import Shared, shown
from visterm.web.pages.shelf import LONG, kept_of

router = APIRouter(include_in_schema=False, route_class=PageRoute)

ROWS = 200
NEIGHBOURS = 12
EXAMPLES = 12
SUGGESTIONS = 100

ORDERS: dict[str, Any] = {
    "images": lambda count: (-max(count.given + count.accepted, count.predicted), count.tag),
    "name": lambda count: tag_key(count.tag),
    "precision": lambda count: (1.0 if count.precision is None else count.precision, -count.rejected, count.tag),
    "predicted": lambda count: (-count.predicted, count.tag),
}
"""How tags may be listed, "precision" with the worst first: these want a look."""

SIDE = 1000.0

MARGIN = 60.0

ROOMS = (1, 2, 4, 8, 16, 32, 64)

LETTER = 60.0
"""Size of names where there is a room of 1, in units of the drawing; with twice the room it is half as much."""

WIDTH_OF_LETTER = 0.58
"""Of a letter on average, as a part of its size; a little more than most fonts take."""


@router.get("/tags")
async def tags_page(
    request: Request, service: Shared, order: str = "images", find: str = "", start: int = 0
) -> Response:
    """List the tags."""
    if order not in ORDERS:
        raise Refused(422, f"order is {order!r}; expected one of {', '.join(ORDERS)}.", field="order")
    found = await service.browsing.run(_tags, service.catalogue, order, find)
    start = max(start, 0)
    more = local("/tags", order=order, find=find, start=start + ROWS) if start + ROWS < len(found) else None
    return render(
        "_tag_rows.html" if wants_part(request) else "tags.html",
        tags=found[start : start + ROWS], n_tags=len(found), order=order, orders=list(ORDERS), find=find, more=more,
    )  # fmt: skip


@router.get("/tag")
async def tag_page(service: Shared, name: str) -> Response:
    """Show one tag."""
    return render("tag.html", **await service.browsing.run(_tag, service.catalogue, name))


@router.get("/tags/alike")
async def alike_tags(request: Request, service: Shared) -> Response:
    """Suggest which tags mean the same."""
    aliases = await service.browsing.run(_alike, service.catalogue)
    return render("_alike_tags.html" if wants_part(request) else "alike_tags.html", aliases=aliases)


@router.post("/tags/merge")
async def merge(
    request: Request, service: Shared, tag: Annotated[str, Form()], into: Annotated[str, Form()]
) -> Response:
    """Put one tag in place of another."""
    n_images = await service.writing.run(merge_tags, service.catalogue, tag, into)
    kept_of(service.catalogue).forget("counts")
    if not wants_part(request):
        return send_on(local("/tag", name=into))
    return render("_merged.html", tag=tag, into=into, n_images=n_images)


@router.get("/tags/map")
async def map_page(request: Request, service: Shared, drawn: bool = False) -> Response:
    """Show the map of the tags: the page at once, and the map, which takes some seconds the first time, inside it."""
    if not drawn:
        return render("map.html", drawn=None, told="")
    tags, told = None, ""
    try:
        tags = draw_map(await service.tag_map())
    except UserError as error:
        told = str(error)
    except Refused as error:
        if error.status_code != 503:
            raise
    return render("_map.html" if wants_part(request) else "map.html", drawn=tags, told=told)


def _counts(catalogue: Catalogue) -> list[TagCount]:
    return kept_of(catalogue).get("counts", catalogue.tags, seconds=2)


def _alike(catalogue: Catalogue) -> list[Alias]:
    """Suggest merges of tags that images have; those that were merged since are left out."""
    tagger = catalogue.tagger
    found = kept_of(catalogue).get(("alike", tagger.fingerprint), lambda: suggest_aliases(tagger), LONG)
    there = {count.tag for count in _counts(catalogue) if count.given + count.accepted}
    return [alias for alias in found if alias.alias in there][:SUGGESTIONS]


def _tags(catalogue: Catalogue, order: str, find: str) -> list[TagCount]:
    key = tag_key(find)
    return sorted((count for count in _counts(catalogue) if key in tag_key(count.tag)), key=ORDERS[order])


def _tag(catalogue: Catalogue, name: str) -> dict[str, Any]:
    alike = [count for count in _counts(catalogue) if tag_key(count.tag) == tag_key(name)]
    count = next((count for count in alike if count.tag == name), alike[0] if alike else None)
    if count is None:
        raise Refused(404, f"No picture has the tag '{name}', and the run does not know it.")
    neighbours, told = [], ""
    if count.learned:
        try:
            neighbours = catalogue.tagger.neighbours(count.tag, NEIGHBOURS)
        except UserError as error:
            told = str(error)
    examples = shown(catalogue, catalogue.browse(Filter(tags=(count.tag,)), EXAMPLES).hits)
    return {"count": count, "neighbours": neighbours, "told": told, "examples": examples}


class DrawnTag(NamedTuple):
    """A tag on the map.

    Attributes
    ----------
    tag : str
    x, y : float
        From 0 to `SIDE`.
    images : int
    size : int
        1 to 4, by the logarithm of the number of images.
    room : int
        That its name needs: it is shown when the map is so near that letters are `LETTER` / `room` units high, or less.
        One of `ROOMS`; 128 if no room is enough.
    """

    tag: str
    x: float
    y: float
    images: int
    size: int
    room: int


def draw_map(placed: Sequence[PlacedTag]) -> list[DrawnTag]:
    """Return names room, those of most images first: none covers another."""
    order = sorted(range(len(placed)), key=lambda i: (-placed[i].images, i))
    x = np.array([MARGIN + (SIDE - 2 * MARGIN) * placed[i].x for i in order])
    y = np.array([MARGIN + (SIDE - 2 * MARGIN) * placed[i].y for i in order])
    widths = np.array([len(placed[i].tag) * LETTER * WIDTH_OF_LETTER for i in order])
    rooms = np.full(len(order), 2 * ROOMS[-1])
    for room in ROOMS:
        for i in np.flatnonzero(rooms > room):
            others = np.flatnonzero(rooms <= room)
            across = np.abs(x[others] - x[i]) * room < (widths[others] + widths[i]) / 2 + LETTER / 2
            down = np.abs(y[others] - y[i]) * room < 1.25 * LETTER
            if not (across & down).any():
                rooms[i] = room
    most = math.log1p(max((tag.images for tag in placed), default=1))
    return [
        DrawnTag(
            placed[i].tag, round(float(x[n]), 1), round(float(y[n]), 1), placed[i].images,
            1 + min(3, int(4 * math.log1p(placed[i].images) / (most or 1.0))), int(rooms[n]),
        )
        for n, i in enumerate(order)
    ]  # fmt: skip
