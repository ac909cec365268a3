"""The page of a photo: its tags, people's verdicts, where in the photo a tag comes from, and similar photos."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Literal

from fastapi import APIRouter, Form, Query, Request, Response

from visterm.core.errors import DataError
from visterm.core.types import Hit
from visterm.core.vocabulary import tag_key
from visterm.data.image_folders import is_video
from visterm.library.catalogue import Catalogue
from visterm.store.filters import PREDICTED_FROM
from visterm.store.images import ImageRecord
from visterm.tagging.explain import may_have_heat_maps
from visterm.web.api.images import ImageId, Moment
from visterm.web.bodies import FormText
from visterm.web.pages.form import SearchForm, grid_photos, photo_position
from visterm.web.pages.render import PageRoute, answer_form, is_for_script, local, redirect, render
from visterm.web.service import Service, ServiceDep, in_threads

router = APIRouter(include_in_schema=False, route_class=PageRoute)

Position = Annotated[int, Query(ge=0, le=10**12)]

MAX_SIMILAR = 12
MAX_PREDICTED = 20

Answer = Literal["accept", "reject", "back", "give", "take"]
MESSAGES: dict[Answer, str] = {
    "accept": "{} is right", "reject": "{} is wrong", "back": "{}: undone", "give": "{} added", "take": "{} removed",
}  # fmt: skip
"""What people can say about a tag, and the message that the page then shows."""


@router.get("/image/{image_id}")
@in_threads("searching")
def picture_page(
    image_id: ImageId, request: Request, service: ServiceDep, at: Moment = None, n: Position = 0
) -> Response:
    """Show a photo, or a video from a moment on, with links to its neighbours in the search of the address."""
    form = SearchForm.read(request.query_params)
    values = _values(service, image_id)
    position = photo_position(service.catalogue, form, image_id, n)
    return render("picture.html", query=form.q, form=form, position=position, message="", at=at, **values)


@router.post("/image/{image_id}/tags")
@in_threads("writing")
def change_tag(
    image_id: ImageId, request: Request, service: ServiceDep, tag: FormText, do: Annotated[Answer, Form()]
) -> Response:
    """Store what a person says about a tag: accept, reject, back, give or take."""
    service.record_of(image_id)
    if do == "give":
        service.catalogue.give(image_id, [tag])
    elif do == "take":
        service.catalogue.take(image_id, [tag])
    else:
        service.catalogue.judge(image_id, tag, {"accept": 1, "reject": -1, "back": 0}[do])
    message, values = MESSAGES[do].format(tag), _values(service, image_id)
    return answer_form(request, "_picture_tags.html", f"/image/{image_id}", message=message, **values)


@router.get("/image/{image_id}/alike")
@in_threads("searching")
def alike(image_id: ImageId, request: Request, service: ServiceDep) -> Response:
    """Show similar photos."""
    if not is_for_script(request):
        return redirect(local("/", like=image_id))
    hits: list[Hit] = []
    with suppress(DataError):  # a photo whose file is gone has no row to compare
        hits = service.catalogue.like(image_id, MAX_SIMILAR).hits
    return render("_alike.html", items=grid_photos(service.catalogue, hits), image_id=image_id)


def explains(catalogue: Catalogue, record: ImageRecord) -> bool:
    """Return whether the run can show where in a photo a tag comes from; videos are not explained."""
    return record.path is not None and not is_video(record.path) and may_have_heat_maps(catalogue.tagger)


def _values(service: Service, image_id: int) -> dict[str, object]:
    """Return the values of the template; tags with at least the confidence `PREDICTED_FROM` count as likely."""
    catalogue, view = service.catalogue, service.view(image_id)
    sources = {tag.tag: tag.source for tag in view.given}
    implied = {} if catalogue.tree is None else catalogue.tree.implied_by(view.tags)
    current_keys = {tag_key(tag) for tag in (*view.tags, *implied)}
    predictions = [prediction for prediction in view.predicted if tag_key(prediction.tag) not in current_keys]
    predictions = sorted(predictions, key=lambda prediction: -(prediction.confidence or 0.0))[:MAX_PREDICTED]
    likely = [item for item in predictions if item.confidence is None or item.confidence >= PREDICTED_FROM]
    return {
        "view": view, "likely": likely, "unlikely": predictions[len(likely) :], "least": PREDICTED_FROM,
        "implied": implied,
        "who": {tag.tag: tag.who for tag in view.given if tag.who} | view.judged_by,
        "current_tags": [(tag, sources.get(tag, "accepted"), tag in catalogue.tagger.vocabulary) for tag in view.tags],
        "rejected": [tag for tag, verdict in view.verdicts.items() if verdict < 0],
        "explains": view.record.state == "here" and explains(catalogue, view.record),
    }  # fmt: skip
