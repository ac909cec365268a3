"""Photos: tags, thumbnails and explanations; verdicts and tags for one photo or for many; and duplicates."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Path, Query, Request
from pydantic import BeforeValidator, Field
from starlette.responses import FileResponse, Response

from visterm.core.errors import DataError, UserError
from visterm.core.remote import is_remote
from visterm.core.vocabulary import MAX_TAGS
from visterm.data.image_folders import is_video, suffix_of
from visterm.library.duplicates import DEFAULT_DISTANCE, MAX_DISTANCE, find_duplicates
from visterm.library.feedback import ImageView, feedback_entry, undo_verdict, verdict_before
from visterm.library.steps import MAX_PHOTOS, Step, tag_photos, undo_step
from visterm.store.filters import MAX_INT
from visterm.store.tags import Verdict
from visterm.web.bodies import MEDIUM_BODY, JsonRoute, allow_body
from visterm.web.decoding import etag_of
from visterm.web.errors import HttpError, error_statuses, json_answer
from visterm.web.query import Cursor, Limit, OneTag, page_from, position_of
from visterm.web.schemas import (
    Id,
    ImageName,
    Next,
    RequestBody,
    Score,
    Tag,
    TagName,
    answer,
    errors,
    file_answers,
    listed,
)
from visterm.web.service import Service, ServiceDep, in_threads

router = APIRouter(route_class=JsonRoute)

ImageId = Annotated[int, Path(ge=0, le=2**63 - 1, description="Id of the photo.")]
# There are few sides, so that all pages share the thumbnails in memory.
Side = Annotated[
    Literal[160, 320, 640, 1280, 2560],
    BeforeValidator(int),  # queries are text
    Query(description="Longest side in pixels. Smaller photos are not enlarged."),
]
Moment = Annotated[
    float | None,
    Query(
        ge=0, le=1e6, allow_inf_nan=False,
        description="For a video: seconds from its beginning. Default: the first frame.",
    ),
]  # fmt: skip
VIDEO_TYPES = {
    ".mp4": "video/mp4", ".m4v": "video/mp4", ".mov": "video/quicktime", ".webm": "video/webm", ".ogv": "video/ogg",
    ".mkv": "video/x-matroska", ".3gp": "video/3gpp", ".avi": "video/x-msvideo", ".mpg": "video/mpeg",
    ".mpeg": "video/mpeg",
}  # fmt: skip
BROWSER_TYPES = {
    ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".jpe": "image/jpeg", ".jfif": "image/jpeg", ".png": "image/png",
    ".apng": "image/apng", ".gif": "image/gif", ".webp": "image/webp", ".bmp": "image/bmp", ".avif": "image/avif",
}  # fmt: skip
"""Formats that all browsers show."""

UNDO_STATUSES = {DataError: 404, UserError: 409}
"""404: nothing has this number; 409: it can't be undone (any more)."""

CACHE_AN_HOUR = "private, max-age=3600"
"""The photo of an id can change: after an hour browsers ask again, and get a short answer if it is the same."""

VerdictNumber = Annotated[int, Path(ge=0, le=2**63 - 1, description="Number of the verdict: the `id` of the answer.")]
MAX_PLACES = 50  # Places that an explanation lists
StepNumber = Annotated[int, Path(ge=0, le=MAX_INT, description="Number of the step, from the answer that stored it.")]
Tags = Annotated[list[TagName], Field(max_length=MAX_TAGS)]

ImageFacts = answer(
    "ImageFacts", "A photo's file.",
    id=Id,
    path=(str | None, "Path or address of the file; null if the catalogue has none."),
    link=(
        str | None,
        "The photo's page in the program that the catalogue is connected to; `path` is then a preview's.", None,
    ),
    name=ImageName,
    n_bytes=(int, "Size of the file in bytes."),
    width=(int, "Width in pixels."), height=(int, "Height in pixels."),
    file_type=(str, "Type of the file, such as jpeg."),
    taken=(str | None, "When the photo was taken, by its EXIF data."),
    camera=(str | None, "The camera, by the EXIF data; empty if they name none."),
    latitude=(float | None, "Where the photo was taken, in degrees north, by its EXIF data."),
    longitude=(float | None, "Degrees east."),
    added=(str, "When the photo was added to the catalogue (UTC)."),
    state=(Literal["here", "gone"], "Whether the file was there when it was last looked for."),
    reviewed=(str | None, "When a person last reviewed the photo (UTC)."),
)  # fmt: skip

GivenTagAnswer = answer(
    "GivenTagAnswer", "A tag from people.",
    tag=Tag,
    source=(str, '"file": from the photo, its sidecar or a tag file; "person": added here.'),
    who=(str, "Who added it; empty if that isn't known."),
)  # fmt: skip

