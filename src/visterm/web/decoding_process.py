"""A process that decodes pictures for the service, and may crash: bounded in memory, writing no files.

``python -m visterm.web.decoding_process MEMORY_BYTES MAX_PIXELS`` reads requests from standard input and writes answers
to standard output until its input ends, so that it never outlives the service.
"""

from __future__ import annotations

import resource
import struct
import sys
from io import BytesIO
from typing import IO

REQUEST = struct.Struct(">cIQ")
"""The kind of request, the longest side (0: unchanged), and the number of bytes that follow."""

ANSWER = struct.Struct(">cIIQ")  # The outcome, height, width, and the number of bytes that follow
PIXELS_OF_BYTES, PIXELS_OF_FILE, JPEG_OF_FILE, JPEG_OF_BYTES = b"b", b"f", b"j", b"k"
PIXELS, JPEG, UNREADABLE = b"P", b"J", b"U"

QUALITY = 82
MOST_FILES = 64


def limit(memory_bytes: int) -> None:
    """Limit the memory of this process, and forbid core files and files of its own."""
    for kind, most in (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, MOST_FILES),
    ):
        _, hard = resource.getrlimit(kind)
        allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (allowed, allowed))


def answer(kind: bytes, side: int, content: bytes) -> tuple[bytes, int, int, bytes]:
    """Return the answer to one request: outcome, height, width and bytes."""
    import os

    from PIL import Image

    from visterm.core.errors import ImageError
    from visterm.data.images import read_image, read_image_bytes

    max_side = side or None
    try:
        if kind in (PIXELS_OF_BYTES, JPEG_OF_BYTES):
            pixels = read_image_bytes(content, max_side=max_side)
        else:
            pixels = read_image(os.fsdecode(content), max_side=max_side)
        height, width = pixels.shape[:2]
        if kind not in (JPEG_OF_FILE, JPEG_OF_BYTES):
            return PIXELS, height, width, pixels.tobytes()
        made = BytesIO()
        Image.fromarray(pixels).save(made, "JPEG", quality=QUALITY, progressive=True, optimize=True)
        return JPEG, height, width, made.getvalue()
    except ImageError as error:
        return UNREADABLE, 0, 0, error.reason.encode("utf-8", "replace")
    except MemoryError:
        return UNREADABLE, 0, 0, b"too little memory"


def read_exactly(stream: IO[bytes], n_bytes: int) -> bytes | None:
    """Read this many bytes; return None if the stream ends before."""
    content = stream.read(n_bytes)
    return content if len(content) == n_bytes else None


def main() -> None:
    """Answer requests until there are no more."""
    from PIL import Image

    import visterm.data.images  # noqa: F401  # decoding needs these modules, which are loaded before the limits apply

    memory_bytes, max_pixels = map(int, sys.argv[1:3])
    Image.init()
    Image.MAX_IMAGE_PIXELS = max_pixels
    limit(memory_bytes)
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    while (header := read_exactly(requests, REQUEST.size)) is not None:
        kind, side, n_bytes = REQUEST.unpack(header)
        content = read_exactly(requests, n_bytes)
        if content is None:
            return
        outcome, height, width, found = answer(kind, side, content)
        answers.write(ANSWER.pack(outcome, height, width, len(found)))
        answers.write(found)
        answers.flush()


if __name__ == "__main__":
    main()
