"""Browsing photos by folder, date and tag, with counts, also for a search; and the map of the photos."""

from __future__ import annotations

import json
from collections import Counter
from importlib.util import find_spec
from typing import Annotated, NamedTuple

import numpy as np
from fastapi import APIRouter, Query, Response

from visterm.core.types import Hit
from visterm.library.catalogue import Catalogue
from visterm.library.dictionary import tag_counts
from visterm.library.photo_map import map_clusters, n_not_on_map, read_map
from visterm.library.search.photo_names import MONTHS
from visterm.store.filters import name_key
from visterm.store.images import AMONG, as_list
from visterm.web.errors import HttpError
from visterm.web.pages.form import SearchForm, grid_photos
from visterm.web.pages.library import latest_job
from visterm.web.pages.render import PAGE_HEADERS, PageRoute, render
from visterm.web.service import ServiceDep, in_threads

router = APIRouter(include_in_schema=False, route_class=PageRoute)

MAX_FOLDERS = 400  # Maximum number of folders to choose from; the deepest ones are left out first
MAX_TAGS = 60

_FOLDER_OF_NAME = "rtrim(rtrim(name, replace(name, '/', '')), '/')"  # SQL for the part of a name before its last slash
MAX_LISTED = 60  # Photos in view that the list shows
MAP_STEPS = 65_535  # Maximum of both coordinates on the map


class Facet(NamedTuple):
    """A folder, a date or a tag to go to."""

    label: str
    n: int  # Number of photos, including those in subfolders
    address: str


@router.get("/browse")
@in_threads("browsing")
def browse_page(service: ServiceDep) -> Response:
    """Show the folders, years and tags of all photos."""
    catalogue, form = service.catalogue, SearchForm()
    used_tags = [count for count in tag_counts(catalogue) if count.images]
    used_tags.sort(key=lambda count: (-count.images, count.tag))
    return render(
        "browse.html", folders=_folders_in(catalogue, form), years=_periods_in(catalogue, form),
        undated=_count_by(catalogue, form, "taken").get("", 0), n_tags=len(used_tags), n_images=len(catalogue),
        tags=[Facet(count.tag, count.images, form.address(tag=count.tag)) for count in used_tags[:MAX_TAGS]],
    )  # fmt: skip


def crumbs(form: SearchForm) -> list[tuple[str, str]]:
    """Return a search's folder or period and those that contain it, outermost first: their names and addresses."""
    trail = []
    if form.folder:
        parts = form.folder.split("/")
        paths = ["/".join(parts[: i + 1]) for i in range(len(parts))]
        trail += [(part, form.address(folder=path)) for part, path in zip(parts, paths, strict=True) if part]
    for length in (4, 7, 10):
        period = form.period[:length]
        if len(period) == length:
            trail.append((_period_name(period), form.address(taken_from=period, taken_to=period)))
    return trail


def narrower_facets(catalogue: Catalogue, form: SearchForm) -> list[Facet]:
    """Return the folders directly in a search's folder, or the months or days of its period, if they have photos.

    The list is empty for searches by words or a photo, as these rank all photos.
    """
    if form.q or form.like or not (form.folder or form.period):
        return []
    if form.folder:
        return _folders_in(catalogue, form)
    return _periods_in(catalogue, form) if len(form.period) < len("2024-07-31") else []


def folders_to_choose(catalogue: Catalogue) -> list[tuple[str, int]]:
    """Return the folders of all photos with their counts; if there are too many, without the deepest."""
    counts = _folder_counts(catalogue, SearchForm())
    names = sorted(filter(None, counts), key=lambda name: name.count("/"))[:MAX_FOLDERS]
    return [(name, counts[name]) for name in sorted(names, key=name_key)]


def _folders_in(catalogue: Catalogue, form: SearchForm) -> list[Facet]:
    """Return the folders directly in a form's folder; a folder that contains only one folder is replaced by that."""
    counts = _folder_counts(catalogue, form)
    outer = inner_folder = form.folder.rstrip("/")
    children = _children(counts, inner_folder)
    while len(children) == 1 and (others := _children(counts, children[0])):
        if sum(counts[name] for name in others) < counts[children[0]]:  # it also has photos itself
            break
        inner_folder, children = children[0], others
    return [
        Facet(name[len(outer) :].removeprefix("/") if outer else name, counts[name], form.address(folder=name))
        for name in sorted(children, key=name_key)
    ]