PredictionAnswer = answer(
    "PredictionAnswer", "A tag that the run predicted when the photo was indexed.",
    tag=Tag, score=Score,
    confidence=(float | None, "Probability that the tag is right (0-1); null if the run has no confidences."),
)  # fmt: skip

WrittenTagAnswer = answer(
    "WrittenTagAnswer", "A tag that `visterm export` wrote into a file.",
    image_id=Id, tag=Tag,
    target=(str, "The kind of file, such as xmp."),
    at=(str, "When it was written (UTC)."),
)  # fmt: skip

ImageAnswer = answer(
    "ImageAnswer", "A photo with its tags.",
    image=(ImageFacts, "The file."),
    tags=(list[str], "The tags that the photo has: given or accepted, and not rejected."),
    given=listed(GivenTagAnswer, "Tags from tag files and people."),
    predicted=listed(PredictionAnswer, "The model's best tags, best first, without rejected ones."),
    verdicts=(dict[str, int], "Tags that people accepted (1) or rejected (-1)."),
    judged_by=(dict[str, str], "Who said so, for the verdicts of which that is known."),
    written=listed(WrittenTagAnswer, "Tags that were written into files."),
)  # fmt: skip

VerdictAnswer = answer(
    "VerdictAnswer", "The verdict that was stored.",
    id=(int, "Number of the verdict; `POST /feedback/{number}/undo` undoes it."),
    image_id=Id, tag=Tag,
    verdict=(int, "1 right, -1 wrong, 0 no verdict."),
    before=(int, "The previous verdict; 0 if there was none."),
    who=(str, "Who said so; empty if that isn't known."),
)  # fmt: skip

ExplanationAnswer = answer(
    "ExplanationAnswer", "Where in a photo the score of a tag comes from.",
    id=Id, tag=Tag, score=Score,
    rank=(int, "Rank of the tag for this photo, from 1."),
    n_tags=(int, "Number of tags that were ranked."),
    from_places=(float, "Sum of what all places in the photo add to the score."),
    elsewhere=(dict[str, float], "Shares without a place, such as the model's bias, by name."),
    **{"from": (list[str], "Models that the shares come from; for a blend, its members.")},
    strongest=(
        list[dict[str, float]],
        "The places that count most: edges from 0 to 1, and `share`, which is negative if they lower the score.",
    ),
    heat=(str | None, "Address of the heat map; null if there is none."),
    no_heat=(str | None, "Why there is no heat map."),
)  # fmt: skip

DuplicateAnswer = answer(
    "DuplicateAnswer", "A photo in a group of duplicates.",
    id=Id, image=ImageName,
    path=(str | None, "Path or address of the file."),
    width=(int, "Width in pixels."), height=(int, "Height in pixels."),
    bytes=(int, "Size of the file in bytes."),
    distance=(int | None, "Bits (of 64) in which its hash differs from that of `keep`.", None),
    same_bytes=(bool | None, "Whether its file is the same as that of `keep`, byte by byte.", None),
)  # fmt: skip

DuplicateGroupAnswer = answer(
    "DuplicateGroupAnswer", "Photos that look the same.",
    keep=(DuplicateAnswer, "The photo with the most pixels."),
    copies=listed(DuplicateAnswer, "The other photos, most similar first."),
)  # fmt: skip

DuplicatesAnswer = answer(
    "DuplicatesAnswer", "One page of the groups of duplicates.",
    groups=listed(DuplicateGroupAnswer, "The groups, largest first."),
    n_groups=(int, "Number of groups on all pages."),
    next=Next,
)  # fmt: skip


class VerdictRequest(RequestBody):
    """A person's verdict on a tag of a photo."""

    tag: TagName = Field(description="The tag.")
    verdict: int = Field(ge=-1, le=1, description="1: the tag is right; -1: it is wrong; 0: undo the verdict.")


class TagsChange(RequestBody):
    """Tags to add to a photo, and tags to remove from it."""

    give: list[TagName] = Field([], max_length=MAX_TAGS, description="Tags to add; any words are accepted.")
    take: list[TagName] = Field([], max_length=MAX_TAGS, description="Tags to remove.")


def _view_answer(view: ImageView) -> Response:
    content = view.as_dict()
    facts: Any = content["image"]
    content["image"] = {name: facts[name] for name in ImageFacts.model_fields if name in facts}
    return json_answer(content)


@router.get("/images/{image_id}", tags=["images"], response_model=ImageAnswer, responses=errors(404))
@in_threads("searching")
def image(service: ServiceDep, image_id: ImageId) -> Response:
    """Return a photo: its file, its tags, the predicted tags, and people's verdicts."""
    return _view_answer(service.view(image_id))


