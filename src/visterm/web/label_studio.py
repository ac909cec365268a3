"""An ML backend of Label Studio: its tasks come with tags already given, and what people choose there comes back.

The protocol is that of label-studio-ml-backend: ``/health``, ``/setup``, ``/predict``, ``/webhook`` under one address.
Pictures are those of the catalogue, meant by id, or sent as ``data:`` addresses; other addresses are never fetched.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from visterm.core.errors import DataError, ImageError
from visterm.core.types import Tag
from visterm.core.vocabulary import tag_key
from visterm.web.batching import HowMany
from visterm.web.body_limit import MEDIUM, JsonRoute, takes, takes_pictures
from visterm.web.errors import Refused, json_answer
from visterm.web.schemas import errors
from visterm.web.service import VERSION, Service, service_of

router = APIRouter(prefix="/label-studio", tags=["Label Studio"], route_class=JsonRoute)

MOST_TASKS = 1000
AT_ONCE = 16
SURE = 0.5
"""Confidence from which on a tag is chosen for people; without a calibration the best five are."""

FEW = 5
LEARNS_FROM = ("ANNOTATION_CREATED", "ANNOTATION_UPDATED")
NOT_OURS = (
    "no picture of this catalogue: send its id ('visterm:12', or the address of its thumbnail here), or the picture "
    "as a data: address; other addresses are not fetched"
)
_ID = re.compile(r"(?:visterm:)?(\d{1,18})")
_ADDRESS = re.compile(r".*/api/v1/images/(\d{1,18})(?:/thumbnail)?")
_DATA = re.compile(r"data:image/[\w.+-]{1,40};base64,", re.IGNORECASE)

LONGEST = 2**20

_DECLARES = re.compile(r"<!(DOCTYPE|ENTITY)", re.IGNORECASE)


class Told(BaseModel):
    """Base of what Label Studio sends; there is more in it, and versions differ."""

    model_config = ConfigDict(extra="allow")


class SetupTold(Told):
    """A project that is connected."""

    project: str | int | None = None
    schema_: str | None = Field(None, alias="schema")


class PredictTold(Told):
    """Tasks that want predictions."""

    tasks: list[dict[str, Any]] = Field(max_length=MOST_TASKS)
    label_config: str | None = None


class WebhookTold(Told):
    """Something that happened; START_TRAINING comes without an annotation."""

    action: str
    task: dict[str, Any] | None = None
    annotation: dict[str, Any] | None = None
    project: dict[str, Any] | None = None


class Up(BaseModel):
    """That it runs."""

    status: str
    model_class: str
    version: str


class Version(BaseModel):
    """The run that answers."""

    model_version: str


class PredictionTold(BaseModel):
    """The choices for one task."""

    result: list[dict[str, Any]]
    score: float
    model_version: str
    error: str | None = Field(None, description="Why there is no prediction.")


class Predictions(Version):
    """One for each task, in their order."""

    results: list[PredictionTold]


class WebhookAnswer(BaseModel):
    """What came of it."""

    status: str
    result: dict[str, Any]


@router.get("", response_model=Up, responses=errors(), include_in_schema=False)
@router.get("/", response_model=Up, responses=errors(), include_in_schema=False)
@router.get("/health", response_model=Up, responses=errors())
async def health(request: Request) -> Response:
    """Check that it runs and can read its catalogue."""
    await service_of(request).check_catalogue()
    return json_answer({"status": "UP", "model_class": "visterm", "version": VERSION})


@router.post("/setup", response_model=Version, responses=errors(408, 413))
@takes(MEDIUM)
async def setup(request: Request, sent: SetupTold) -> Response:
    """Look at a project's labelling configuration, and say which run answers."""
    read_config(sent.schema_)
    return json_answer({"model_version": await _version(service_of(request))})


@router.post("/predict", response_model=Predictions, responses=errors(408, 413))
@takes_pictures
async def predict(request: Request, sent: PredictTold) -> Response:
    """Choose tags for the pictures of tasks: those of the catalogue by id, and those in ``data:`` addresses."""
    service = service_of(request)
    config = read_config(sent.label_config)
    version = await _version(service)
    results: list[dict[str, Any]] = []
    for start in range(0, len(sent.tasks), AT_ONCE):
        some = sent.tasks[start : start + AT_ONCE]
        results += await asyncio.gather(*(_predict(service, task, config, version) for task in some))
    return json_answer({"results": results, "model_version": version})


@router.post("/webhook", status_code=201, response_model=WebhookAnswer, responses=errors(408, 409, 413))
@takes(MEDIUM)
async def webhook(request: Request, sent: WebhookTold) -> Response:
    """Take what people chose as tags of the image; START_TRAINING starts the job "fit"."""
    service = service_of(request)
    if sent.action == "START_TRAINING":
        job = await service.jobs.start("fit")
        return json_answer({"status": "ok", "result": {"job": job.id}}, 201)
    if sent.action not in LEARNS_FROM or sent.annotation is None or sent.task is None:
        return json_answer({"status": "ignored", "result": {}}, 201)
    image_id = _id_in(sent.task)
    tags = _chosen(sent.annotation)
    if image_id is None or not tags:
        return json_answer({"status": "ignored", "result": {}}, 201)

    def write() -> None:
        if service.catalogue.stored.images.get(image_id) is None:
            raise DataError(f"The catalogue has no image {image_id}.")
        service.catalogue.give(image_id, tags)

    await service.writing.run(write)
    return json_answer({"status": "ok", "result": {"image": image_id, "given": tags}}, 201)


