"""Review: questions whether a tag is right for a photo, one after another, and learning from the answers.

Questions come from one of three queues: doubts about frequent tags, the default, as most photos and searches show
them; questions whose answers teach most; and tags that are probably mistakes.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Annotated, Literal, NamedTuple, TypeVar

import numpy as np
from fastapi import APIRouter, Form, Request, Response
from pydantic import FailFast, Field, TypeAdapter, ValidationError

from visterm.core.errors import UserError
from visterm.library.catalogue import Catalogue
from visterm.library.mistakes import why_no_mistakes
from visterm.library.review import review_queue
from visterm.library.runs import FIT
from visterm.models.abilities import RelearnsTags
from visterm.store.catalogue import StoredCatalogue
from visterm.store.filters import MAX_INT
from visterm.store.images import ImageRecord
from visterm.web.bodies import MEDIUM_BODY, FormText, allow_body
from visterm.web.errors import HttpError
from visterm.web.pages.library import latest_job
from visterm.web.pages.picture import explains
from visterm.web.pages.render import PageRoute, is_for_script, render
from visterm.web.roles import PERSON, Role
from visterm.web.service import Service, ServiceDep, in_threads

T = TypeVar("T")

router = APIRouter(include_in_schema=False, route_class=PageRoute)

Queue = Literal["frequent", "questions", "mistakes"]
Reply = Literal["right", "wrong", "skip"]

VERDICTS: dict[Reply, int] = {"right": 1, "wrong": -1, "skip": 0}
MESSAGES = {"right": "{} is right", "wrong": "{} is wrong", "skip": "{} skipped"}
ROUND_ANSWERS = 20  # Answers after which models that learn quickly learn again by themselves
MAX_MISTAKES = 4000  # Maximum number of mistakes to look through for that of an undone answer
MAX_TRAIL = 300  # Answers of a session that can be undone, and questions that stay skipped


class ReviewAnswer(NamedTuple):
    """A question and its answer: "right", "wrong" or "skip"."""

    image_id: Annotated[int, Field(ge=0, le=MAX_INT)]
    tag: str
    do: Reply


_TRAIL = TypeAdapter(Annotated[list[ReviewAnswer], FailFast()])  # Answers of this session, which the page sends along


class TagQuestion(NamedTuple):
    """A photo and a tag to ask about."""

    image_id: int
    tag: str
    confidence: float | None
    why: list[str]
    mistake: str = ""  # "missing" or "wrong"; empty in other queues than that of mistakes
    reason: str = ""  # Why it may be a mistake, if the chance is unknown


class ShownQuestion(NamedTuple):
    """The question that is shown."""

    record: ImageRecord
    pair: TagQuestion
    tags: list[str]
    at: float | None  # For a video: the moment that matches the tag best, in seconds


@router.get("/review")
@in_threads("searching")
def review_page(service: ServiceDep, queue: Queue = "frequent") -> Response:
    """Show the first question of a queue."""
    return render("review.html", **_question(service, queue, []))


@router.post("/review")
@allow_body(MEDIUM_BODY)
async def answer_question(
    request: Request, service: ServiceDep, do: Annotated[Literal[Reply, "undo"], Form()], tag: FormText = "",
    image: Annotated[int, Form(ge=-1, le=MAX_INT)] = -1, trail: FormText = "[]",
    queue: Annotated[Queue, Form()] = "frequent",
) -> Response:  # fmt: skip
    """Store an answer, or undo the last one, and show the next question."""
    answers = read_trail(_TRAIL, trail, "/review")
    retry, message = None, "There is nothing to undo"
    if do != "undo":
        answer = ReviewAnswer(image, tag, do)
        await service.writing.run(_write, service, answer, VERDICTS[do])
        answers, message = [*answers, answer], MESSAGES[do].format(tag)
    elif answers:
        *answers, retry = answers
        await service.writing.run(_write, service, retry, 0)
        message = f"{retry.tag}: one more time"

    values = await service.searching.run(_question, service, queue, answers, retry=retry, message=message)
    if do in ("right", "wrong"):
        await learn_by_itself(service, values)
    return render("_question.html" if is_for_script(request) else "review.html", **values)


def read_trail(kind: TypeAdapter[list[T]], trail: str, page: str) -> list[T]:
    """Return the latest answers that a page sent along. Raises UserError if they can't be read."""
    try:
        return kind.validate_json(trail)[-MAX_TRAIL:]
    except ValidationError:
        raise UserError("Your earlier answers can't be read.", setting="trail", advice=f"Open {page} again.") from None


