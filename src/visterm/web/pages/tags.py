"""The pages of tags: the list with counts, one tag with similar ones, tags to merge, and the map."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np
from fastapi import APIRouter, Request, Response

from visterm.core.vocabulary import tag_key
from visterm.library.dictionary import merge_tags, suggest_merges, tag_counts, tree_level
from visterm.library.feedback import TagCount
from visterm.models.blend.kept import what_to_do
from visterm.store.filters import PREDICTED_FROM, Filter
from visterm.tagging.tag_map import PlacedTag
from visterm.web.bodies import FormText
from visterm.web.errors import HttpError
from visterm.web.pages.form import SearchForm, grid_photos
from visterm.web.pages.render import PageRoute, answer_form, is_for_script, local, render
from visterm.web.service import ServiceDep, has_tag_vectors, in_threads

router = APIRouter(include_in_schema=False, route_class=PageRoute)

TAGS_PER_PAGE = 200
N_NEIGHBOURS = 12
N_EXAMPLES = 12
MAX_SUGGESTIONS = 100

ORDERS: dict[str, Callable[[TagCount], tuple[float | str, ...]]] = {
    "images": lambda count: (-max(count.images, count.predicted), count.tag),
    "name": lambda count: (tag_key(count.tag),),
    "precision": lambda count: (1.0 if count.precision is None else count.precision, -count.rejected, count.tag),
    "predicted": lambda count: (-count.predicted, count.tag),
}
"""Orders of the list; "precision" puts the worst tags first, as these need attention."""

Order = Literal["images", "name", "precision", "predicted"]
View = Literal["", "tree", "list"]
"""How tags are listed; empty: as a tree if they have one."""

MAP_SIDE = 1000.0

MAP_MARGIN = 60.0

ZOOMS = (1, 2, 4, 8, 16, 32, 64)

LETTER_HEIGHT = 60.0  # Height of names at a zoom of 1, in units of the drawing; half of that at a zoom of 2
LETTER_WIDTH = 0.58  # Average width of a letter, as a share of its height; a little more than in most fonts


@router.get("/tags")
@in_threads("browsing")
def tags_page(
    request: Request, service: ServiceDep, order: Order = "images", find: str = "", start: int = 0, view: View = ""
) -> Response:
    """List the tags: as a tree if they have one, unless the list is requested or `find` is set."""
    catalogue = service.catalogue
    has_tree = catalogue.tagger.tree is not None
    as_tree = has_tree and not find and not is_for_script(request) and view != "list"
    key, start = tag_key(find), max(start, 0)
    counts = sorted((count for count in tag_counts(catalogue) if key in tag_key(count.tag)), key=ORDERS[order])
    end = 0 if as_tree else start + TAGS_PER_PAGE
    more = local("/tags", order=order, find=find, start=end, view=view) if 0 < end < len(counts) else None
    return render(
        "_tag_rows.html" if is_for_script(request) else "tags.html", tags=counts[start:end], n_tags=len(counts),
        order=order, orders=list(ORDERS), find=find, more=more, has_map=has_tag_vectors(catalogue.tagger),
        least=PREDICTED_FROM, has_tree=has_tree, level=tree_level(catalogue) if as_tree else None, form=None,
    )  # fmt: skip


@router.get("/tags/tree")
@in_threads("browsing")
def tree_page(request: Request, service: ServiceDep, under: str = "") -> Response:
    """List the tags directly under a tag of the tree."""
    level = tree_level(service.catalogue, under)
    return render("_tree.html" if is_for_script(request) else "tree.html", level=level, under=under, form=None)


@router.get("/facets")
@in_threads("browsing")
def facets_page(request: Request, service: ServiceDep, under: str = "") -> Response:
    """List the tags to filter by, of the photos that pass the filters: at the top, or directly under a tag."""
    form = SearchForm.read(request.query_params)
    level = tree_level(service.catalogue, under, form.among)
    used_tags = [item for item in level if item.images][:TAGS_PER_PAGE]
    return render("_tree.html" if is_for_script(request) else "tree.html", level=used_tags, under=under, form=form)


@router.get("/tag")
@in_threads("browsing")
def tag_page(service: ServiceDep, name: str) -> Response:
    """Show one tag."""
    catalogue = service.catalogue
    keys = set(map(tag_key, catalogue.tagger.vocabulary.spellings(name)))
    count = next((count for count in tag_counts(catalogue) if tag_key(count.tag) in keys), None)
    if count is None:
        raise HttpError(404, f"No photo has the tag '{name}', and it was not learned.")
    neighbours = []
    if count.learned and has_tag_vectors(catalogue.tagger):
        neighbours = catalogue.tagger.neighbours(count.tag, N_NEIGHBOURS)
    examples = grid_photos(catalogue, catalogue.browse(Filter(tags=(count.tag,)), N_EXAMPLES).hits)
    return render("tag.html", count=count, neighbours=neighbours, examples=examples)


@router.get("/tags/alike")
@in_threads("browsing")
def alike_tags(request: Request, service: ServiceDep) -> Response:
    """Suggest tags to merge: tags of photos that may mean the same."""
    catalogue = service.catalogue
    key = ("merges", catalogue.tagger.fingerprint)
    aliases = catalogue.stored.database.keep(key, lambda: suggest_merges(catalogue))[:MAX_SUGGESTIONS]
    return render("_alike_tags.html" if is_for_script(request) else "alike_tags.html", aliases=aliases)


@router.post("/tags/merge")
@in_threads("writing")
def merge(request: Request, service: ServiceDep, tag: FormText, into: FormText) -> Response:
    """Replace one tag by another on all photos."""
    n_images = merge_tags(service.catalogue, tag, into)
    return answer_form(request, "_merged.html", local("/tag", name=into), tag=tag, into=into, n_images=n_images)


@router.get("/tags/map")
async def map_page(request: Request, service: ServiceDep, drawn: bool = False) -> Response:
    """Show the page of the tags' map at once, or with `drawn` the map itself, which takes seconds the first time."""
    if not has_tag_vectors(service.catalogue.tagger):
        todo = what_to_do(service.catalogue.tagger.model)
        raise HttpError(404, f"The model of this run has no vectors of tags, so there is no map of them. {todo}")
    page = "_map.html" if drawn and is_for_script(request) else "map.html"
    return render(page, drawn=draw_map(await service.tag_map()) if drawn else None)


