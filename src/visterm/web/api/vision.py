"""PhotoPrism's vision service: the labels that the run finds in pictures, in the shape that PhotoPrism reads.

Requests and answers are those of its ``RequestFormat: vision`` (``internal/ai/vision/api_request.go`` and
``api_response.go``). A request has one picture, or three square parts of one photo; their labels are put together.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated

import numpy as np
from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from visterm.core.errors import DataError, ImageError, UserError
from visterm.core.types import Tag
from visterm.core.web_client import Patience, ask
from visterm.tagging.annotating import cutoff_of
from visterm.tagging.tagger import Tagger
from visterm.web.batching import TagLimits
from visterm.web.bodies import JsonRoute, data_content, hold, takes_pictures
from visterm.web.errors import LOG, http_error_of, json_answer
from visterm.web.schemas import STATUSES, errors
from visterm.web.security import origin_of
from visterm.web.service import Bounds, Shared

PRECISION = 0.9
FEW = 5  # Labels of a run without confidences
MOST_SURE = 0.99
"""PhotoPrism stores 100 - 100 c as the uncertainty of a label; 0 is left to people, who confirm labels so."""

SHAPED = (400, 408, 413, 422, 500, 503, 507)


class VisionRoute(JsonRoute):
    """A route whose errors have the shape that PhotoPrism reads: ``error`` is a text."""

    def answer_error(self, request: Request, error: Exception) -> Response:
        """Return the answer to an error."""
        refused = http_error_of(error)
        content = {"code": refused.status_code, "error": refused.detail}
        return json_answer(content, refused.status_code, refused.headers)


router = APIRouter(route_class=VisionRoute)


class VisionRequest(BaseModel):
    """Pictures to label. PhotoPrism sends more, which is for other services, and differs by version."""

    model_config = ConfigDict(extra="allow")

    id: str = Field("", max_length=200, description="Name of the request, which the answer repeats.")
    images: list[str] = Field([], description="The pictures, as `data:` addresses.")
    url: str = Field("", description="One more picture, by its address.")


class VisionLabel(BaseModel):
    """A label."""

    name: str = Field(description="The tag.")
    source: str = Field("image", description="Always image: it comes from the picture.")
    priority: int = Field(0, description="Always 0.")
    confidence: float | None = Field(None, description="Probability that the label is right; absent if unknown.")
    topicality: float | None = Field(None, description="The same.")
    categories: list[str] = Field([], description="The tags above it in the run's tree, the nearest first.")


class VisionLabels(BaseModel):
    """What was found."""

    labels: list[VisionLabel] = Field(description="The labels, most likely first; none, if none is likely enough.")


class VisionModel(BaseModel):
    """The run that answers."""

    type: str = Field("labels", description="Always labels.")
    name: str = Field("visterm", description="Always visterm.")
    version: str = Field(description="Fingerprint of the run.")
    resolution: int = Field(description="Side of the pictures that the encoder reads, in pixels; 0: it reads any.")


class VisionAnswer(BaseModel):
    """The labels of a request's pictures."""

    id: str = Field(description="Name of the request.")
    code: int = Field(200, description="Always 200.")
    model: VisionModel = Field(description="What answers.")
    result: VisionLabels = Field(description="The result.")


class VisionErrorAnswer(BaseModel):
    """The answer to a request that failed."""

    code: int = Field(description="The status of the answer.")
    error: str = Field(description="What is wrong, what is accepted, and what to do.")


@router.post(
    "/vision/labels",
    tags=["PhotoPrism"],
    response_model=VisionAnswer,
    responses=errors()
    | {status: {"model": VisionErrorAnswer, "description": STATUSES[status][1]} for status in SHAPED},
)
@takes_pictures
async def labels(
    request: Request,
    service: Shared,
    body: VisionRequest,
    precision: Annotated[
        float, Query(gt=0, lt=1, description="Share of labels that should be right (0-1).")
    ] = PRECISION,
) -> Response:
    """Find the labels of a picture for PhotoPrism, which calls this as its vision service.

    Pictures come as `data:` addresses. Others are fetched only from hosts that were allowed
    (`--vision-host`). Several pictures are parts of one photo.
    """
    images = [*body.images, *([body.url] if body.url else [])]
    if not images:
        raise UserError("The request has no picture.", setting="images", advice="Send data: addresses in `images`.")
    if len(images) > (most := service.bounds.pictures):
        raise UserError(f"The request has {len(images)} pictures.", setting="images", expected=f"at most {most}")

    tagger = service.catalogue.tagger
    sure = tagger.calibration is not None
    k, limits = (len(tagger.vocabulary), TagLimits(precision)) if sure else (FEW, TagLimits())
    contents = await _contents(request, service, images)
    answers = await service.annotate_all(contents, k, limits)
    ranked = in_tree(tagger, together([tags for tags in answers if not isinstance(tags, ImageError)]))
    if not ranked:
        LOG.warning(*await service.searching.run(why_none, tagger, precision))

    version, side = await service.run_version(), getattr(tagger.encoder, "reading_side", None) or 0
    model = {"type": "labels", "name": "visterm", "version": version, "resolution": side}
    return json_answer({"id": body.id, "code": 200, "model": model, "result": {"labels": ranked}})