@router.get(
    "/images/{image_id}/thumbnail", tags=["images"], response_class=Response,
    responses=file_answers("image/jpeg", {304: "The client already has this thumbnail."}),
)  # fmt: skip
async def thumbnail(
    request: Request, service: ServiceDep, image_id: ImageId, size: Side = 320, at: Moment = None
) -> Response:
    """Return a photo, or a moment of a video, as a small JPEG, without the metadata of its file."""
    client_etags = request.headers.get("if-none-match", "")

    def find() -> tuple[str, str | None]:
        etag = etag_of(service.record_of(image_id).sha256, size, at)
        return etag, None if etag in client_etags else service.picture_of(image_id, at)

    etag, path = await service.searching.run(find)
    headers = {"etag": etag, "cache-control": CACHE_AN_HOUR}
    if path is None:
        return Response(status_code=304, headers=headers)
    return Response(await service.thumbnails.get(path, etag, size), headers=headers, media_type="image/jpeg")


@router.get(
    "/images/{image_id}/original", tags=["images"], response_class=Response,
    responses=file_answers("image/*", {304: "The client already has this picture."}),
)  # fmt: skip
async def original(request: Request, service: ServiceDep, image_id: ImageId) -> Response:
    """Return a photo's file, with its metadata.

    Formats that browsers don't show (RAW, HEIC, TIFF) and files in object stores are returned as a large JPEG.
    """
    path = await service.searching.run(service.file_of, image_id)
    media_type = BROWSER_TYPES.get(suffix_of(path))
    if media_type is None or is_remote(path):
        return await thumbnail(request, service, image_id, 2560)
    return FileResponse(path, media_type=media_type, headers={"cache-control": CACHE_AN_HOUR})


@router.get(
    "/images/{image_id}/video", tags=["images"], response_class=Response,
    responses=file_answers("video/*", {206: "The part that a `Range` header asked for."}),
)  # fmt: skip
@in_threads("searching")
def video(service: ServiceDep, image_id: ImageId) -> Response:
    """Return a video's file, or the part of it that a `Range` header asks for."""
    path = service.file_of(image_id)
    if not is_video(path) or is_remote(path):
        raise HttpError(404, f"Image {image_id} is a photo. Only videos can be played.")
    media_type = VIDEO_TYPES.get(suffix_of(path), "application/octet-stream")
    return FileResponse(path, media_type=media_type, headers={"cache-control": CACHE_AN_HOUR})


@router.get("/images/{image_id}/explain", tags=["images"], response_model=ExplanationAnswer, responses=errors(404))
async def explain(service: ServiceDep, image_id: ImageId, tag: OneTag) -> Response:
    """Return which places in a photo raise the score of a tag, and which lower it."""
    explanation = await service.explain(image_id, tag)
    width, height = explanation.size or (1, 1)
    strongest = sorted(explanation.places, key=lambda cell: -abs(cell.share))[:MAX_PLACES]
    sizes = {"left": width, "right": width, "top": height, "bottom": height}
    heat_map = f"/api/v1/images/{image_id}/heat?{urlencode({'tag': explanation.tag})}"
    return json_answer({
        "id": image_id,
        **{name: getattr(explanation, name) for name in ("tag", "score", "rank", "n_tags")},
        "from_places": sum(cell.share for cell in explanation.places),
        "elsewhere": explanation.elsewhere,
        "from": explanation.explained_by,
        "strongest": [
            asdict(cell) | {edge: getattr(cell, edge) / size for edge, size in sizes.items()} for cell in strongest
        ],
        "heat": None if explanation.no_heat_map_reason else heat_map,
        "no_heat": explanation.no_heat_map_reason or None,
    })  # fmt: skip


@router.get(
    "/images/{image_id}/heat", tags=["images"], response_class=Response, responses=file_answers("image/png", {})
)
async def heat(service: ServiceDep, image_id: ImageId, tag: OneTag, size: Side = 640) -> Response:
    """Return a transparent PNG to show over a photo: warm places raise the score of the tag, blue ones lower it."""
    headers = {"cache-control": "private, max-age=600"}
    return Response(await service.heat(image_id, tag, size), headers=headers, media_type="image/png")


@router.post(
    "/images/{image_id}/feedback", tags=["feedback"], response_model=VerdictAnswer, responses=errors(404, 408, 409, 413)
)
@in_threads("writing")
def judge(service: ServiceDep, image_id: ImageId, change: VerdictRequest) -> Response:
    """Store a verdict: whether a tag is right for a photo.

    A rejected tag is never predicted again for that photo.
    """
    service.record_of(image_id)
    stored = service.catalogue.stored
    entry = feedback_entry(stored, service.catalogue.judge(image_id, change.tag, change.verdict))
    return _verdict_answer(entry, verdict_before(stored, entry))


