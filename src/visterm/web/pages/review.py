"""Review: one question after another, is this tag right on this picture; and learning from the answers."""

from __future__ import annotations

import json
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Form, Request
from pydantic import FailFast, Field, TypeAdapter, ValidationError
from starlette.responses import Response

from visterm.library.catalogue import Catalogue
from visterm.library.review import review_queue
from visterm.store.filters import LARGEST
from visterm.store.images import ImageRecord
from visterm.web.body_limit import MEDIUM, takes
from visterm.web.errors import Refused
from visterm.web.pages.picture import explains, known
from visterm.web.pages.render import PageRoute, render, wants_part
from visterm.web.pages.search import Shared
from visterm.web.service import Service

router = APIRouter(include_in_schema=False, route_class=PageRoute)

VERDICTS = {"right": 1, "wrong": -1, "skip": 0}
SAID = {"right": "{} is right", "wrong": "{} is wrong", "skip": "{} skipped"}
MOST_BACK = 300
"""Answers of a sitting that can be undone, and questions that stay skipped."""


class Answer(NamedTuple):
    """A question and how it was answered: "right", "wrong" or "skip"."""

    image_id: Annotated[int, Field(ge=0, le=LARGEST)]
    tag: str
    do: Annotated[str, Field(pattern="^(right|wrong|skip)$")]


class Question(NamedTuple):
    """The question that is shown."""

    record: ImageRecord
    tag: str
    confidence: float | None
    why: list[str]
    tags: list[str]


@router.get("/review")
async def review_page(service: Shared) -> Response:
    """Ask the first question."""
    values = await service.searching.run(_ask, service.catalogue, [])
    return render("review.html", **values)


@router.post("/review")
@takes(MEDIUM)
async def take_answer(
    request: Request,
    service: Shared,
    do: Annotated[str, Form()],
    image: Annotated[int, Form()] = -1,
    tag: Annotated[str, Form()] = "",
    trail: Annotated[str, Form()] = "[]",
) -> Response:
    """Take an answer, or the last one back, and ask the next question."""
    answers = _trail(trail)
    if do == "undo":
        values = await _undo(service, answers)
    elif do in VERDICTS:
        values = await _answer(service, answers, Answer(image, tag, do))
    else:
        raise Refused(422, f"do is {do!r}; expected right, wrong, skip or undo.", field="do")
    return render("_question.html" if wants_part(request) else "review.html", **values)


async def _answer(service: Service, answers: list[Answer], answer: Answer) -> dict[str, Any]:
    await _write(service, answer, VERDICTS[answer.do])
    said = SAID[answer.do].format(answer.tag)
    return await service.searching.run(_ask, service.catalogue, [*answers, answer], said=said)


async def _undo(service: Service, answers: list[Answer]) -> dict[str, Any]:
    if not answers:
        return await service.searching.run(_ask, service.catalogue, [], said="There is nothing to undo")
    *before, last = answers
    await _write(service, last, 0)
    return await service.searching.run(_ask, service.catalogue, before, again=last, said=f"{last.tag}: one more time")


async def _write(service: Service, answer: Answer, verdict: int) -> None:
    """Write down a verdict on the tag of an answer; of one that was skipped, check only that there is the picture."""

    def judge() -> None:
        known(service.catalogue, answer.image_id)
        if answer.do != "skip":
            service.catalogue.judge(answer.image_id, answer.tag, verdict)

    await (service.searching if answer.do == "skip" else service.writing).run(judge)


def _ask(catalogue: Catalogue, answers: list[Answer], *, again: Answer | None = None, said: str = "") -> dict[str, Any]:
    """Return the next question, the one after it to be made ready, and how far the review is."""
    stored = catalogue.stored
    skipped = {(answer.image_id, answer.tag) for answer in answers if answer.do == "skip"}
    queue = review_queue(stored, 2, skip=skipped)
    pairs = [(item.image_id, item.tag, item.confidence, item.why) for item in queue]
    if again is not None:
        pairs = [_of(catalogue, again), *(pair for pair in pairs if pair[:2] != (again.image_id, again.tag))]
    question = None
    if pairs:
        image_id, tag, confidence, why = pairs[0]
        record = known(catalogue, image_id).record
        question = Question(record, tag, confidence, why, stored.tags.held([image_id]).get(image_id, []))
    run = stored.runs.current()
    since = "SELECT count(*) FROM feedback WHERE verdict != 0 AND at > ?"
    return {
        "question": question,
        "next_image": pairs[1][0] if len(pairs) > 1 else None,
        "trail": json.dumps(answers[-MOST_BACK:]),
        "last": answers[-1] if answers else None,
        "answered": sum(answer.do != "skip" for answer in answers),
        "unlearned": stored.database.value(since, (run.added if run else "",)),
        "reviewed": stored.database.value("SELECT count(*) FROM images WHERE state = 'here' AND reviewed IS NOT NULL"),
        "n_images": stored.images.count(),
        "explains": question is not None and question.record.path is not None and explains(catalogue),
        "said": said,
    }


def _of(catalogue: Catalogue, answer: Answer) -> tuple[int, str, float | None, list[str]]:
    predicted = known(catalogue, answer.image_id).predicted
    confidence = next((item.confidence for item in predicted if item.tag == answer.tag), None)
    return answer.image_id, answer.tag, confidence, ["one more time"]


def _trail(text: str) -> list[Answer]:
    """Read the answers of this sitting, which the page carries along."""
    try:
        return _TRAIL.validate_json(text)[-MOST_BACK:]
    except ValidationError:
        raise Refused(422, "The answers of this sitting cannot be read. Open /review anew.", field="trail") from None


_TRAIL = TypeAdapter(Annotated[list[Answer], FailFast()])
