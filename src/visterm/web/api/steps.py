"""Tags of many photos at once: added, removed or judged in one request, all or nothing, and undone in one."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from visterm.core.errors import DataError, UserError
from visterm.core.vocabulary import MOST_TAGS
from visterm.library.steps import MOST_PHOTOS, Step, tag_photos, undo_step
from visterm.store.filters import LARGEST
from visterm.web.body_limit import MEDIUM, JsonRoute, takes
from visterm.web.errors import Refused, json_answer
from visterm.web.schemas import RequestBody, TagName, errors
from visterm.web.service import Service, service_of

router = APIRouter(route_class=JsonRoute)

StepNumber = Annotated[int, Path(ge=0, le=LARGEST, description="Number of the step, as it was answered.")]
Tags = Annotated[list[TagName], Field(max_length=MOST_TAGS)]


class PhotosChange(RequestBody):
    """What to say of tags of several photos."""

    images: list[Annotated[int, Field(ge=0, le=LARGEST)]] = Field(
        min_length=1, max_length=MOST_PHOTOS, description="Ids of the photos."
    )
    give: Tags = Field([], description="Tags to add; any words are accepted.")
    take: Tags = Field([], description="Tags to remove.")
    right: Tags = Field([], description="Tags that are right for all these photos.")
    wrong: Tags = Field([], description="Tags that are wrong for all these photos.")


class StepAnswer(BaseModel):
    """A step that was stored, or undone."""

    step: int = Field(description="Number of the step; `POST /steps/{number}/undo` undoes it.")
    images: int = Field(description="Photos that it was about.")
    changed: int = Field(description="Photos whose tags or verdicts have changed by it.")


@router.post("/images/tags", tags=["feedback"], response_model=StepAnswer, responses=errors(404, 408, 409, 413))
@takes(MEDIUM)
async def change_many(request: Request, change: PhotosChange) -> Response:
    """Add tags to photos, remove tags, or say that tags are right or wrong: all of it or nothing."""
    service = service_of(request)
    tags = {name: getattr(change, name) for name in ("give", "take", "right", "wrong")}
    return _answer(await stored_step(service, change.images, **tags))


@router.post("/steps/{number}/undo", tags=["feedback"], response_model=StepAnswer, responses=errors(404, 409))
async def undo_tags(request: Request, number: StepNumber) -> Response:
    """Undo a step: all its photos are as they were before.

    A step can't be undone twice, nor if something else has been said of the same tags of its photos since.
    """
    return _answer(await undone_step(service_of(request), number))


async def stored_step(service: Service, images: list[int], **tags: list[str]) -> Step:
    """Store a step; see `tag_photos`. Raises Refused (404) for a photo that there isn't."""

    def write() -> Step:
        try:
            return tag_photos(service.catalogue, images, **tags)
        except DataError as error:
            raise Refused(404, str(error)) from error

    return await service.writing.run(write)


async def undone_step(service: Service, number: int) -> Step:
    """Undo a step. Raises Refused: 404 if there is no such step, 409 if it can't be undone (any more)."""

    def write() -> Step:
        try:
            return undo_step(service.catalogue, number)
        except DataError as error:
            raise Refused(404, str(error)) from error
        except UserError as error:
            raise Refused(409, str(error)) from error

    return await service.writing.run(write)


def _answer(step: Step) -> Response:
    content = {"step": step.number, "images": len(step.images), "changed": step.changed}
    return json_answer(content, headers={"cache-control": "no-store"})
