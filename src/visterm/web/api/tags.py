"""The tags: how often each was given, predicted, accepted and rejected; completion, neighbours, and the map."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from visterm.core.vocabulary import MOST_TAGS
from visterm.web.errors import json_answer
from visterm.web.query import cursor_at, place_of
from visterm.web.schemas import (
    CompletionsAnswer,
    NeighboursAnswer,
    TagMapAnswer,
    TagName,
    TagsAnswer,
    errors,
)
from visterm.web.service import service_of

router = APIRouter(tags=["tags"])

Count = Annotated[int, Query(ge=1, le=MOST_TAGS)]


@router.get("/tags", response_model=TagsAnswer, responses=errors())
async def tags(
    request: Request,
    sort: Literal["name", "given", "predicted"] = "name",
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
    cursor: Annotated[str | None, Query(max_length=80)] = None,
) -> Response:
    """List the tags of images and of the run, with counts."""
    service = service_of(request)
    start = place_of(sort, cursor)
    counts = await service.browsing.run(service.catalogue.tags)
    if sort == "given":
        counts.sort(key=lambda count: -count.given)
    elif sort == "predicted":
        counts.sort(key=lambda count: -count.predicted)
    end = start + limit
    content = {
        "tags": [count.as_dict() for count in counts[start:end]],
        "n_tags": len(counts),
        "next": cursor_at(sort, end) if end < len(counts) else None,
    }
    return json_answer(content, headers={"cache-control": "no-store"})


@router.get("/tags/complete", response_model=CompletionsAnswer, responses=errors())
async def complete(request: Request, prefix: Annotated[str, Query(max_length=200)] = "", k: Count = 10) -> Response:
    """Find the tags that begin with what was typed so far, or have a word that does."""
    service = service_of(request)
    found = await service.searching.run(service.complete, prefix, k)
    return json_answer({"tags": [completion._asdict() for completion in found]})


@router.get("/tags/neighbours", response_model=NeighboursAnswer, responses=errors())
async def neighbours(request: Request, tag: Annotated[TagName, Query()], k: Count = 10) -> Response:
    """Find the tags nearest to one in the model's space, by cosine."""
    service = service_of(request)
    found = await service.browsing.run(service.catalogue.tagger.neighbours, tag, k)
    return json_answer({"tag": tag, "neighbours": [neighbour._asdict() for neighbour in found]})


@router.get("/tags/map", response_model=TagMapAnswer, responses=errors())
async def tag_map(request: Request) -> Response:
    """Place the tags in a plane, so that those that the model holds for alike lie together."""
    found = await service_of(request).tag_map()
    return json_answer({"tags": [placed._asdict() for placed in found]})
