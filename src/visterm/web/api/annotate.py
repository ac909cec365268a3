"""Tags for pictures that are sent; they are not kept."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from visterm.core.errors import ImageError
from visterm.core.types import Tag
from visterm.core.vocabulary import MOST_TAGS
from visterm.web.annotating import HowMany
from visterm.web.answers import json_answer
from visterm.web.body_limit import takes_pictures
from visterm.web.errors import answer_to
from visterm.web.schemas import AnnotateAnswer, errors
from visterm.web.service import service_of
from visterm.web.uploads import BODY, read_uploads

router = APIRouter(tags=["annotate"])

Share = Annotated[float | None, Query(gt=0, lt=1)]


@router.post("/annotate", response_model=AnnotateAnswer, responses=errors(408, 413, 415), openapi_extra=BODY)
@takes_pictures
async def annotate(
    request: Request,
    k: Annotated[int | None, Query(ge=1, le=MOST_TAGS, description="Tags of a picture, at most.")] = None,
    precision: Annotated[Share, Query(description="As many tags as keep this precision, as is expected.")] = None,
    best_f1: bool = False,
    min_confidence: Share = None,
) -> Response:
    """Return tags to one or more pictures: those that can be read, as long as one can."""
    service = service_of(request)
    uploads = await read_uploads(request, service.bounds.pictures)
    how = HowMany(precision, best_f1, min_confidence)
    asked = [service.annotate(upload.content, k, how) for upload in uploads]
    found: list[list[Tag] | BaseException] = await asyncio.gather(*asked, return_exceptions=True)
    images: list[dict[str, Any]] = []
    skipped: list[dict[str, Any]] = []
    for upload, tags in zip(uploads, found, strict=True):
        if isinstance(tags, ImageError):
            skipped.append({"image": upload.name, "reason": tags.reason})
        elif isinstance(tags, BaseException):
            raise tags
        else:
            images.append({"image": upload.name, "tags": [tag.as_dict() for tag in tags]})
    if not images:
        first = next(tags for tags in found if isinstance(tags, Exception))
        return answer_to(first)
    return json_answer({"images": images, "skipped": skipped})
