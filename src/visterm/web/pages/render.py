"""Pages from templates, everything escaped: a whole page, or the part that the script requests; and static files."""

from __future__ import annotations

import hashlib
from datetime import datetime
from importlib.resources import files
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Request
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import RedirectResponse, Response

from visterm.core.wording import count_of, printable
from visterm.data.image_folders import is_video
from visterm.library.search.photo_names import MONTHS
from visterm.store.images import ImageRecord
from visterm.store.images import moment as clock
from visterm.web.bodies import JsonRoute
from visterm.web.errors import HttpError, http_error_of, json_answer
from visterm.web.roles import PERSON

PART_HEADER = "x-part"
"""Header with which the script requests a part of a page; without it a form is answered with the whole next page."""

PAGE_HEADERS = {"cache-control": "no-store", "referrer-policy": "same-origin", "vary": PART_HEADER}
"""The policy is not "no-referrer", under which browsers send forms with an Origin of "null"."""

HEADLINES = {
    403: "Not allowed", 404: "Not found", 405: "Nothing to see here", 409: "Not possible right now", 413: "Too large",
    422: "That didn’t work", 503: "The service is busy", 507: "The disk is full",
}  # fmt: skip

router = APIRouter(include_in_schema=False)

STATIC_TYPES = {"visterm.css": "text/css; charset=utf-8", "icon.svg": "image/svg+xml"} | dict.fromkeys(
    ("early.js", "visterm.js", "choose.js", "photo_map.js"), "text/javascript; charset=utf-8"
)
_STATIC_BODIES = {name: (files("visterm.web.pages") / "static" / name).read_bytes() for name in STATIC_TYPES}
_ETAGS = {name: f'"{hashlib.sha256(body).hexdigest()[:32]}"' for name, body in _STATIC_BODIES.items()}


def render(template: str, status: int = 200, /, **values: object) -> Response:
    """Return a page, or a part of one; bytes of a file name that are not Unicode are shown as "?"."""
    text = _TEMPLATES.get_template(template).render(values)
    return Response(text.encode("utf-8", "replace"), status, PAGE_HEADERS, "text/html; charset=utf-8")


def is_for_script(request: Request) -> bool:
    """Return whether the script sent the request: it needs only a part of the page."""
    return PART_HEADER in request.headers


def redirect(address: str) -> Response:
    """Redirect a browser to a page after it has sent a form."""
    return RedirectResponse(address, 303, PAGE_HEADERS)


def answer_form(request: Request, part: str, page: str, /, **values: object) -> Response:
    """Return a part of a page to the script; without the script, redirect the browser to a page."""
    return render(part, **values) if is_for_script(request) else redirect(page)


class PageRoute(JsonRoute):
    """A route whose errors are pages; the script receives only the message."""

    def answer_error(self, request: Request, error: Exception) -> Response:
        """Return the page of an error."""
        return error_page(request, error)


def error_page(request: Request, error: Exception) -> Response:
    """Return the page of an error, with the status and the headers of the API's answer."""
    http_error = http_error_of(error, str)  # names of settings without backquotes
    if is_for_script(request):
        return json_answer({"message": http_error.detail}, http_error.status_code)
    headline = HEADLINES.get(http_error.status_code, "Something went wrong")
    page = render("error.html", http_error.status_code, message=http_error.detail, headline=headline)
    page.headers.update(http_error.headers or {})
    return page


def answer_of(request: Request, error: Exception) -> Response:
    """Return the answer to an error that no page route has answered: a page for browsers, otherwise JSON."""
    is_for_programs = request.url.path.startswith(("/api/", "/label-studio"))
    if is_for_script(request) or ("text/html" in request.headers.get("accept", "") and not is_for_programs):
        return error_page(request, error)
    return http_error_of(error).answer()


def local(path: str, **query: object) -> str:
    """Return an address on this service with a query, without values that are None, empty or False."""
    values = {name: value for name, value in query.items() if value not in (None, "", False, (), [])}
    return quote(path) + (f"?{urlencode(values, doseq=True, errors='replace')}" if values else "")


def static_address(name: str) -> str:
    """Return the address of a static file, which changes with its content."""
    return f"/static/{name}?v={_ETAGS[name][1:13]}"


