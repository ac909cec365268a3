"""Pages from templates: escaped, with addresses of static files; whole, or the part that the script asked for."""

from __future__ import annotations

import json
from collections.abc import Callable
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode

from fastapi import Request
from fastapi.routing import APIRoute
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import RedirectResponse, Response

from visterm.core.wording import count_of, printable
from visterm.web.errors import answer_to, json_answer
from visterm.web.pages.files import address_of

PART = "x-part"
"""Header by which the script asks for a part of a page; without it a form is answered with the whole next page."""

HEADERS = {"cache-control": "no-store", "referrer-policy": "same-origin", "vary": PART}
"""The policy is not "no-referrer", under which browsers send forms with an Origin of "null"."""


def render(template: str, status: int = 200, **values: Any) -> Response:
    """Answer with a page, or a part of one; what is no Unicode in a file name is shown as "?"."""
    text = _TEMPLATES.get_template(template).render(values)
    return Response(text.encode("utf-8", "replace"), status, HEADERS, "text/html; charset=utf-8")


def wants_part(request: Request) -> bool:
    """Return whether the script asks, which puts the answer into the page that is there."""
    return PART in request.headers


def send_on(address: str) -> Response:
    """Send a browser to a page after a form was taken."""
    return RedirectResponse(address, 303, HEADERS)


class PageRoute(APIRoute):
    """A route whose errors are pages too, and a line of text for the script."""

    def get_route_handler(self) -> Callable[..., Any]:
        """Return the handler, with errors made into pages."""
        handle = super().get_route_handler()

        async def handle_with_pages(request: Request) -> Response:
            try:
                answer: Response = await handle(request)
            except Exception as error:
                return error_page(request, error)
            return answer

        return handle_with_pages


def error_page(request: Request, error: Exception) -> Response:
    """Return the page of an error, with the status and the headers that the API gives it."""
    answer = answer_to(error)
    told = json.loads(bytes(answer.body))["error"]["message"]
    if wants_part(request):
        return json_answer({"message": told}, answer.status_code)
    page = render("error.html", answer.status_code, told=told, phrase=HTTPStatus(answer.status_code).phrase)
    if "retry-after" in answer.headers:
        page.headers["retry-after"] = answer.headers["retry-after"]
    return page


def local(path: str, **query: Any) -> str:
    """Return an address on this service with a query; what is None, empty or False is left out."""
    kept = {name: value for name, value in query.items() if value not in (None, "", False, (), [])}
    return quote(path) + (f"?{urlencode(kept, doseq=True, errors='replace')}" if kept else "")


def thumbnail(image_id: int, side: int) -> str:
    """Return the address of a picture at one of the sides of `web.thumbnails.SIDES`."""
    return f"/api/v1/images/{image_id}/thumbnail?size={side}"


def file_name(name: str) -> str:
    """Return the last part of a path."""
    return name.rstrip("/").rpartition("/")[2] or name


class _Exact(str):
    """Text that a form or the script sends back, which has to stay what it is."""


def _shown(value: Any) -> Any:
    """Return a value as a page shows it: U+FFFD for what turns the direction of writing round, or is not seen."""
    if not isinstance(value, str) or isinstance(value, Markup | _Exact):
        return value
    return "\n".join(map(printable, value.split("\n")))


def percent(share: float | None) -> str:
    """Return a share in whole percent; neither 0 nor 100 where it is not quite."""
    if share is None:
        return "–"
    if 0 < share < 0.01:
        return "<1 %"
    if 0.99 < share < 1:
        return ">99 %"
    return f"{share:.0%}".replace("%", " %")


def file_size(n: int) -> str:
    """Return a number of bytes in the unit that suits it."""
    size = float(n)
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit != "MB" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def moment(at: str | None) -> str:
    """Return a time as it is stored, to the minute and without letters."""
    return (at or "").replace("T", " ")[:16]


_TEMPLATES = Environment(
    loader=PackageLoader("visterm.web.pages"),
    autoescape=True,
    finalize=_shown,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.globals.update(static=address_of, local=local, thumbnail=thumbnail, count_of=count_of)
_TEMPLATES.filters.update(percent=percent, file_size=file_size, moment=moment, exact=_Exact, file_name=file_name)
