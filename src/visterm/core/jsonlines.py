"""JSON that is valid UTF-8 whatever bytes file names hold, and the list of skipped images that is written with it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from visterm.core.files import open_text
from visterm.core.types import Skipped
from visterm.core.writing import whole_file

_SURROGATE = re.compile("[\ud800-\udfff]")


def json_text(value: Any, *, indent: int | None = None, sort_keys: bool = False, ascii_only: bool = False) -> str:
    r"""Return JSON with letters as they are and, of file names that are not UTF-8, the odd bytes as ``\udcff``.

    Python reads such a byte as a lone surrogate, which UTF-8 has no bytes for; as an escape it is plain ASCII, and
    `json.loads` gives the same name again. With `ascii_only` all other letters are escapes too.
    """
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent, sort_keys=sort_keys)
    return text if text.isascii() else _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def write_skipped(path: Path, skipped: Iterable[Skipped]) -> None:
    """Write one JSON object a line for each image that could not be read; a list that does not fit the disk stays."""
    if path.exists() and not path.is_file():  # a pipe, or /dev/null
        path.write_bytes(skipped_bytes(skipped))
        return
    with whole_file(path) as temporary:
        temporary.write_bytes(skipped_bytes(skipped))


def skipped_bytes(skipped: Iterable[Skipped]) -> bytes:
    """Return what `write_skipped` writes."""
    return "".join(json_text(item.as_dict()) + "\n" for item in skipped).encode()


def read_skipped(path: Path) -> list[Skipped]:
    """Read what `write_skipped` wrote."""
    with open_text(path) as lines:
        return [Skipped(**json.loads(line)) for line in lines]