@router.get("/static/{name}")
async def static_file(name: str, request: Request) -> Response:
    """Return a static file, or 304 if the browser has it."""
    if name not in STATIC_TYPES:
        raise HttpError(404, f"There is no file {name} here.")
    cache_control = "public, max-age=31536000, immutable" if "v" in request.query_params else "no-cache"
    headers = {"etag": _ETAGS[name], "cache-control": cache_control}
    if _ETAGS[name] in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(_STATIC_BODIES[name], headers=headers, media_type=STATIC_TYPES[name])


def thumbnail(image_id: int, side: int, at: float | None = None) -> str:
    """Return the address of a thumbnail; `side` is one of `web.api.images.Side`, and `at` a moment of a video."""
    return f"/api/v1/images/{image_id}/thumbnail?size={side}{'' if at is None else f'&at={at:.3f}'}"


def video(image_id: int, at: float | None = None) -> str:
    """Return the address of a video; it starts at the moment `at`, in seconds."""
    return f"/api/v1/images/{image_id}/video{f'#t={at:.3f}' if at else ''}"


def file_name(name: str) -> str:
    """Return the last part of a path."""
    return name.rstrip("/").rpartition("/")[2] or name


class _Exact(str):
    """Text that a form or the script sends back, and that must not change."""


def _printable(value: object) -> object:
    """Return a value as a page shows it: U+FFFD replaces letters that are invisible or change the text's direction."""
    if not isinstance(value, str) or isinstance(value, Markup | _Exact):
        return value
    return "\n".join(map(printable, value.split("\n")))


def percent(share: float | None) -> str:
    """Return a share in whole percent; 0 and 100 only if the share is exactly 0 or 1."""
    if share is None:
        return "–"
    for low, high, text in ((-0.01, 0, ">−1 %"), (0, 0.01, "<1 %"), (0.99, 1, ">99 %")):
        if low < share < high:
            return text
    return f"{share:.0%}".replace("%", " %").replace("-", "−")


def decimal(value: object, places: int = 2) -> object:
    """Return a float rounded to some places, never as "-0.00"; any other value as it is."""
    return f"{round(value, places) + 0.0:.{places}f}" if isinstance(value, float) else value


def signed(value: float) -> str:
    """Return a difference with its sign, to three places."""
    return f"{value:+.3f}".replace("-", "−")


def file_size(n_bytes: int) -> str:
    """Return a number of bytes in a readable unit."""
    size = float(n_bytes)
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit != "MB" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def moment(at: str | None) -> str:
    """Return a time to the minute, such as 2024-07-31 18:05; UTC becomes the local time of this machine."""
    at = at or ""
    if at.endswith("Z"):
        at = datetime.fromisoformat(at).astimezone().isoformat()
    return at.replace("T", " ")[:16]


def date_and_time(at: str) -> str:
    """Return a stored time as local time of this machine: 24 November 2026, 14:05."""
    local_time = datetime.fromisoformat(at).astimezone()
    return f"{local_time.day} {MONTHS[local_time.month - 1]} {local_time.year}, {local_time:%H:%M}"


def coordinates(record: ImageRecord) -> str:
    """Return where a photo was taken: 48.1372° N, 11.5755° E."""
    assert record.latitude is not None
    assert record.longitude is not None
    directions = ("S" if record.latitude < 0 else "N", "W" if record.longitude < 0 else "E")
    degrees = (abs(record.latitude), abs(record.longitude))
    return ", ".join(f"{value:.4f}° {name}" for value, name in zip(degrees, directions, strict=True))


_TEMPLATES = Environment(
    loader=PackageLoader("visterm.web.pages"), autoescape=True, finalize=_printable, undefined=StrictUndefined,
    trim_blocks=True, lstrip_blocks=True,
)  # fmt: skip
_TEMPLATES.globals.update(
    static=static_address, local=local, thumbnail=thumbnail, video=video, count_of=count_of, person=PERSON.get
)
_TEMPLATES.filters.update(
    percent=percent, decimal=decimal, signed=signed, file_size=file_size, moment=moment, exact=_Exact,
    coordinates=coordinates, file_name=file_name, clock=clock, is_video=is_video,
)  # fmt: skip
