"""Search: by words, by another image, or by what images are."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

from visterm.app.catalogue_search import Found
from visterm.core.types import Hit
from visterm.store.filters import Filter
from visterm.web.answers import json_answer
from visterm.web.errors import Refused
from visterm.web.paging import cursor_at, place_of
from visterm.web.schemas import SearchAnswer, TagName, errors
from visterm.web.service import service_of
from visterm.web.uploads import BODY, read_uploads

router = APIRouter(tags=["search"])

LARGEST = 2**63 - 1
DEEPEST = 10_000
"""Images that can be paged through: whoever wants more wants another search."""

Date = Annotated[str | None, Query(pattern=r"^\d{4}(-\d\d(-\d\d(T\d\d(:\d\d(:\d\d)?)?)?)?)?$", max_length=19)]
Bytes = Annotated[int | None, Query(ge=0, le=LARGEST)]
Id = Annotated[int | None, Query(ge=0, le=LARGEST)]
Limit = Annotated[int, Query(ge=1, le=200, description="Images of one page.")]
Cursor = Annotated[str | None, Query(max_length=80, description="'next' of the page before.")]
Tags = Annotated[list[TagName] | None, Query(max_length=20)]


def read_filter(
    tag: Tags = None,
    without: Tags = None,
    predicted: Tags = None,
    min_predicted: Annotated[float | None, Query(ge=0, le=1)] = None,
    folder: Annotated[str | None, Query(max_length=4096)] = None,
    taken_from: Date = None,
    taken_to: Date = None,
    min_bytes: Bytes = None,
    max_bytes: Bytes = None,
    file_type: Annotated[str | None, Query(max_length=20)] = None,
    unreviewed: bool = False,
) -> Filter:
    """Read what images have to be; the folder is compared with what the catalogue has, and never opened."""
    return Filter(
        tags=tuple(tag or ()),
        without=tuple(without or ()),
        predicted=tuple(predicted or ()),
        min_confidence=min_predicted,
        folder=folder or None,
        taken_from=taken_from,
        taken_to=taken_to,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        file_type=file_type or None,
        unreviewed=unreviewed,
    )


Among = Annotated[Filter, Depends(read_filter)]


@router.get("/search", response_model=SearchAnswer, responses=errors(404, 409))
async def search(
    request: Request,
    among: Among,
    q: Annotated[str, Query(max_length=1000, description='As typed: `snow tree -people "polar bear"`.')] = "",
    like: Annotated[Id, Query(description="The id of an image: find similar ones, in place of `q`.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    combine: Annotated[str | None, Query(pattern="^(sum|product|confidence)$")] = None,
    cutoff: bool = False,
    min_confidence: Annotated[float | None, Query(ge=0, lt=1)] = None,
) -> Response:
    """Find images by words, or like another, among those that pass filters; without either, list those that pass."""
    service = service_of(request)
    words = q.strip()
    if words and like is not None:
        raise Refused(422, "Give words ('q') or an image to be like ('like'), and not both.", field="like")
    kind = "words" if words else "like" if like is not None else "all"
    start = place_of(kind, cursor, -1 if kind == "all" else 0)
    if kind != "all" and start > DEEPEST:
        raise Refused(422, f"Searches can be paged through up to {DEEPEST:,} images.", field="cursor")

    def find() -> Found:
        catalogue = service.catalogue
        if kind == "words":
            limits: Any = {"combine": combine, "cutoff": cutoff, "min_confidence": min_confidence}
            return catalogue.search(words, start + limit + 1, among=among, **limits)
        if like is not None:
            service.known(like)
            return catalogue.like(like, start + limit + 1, among=among)
        return catalogue.browse(among, limit + 1, after=start)

    found = await service.searching.run(find)
    return _answer(found, kind, start, limit)


@router.post("/similar", response_model=SearchAnswer, responses=errors(408, 409, 413, 415), openapi_extra=BODY)
async def similar(request: Request, among: Among, limit: Limit = 50) -> Response:
    """Find images that are similar to a picture that is sent; it is not kept."""
    service = service_of(request)
    (picture,) = await read_uploads(request, 1)
    pixels = await service.pixels(picture.content)
    found = await service.encoding.run(service.catalogue.like, pixels, limit, among=among)
    return _answer(found, "like", 0, limit)


def _answer(found: Found, kind: str, start: int, limit: int) -> Response:
    shown = found.hits[start if kind != "all" else 0 :][:limit]
    end = shown[-1].id if kind == "all" and shown else start + limit
    more = len(found.hits) > (limit if kind == "all" else start + limit) and (kind == "all" or end <= DEEPEST)
    content = {
        "hits": [hit_as_dict(hit) | ({"score": None} if kind == "all" else {}) for hit in shown],
        "unknown": found.unknown,
        "untrained": list(found.untrained),
        "n_likely": found.n_likely,
        "next": cursor_at(kind, end or 0) if more else None,
    }
    return json_answer(content, headers={"cache-control": "no-store"})


def hit_as_dict(hit: Hit) -> dict[str, Any]:
    """Give a hit as it stands in JSON."""
    found = {
        "id": hit.id,
        "image": hit.image,
        "score": hit.score,
        "thumbnail": f"/api/v1/images/{hit.id}/thumbnail",
    }
    if hit.confidence is not None:
        found["confidence"] = hit.confidence
    return found
