"""Review: one question after another, is this tag right on this picture; and learning from the answers."""

from __future__ import annotations

import json
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Form, Request
from starlette.responses import Response

from visterm.app.catalogue import Catalogue
from visterm.app.review import review_queue
from visterm.store.images import ImageRecord
from visterm.web.errors import Refused
from visterm.web.pages.picture import explains, known
from visterm.web.pages.render import PageRoute, render, wants_part
from visterm.web.pages.search import Shared

router = APIRouter(include_in_schema=False, route_class=PageRoute)

VERDICTS = {"right": 1, "wrong": -1, "skip": 0}
SAID = {"right": "{} is right", "wrong": "{} is wrong", "skip": "{} skipped"}
MOST_BACK = 300
"""Answers of a sitting that can be undone, and questions that stay skipped."""


class Answer(NamedTuple):
    """A question and how it was answered: "right", "wrong" or "skip"."""

    image_id: int
    tag: str
    do: str


class Question(NamedTuple):
    """What is asked now."""

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
        values = await service.searching.run(_undo, service.catalogue, answers)
    elif do in VERDICTS:
        values = await service.searching.run(_answer, service.catalogue, answers, Answer(image, tag, do))
    else:
        raise Refused(422, f"do is {do!r}; expected right, wrong, skip or undo.", field="do")
    return render("_question.html" if wants_part(request) else "review.html", **values)


def _answer(catalogue: Catalogue, answers: list[Answer], answer: Answer) -> dict[str, Any]:
    known(catalogue, answer.image_id)
    if answer.do != "skip":
        catalogue.judge(answer.image_id, answer.tag, VERDICTS[answer.do])
    return _ask(catalogue, [*answers, answer], said=SAID[answer.do].format(answer.tag))


def _undo(catalogue: Catalogue, answers: list[Answer]) -> dict[str, Any]:
    if not answers:
        return _ask(catalogue, [], said="There is nothing to undo")
    *before, last = answers
    known(catalogue, last.image_id)
    if last.do != "skip":
        catalogue.judge(last.image_id, last.tag, 0)
    return _ask(catalogue, before, again=last, said=f"{last.tag}: asked again")


def _ask(catalogue: Catalogue, answers: list[Answer], *, again: Answer | None = None, said: str = "") -> dict[str, Any]:
    """Give the next question, the one after it to be made ready, and how far the review is."""
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
    return answer.image_id, answer.tag, confidence, ["asked again"]


def _trail(text: str) -> list[Answer]:
    """Read the answers of this sitting, which the page carries along."""
    try:
        answers = [Answer(int(image), str(tag), str(do)) for image, tag, do in json.loads(text)]
    except (ValueError, TypeError):
        raise Refused(422, "The answers of this sitting cannot be read. Open /review anew.", field="trail") from None
    if any(answer.do not in VERDICTS for answer in answers):
        raise Refused(422, "The answers of this sitting cannot be read. Open /review anew.", field="trail")
    return answers[-MOST_BACK:]
