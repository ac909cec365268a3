"""The map of the photos: its page, the places of all photos in one small answer, and the list of those in view."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query
from starlette.responses import Response

from visterm.core.types import Hit
from visterm.library.catalogue import Catalogue
from visterm.library.photo_map import not_on_map, read_map
from visterm.web.errors import Refused
from visterm.web.pages.library import job_values
from visterm.web.pages.render import HEADERS, PageRoute, render
from visterm.web.pages.search import shown
from visterm.web.service import Shared

router = APIRouter(include_in_schema=False, route_class=PageRoute)

MOST_LISTED = 60  # Photos in view that the list shows
STEPS = 65_535  # Places from left to right, and from top to bottom


@router.get("/map")
async def map_page(service: Shared) -> Response:
    """Show the map, or how to draw it."""

    def find() -> dict[str, Any]:
        stored = service.catalogue.stored
        found = read_map(stored)
        job = next((job for job in stored.jobs.latest() if job.kind == "map"), None)
        shown_job = None if job is None or (job.ended and found is not None) else service.jobs.shown(job)
        return {
            "n_photos": None if found is None else len(found.ids),
            "n_new": 0 if found is None else not_on_map(stored, found),
            "job": shown_job,
            "can_draw": find_spec("umap") is not None,
            **job_values(stored, [job] if shown_job and job else []),
        }

    return render("photo_map.html", words=[], most=MOST_LISTED, **await service.browsing.run(find))


@router.get("/map/places")
async def places(service: Shared) -> Response:
    """Return all photos of the map, 8 bytes each: the id in 4, and the place from left and from top in 2 each.

    Little-endian: all ids come first, then all places.
    """

    def read() -> bytes:
        found = read_map(service.catalogue.stored)
        if found is None:
            raise Refused(404, "The map of the photos isn't drawn yet. Start it on the page /map.")
        return found.ids.astype("<u4").tobytes() + np.rint(found.places * STEPS).astype("<u2").tobytes()

    return Response(await service.browsing.run(read), headers=HEADERS, media_type="application/octet-stream")


@router.get("/map/photos")
async def photos_in_view(
    service: Shared, ids: Annotated[str, Query(pattern=r"^\d{1,12}(,\d{1,12})*$", max_length=1000)]
) -> Response:
    """Return the list of some photos."""
    numbers = list(dict.fromkeys(map(int, ids.split(","))))[:MOST_LISTED]
    items = await service.searching.run(_shown, service.catalogue, numbers)
    return render("_map_photos.html", items=items)


def _shown(catalogue: Catalogue, numbers: list[int]) -> list[Any]:
    hits = [Hit(record.name, 0.0, id=record.id) for record in catalogue.stored.images.get_many(numbers)]
    return shown(catalogue, hits)
