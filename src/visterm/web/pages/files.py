"""The style sheet, the script and the icon: read once, known by their content, so that browsers keep them."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from typing import NamedTuple

from fastapi import APIRouter, Request
from starlette.responses import Response

from visterm.web.errors import Refused

router = APIRouter(include_in_schema=False)

TYPES = {
    "visterm.css": "text/css; charset=utf-8",
    "visterm.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


class StaticFile(NamedTuple):
    """A file of the page and its ETag."""

    body: bytes
    media_type: str
    etag: str


def address_of(name: str) -> str:
    """Return the address of a static file, which changes with its content."""
    return f"/static/{name}?v={_FILES[name].etag[1:13]}"


@router.get("/static/{name}")
async def static_file(name: str, request: Request) -> Response:
    """Answer with a file; with 304 where the browser has it."""
    if name not in _FILES:
        raise Refused(404, f"There is no file {name} here.")
    file = _FILES[name]
    headers = {"etag": file.etag, "cache-control": "public, max-age=31536000, immutable"}
    if "v" not in request.query_params:
        headers["cache-control"] = "no-cache"
    if file.etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(file.body, headers=headers, media_type=file.media_type)


def _read(name: str) -> StaticFile:
    body = (files("visterm.web.pages") / "static" / name).read_bytes()
    return StaticFile(body, TYPES[name], f'"{hashlib.sha256(body).hexdigest()[:32]}"')


_FILES = {name: _read(name) for name in TYPES}