def _children(counts: dict[str, int], folder: str) -> list[str]:
    return [name for name in counts if name and name.rpartition("/")[0] == folder]


def _folder_counts(catalogue: Catalogue, form: SearchForm) -> dict[str, int]:
    """Count the photos of each folder and its subfolders; "" is the folder that contains all."""
    counts: Counter[str] = Counter()
    for folder, n in _count_by(catalogue, form, _FOLDER_OF_NAME).items():
        counts[""] += n
        while folder:
            counts[folder] += n
            folder = folder.rpartition("/")[0]
    return counts


def _periods_in(catalogue: Catalogue, form: SearchForm) -> list[Facet]:
    """Return the years, the months of a form's year, or the days of its month."""
    length = {0: 4, 4: 7, 7: 10}[len(form.period)]
    counts = _count_by(catalogue, form, f"substr(taken, 1, {length})")
    return [
        Facet(_period_name(period), counts[period], form.address(taken_from=period, taken_to=period))
        for period in sorted(filter(None, counts), reverse=length == 4)
        if len(period) == length
    ]


def _period_name(period: str) -> str:
    """Return the last part of a year, month or day in words: 2024, July, 31."""
    last = period.rpartition("-")[2]
    return MONTHS[int(last) - 1] if len(period) == len("2024-07") else last.lstrip("0")


def _count_by(catalogue: Catalogue, form: SearchForm, part: str) -> dict[str, int]:
    """Count the photos that pass the filters of a form, by the value of an SQL expression."""
    among = form.among

    def count() -> dict[str, int]:
        where, values = ("", ()) if among is None else (f"AND {AMONG} ", (as_list(catalogue.ids(among)),))
        statement = (
            f"SELECT coalesce({part}, '') AS part, count(*) FROM images WHERE state = 'here' {where}GROUP BY part"
        )
        return dict(catalogue.stored.database.rows(statement, values))

    return catalogue.stored.database.keep((part, *form.filters.items()), count)


@router.get("/map")
@in_threads("browsing")
def photo_map_page(service: ServiceDep) -> Response:
    """Show the map of the photos, or how to draw it."""
    stored = service.catalogue.stored
    photo_map, clusters = read_map(stored), []
    if photo_map is not None:
        key = ("map clusters", len(photo_map.ids), float(photo_map.places.sum()))
        clusters = stored.database.keep(key, lambda: map_clusters(stored, photo_map))

    return render(
        "photo_map.html", words=[], most=MAX_LISTED, clusters=json.dumps(clusters),
        n_photos=None if photo_map is None else len(photo_map.ids),
        n_new=0 if photo_map is None else n_not_on_map(stored, photo_map), can_draw=find_spec("umap") is not None,
        **latest_job(service, "map", ended=photo_map is None),
    )  # fmt: skip


@router.get("/map/places")
@in_threads("browsing")
def places(service: ServiceDep) -> Response:
    """Return the ids (4 bytes) and the coordinates from left and top (2 bytes each) of all photos on the map.

    Little-endian: all ids come first, then all coordinates.
    """
    photo_map = read_map(service.catalogue.stored)
    if photo_map is None:
        raise HttpError(404, "The map of the photos isn't drawn yet. Start it on the page /map.")
    content = photo_map.ids.astype("<u4").tobytes() + np.rint(photo_map.places * MAP_STEPS).astype("<u2").tobytes()
    return Response(content, headers=PAGE_HEADERS, media_type="application/octet-stream")


@router.get("/map/photos")
@in_threads("searching")
def photos_in_view(
    service: ServiceDep, ids: Annotated[str, Query(pattern=r"^\d{1,12}(,\d{1,12})*$", max_length=1000)]
) -> Response:
    """Return the list of some photos."""
    image_ids = list(dict.fromkeys(map(int, ids.split(","))))[:MAX_LISTED]
    records = service.catalogue.stored.images.get_many(image_ids)
    items = grid_photos(service.catalogue, [Hit(record.name, 0.0, id=record.id) for record in records])
    return render("_map_photos.html", items=items)