class DrawnTag(NamedTuple):
    """A tag on the map."""

    tag: str
    # Coordinates from 0 to `MAP_SIDE`
    x: float
    y: float
    images: int
    size: int  # 1 to 4, by the logarithm of the number of images
    zoom: int
    """Zoom from which the name is shown: letters are then `LETTER_HEIGHT` / `zoom` units high. One of `ZOOMS`; 128 if
    the name covers others at all of them."""


def draw_map(placed_tags: Sequence[PlacedTag]) -> list[DrawnTag]:
    """Place the tags on the map, those of most photos first, and find the zoom at which no name covers another."""
    order = sorted(range(len(placed_tags)), key=lambda i: (-placed_tags[i].images, i))
    x = np.array([MAP_MARGIN + (MAP_SIDE - 2 * MAP_MARGIN) * placed_tags[i].x for i in order])
    y = np.array([MAP_MARGIN + (MAP_SIDE - 2 * MAP_MARGIN) * placed_tags[i].y for i in order])
    widths = np.array([len(placed_tags[i].tag) * LETTER_HEIGHT * LETTER_WIDTH for i in order])
    zooms = np.full(len(order), 2 * ZOOMS[-1])
    for zoom in ZOOMS:
        for i in np.flatnonzero(zooms > zoom):
            others = np.flatnonzero(zooms <= zoom)
            overlaps_x = np.abs(x[others] - x[i]) * zoom < (widths[others] + widths[i]) / 2 + LETTER_HEIGHT / 2
            overlaps_y = np.abs(y[others] - y[i]) * zoom < 1.25 * LETTER_HEIGHT
            if not (overlaps_x & overlaps_y).any():
                zooms[i] = zoom

    log_max_images = math.log1p(max((tag.images for tag in placed_tags), default=1))
    return [
        DrawnTag(
            placed_tags[i].tag, round(float(x[n]), 1), round(float(y[n]), 1), placed_tags[i].images,
            1 + min(3, int(4 * math.log1p(placed_tags[i].images) / (log_max_images or 1.0))), int(zooms[n]),
        )
        for n, i in enumerate(order)
    ]  # fmt: skip
