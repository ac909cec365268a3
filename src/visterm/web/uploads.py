"""Uploaded pictures: as the body of a request, or as parts of a form."""

from __future__ import annotations

import base64
import binascii
import re
import sys
from typing import Any, NamedTuple

from fastapi import Request
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from visterm.core.errors import DataError
from visterm.web.errors import Refused

FIELD = "image"
PICTURE = {"type": "string", "format": "binary"}
PICTURES = {"type": "array", "items": PICTURE, "minItems": 1, "description": "Pictures to upload."}
BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "One picture as the body, or a form with pictures.",
        "content": {
            "multipart/form-data": {"schema": {"type": "object", "properties": {FIELD: PICTURES}, "required": [FIELD]}},
            "application/octet-stream": {"schema": PICTURE},
            "image/*": {"schema": PICTURE},
        },
    }
}
"""OpenAPI's description of such requests."""


_DATA = re.compile(r"data:image/[\w.+-]{1,40};base64,", re.IGNORECASE)


class Upload(NamedTuple):
    """An uploaded picture. Its name is only repeated in answers; no file is opened by it."""

    name: str
    content: bytes


def data_content(address: str) -> bytes | None:
    """Return the content of a picture's ``data:`` address; None for another address.

    Raises DataError if it is not base64.
    """
    if not _DATA.match(address):
        return None
    try:
        return base64.b64decode(address.partition(",")[2], validate=True)
    except (binascii.Error, ValueError) as error:
        raise DataError(f"the data: address is not base64: {error}") from error


async def read_uploads(request: Request, most: int) -> list[Upload]:
    """Read the pictures of a request.

    Raises
    ------
    Refused
        400, 415 or 422, if it has no pictures, or more than `most`.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        return await _read_form(request, most)
    if kind.startswith("image/") or kind in ("application/octet-stream", ""):
        content = await request.body()
        if not content:
            raise Refused(422, "The request has no picture: its body is empty.", field=FIELD)
        return [Upload(FIELD, content)]
    raise Refused(
        415,
        f"Content-Type is {kind!r}; expected multipart/form-data with pictures in '{FIELD}', or a picture as the body "
        "(image/* or application/octet-stream).",
    )


async def _read_form(request: Request, most: int) -> list[Upload]:
    """Read the pictures of a form; errors are those of `read_uploads`."""
    parser = MultiPartParser(request.headers, request.stream(), max_files=most + 1, max_fields=most + 1)
    parser.spool_max_size = sys.maxsize  # in memory, which is bounded, and never on a disk
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise Refused(400, f"The form can't be read: {error.message}") from error
    try:
        parts = [part for name, part in form.multi_items() if name == FIELD]
        if len(parts) > most:
            raise Refused(422, f"The form has {len(parts)} pictures; send at most {most} at once.", field=FIELD)
        if not parts:
            raise Refused(422, f"The form has no picture: send files in the field '{FIELD}'.", field=FIELD)
        found = []
        for part in parts:
            if not isinstance(part, UploadFile):
                raise Refused(422, f"'{FIELD}' is text; expected a file.", field=FIELD)
            found.append(Upload(part.filename or FIELD, await part.read()))
        return found
    finally:
        await form.close()
