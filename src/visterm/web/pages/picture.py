"""The page of a picture: its tags, what people say of them, where they come from in it, and pictures like it."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Form, Request
from starlette.responses import Response

from visterm.core.errors import DataError, UserError
from visterm.core.vocabulary import tag_key
from visterm.library.catalogue import Catalogue
from visterm.library.feedback import ImageView
from visterm.tagging.explain import check_explains
from visterm.web.api.images import ImageId
from visterm.web.errors import Refused
from visterm.web.pages.render import PageRoute, local, render, send_on, wants_part
from visterm.web.pages.search import Shared, shown
from visterm.web.pages.shelf import kept_of

router = APIRouter(include_in_schema=False, route_class=PageRoute)

ALIKE = 12
MOST_PREDICTED = 20

SAID = {
    "accept": "{} is right",
    "reject": "{} is wrong",
    "back": "{}: taken back",
    "give": "{} added",
    "take": "{} removed",
}
"""What a person can say of a tag, and what the page then shows."""


class Held(NamedTuple):
    """A tag that the picture has: from "file", "person", or "accepted"; and whether the run has learned it."""

    tag: str
    source: str
    learned: bool


@router.get("/image/{image_id}")
async def picture_page(image_id: ImageId, request: Request, service: Shared, q: str = "") -> Response:
    """Show a picture."""
    values = await service.searching.run(_values, service.catalogue, image_id)
    return render("picture.html", query=q, said="", **values)


@router.post("/image/{image_id}/tags")
async def say_of_tag(
    image_id: ImageId, request: Request, service: Shared, tag: Annotated[str, Form()], do: Annotated[str, Form()]
) -> Response:
    """Take what a person says of a tag: accept, reject, back, give or take."""
    if do not in SAID:
        raise Refused(422, f"do is {do!r}; expected one of {', '.join(SAID)}.", field="do")
    await service.writing.run(_say, service.catalogue, image_id, tag, do)
    if not wants_part(request):
        return send_on(f"/image/{image_id}")
    values = await service.searching.run(_values, service.catalogue, image_id)
    return render("_picture_tags.html", said=SAID[do].format(tag), **values)


@router.get("/image/{image_id}/alike")
async def alike(image_id: ImageId, request: Request, service: Shared) -> Response:
    """Show pictures like one."""
    if not wants_part(request):
        return send_on(local("/", like=image_id))
    items = await service.searching.run(_alike, service.catalogue, image_id)
    return render("_alike.html", items=items, image_id=image_id)


def explains(catalogue: Catalogue) -> bool:
    """Return whether the scores of the run can be taken apart by places of a picture."""
    try:
        check_explains(catalogue.tagger)
    except UserError:
        return False
    return True


def _values(catalogue: Catalogue, image_id: int) -> dict[str, Any]:
    view = known(catalogue, image_id)
    sources = {tag.tag: tag.source for tag in view.given}
    held = [Held(tag, sources.get(tag, "accepted"), tag in catalogue.tagger.vocabulary) for tag in view.tags]
    there = {tag_key(tag) for tag in view.tags}
    predicted = [found for found in view.predicted if tag_key(found.tag) not in there]
    return {
        "view": view,
        "held": held,
        "predicted": sorted(predicted, key=lambda found: -(found.confidence or 0.0))[:MOST_PREDICTED],
        "rejected": [tag for tag, verdict in view.verdicts.items() if verdict < 0],
        "explains": view.record.path is not None and view.record.state == "here" and explains(catalogue),
    }


def known(catalogue: Catalogue, image_id: int) -> ImageView:
    """Return an image, or say that there is none of the number."""
    try:
        return catalogue.image(image_id)
    except (DataError, OverflowError):
        raise Refused(404, f"There is no picture {image_id} in this catalogue.") from None


def _say(catalogue: Catalogue, image_id: int, tag: str, do: str) -> None:
    known(catalogue, image_id)
    if do == "give":
        catalogue.give(image_id, [tag])
    elif do == "take":
        catalogue.take(image_id, [tag])
    else:
        catalogue.judge(image_id, tag, {"accept": 1, "reject": -1, "back": 0}[do])
    kept_of(catalogue).forget("counts")


def _alike(catalogue: Catalogue, image_id: int) -> list[Any]:
    try:
        return shown(catalogue, catalogue.like(image_id, ALIKE).hits)
    except DataError:  # a picture that is gone has no row to compare
        return []
