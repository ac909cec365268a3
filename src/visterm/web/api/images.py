"""One image: what is known of it, its thumbnail, and why it has a tag."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Path, Query, Request
from pydantic import BeforeValidator
from starlette.responses import Response

from visterm.library.feedback import ImageView
from visterm.web.answers import json_answer
from visterm.web.schemas import ExplanationAnswer, ImageAnswer, ImageFacts, TagName, errors
from visterm.web.service import service_of
from visterm.web.thumbnails import name_of

router = APIRouter(tags=["images"])

ImageId = Annotated[int, Path(ge=0, le=2**63 - 1)]
Side = Annotated[Literal[160, 320, 640, 1280, 2560], BeforeValidator(int)]  # queries are text
KEPT = "private, max-age=3600"
"""A picture can change under its id: after an hour browsers ask again, and are told that it has not."""

STRONGEST = 50
"""Places that an explanation lists."""

_FACTS = tuple(ImageFacts.model_fields)


def view_as_dict(view: ImageView) -> dict[str, Any]:
    """Return an image as it stands in JSON."""
    found: dict[str, Any] = view.as_dict()
    found["image"] = {name: found["image"][name] for name in _FACTS}
    return found


@router.get("/images/{image_id}", response_model=ImageAnswer, responses=errors(404))
async def image(request: Request, image_id: ImageId) -> Response:
    """Return an image's file, its tags, what the run predicted, and what people said of that."""
    service = service_of(request)
    view = await service.searching.run(service.view, image_id)
    return json_answer(view_as_dict(view), headers={"cache-control": "no-store"})


@router.get(
    "/images/{image_id}/thumbnail",
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


@router.get("/images/{image_id}/explain", response_model=ExplanationAnswer, responses=errors(404))
async def explain(request: Request, image_id: ImageId, tag: Annotated[TagName, Query()]) -> Response:
    """Say which places of a picture speak for a tag, and which against it."""
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
    responses={200: {"content": {"image/png": {"schema": {"type": "string", "format": "binary"}}}}, **errors(404)},
    response_class=Response,
)
async def heat(request: Request, image_id: ImageId, tag: Annotated[TagName, Query()], size: Side = 640) -> Response:
    """Return the heat map of a tag, to be laid over the picture: warm where it speaks for it, blue where against."""
    content = await service_of(request).heat(image_id, tag, size)
    return Response(content, headers={"cache-control": "private, max-age=600"}, media_type="image/png")
