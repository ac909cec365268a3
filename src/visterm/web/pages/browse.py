"""Photos by folder, date and tag, with counts, beside a search too; and on the map of the photos."""

from __future__ import annotations

from collections import Counter
from importlib.util import find_spec
from typing import Annotated, NamedTuple

import numpy as np
from fastapi import APIRouter, Query, Response

from visterm.core.types import Hit
from visterm.library.catalogue import Catalogue
from visterm.library.photo_map import n_not_on_map, read_map
from visterm.store.filters import name_key
from visterm.store.images import AMONG, as_list
from visterm.web.errors import HttpError
from visterm.web.pages.form import GridPhoto, SearchForm, grid_photos
from visterm.web.pages.library import latest_job
from visterm.web.pages.render import HEADERS, MONTHS, PageRoute, render
from visterm.web.pages.tags import tag_counts
from visterm.web.service import Shared

router = APIRouter(include_in_schema=False, route_class=PageRoute)

FOLDERS = 400  # Folders of the list to choose from: with more, the deepest are left to be browsed
TAGS = 60

_INSIDE = "rtrim(rtrim(name, replace(name, '/', '')), '/')"  # all of a name before its last slash
MOST_LISTED = 60  # Photos in view that the list shows
STEPS = 65_535  # Places from left to right, and from top to bottom


class Facet(NamedTuple):
    """A folder, a date or a tag to go to."""

    label: str
    n: int  # Photos, those of subfolders too
    address: str


@router.get("/browse")
async def browse_page(service: Shared) -> Response:
    """Show the folders, years and tags of all photos."""
    return render("browse.html", **await service.browsing.run(_values, service.catalogue))


def crumbs(form: SearchForm) -> list[tuple[str, str]]:
    """Return the way to a folder or a period: its name and those around it, each with its address."""
    trail = []
    if form.folder:
        parts = form.folder.split("/")
        inside = ["/".join(parts[: i + 1]) for i in range(len(parts))]
        trail += [(part, form.address(folder=path)) for part, path in zip(parts, inside, strict=True) if part]
    for length in (4, 7, 10):
        period = form.period[:length]
        if len(period) == length:
            trail.append((_period_name(period), form.address(taken_from=period, taken_to=period)))
    return trail


def narrower(catalogue: Catalogue, form: SearchForm) -> list[Facet]:
    """Return the folders right in the one of a search, or the months or days of its period; those that have photos.

    Searches by words or a photo rank all photos, so for them there are none.
    """
    if form.q or form.like or not (form.folder or form.period):
        return []
    if form.folder:
        return _folders_in(catalogue, form)
    return _periods_in(catalogue, form) if len(form.period) < len("2024-07-31") else []


def folders_to_choose(catalogue: Catalogue) -> list[tuple[str, int]]:
    """Return the folders of all photos with their counts; the deepest are left out where there are too many."""
    counts = _by_folder(catalogue, SearchForm())
    depth = max((name.count("/") for name in counts), default=0)
    while depth and sum(name.count("/") <= depth for name in counts) > FOLDERS:
        depth -= 1
    return [(name, counts[name]) for name in sorted(counts, key=name_key) if name and name.count("/") <= depth]


def _values(catalogue: Catalogue) -> dict[str, object]:
    form = SearchForm()
    used_tags = [count for count in tag_counts(catalogue) if count.images]
    used_tags.sort(key=lambda count: (-count.images, count.tag))
    return {
        "folders": _folders_in(catalogue, form),
        "years": _periods_in(catalogue, form),
        "undated": _counts(catalogue, form, "taken").get("", 0),
        "tags": [Facet(count.tag, count.images, form.address(tag=count.tag)) for count in used_tags[:TAGS]],
        "n_tags": len(used_tags),
        "n_images": len(catalogue),
    }


def _folders_in(catalogue: Catalogue, form: SearchForm) -> list[Facet]:
    """Return the folders right in the one of a form; through a folder that holds but one other one goes on."""
    counts = _by_folder(catalogue, form)
    outer = inside = form.folder.rstrip("/")
    children = _children(counts, inside)
    while len(children) == 1 and (others := _children(counts, children[0])):
        if sum(counts[name] for name in others) < counts[children[0]]:  # photos lie there, too
            break
        inside, children = children[0], others
    return [
        Facet(name[len(outer) :].removeprefix("/") if outer else name, counts[name], form.address(folder=name))
        for name in sorted(children, key=name_key)
    ]


