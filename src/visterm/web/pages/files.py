"""The style sheet, the scripts and the icon: read once, with addresses that change with their content."""

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
    "early.js": "text/javascript; charset=utf-8",
    "visterm.js": "text/javascript; charset=utf-8",
    "choose.js": "text/javascript; charset=utf-8",
    "photo_map.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


class StaticFile(NamedTuple):
    """A file of the page and its ETag."""

    body: bytes
    media_type: str
    etag: str

    @classmethod
    def read(cls, name: str) -> StaticFile:
        """Read a file of the package."""
        body = (files("visterm.web.pages") / "static" / name).read_bytes()
        return cls(body, TYPES[name], f'"{hashlib.sha256(body).hexdigest()[:32]}"')


_FILES = {name: StaticFile.read(name) for name in TYPES}


def address_of(name: str) -> str:
    """Return the address of a static file, which changes with its content."""
    return f"/static/{name}?v={_FILES[name].etag[1:13]}"


@router.get("/static/{name}")
async def static_file(name: str, request: Request) -> Response:
    """Return a file, or 304 if the browser has it."""
    if name not in _FILES:
        raise Refused(404, f"There is no file {name} here.")
    file = _FILES[name]
    lasting = "public, max-age=31536000, immutable" if "v" in request.query_params else "no-cache"
    headers = {"etag": file.etag, "cache-control": lasting}
    if file.etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(file.body, headers=headers, media_type=file.media_type)
