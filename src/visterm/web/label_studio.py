"""An ML backend for Label Studio: tags are suggested for tasks, and annotators' choices are stored as tags.

The protocol is that of label-studio-ml-backend: ``/health``, ``/setup``, ``/predict``, ``/webhook`` under one address.
"""

from __future__ import annotations

import asyncio
import re
import xml.etree.ElementTree as ET
from typing import Annotated, NamedTuple
from urllib.parse import urlsplit

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from visterm.core.errors import DataError, ImageError
from visterm.core.vocabulary import tag_key
from visterm.library.learned import NOT_SURE_YET, QUICK, START
from visterm.store.filters import PREDICTED_FROM
from visterm.web.batching import TagLimits
from visterm.web.bodies import MEDIUM_BODY, JsonRoute, allow_body, allow_pictures, data_content
from visterm.web.errors import HttpError, json_answer
from visterm.web.roles import Role, check_role
from visterm.web.schemas import answer, errors, listed
from visterm.web.service import VERSION, Service, ServiceDep

router = APIRouter(prefix="/label-studio", tags=["Label Studio"], route_class=JsonRoute)

MAX_TASKS = 1000
BATCH_TASKS = 16
N_TAGS_WITHOUT_CONFIDENCE = 5  # Tags that are suggested if the run has no confidences
MAX_CONFIG_LETTERS = 2**20
ANNOTATION_EVENTS = ("ANNOTATION_CREATED", "ANNOTATION_UPDATED")
UNKNOWN_PICTURE = (
    "not a photo of this catalogue: send its id ('visterm:12', or the address of its thumbnail here), or the picture "
    "as a data: address; other addresses are not fetched"
)
_ID = re.compile(r"(?:visterm:)?(\d{1,18})")
_ADDRESS = re.compile(r".*/api/v1/images/(\d{1,18})(?:/thumbnail)?")
_DECLARATION = re.compile(r"<!(DOCTYPE|ENTITY)", re.IGNORECASE)

Task = dict[str, object]  # JSON
RunVersion = Annotated[str, Field(description="Fingerprint of the run that answers.")]


class Message(BaseModel):
    """Base of Label Studio's messages, which have further fields that differ by version."""

    model_config = ConfigDict(extra="allow")


class SetupRequest(Message):
    """A project that is connected."""

    project: str | int | None = Field(None, description="The project.")
    schema_: str | None = Field(None, alias="schema", description="Its labelling configuration (XML).")


class PredictRequest(Message):
    """Tasks to suggest tags for."""

    tasks: list[Task] = Field(max_length=MAX_TASKS, description="The tasks.")
    label_config: str | None = Field(None, description="The labelling configuration (XML).")


class WebhookRequest(Message):
    """An event in Label Studio; START_TRAINING comes without an annotation."""

    action: str = Field(description="The event, such as ANNOTATION_CREATED.")
    task: Task | None = Field(None, description="The task.")
    annotation: Task | None = Field(None, description="What the annotator chose.")
    project: Task | None = Field(None, description="The project.")


BackendAnswer = answer(
    "BackendAnswer", "The backend runs.",
    status=(str, "Always UP; otherwise the answer is 503."), model_class=(str, "Always visterm."),
    version=(str, "Version of visterm."),
)  # fmt: skip

VersionAnswer = answer("VersionAnswer", "The run that answers.", model_version=RunVersion)

TaskAnswer = answer(
    "TaskAnswer", "The choices for one task.",
    result=(list[Task], "The choices, as Label Studio stores them."),
    score=(float, "Mean confidence of the choices (0-1)."),
    model_version=RunVersion,
    error=(str | None, "Why there is no prediction.", None),
)  # fmt: skip

PredictAnswer = answer(
    "PredictAnswer", "Suggested tags for tasks.",
    model_version=RunVersion,
    results=listed(TaskAnswer, "One for each task, in their order."),
)  # fmt: skip

WebhookAnswer = answer(
    "WebhookAnswer", "What was done about an event.",
    status=(str, "ok or ignored."),
    result=(Task, "The photo and the tags that it got, or the job that was started."),
)  # fmt: skip


class Choices(NamedTuple):
    """The first list of choices for a picture in a labelling configuration."""

    # Names of the list and of the picture in the configuration, which a prediction repeats
    from_name: str = "tags"
    to_name: str = "image"
    value: str = "image"  # The key of the picture in a task: ``data[value]``
    names: dict[str, str] = {}  # noqa: RUF012  # read only
    """The choices by `tag_key`; empty: any tag."""
    single: bool = False  # Whether only one choice is allowed


@router.get("", response_model=BackendAnswer, responses=errors(), include_in_schema=False)
@router.get("/", response_model=BackendAnswer, responses=errors(), include_in_schema=False)
@router.get("/health", response_model=BackendAnswer, responses=errors())
async def health(service: ServiceDep) -> Response:
    """Check that the service runs and can read its catalogue."""
    await service.check_catalogue()
    return json_answer({"status": "UP", "model_class": "visterm", "version": VERSION})


@router.post("/setup", response_model=VersionAnswer, responses=errors(408, 413))
@allow_body(MEDIUM_BODY)
async def setup(service: ServiceDep, body: SetupRequest) -> Response:
    """Check a project's labelling configuration, and return the run that answers."""
    read_config(body.schema_)
    return json_answer({"model_version": await service.run_version()})


@router.post("/predict", response_model=PredictAnswer, responses=errors(408, 413))
@allow_pictures
async def predict(service: ServiceDep, body: PredictRequest) -> Response:
    """Suggest tags for the pictures of tasks.

    A picture is a photo of the catalogue, named by its id, or a ``data:`` address. Other addresses are never fetched.
    """
    config = read_config(body.label_config)
    version = await service.run_version()
    results: list[dict[str, object]] = []
    for start in range(0, len(body.tasks), BATCH_TASKS):
        batch = body.tasks[start : start + BATCH_TASKS]
        results += await asyncio.gather(*(_predict(service, task, config, version) for task in batch))
    return json_answer({"results": results, "model_version": version})