def _children(counts: dict[str, int], folder: str) -> list[str]:
    return [name for name in counts if name and name.rpartition("/")[0] == folder]


def _by_folder(catalogue: Catalogue, form: SearchForm) -> dict[str, int]:
    """Count the photos of each folder, those of folders inside it too; "" is the folder around all."""
    counts: Counter[str] = Counter()
    for folder, n in _counts(catalogue, form, _INSIDE).items():
        counts[""] += n
        while folder:
            counts[folder] += n
            folder = folder.rpartition("/")[0]
    return counts


def _periods_in(catalogue: Catalogue, form: SearchForm) -> list[Facet]:
    """Return the years, or the months of the year or days of the month of a form."""
    length = {0: 4, 4: 7, 7: 10}[len(form.period)]
    counts = _counts(catalogue, form, f"substr(taken, 1, {length})")
    return [
        Facet(_period_name(period), counts[period], form.address(taken_from=period, taken_to=period))
        for period in sorted(filter(None, counts), reverse=length == 4)
        if len(period) == length
    ]


def _period_name(period: str) -> str:
    """Return the last part of a year, month or day as people say it: 2024, July, 31."""
    last = period.rpartition("-")[2]
    return MONTHS[int(last) - 1] if len(period) == len("2024-07") else last.lstrip("0")


def _counts(catalogue: Catalogue, form: SearchForm, part: str) -> dict[str, int]:
    """Count the photos that pass the filters of a form by an expression of SQL."""
    among = form.among

    def count() -> dict[str, int]:
        where, values = ("", ()) if among is None else (f"AND {AMONG} ", (as_list(catalogue.ids(among)),))
        statement = (
            f"SELECT coalesce({part}, '') AS part, count(*) FROM images WHERE state = 'here' {where}GROUP BY part"
        )
        return dict(catalogue.stored.database.rows(statement, values))

    return catalogue.stored.database.keep((part, *form.filters.items()), count)


@router.get("/map")
async def photo_map_page(service: Shared) -> Response:
    """Show the map, or how to draw it."""

    def find() -> dict[str, object]:
        stored = service.catalogue.stored
        photo_map = read_map(stored)
        return {
            "n_photos": None if photo_map is None else len(photo_map.ids),
            "n_new": 0 if photo_map is None else n_not_on_map(stored, photo_map),
            "can_draw": find_spec("umap") is not None,
            **latest_job(service, "map", ended=photo_map is None),
        }

    return render("photo_map.html", words=[], most=MOST_LISTED, **await service.browsing.run(find))


@router.get("/map/places")
async def places(service: Shared) -> Response:
    """Return all photos of the map, 8 bytes each: the id in 4, and the place from left and from top in 2 each.

    Little-endian: all ids come first, then all places.
    """

    def read() -> bytes:
        photo_map = read_map(service.catalogue.stored)
        if photo_map is None:
            raise HttpError(404, "The map of the photos isn't drawn yet. Start it on the page /map.")
        return photo_map.ids.astype("<u4").tobytes() + np.rint(photo_map.places * STEPS).astype("<u2").tobytes()

    return Response(await service.browsing.run(read), headers=HEADERS, media_type="application/octet-stream")


@router.get("/map/photos")
async def photos_in_view(
    service: Shared, ids: Annotated[str, Query(pattern=r"^\d{1,12}(,\d{1,12})*$", max_length=1000)]
) -> Response:
    """Return the list of some photos."""
    numbers = list(dict.fromkeys(map(int, ids.split(","))))[:MOST_LISTED]

    def find() -> list[GridPhoto]:
        records = service.catalogue.stored.images.get_many(numbers)
        return grid_photos(service.catalogue, [Hit(record.name, 0.0, id=record.id) for record in records])

    return render("_map_photos.html", items=await service.searching.run(find))