def why_none(tagger: Tagger, precision: float) -> tuple[str | float, ...]:
    """Return why a photo gets no label, as arguments of a logger: the log repeats the same text seldom."""
    if tagger.calibration is None:
        return ("PhotoPrism got no label for a photo: none of its best tags has a photo that the run learned from.",)
    cutoff = cutoff_of(tagger.calibration, precision=precision)
    n_given = 0 if cutoff is None else int(np.isfinite(cutoff.least).sum())
    no, fix = "PhotoPrism got no label for a photo: ", "For more labels, set a lower ?precision= in the Uri."
    if not n_given:
        return f"{no}no tag of the run reaches precision %g on held-out photos. {fix} Or tag more photos.", precision
    return f"{no}none of the %d tags that can have precision %g is sure enough in it. {fix}", n_given, precision


def together(tags_of_parts: list[list[Tag]]) -> list[dict[str, object]]:
    """Return the labels of one photo from the tags of its parts, each once, by its highest confidence or score.

    They are as PhotoPrism reads them; without a confidence it assumes its own (80 %).
    """

    def rank(tag: Tag) -> float:
        return tag.score if tag.confidence is None else tag.confidence

    best: dict[str, Tag] = {}
    for tag in (tag for tags in tags_of_parts for tag in tags if tag.trained):
        if tag.tag not in best or rank(tag) > rank(best[tag.tag]):
            best[tag.tag] = tag
    ranked = sorted(best.values(), key=rank, reverse=True)
    if any(tag.confidence is None for tag in ranked):
        ranked = ranked[:FEW]

    labels: list[dict[str, object]] = []
    for tag in ranked:
        labels.append({"name": tag.tag, "source": "image", "priority": 0, "categories": []})
        if tag.confidence is not None:
            labels[-1] |= dict.fromkeys(("confidence", "topicality"), min(round(tag.confidence, 4), MOST_SURE))
    return labels


def in_tree(tagger: Tagger, labels: list[dict[str, object]]) -> list[dict[str, object]]:
    """Return labels with their categories, which PhotoPrism shows above them: the tags above in the tree of a run."""
    tree = tagger.tree
    return labels if tree is None else [each | {"categories": tree.words.above(str(each["name"]))} for each in labels]


async def _contents(request: Request, service: Shared, images: Sequence[str]) -> list[bytes]:
    """Return the contents of pictures, those that were not sent fetched; they count as a part of the request's body."""
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
                f"A picture is to be fetched from {origin}, which nobody allowed.", setting="images",
                advice=f"Set FileScheme: data in vision.yml, or run: visterm serve CATALOGUE --vision-host {host}",
            )  # fmt: skip
    fetched = await service.fetching.run(_fetch, addresses, service.bounds) if addresses else []
    hold(request, sum(map(len, fetched)))
    following = iter(fetched)
    return [next(following) if content is None else content for content in contents]


def _fetch(addresses: Sequence[str], bounds: Bounds) -> list[bytes]:
    """Fetch the pictures of one request, one after the other, so that it never has more than its bytes and seconds."""
    until, room = time.monotonic() + bounds.fetch_seconds, bounds.fetch_bytes
    contents = []
    for address in addresses:
        seconds = max(until - time.monotonic(), 0.001)  # 0 would not wait at all
        answer = ask(address, patience=Patience(timeout=seconds, retries=0), most=room)
        if answer.status != 200:
            problem = f"{origin_of(address)} answers {answer.status} when a picture is fetched from it."
            raise DataError(problem, setting="images")
        contents.append(answer.content)
        room -= len(answer.content)
    return contents
