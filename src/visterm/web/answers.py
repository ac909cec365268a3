"""JSON answers, written without a detour: plain dicts in, ASCII bytes out, whatever bytes file names hold."""

from __future__ import annotations

import json
from typing import Any

from starlette.responses import Response

_ENCODE = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode


def json_answer(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    r"""Answer with JSON; of names that are not UTF-8 the odd bytes are ``\udcff``, as in our files."""
    return Response(_ENCODE(content), status, headers, media_type="application/json")
