"""What people say: that a tag of an image is right or wrong, and which tags it has."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from visterm.core.errors import DataError, UserError
from visterm.library.feedback import ImageView, undo_verdict, verdict_before, verdict_of
from visterm.store.tags import Verdict
from visterm.web.answers import json_answer
from visterm.web.api.images import ImageId, view_as_dict
from visterm.web.body_limit import MEDIUM, JsonRoute, takes
from visterm.web.errors import Refused
from visterm.web.schemas import ImageAnswer, TagsChange, VerdictAnswer, VerdictGiven, errors
from visterm.web.service import service_of

router = APIRouter(tags=["feedback"], route_class=JsonRoute)


@router.post("/images/{image_id}/feedback", response_model=VerdictAnswer, responses=errors(404, 408, 409, 413))
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


@router.post("/feedback/{number}/undo", response_model=VerdictAnswer, responses=errors(404, 409))
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


@router.post("/images/{image_id}/tags", response_model=ImageAnswer, responses=errors(404, 408, 409, 413))
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
