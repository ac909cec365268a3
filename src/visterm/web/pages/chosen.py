"""Several photos that were chosen in a grid: tagged and judged at once, and that undone."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from fastapi import APIRouter, Request
from starlette.responses import Response

from visterm.core.wording import count_of
from visterm.library.steps import MOST_PHOTOS
from visterm.store.filters import LARGEST
from visterm.web.api.steps import StepNumber, stored_step, undone_step
from visterm.web.body_limit import MEDIUM, takes
from visterm.web.errors import Refused
from visterm.web.pages.render import PageRoute, is_for_script, render
from visterm.web.pages.search import Shared
from visterm.web.security import local_address

router = APIRouter(include_in_schema=False, route_class=PageRoute)

SAID = {
    "give": "“{}” added to {}",
    "take": "“{}” removed from {}",
    "right": "“{}” is right for {}",
    "wrong": "“{}” is wrong for {}",
}
"""What can be said of a tag of the photos, and the message that the page then shows."""


@router.post("/chosen")
@takes(MEDIUM)
async def change_chosen(request: Request, service: Shared) -> Response:
    """Store what is said of a tag of the chosen photos: give, take, right or wrong."""
    async with request.form(max_files=0, max_fields=MOST_PHOTOS + 10) as form:
        ids = [str(value) for value in form.getlist("image")]
        do, tag, word = (str(form.get(name, "")) for name in ("do", "tag", "word"))
    if do not in SAID:
        raise Refused(422, f"do is {do!r}; expected one of {', '.join(SAID)}.", field="do")
    if not all(number.isascii() and number.isdigit() and int(number) <= LARGEST for number in ids):
        raise Refused(422, "image has a value that is no number of a photo.", field="image")
    about = tag if do in ("give", "take") else word
    if not about.strip():
        raise Refused(422, "Type a tag first.", field="tag")
    step = await stored_step(service, [int(number) for number in ids], **{do: [about]})
    said = SAID[do].format(about, count_of(len(step.images), "photo"))
    return _shown(request, said=said, number=step.number, images=step.images, do=do)


@router.post("/steps/{number}/undo")
async def undo_chosen(number: StepNumber, request: Request, service: Shared) -> Response:
    """Undo a step."""
    step = await undone_step(service, number)
    said = f"Undone for {count_of(len(step.images), 'photo')}"
    return _shown(request, said=said, number=None, images=step.images, do="undo")


def _shown(request: Request, **values: Any) -> Response:
    """Return the message of a step with a button that undoes it; without the script as a page that leads back."""
    if is_for_script(request):
        return render("_step.html", **values)
    address = urlsplit(request.headers.get("referer", ""))
    back = local_address(f"{address.path}?{address.query}" if address.query else address.path)
    return render("step.html", back=back if back != request.url.path else "/", **values)
