"""PhotoPrism's vision service: the labels that the run finds in pictures, in the form that PhotoPrism reads.

Requests and answers are those of its ``RequestFormat: vision`` (``internal/ai/vision/api_request.go`` and
``api_response.go``). A request has one picture, or three square parts of one photo; their labels are put together.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from visterm.core.errors import DataError, ImageError, UserError
from visterm.core.types import Tag
from visterm.core.web_client import Patience, ask
from visterm.data.tag_tree import TreeColumns
from visterm.library.learned import NOT_SURE_YET, QUICK, START
from visterm.web.batching import TagLimits
from visterm.web.bodies import JsonRoute, allow_pictures, count_fetched, data_content
from visterm.web.errors import LOG, HttpError, http_error_of, json_answer
from visterm.web.roles import origin_of
from visterm.web.schemas import STATUSES, answer, errors, listed
from visterm.web.service import Bounds, ServiceDep

DEFAULT_PRECISION = 0.9
N_LABELS_WITHOUT_CONFIDENCE = 5  # Labels of a photo if the run has no confidences
NO_LABEL = (
    "PhotoPrism got no label for a photo: no tag of the run is sure enough in it. For more labels, set a lower "
    "?precision= in the Uri, or tag more photos."
)
MAX_CONFIDENCE = 0.99
"""PhotoPrism stores 100 - 100 c as the uncertainty of a label; 0 means that a person confirmed it."""

PHOTOPRISM_STATUSES = (400, 408, 413, 422, 500, 503, 507)


class VisionRoute(JsonRoute):
    """A route whose errors have the form that PhotoPrism reads: ``error`` is a text."""

    def answer_error(self, request: Request, error: Exception) -> Response:
        """Return the answer to an error."""
        http_error = http_error_of(error)
        content = {"code": http_error.status_code, "error": http_error.detail}
        return json_answer(content, http_error.status_code, http_error.headers)


router = APIRouter(route_class=VisionRoute)


class VisionRequest(BaseModel):
    """Pictures to label. PhotoPrism sends further fields, which are for other services and differ by version."""

    model_config = ConfigDict(extra="allow")

    id: str = Field("", max_length=200, description="Name of the request, which the answer repeats.")
    images: list[str] = Field([], description="The pictures, as `data:` addresses.")
    url: str = Field("", description="One more picture, by its address.")


VisionLabel = answer(
    "VisionLabel", "A label.",
    name=(str, "The tag."),
    source=(str, "Always image: it comes from the picture.", "image"), priority=(int, "Always 0.", 0),
    confidence=(float | None, "Probability that the label is right; absent if unknown.", None),
    topicality=(float | None, "The same as `confidence`.", None),
    categories=(list[str], "The tags above it in the run's tree, the nearest first.", []),
)  # fmt: skip

VisionLabels = answer(
    "VisionLabels", "The labels that were found.",
    labels=listed(VisionLabel, "The labels, most likely first; empty if no tag is likely enough."),
)  # fmt: skip

VisionModel = answer(
    "VisionModel", "The run that answers.",
    type=(str, "Always labels.", "labels"), name=(str, "Always visterm.", "visterm"),
    version=(str, "Fingerprint of the run."),
    resolution=(int, "Side of the pictures that the encoder reads, in pixels; 0 for any size."),
)  # fmt: skip

VisionAnswer = answer(
    "VisionAnswer", "The labels of a request's pictures.",
    id=(str, "Name of the request."), code=(int, "Always 200.", 200),
    model=(VisionModel, "What answers."), result=(VisionLabels, "The result."),
)  # fmt: skip

VisionErrorAnswer = answer(
    "VisionErrorAnswer", "The answer to a request that failed.",
    code=(int, "The status of the answer."),
    error=(str, "What is wrong, what is accepted, and what to do."),
)  # fmt: skip


@router.post(
    "/vision/labels",
    tags=["PhotoPrism"],
    response_model=VisionAnswer,
    responses=errors()
    | {status: {"model": VisionErrorAnswer, "description": STATUSES[status][1]} for status in PHOTOPRISM_STATUSES},
)
@allow_pictures
async def labels(
    request: Request,
    service: ServiceDep,
    body: VisionRequest,
    precision: Annotated[
        float, Query(gt=0, lt=1, description="Share of labels that should be right (0-1).")
    ] = DEFAULT_PRECISION,
) -> Response:
    """Find the labels of a picture for PhotoPrism, which calls this as its vision service.

    Pictures are sent as `data:` addresses. Other addresses are fetched only from allowed hosts
    (`--vision-host`). Several pictures are parts of one photo.
    """
    images = [*body.images, *([body.url] if body.url else [])]
    if not images:
        raise UserError("The request has no picture.", setting="images", advice="Send data: addresses in `images`.")
    if len(images) > (limit := service.bounds.pictures):
        raise UserError(f"The request has {len(images)} pictures.", setting="images", expected=f"at most {limit}")

    await service.catch_up()
    tagger = service.catalogue.tagger
    if tagger.facts.get(START) == QUICK:  # PhotoPrism would keep its tags, as 80 % sure
        raise HttpError(503, NOT_SURE_YET, headers={"retry-after": "60"})
    k, limits = N_LABELS_WITHOUT_CONFIDENCE, TagLimits()
    if tagger.calibration is not None:
        k, limits = len(tagger.vocabulary), TagLimits(precision)
    contents = await _contents(request, service, images)
    answers = await service.annotate_all(contents, k, limits)
    tags_of_parts = [tags for tags in answers if not isinstance(tags, ImageError)]
    ranked_labels = merge_labels(tags_of_parts, tagger.tree)
    if not ranked_labels:
        LOG.warning(NO_LABEL)

    version, side = await service.run_version(), getattr(tagger.encoder, "reading_side", None) or 0
    model = {"type": "labels", "name": "visterm", "version": version, "resolution": side}
    return json_answer({"id": body.id, "code": 200, "model": model, "result": {"labels": ranked_labels}})


def merge_labels(tags_of_parts: list[list[Tag]], tree: TreeColumns | None = None) -> list[dict[str, object]]:
    """Return the labels of a photo from the tags of its parts, each with its highest confidence or score.

    They have the form that PhotoPrism reads: without a confidence it assumes 80 %, and it shows the categories, which
    are the tags above a tag in the tree, above the label.
    """

    def rank(tag: Tag) -> float:
        return tag.score if tag.confidence is None else tag.confidence

    best: dict[str, Tag] = {}
    for tag in (tag for tags in tags_of_parts for tag in tags if tag.trained):
        if tag.tag not in best or rank(tag) > rank(best[tag.tag]):
            best[tag.tag] = tag
    ranked_labels = sorted(best.values(), key=rank, reverse=True)
    if any(tag.confidence is None for tag in ranked_labels):
        ranked_labels = ranked_labels[:N_LABELS_WITHOUT_CONFIDENCE]

    labels: list[dict[str, object]] = []
    for tag in ranked_labels:
        categories = [] if tree is None else tree.words.above(tag.tag)
        labels.append({"name": tag.tag, "source": "image", "priority": 0, "categories": categories})
        if tag.confidence is not None:
            labels[-1] |= dict.fromkeys(("confidence", "topicality"), min(round(tag.confidence, 4), MAX_CONFIDENCE))
    return labels


async def _contents(request: Request, service: ServiceDep, images: Sequence[str]) -> list[bytes]:
    """Return the contents of pictures; those that are not sent are fetched, and count as bytes of the request."""
    contents = [data_content(image) for image in images]
    addresses = [image for image, content in zip(images, contents, strict=True) if content is None]
    for address in addresses:
        origin = origin_of(address)
        if origin is None:
            problem = "A picture is neither a data: address with base64 nor one of a server."
            raise UserError(problem, setting="images", advice="Set FileScheme: data in vision.yml.")
        if origin not in service.access.fetched_hosts:
            host = origin.partition("://")[2]
            raise UserError(
                f"Pictures may not be fetched from {origin}.", setting="images",
                advice=f"Set FileScheme: data in vision.yml, or run: visterm serve CATALOGUE --vision-host {host}",
            )  # fmt: skip

    fetched = await service.fetching.run(_fetch, addresses, service.bounds) if addresses else []
    count_fetched(request, sum(map(len, fetched)))
    fetched_contents = iter(fetched)
    return [next(fetched_contents) if content is None else content for content in contents]


def _fetch(addresses: Sequence[str], bounds: Bounds) -> list[bytes]:
    """Fetch the pictures of one request, one after the other, within its limits of bytes and seconds."""
    deadline, remaining_bytes = time.monotonic() + bounds.fetch_seconds, bounds.fetch_bytes
    contents = []
    for address in addresses:
        seconds = max(deadline - time.monotonic(), 0.001)  # 0 would not wait at all
        answer = ask(address, patience=Patience(timeout=seconds, retries=0), limit=remaining_bytes)
        if answer.status != 200:
            problem = f"{origin_of(address)} answers {answer.status} when a picture is fetched from it."
            raise DataError(problem, setting="images")
        contents.append(answer.content)
        remaining_bytes -= len(answer.content)
    return contents
