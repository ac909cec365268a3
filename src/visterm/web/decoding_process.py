"""A process that decodes pictures for the service, and may crash: bounded in memory, writing no files.

``python -m visterm.web.decoding_process MEMORY_BYTES MAX_PIXELS`` reads requests from standard input and writes answers
to standard output until its input ends, also while it decodes, so that it never outlives the service.
"""

from __future__ import annotations

import os
import struct
import sys
import threading
from io import BytesIO
from queue import SimpleQueue
from typing import IO

from PIL import Image

from visterm.core.errors import ImageError
from visterm.core.system import limit_this_process
from visterm.data.images import read_image, read_image_bytes
from visterm.data.pillow import readable_formats

REQUEST = struct.Struct(">c?IQ")
"""Requested outcome, whether a path follows instead of a picture, longest side (0: unchanged), number of bytes."""

READY = b"r"  # Sent once, before all answers: a busy machine may take long to start a process
ANSWER = struct.Struct(">cIIQ")  # The outcome, height, width, and the number of bytes that follow
PIXELS, JPEG, UNREADABLE = b"P", b"J", b"U"  # Outcomes; a request asks for one of the first two

JPEG_QUALITY = 82
MAX_OPEN_FILES = 64


def answer(outcome: bytes, is_path: bool, side: int, content: bytes) -> tuple[bytes, int, int, bytes]:
    """Return the answer to one request: the outcome, height, width and bytes."""
    max_side = side or None
    try:
        if is_path:
            pixels = read_image(os.fsdecode(content), max_side=max_side)
        else:
            pixels = read_image_bytes(content, max_side=max_side)
        height, width = pixels.shape[:2]
        if outcome == PIXELS:
            return PIXELS, height, width, pixels.tobytes()
        jpeg = BytesIO()
        Image.fromarray(pixels).save(jpeg, "JPEG", quality=JPEG_QUALITY, progressive=True, optimize=True)
        return JPEG, height, width, jpeg.getvalue()
    except ImageError as error:
        return UNREADABLE, 0, 0, error.reason.encode("utf-8", "replace")
    except MemoryError:
        return UNREADABLE, 0, 0, b"too little memory"


def read_exactly(stream: IO[bytes], n_bytes: int) -> bytes | None:
    """Read this number of bytes; return None if the stream ends earlier."""
    content = stream.read(n_bytes)
    return content if len(content) == n_bytes else None


def _read_requests(stream: IO[bytes], requests: SimpleQueue[tuple[bytes, bool, int, bytes]]) -> None:
    """Read requests; end the process after the last one, or if there is too little memory for one."""
    try:
        while (header := read_exactly(stream, REQUEST.size)) is not None:
            outcome, is_path, side, n_bytes = REQUEST.unpack(header)
            content = read_exactly(stream, n_bytes)
            if content is None:
                return
            requests.put((outcome, is_path, side, content))
    finally:
        os._exit(0)


def main() -> None:
    """Answer requests until there are no more."""
    memory_bytes, max_pixels = map(int, sys.argv[1:3])
    readable_formats()
    Image.MAX_IMAGE_PIXELS = max_pixels
    # also no core files and no files that it could write
    limit_this_process(RLIMIT_AS=memory_bytes, RLIMIT_CORE=0, RLIMIT_FSIZE=0, RLIMIT_NOFILE=MAX_OPEN_FILES)
    requests: SimpleQueue[tuple[bytes, bool, int, bytes]] = SimpleQueue()
    threading.Thread(target=_read_requests, args=(sys.stdin.buffer, requests), daemon=True).start()
    answers = sys.stdout.buffer
    answers.write(READY)
    answers.flush()
    while True:
        outcome, height, width, content = answer(*requests.get())
        answers.write(ANSWER.pack(outcome, height, width, len(content)))
        answers.write(content)
        answers.flush()


if __name__ == "__main__":
    main()
