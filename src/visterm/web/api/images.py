"""Images: what is known of each, its thumbnail and why it has a tag; what people say of its tags; and duplicates."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Path, Query, Request
from pydantic import BeforeValidator
from starlette.responses import Response

from visterm.core.errors import DataError, UserError
from visterm.library.duplicates import DISTANCE, MOST, find_duplicates
from visterm.library.feedback import ImageView, undo_verdict, verdict_before, verdict_of
from visterm.store.tags import Verdict
from visterm.web.body_limit import MEDIUM, JsonRoute, takes
from visterm.web.decoding import name_of
from visterm.web.errors import Refused, json_answer
from visterm.web.query import cursor_at, place_of
from visterm.web.schemas import (
    DuplicatesAnswer,
    ExplanationAnswer,
    ImageAnswer,
    ImageFacts,
    TagName,
    TagsChange,
    VerdictAnswer,
    VerdictGiven,
    errors,
)
from visterm.web.service import service_of

router = APIRouter(route_class=JsonRoute)

ImageId = Annotated[int, Path(ge=0, le=2**63 - 1)]
Side = Annotated[Literal[160, 320, 640, 1280, 2560], BeforeValidator(int)]  # queries are text
KEPT = "private, max-age=3600"
"""A picture can change under its id: after an hour browsers ask again, and get a short answer if it has not."""

STRONGEST = 50
"""Places that an explanation lists."""

_FACTS = tuple(ImageFacts.model_fields)


def view_as_dict(view: ImageView) -> dict[str, Any]:
    """Return an image as it stands in JSON."""
    found: dict[str, Any] = view.as_dict()
    found["image"] = {name: found["image"][name] for name in _FACTS}
    return found


@router.get("/images/{image_id}", tags=["images"], response_model=ImageAnswer, responses=errors(404))
async def image(request: Request, image_id: ImageId) -> Response:
    """Return an image's file, its tags, what the run predicted, and what people said of that."""
    service = service_of(request)
    view = await service.searching.run(service.view, image_id)
    return json_answer(view_as_dict(view), headers={"cache-control": "no-store"})


@router.get(
    "/images/{image_id}/thumbnail",
    tags=["images"],
    responses={
        200: {"content": {"image/jpeg": {"schema": {"type": "string", "format": "binary"}}}},
        304: {"description": "The client has it already."},
        **errors(404),
    },
    response_class=Response,
)
async def thumbnail(
    request: Request,
    image_id: ImageId,
    size: Annotated[Side, Query(description="Longest side, in pixels; small pictures are not enlarged.")] = 320,
) -> Response:
    """Return a picture as a JPEG without the metadata of its file."""
    service = service_of(request)
    record = await service.searching.run(service.known, image_id)
    name = name_of(record.sha256, size)
    headers = {"etag": name, "cache-control": KEPT}
    if name in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    path = await service.searching.run(service.file_of, image_id)
    content = await service.thumbnails.get(path, name, size)
    return Response(content, headers=headers, media_type="image/jpeg")


@router.get("/images/{image_id}/explain", tags=["images"], response_model=ExplanationAnswer, responses=errors(404))
async def explain(request: Request, image_id: ImageId, tag: Annotated[TagName, Query()]) -> Response:
    """Return which places of a picture speak for a tag, and which against it."""
    found = await service_of(request).explain(image_id, tag)
    width, height = found.size
    strongest = sorted(found.places, key=lambda place: -abs(place.share))[:STRONGEST]
    content = {
        "id": image_id,
        "tag": found.tag,
        "score": found.score,
        "rank": found.rank,
        "n_tags": found.n_tags,
        "from_places": sum(place.share for place in found.places),
        "elsewhere": found.elsewhere,
        "explained_by": found.explained_by,
        "strongest": [
            {
                **asdict(place),
                "left": place.left / width,
                "right": place.right / width,
                "top": place.top / height,
                "bottom": place.bottom / height,
            }
            for place in strongest
        ],
        "heat": f"/api/v1/images/{image_id}/heat?{urlencode({'tag': found.tag})}",
    }
    return json_answer(content)


