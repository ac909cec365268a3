"""Search by words, by another image, or by what images are; and the tags of pictures that are sent."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from visterm.core.errors import ImageError
from visterm.core.types import Hit, Tag
from visterm.core.vocabulary import MOST_TAGS
from visterm.library.search import Found
from visterm.store.filters import Filter
from visterm.web.batching import HowMany
from visterm.web.body_limit import takes_pictures
from visterm.web.errors import Refused, answer_to, json_answer
from visterm.web.query import cursor_at, described, place_of, read_query
from visterm.web.schemas import AnnotateAnswer, SearchAnswer, TagName, errors
from visterm.web.service import service_of
from visterm.web.uploads import BODY, read_uploads

router = APIRouter()

LARGEST = 2**63 - 1
DEEPEST = 10_000
"""Images that can be paged through: nobody looks further than that."""

Date = Annotated[str, Field(pattern=r"^\d{4}(-\d\d(-\d\d(T\d\d(:\d\d(:\d\d)?)?)?)?)?$", max_length=19)]
Bytes = Annotated[int, Field(ge=0, le=LARGEST)]
Tags = Annotated[list[TagName], Field(max_length=20)]

Share = Annotated[float | None, Query(gt=0, lt=1)]


class FilterQuery(BaseModel):
    """What images have to be; the folder is compared with what the catalogue has, and never opened."""

    tag: Tags = []
    without: Tags = []
    predicted: Tags = []
    min_predicted: float | None = Field(None, ge=0, le=1, description="Least confidence of the predicted ones.")
    folder: str | None = Field(None, max_length=4096)
    taken_from: Date | None = Field(None, description="A year, month, day or time.")
    taken_to: Date | None = Field(None, description="Included, to the end of what it names.")
    min_bytes: Bytes | None = None
    max_bytes: Bytes | None = None
    file_type: str | None = Field(None, max_length=20, examples=["jpeg"])
    unreviewed: bool = False
    limit: int = Field(50, ge=1, le=200, description="Images of one page.")

    def among(self) -> Filter:
        """Return the filter that is meant."""
        return Filter(
            tags=tuple(self.tag),
            without=tuple(self.without),
            predicted=tuple(self.predicted),
            min_confidence=self.min_predicted,
            folder=self.folder or None,
            taken_from=self.taken_from,
            taken_to=self.taken_to,
            min_bytes=self.min_bytes,
            max_bytes=self.max_bytes,
            file_type=self.file_type or None,
            unreviewed=self.unreviewed,
        )


class SearchQuery(FilterQuery):
    """A search: by words, like an image, or neither."""

    q: str = Field("", max_length=1000, description='Words as typed: `snow tree -people "polar bear"`.')
    like: int | None = Field(None, ge=0, le=LARGEST, description="Id of an image: find similar ones, in place of `q`.")
    cursor: str | None = Field(None, max_length=80, description="'next' of the page before.")
    combine: Literal["sum", "product", "confidence"] | None = None
    cutoff: bool = Field(False, description="Leave out images below the rank where F1 is expected to be largest.")
    min_confidence: float | None = Field(None, ge=0, lt=1)


@router.get(
    "/search",
    tags=["search"],
    response_model=SearchAnswer,
    responses=errors(404, 409),
    openapi_extra=described(SearchQuery),
)
async def search(request: Request) -> Response:
    """Find images by words, or like another, among those that pass filters; without either, list those that pass."""
    service = service_of(request)
    asked = read_query(request, SearchQuery)
    words = asked.q.strip()
    if words and asked.like is not None:
        raise Refused(422, "Send words ('q') or an image to be like ('like'), and not both.", field="like")
    kind = "words" if words else "all" if asked.like is None else "like"
    start = place_of(kind, asked.cursor, -1 if kind == "all" else 0)
    if kind != "all" and start > DEEPEST:
        raise Refused(422, f"Searches can be paged through up to {DEEPEST:,} images.", field="cursor")

    def find() -> Found:
        catalogue, among = service.catalogue, asked.among()
        if words:
            limits: Any = {"combine": asked.combine, "cutoff": asked.cutoff, "min_confidence": asked.min_confidence}
            return catalogue.search(words, start + asked.limit + 1, among=among, **limits)
        if asked.like is not None:
            service.known(asked.like)
            return catalogue.like(asked.like, start + asked.limit + 1, among=among)
        return catalogue.browse(among, asked.limit + 1, after=start)

    return _answer(await service.searching.run(find), kind, start, asked.limit)


SIMILAR = {**BODY, **described(FilterQuery)}


@router.post(
    "/similar",
    tags=["search"],
    response_model=SearchAnswer,
    responses=errors(408, 409, 413, 415),
    openapi_extra=SIMILAR,
)
@takes_pictures
async def similar(request: Request) -> Response:
    """Find images that are similar to a picture that is sent; it is not kept."""
    service = service_of(request)
    asked = read_query(request, FilterQuery)
    (picture,) = await read_uploads(request, 1)
    pixels = await service.pixels(picture.content)
    found = await service.encoding.run(service.catalogue.like, pixels, asked.limit, among=asked.among())
    return _answer(found, "like", 0, asked.limit)


def _answer(found: Found, kind: str, start: int, limit: int) -> Response:
    hits = [hit_as_dict(hit) for hit in found.hits]
    if kind == "all":
        shown = [hit | {"score": None} for hit in hits[:limit]]
        following = shown[-1]["id"] if len(hits) > limit else None
    else:
        shown = hits[start : start + limit]
        following = start + limit if len(hits) > start + limit <= DEEPEST else None
    content = {
        "hits": shown,
        "unknown": found.unknown,
        "untrained": list(found.untrained),
        "n_likely": found.n_likely,
        "next": None if following is None else cursor_at(kind, following),
    }
    return json_answer(content, headers={"cache-control": "no-store"})


def hit_as_dict(hit: Hit) -> dict[str, Any]:
    """Return a hit as it stands in JSON."""
    found = {
        "id": hit.id,
        "image": hit.image,
        "score": hit.score,
        "thumbnail": f"/api/v1/images/{hit.id}/thumbnail",
    }
    if hit.confidence is not None:
        found["confidence"] = hit.confidence
    if hit.source is not None:
        found["source"] = hit.source
    return found


@router.post(
    "/annotate", tags=["annotate"], response_model=AnnotateAnswer, responses=errors(408, 413, 415), openapi_extra=BODY
)
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