async def _version(service: Service) -> str:
    return await service.searching.run(lambda: service.catalogue.stored.origin.fingerprint)


async def _predict(service: Service, task: dict[str, Any], config: ChoicesWanted, version: str) -> dict[str, Any]:
    try:
        picture = await _picture(service, _picture_in(task, config.value))
        tags = await service.annotate(picture, len(service.catalogue.tagger.vocabulary), HowMany())
    except ImageError as error:
        return {"result": [], "score": 0.0, "model_version": version, "error": error.reason}
    except DataError as error:
        return {"result": [], "score": 0.0, "model_version": version, "error": str(error)}
    chosen = _choices(tags, config)
    sure = [tag.confidence for tag, _ in chosen if tag.confidence is not None]
    result = {
        "from_name": config.from_name,
        "to_name": config.to_name,
        "type": "choices",
        "value": {"choices": [name for _, name in chosen]},
    }
    score = sum(sure) / len(sure) if sure else 0.0
    return {"result": [result] if chosen else [], "score": score, "model_version": version}


def _choices(tags: Sequence[Tag], config: ChoicesWanted) -> list[tuple[Tag, str]]:
    """Return the tags that are chosen for people, under the names that the project has for them."""
    known = [(tag, config.choices.get(tag_key(tag.tag), "") if config.choices else tag.tag) for tag in tags]
    offered = [(tag, name) for tag, name in known if name]
    chosen = [pair for pair in offered if (pair[0].confidence or 0.0) >= SURE]
    if all(tag.confidence is None for tag, _ in offered):
        chosen = offered[:FEW]
    return chosen[:1] if config.single else chosen


async def _picture(service: Service, sent: Any) -> bytes | str:
    """Return the content of a picture that was sent, or the path of one of the catalogue."""
    if isinstance(sent, str) and _DATA.match(sent):
        try:
            return base64.b64decode(sent.partition(",")[2], validate=True)
        except (binascii.Error, ValueError) as error:
            raise DataError(f"the data: address is not base64: {error}") from error
    image_id = _id_of(sent)
    if image_id is None:
        raise DataError(NOT_OURS)
    try:
        return await service.searching.run(service.file_of, image_id)
    except Refused as error:
        if error.status_code != 404:
            raise
        raise DataError(str(error.detail)) from error


def _picture_in(task: dict[str, Any], value: str) -> Any:
    """Return what a task says of its picture."""
    data = task.get("data")
    return data.get(value) if isinstance(data, dict) else None


def _id_in(task: dict[str, Any]) -> int | None:
    """Return the id of the image of a task, whichever field of its data has it."""
    data = task.get("data")
    found = [_id_of(value) for value in data.values()] if isinstance(data, dict) else []
    return next((image_id for image_id in found if image_id is not None), None)


def _id_of(sent: Any) -> int | None:
    if isinstance(sent, int) and not isinstance(sent, bool) and 0 <= sent < 10**18:
        return sent
    if not isinstance(sent, str) or len(sent) > 2000:
        return None
    found = _ID.fullmatch(sent)
    if found is None:
        try:
            found = _ADDRESS.fullmatch(urlsplit(sent).path)
        except ValueError:  # no address, such as one with half a bracket
            return None
    return int(found[1]) if found else None


def _chosen(annotation: dict[str, Any]) -> list[str]:
    """Return the choices of an annotation, whatever else it holds."""
    results = annotation.get("result")
    tags: list[str] = []
    for result in results if isinstance(results, list) else []:
        value = result.get("value") if isinstance(result, dict) else None
        choices = value.get("choices") if isinstance(value, dict) else None
        tags += [tag for tag in choices if isinstance(tag, str) and tag.strip()] if isinstance(choices, list) else []
    return list(dict.fromkeys(tags))


class ChoicesWanted(NamedTuple):
    """The first list of choices for a picture.

    Attributes
    ----------
    from_name, to_name : str
        Names of the list and of the picture, which a prediction repeats.
    value : str
        Where tasks have the picture: ``data[value]``.
    choices : dict of str to str
        The choices by what makes tags equal; empty: any tag.
    single : bool
        Whether one choice only may be made.
    """

    from_name: str = "tags"
    to_name: str = "image"
    value: str = "image"
    choices: dict[str, str] = {}  # noqa: RUF012  # read only
    single: bool = False


def read_config(text: str | None) -> ChoicesWanted:
    """Read a labelling configuration; none is that of tags of an image.

    Raises
    ------
    DataError
        If it is no XML, declares entities, or has no choices for a picture.
    """
    if not text:
        return ChoicesWanted()
    if len(text) > LONGEST or _DECLARES.search(text):
        raise DataError("label_config is too long or declares a document type, which Label Studio's never do.")
    try:
        root = ET.fromstring(text)
    except (ET.ParseError, ValueError) as error:
        raise DataError(f"label_config is not well-formed XML: {error}.") from error
    pictures = {image.get("name", ""): image.get("value", "").lstrip("$") for image in root.iter("Image")}
    for found in root.iter("Choices"):
        to_name = found.get("toName", "")
        if to_name in pictures:
            names = [choice.get("value", "") for choice in found.iter("Choice")]
            single = found.get("choice", "single") != "multiple"
            choices = {tag_key(name): name for name in names}
            return ChoicesWanted(found.get("name", ""), to_name, pictures[to_name], choices, single)
    raise DataError(
        'label_config has no <Choices> for an <Image>. Label with <Image name="image" value="$image"/> and '
        '<Choices name="tags" toName="image" choice="multiple">.'
    )