async def learn_by_itself(service: Service, values: dict[str, object]) -> None:
    """Learn from the last answers if that is due, and add the job to the values of a template."""
    if PERSON.get().role >= Role.OWNER and values["learns_now"] and service.jobs.n_open.total == 0:
        with suppress(HttpError):  # too many jobs wait: the next answer tries again
            values["job"] = await service.jobs.start(FIT, "by-itself")
            values["message"] = f"{values['message']}. Learning from your last answers"


def _write(service: Service, answer: ReviewAnswer, verdict: int) -> None:
    """Store a verdict on the tag of an answer; for a skipped question, only check that the photo exists."""
    service.record_of(answer.image_id)
    if answer.do != "skip":
        service.catalogue.judge(answer.image_id, answer.tag, verdict)


def _question(
    service: Service, queue: Queue, answers: list[ReviewAnswer], *, retry: ReviewAnswer | None = None, message: str = ""
) -> dict[str, object]:
    """Return the values of the template: the next question, the photo to load ahead, and the progress."""
    catalogue, stored = service.catalogue, service.catalogue.stored
    skipped = {(answer.image_id, answer.tag) for answer in answers if answer.do == "skip"}
    if queue == "mistakes":
        pairs = [pair for pair in _mistakes(catalogue, len(skipped) + 2) if pair[:2] not in skipped][:2]
    else:
        items = review_queue(stored, 2, skip=skipped, frequent=queue == "frequent", tree=catalogue.tree)
        pairs = [TagQuestion(item.image_id, item.tag, item.confidence, item.why) for item in items]

    if retry is not None:
        pairs = [_question_again(service, queue, retry), *(pair for pair in pairs if pair[:2] != retry[:2])]
    question = None
    if pairs:
        pair = pairs[0]
        column = catalogue.tagger.vocabulary.get(pair.tag)
        row = None if column is None else catalogue.tagger.tag_rows(np.array([column], np.int32))
        tags = stored.tags.held([pair.image_id]).get(pair.image_id, [])
        at = stored.locations([pair.image_id], row)[0].at
        question = ShownQuestion(service.record_of(pair.image_id), pair, tags, at)

    return review_progress(service, sum(answer.do != "skip" for answer in answers)) | {
        "queue": queue, "question": question, "message": message,
        "next_image": pairs[1].image_id if len(pairs) > 1 else None,
        "trail": json.dumps(answers[-MAX_TRAIL:]), "last": answers[-1] if answers else None,
        "explains": question is not None and explains(catalogue, question.record),
        "why_none": why_no_mistakes(stored) if queue == "mistakes" and question is None else "",
    }  # fmt: skip


def review_progress(service: Service, answered: int) -> dict[str, object]:
    """Return the values of a template that say how far the review is; `answered` now."""
    stored = service.catalogue.stored
    by_itself = isinstance(service.catalogue.tagger.model, RelearnsTags)
    added = stored.runs.current().added
    return latest_job(service, FIT) | {
        "answered": answered, "unlearned": _answers_since(stored, added, "done"),
        "round": ROUND_ANSWERS if by_itself else None,
        "learns_now": by_itself and _answers_since(stored, added, "%") >= ROUND_ANSWERS,
        "reviewed": stored.database.value("SELECT count(*) FROM images WHERE state = 'here' AND reviewed IS NOT NULL"),
        "n_images": stored.images.count(),
    }  # fmt: skip


def _mistakes(catalogue: Catalogue, limit: int) -> list[TagQuestion]:
    """Return questions about the most probable mistakes that nobody has answered yet."""
    return [
        TagQuestion(
            item.image_id, item.tag, item.chance, [f"so {tag}, too" for tag in item.follows], item.kind, item.reason
        )
        for item in catalogue.mistakes(limit) or []
        if item.image_id is not None
    ]


def _question_again(service: Service, queue: Queue, retry: ReviewAnswer) -> TagQuestion:
    if queue == "mistakes":
        for pair in _mistakes(service.catalogue, MAX_MISTAKES):
            if pair[:2] == retry[:2]:
                return pair._replace(why=["one more time", *pair.why])
    predictions = service.view(retry.image_id).predicted
    confidence = next((item.confidence for item in predictions if item.tag == retry.tag), None)
    return TagQuestion(retry.image_id, retry.tag, confidence, ["one more time"])


def _answers_since(stored: StoredCatalogue, added: str, state: str) -> int:
    """Return the number of answers that count since the last "fit" job in this state, or since the run was `added`."""
    start = "coalesce((SELECT max(started) FROM jobs WHERE kind = 'fit' AND state LIKE ?), ?)"
    judged = f"SELECT DISTINCT image_id, tag_id FROM feedback WHERE at > {start}"
    statement = f"SELECT count(*) FROM ({judged}) JOIN verdicts USING (image_id, tag_id) WHERE verdict != 0"
    return int(stored.database.value(statement, (state, added)))
