"""Review in grids: photos that probably have one tag on a screen, of which people mark the wrong ones."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Annotated, Literal, NamedTuple

import numpy as np
from fastapi import APIRouter, Form, Request, Response
from pydantic import FailFast, Field, TypeAdapter

from visterm.core.wording import count_of
from visterm.library.review import sure_photos
from visterm.library.steps import rejected_in, review_photos
from visterm.store.filters import MAX_INT
from visterm.web.api.images import undo_stored_step
from visterm.web.bodies import MEDIUM_BODY, FormNumber, FormText, allow_body
from visterm.web.pages.form import GridPhoto, grid_photos
from visterm.web.pages.render import PageRoute, is_for_script, render
from visterm.web.pages.review import MAX_TRAIL, learn_by_itself, read_trail, review_progress
from visterm.web.service import Service, ServiceDep, in_threads

router = APIRouter(include_in_schema=False, route_class=PageRoute)

PHOTO_KEYS = "1234567890abcdefiopqrtvw"
"""The key that marks each photo of a screen; the other letters have the same meaning as on all pages."""


class Screen(NamedTuple):
    """A screen that was answered, or skipped: a person looks at no more photos of this tag now."""

    step: Annotated[int, Field(ge=-1, le=MAX_INT)]  # See `library.steps`; -1: skipped
    tag: str
    n_photos: Annotated[int, Field(ge=0, le=len(PHOTO_KEYS))]


_TRAIL = TypeAdapter(Annotated[list[Screen], FailFast()])  # Screens of this session, which the page sends along

Ids = Annotated[list[FormNumber], Form(max_length=len(PHOTO_KEYS))]


@router.get("/review/grid")
@in_threads("searching")
def grid_page(service: ServiceDep, tag: str = "") -> Response:
    """Show photos that most certainly have a tag; without one, the tag of most such photos."""
    return render("review_grid.html", **_screen(service, tag, []))


@router.post("/review/grid")
@allow_body(MEDIUM_BODY)
async def answer_screen(
    request: Request, service: ServiceDep, do: Annotated[Literal["accept", "skip", "undo"], Form()],
    tag: FormText = "", image: Ids = [], wrong: Ids = [], trail: FormText = "[]",  # noqa: B006
) -> Response:  # fmt: skip
    """Accept the photos that a person saw, except the wrong ones; or skip the tag, or undo the last screen."""
    screens = read_trail(_TRAIL, trail, "/review/grid")
    marked: set[int] = set()
    if do == "accept":
        right = [number for number in image if number not in wrong]
        step = await service.writing.run(review_photos, service.catalogue, tag, right, wrong)
        screens = [*screens, Screen(step.number, tag, len(step.images))]
        message = f"{tag}: {len(right)} right, {len(step.images) - len(right)} wrong"
    elif do == "skip":
        screens, message = [*screens, Screen(-1, tag, 0)], f"{tag} skipped"
    elif screens:
        *screens, last = screens
        tag, message = last.tag, f"{last.tag}: one more time"
        if last.step >= 0:
            marked = await service.searching.run(rejected_in, service.catalogue, last.step)
            await service.writing.run(undo_stored_step, service, last.step)
            message = f"{tag}: undone for {count_of(last.n_photos, 'photo')}"
    else:
        message = "There is nothing to undo"

    values = await service.searching.run(_screen, service, tag, screens, marked, message)
    if do == "accept":
        await learn_by_itself(service, values)
    return render("_screen.html" if is_for_script(request) else "review_grid.html", **values)


def _screen(
    service: Service, tag: str, screens: list[Screen], marked: Collection[int] = (), message: str = ""
) -> dict[str, object]:
    """Return the values of the template: the photos, those of the next screen to load ahead, and the progress."""
    catalogue, n = service.catalogue, len(PHOTO_KEYS)
    skipped = {screen.tag for screen in screens if screen.step < 0}
    wanted = "" if tag in skipped else tag
    sure = sure_photos(catalogue.stored, 2 * n, tag=wanted, skip=skipped, tree=catalogue.tree)
    photos: list[GridPhoto] = []
    next_ids: list[int] = []
    if sure is not None:
        photos = grid_photos(catalogue, catalogue.hits(np.array(sure.images[:n], np.int64)))
        next_ids = sure.images[n:]
    return review_progress(service, sum(screen.n_photos for screen in screens)) | {
        "queue": "grid", "sure": sure, "photos": list(zip(photos, PHOTO_KEYS, strict=False)), "marked": marked,
        "next_images": next_ids, "trail": json.dumps(screens[-MAX_TRAIL:]), "last": screens[-1] if screens else None,
        "message": message, "none_of": wanted if sure is None or sure.tag != wanted else "",
    }  # fmt: skip