@router.post("/feedback/{number}/undo", tags=["feedback"], response_model=VerdictAnswer, responses=errors(404, 409))
@in_threads("writing")
def undo_feedback(service: ServiceDep, number: VerdictNumber) -> Response:
    """Undo a verdict: the previous one counts again."""
    stored = service.catalogue.stored
    with error_statuses(UNDO_STATUSES):
        undone_entry = feedback_entry(stored, number)
        return _verdict_answer(undo_verdict(stored, number), undone_entry.verdict)


@router.post(
    "/images/{image_id}/tags", tags=["feedback"], response_model=ImageAnswer, responses=errors(404, 408, 409, 413)
)
@allow_body(MEDIUM_BODY)
@in_threads("writing")
def change_tags(service: ServiceDep, image_id: ImageId, change: TagsChange) -> Response:
    """Add tags to a photo and remove tags from it: all of them or none."""
    service.record_of(image_id)
    with service.catalogue.stored.database.transaction():
        if change.give:
            service.catalogue.give(image_id, change.give)
        if change.take:
            service.catalogue.take(image_id, change.take)
        return _view_answer(service.view(image_id))


def _verdict_answer(entry: Verdict, old_verdict: int) -> Response:
    content = {name: getattr(entry, name) for name in ("id", "image_id", "tag", "verdict", "who")}
    return json_answer({**content, "before": old_verdict})


@router.get("/duplicates", tags=["duplicates"], response_model=DuplicatesAnswer, responses=errors())
@in_threads("browsing")
def duplicates(
    service: ServiceDep,
    distance: Annotated[
        int, Query(ge=0, le=MAX_DISTANCE, description="Number of bits (of 64) in which the hashes may differ.")
    ] = DEFAULT_DISTANCE,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """List groups of photos that look the same, largest first.

    Groups contain copies of the same file, and photos that the job "duplicates" has compared.
    """
    start = position_of("groups", cursor)
    groups = find_duplicates(service.catalogue.stored, distance, hash_new=False).groups
    page, following = page_from("groups", start, limit, groups)
    return json_answer({"groups": [group.as_dict() for group in page], "n_groups": len(groups), "next": following})


class PhotosChange(TagsChange):
    """Tags to add to several photos, to remove from them, or to judge."""

    images: list[Annotated[int, Field(ge=0, le=MAX_INT)]] = Field(
        min_length=1, max_length=MAX_PHOTOS, description="Ids of the photos."
    )
    right: Tags = Field([], description="Tags that are right for all these photos.")
    wrong: Tags = Field([], description="Tags that are wrong for all these photos.")


StepAnswer = answer(
    "StepAnswer", "A step that was stored or undone.",
    step=(int, "Number of the step; `POST /steps/{number}/undo` undoes it."),
    images=(int, "Number of photos in the step."),
    changed=(int, "Number of photos whose tags or verdicts it changed."),
)  # fmt: skip


@router.post("/images/tags", tags=["feedback"], response_model=StepAnswer, responses=errors(404, 408, 409, 413))
@allow_body(MEDIUM_BODY)
@in_threads("writing")
def change_many(service: ServiceDep, change: PhotosChange) -> Response:
    """Add tags to photos, remove tags, or say that tags are right or wrong: all of these changes or none."""
    return _step_answer(store_step(service, **change.model_dump()))


@router.post("/steps/{number}/undo", tags=["feedback"], response_model=StepAnswer, responses=errors(404, 409))
@in_threads("writing")
def undo_tags(service: ServiceDep, number: StepNumber) -> Response:
    """Undo a step: the tags and verdicts of its photos are restored.

    A step can be undone once, and only if the same tags of its photos have not been changed or judged since.
    """
    return _step_answer(undo_stored_step(service, number))


def store_step(service: Service, images: list[int], **tags: list[str]) -> Step:
    """Store a step; see `tag_photos`. Raises HttpError (404) if there is no such photo."""
    with error_statuses({DataError: 404}):
        return tag_photos(service.catalogue, images, **tags)


def undo_stored_step(service: Service, number: int) -> Step:
    """Undo a step. Raises HttpError: 404 if there is no such step, 409 if it can't be undone (any more)."""
    with error_statuses(UNDO_STATUSES):
        return undo_step(service.catalogue, number)


def _step_answer(step: Step) -> Response:
    return json_answer({"step": step.number, "images": len(step.images), "changed": step.changed})
