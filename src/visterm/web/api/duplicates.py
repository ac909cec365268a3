"""Pictures that look the same, in groups; nothing is deleted."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from visterm.library.duplicates import DISTANCE, MOST, find_duplicates
from visterm.web.answers import json_answer
from visterm.web.paging import cursor_at, place_of
from visterm.web.schemas import DuplicatesAnswer, errors
from visterm.web.service import service_of

router = APIRouter(tags=["duplicates"])


@router.get("/duplicates", response_model=DuplicatesAnswer, responses=errors())
async def duplicates(
    request: Request,
    distance: Annotated[int, Query(ge=0, le=MOST, description="Bits of 64 in which hashes may differ.")] = DISTANCE,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    cursor: Annotated[str | None, Query(max_length=80)] = None,
) -> Response:
    """List groups of pictures that look the same, largest first; those that the job "duplicates" has looked at."""
    service = service_of(request)
    start = place_of("groups", cursor)
    groups, _ = await service.browsing.run(find_duplicates, service.catalogue.stored, distance, look=False)
    end = start + limit
    content = {
        "groups": [group.as_dict() for group in groups[start:end]],
        "n_groups": len(groups),
        "next": cursor_at("groups", end) if end < len(groups) else None,
    }
    return json_answer(content, headers={"cache-control": "no-store"})