@router.post("/webhook", status_code=201, response_model=WebhookAnswer, responses=errors(408, 409, 413))
@allow_body(MEDIUM_BODY)
async def webhook(service: ServiceDep, body: WebhookRequest) -> Response:
    """Add the tags that an annotator chose to the photo; START_TRAINING starts the job "fit"."""
    if body.action == "START_TRAINING":
        check_role(Role.OWNER)
        job = await service.jobs.start("fit")
        return json_answer({"status": "ok", "result": {"job": job.id}}, 201)
    image_id, tags = None, list[str]()
    if body.action in ANNOTATION_EVENTS and body.annotation is not None and body.task is not None:
        data = body.task.get("data")  # the photo's id may be in any of its fields
        ids = [_id_of(value) for value in data.values()] if isinstance(data, dict) else []
        image_id = next((number for number in ids if number is not None), None)
        tags = _chosen_tags(body.annotation)
    if image_id is None or not tags:
        return json_answer({"status": "ignored", "result": {}}, 201)

    await service.writing.run(service.catalogue.give, image_id, tags)
    return json_answer({"status": "ok", "result": {"image": image_id, "given": tags}}, 201)


async def _predict(service: Service, task: Task, config: Choices, version: str) -> dict[str, object]:
    """Return the suggestions for one task, or the reason why there are none."""
    data = task.get("data")
    try:
        picture = await _picture(service, data.get(config.value) if isinstance(data, dict) else None)
        tags = await service.annotate(picture, len(service.catalogue.tagger.vocabulary), TagLimits())
        if service.catalogue.tagger.facts.get(START) == QUICK:  # `annotate` opens the run in use
            raise DataError(NOT_SURE_YET)
    except (ImageError, DataError) as error:
        reason = error.reason if isinstance(error, ImageError) else str(error)
        return {"result": [], "score": 0.0, "model_version": version, "error": reason}

    choices = [(tag, config.names.get(tag_key(tag.tag), "") if config.names else tag.tag) for tag in tags]
    choices = [(tag, name) for tag, name in choices if name]
    suggestions = [(tag, name) for tag, name in choices if (tag.confidence or 0.0) >= PREDICTED_FROM]
    if all(tag.confidence is None for tag, _ in choices):
        suggestions = choices[:N_TAGS_WITHOUT_CONFIDENCE]
    if config.single:
        suggestions = suggestions[:1]
    confidences = [tag.confidence for tag, _ in suggestions if tag.confidence is not None]
    value = {"choices": [name for _, name in suggestions]}
    result = {"from_name": config.from_name, "to_name": config.to_name, "type": "choices", "value": value}
    score = sum(confidences) / len(confidences) if confidences else 0.0
    return {"result": [result] if suggestions else [], "score": score, "model_version": version}


async def _picture(service: Service, value: object) -> bytes | str:
    """Return the content of a ``data:`` address, or the path of a photo of the catalogue."""
    content = data_content(value) if isinstance(value, str) else None
    if content is not None:
        return content
    image_id = _id_of(value)
    if image_id is None:
        raise DataError(UNKNOWN_PICTURE)
    try:
        return await service.searching.run(service.picture_of, image_id)
    except HttpError as error:
        if error.status_code != 404:
            raise
        raise DataError(str(error.detail)) from error


def _id_of(value: object) -> int | None:
    """Return the id of a photo from a number, from "visterm:12", or from the address of its thumbnail."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**18:
        return value
    if not isinstance(value, str) or len(value) > 2000:
        return None
    match = _ID.fullmatch(value)
    if match is None:
        try:
            match = _ADDRESS.fullmatch(urlsplit(value).path)
        except ValueError:  # not an address, such as one with an unclosed bracket
            return None
    return int(match[1]) if match else None


def _chosen_tags(annotation: Task) -> list[str]:
    results = annotation.get("result")
    tags: list[str] = []
    for result in results if isinstance(results, list) else []:
        value = result.get("value") if isinstance(result, dict) else None
        choices = value.get("choices") if isinstance(value, dict) else None
        tags += [tag for tag in choices if isinstance(tag, str) and tag.strip()] if isinstance(choices, list) else []
    return list(dict.fromkeys(tags))


def read_config(text: str | None) -> Choices:
    """Read a labelling configuration; without one, any tag may be chosen for ``data["image"]``.

    Raises DataError if it is not XML, declares entities, or has no choices for a picture.
    """
    if not text:
        return Choices()
    if len(text) > MAX_CONFIG_LETTERS or _DECLARATION.search(text):
        raise DataError("label_config is too long or declares a document type, which Label Studio's never do.")
    try:
        root = ET.fromstring(text)
    except (ET.ParseError, ValueError) as error:
        raise DataError(f"label_config is not well-formed XML: {error}.") from error

    pictures = {image.get("name", ""): image.get("value", "").lstrip("$") for image in root.iter("Image")}
    for choices in root.iter("Choices"):
        to_name = choices.get("toName", "")
        if to_name in pictures:
            names = {tag_key(name): name for name in (choice.get("value", "") for choice in choices.iter("Choice"))}
            single = choices.get("choice", "single") != "multiple"
            return Choices(choices.get("name", ""), to_name, pictures[to_name], names, single)

    raise DataError(
        'label_config has no <Choices> for an <Image>. Label with <Image name="image" value="$image"/> and '
        '<Choices name="tags" toName="image" choice="multiple">.'
    )