@router.get(
    "/images/{image_id}/heat",
    tags=["images"],
    responses={200: {"content": {"image/png": {"schema": {"type": "string", "format": "binary"}}}}, **errors(404)},
    response_class=Response,
)
async def heat(request: Request, image_id: ImageId, tag: Annotated[TagName, Query()], size: Side = 640) -> Response:
    """Return the heat map of a tag, to be laid over the picture: warm where it speaks for it, blue where against."""
    content = await service_of(request).heat(image_id, tag, size)
    return Response(content, headers={"cache-control": "private, max-age=600"}, media_type="image/png")


@router.post(
    "/images/{image_id}/feedback", tags=["feedback"], response_model=VerdictAnswer, responses=errors(404, 408, 409, 413)
)
async def judge(request: Request, image_id: ImageId, given: VerdictGiven) -> Response:
    """Write down whether a tag of an image is right; a rejected tag does not come back for that image."""
    service = service_of(request)

    def write() -> tuple[Verdict, int]:
        service.known(image_id)
        stored = service.catalogue.stored
        entry = verdict_of(stored, service.catalogue.judge(image_id, given.tag, given.verdict))
        return entry, verdict_before(stored, entry)

    entry, before = await service.writing.run(write)
    return _answer(entry, before)


@router.post("/feedback/{number}/undo", tags=["feedback"], response_model=VerdictAnswer, responses=errors(404, 409))
async def undo(request: Request, number: Annotated[int, Path(ge=0, le=2**63 - 1)]) -> Response:
    """Take back an entry of the log of feedback: what had been said before holds again."""
    service = service_of(request)

    def write() -> tuple[Verdict, Verdict]:
        stored = service.catalogue.stored
        try:
            undone = verdict_of(stored, number)
            return undo_verdict(stored, number), undone
        except DataError as error:
            raise Refused(404, str(error)) from error
        except UserError as error:
            raise Refused(409, str(error)) from error

    entry, undone = await service.writing.run(write)
    return _answer(entry, undone.verdict)


@router.post(
    "/images/{image_id}/tags", tags=["feedback"], response_model=ImageAnswer, responses=errors(404, 408, 409, 413)
)
@takes(MEDIUM)
async def change_tags(request: Request, image_id: ImageId, change: TagsChange) -> Response:
    """Return tags to an image, any words, and take tags from it; all of it or nothing."""
    service = service_of(request)

    def write() -> ImageView:
        service.known(image_id)
        with service.catalogue.stored.database.transaction():
            if change.give:
                service.catalogue.give(image_id, change.give)
            if change.take:
                service.catalogue.take(image_id, change.take)
            return service.view(image_id)

    return json_answer(view_as_dict(await service.writing.run(write)), headers={"cache-control": "no-store"})


def _answer(entry: Verdict, before: int) -> Response:
    content = {
        "id": entry.id,
        "image_id": entry.image_id,
        "tag": entry.tag,
        "verdict": entry.verdict,
        "before": before,
    }
    return json_answer(content, headers={"cache-control": "no-store"})


@router.get("/duplicates", tags=["duplicates"], response_model=DuplicatesAnswer, responses=errors())
async def duplicates(
    request: Request,
    distance: Annotated[int, Query(ge=0, le=MOST, description="Bits of 64 in which hashes may differ.")] = DISTANCE,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    cursor: Annotated[str | None, Query(max_length=80)] = None,
) -> Response:
    """List groups of pictures that look the same, largest first; those that the job "duplicates" has looked at."""
    service = service_of(request)
    start = place_of("groups", cursor)
    found = await service.browsing.run(find_duplicates, service.catalogue.stored, distance, look=False)
    groups = found.groups
    end = start + limit
    content = {
        "groups": [group.as_dict() for group in groups[start:end]],
        "n_groups": len(groups),
        "next": cursor_at("groups", end) if end < len(groups) else None,
    }
    return json_answer(content, headers={"cache-control": "no-store"})
