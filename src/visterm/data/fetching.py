"""Images in object stores, fetched ahead of those that decode: a store answers late, but many questions at once."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

from visterm.core.errors import ImageError
from visterm.core.remote import RemotePath, as_path, is_remote

READERS = 16  # Images requested at the same time
MOST_BYTES = 2**28  # Bytes of a single image that is fetched because somebody looks at it
AHEAD = 32  # Images fetched or on their way before they are decoded: what is held in memory
GONE = "no such file"


class Fetched(NamedTuple):
    """An image file's content."""

    name: str  # Its address
    content: bytes | None  # None where there is no such object


def fetch_ahead(images: Iterator[tuple[int, Any]]) -> Generator[tuple[int, Any]]:
    """Pass numbered images on, in order: those in object stores as `Fetched`, all others as they are.

    Raises StorageError if a store cannot be reached, or does not allow reading: no image is skipped for that.
    """
    pool: ThreadPoolExecutor | None = None
    waiting: deque[tuple[int, Any]] = deque()
    try:
        for index, image in images:
            if not waiting and not is_remote(image):
                yield index, image
                continue
            pool = pool or ThreadPoolExecutor(READERS, thread_name_prefix="visterm-fetch")
            waiting.append((index, pool.submit(_fetched, os.fspath(image)) if is_remote(image) else image))
            if len(waiting) == AHEAD:
                yield _come(waiting.popleft())
        while waiting:
            yield _come(waiting.popleft())
    finally:
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)


def fetch(address: str) -> bytes:
    """Fetch the content of one image.

    Raises ImageError if there is none, or it is larger than `MOST_BYTES`; StorageError as `fetch_ahead` does.
    """
    state = RemotePath(address).state()
    if state is not None and state[0] > MOST_BYTES:
        raise ImageError(address, f"too large: {state[0]:,} bytes, and at most {MOST_BYTES:,} are fetched")
    content = _fetched(address).content
    if content is None:
        raise ImageError(address, GONE)
    return content


def _fetched(address: str) -> Fetched:
    """Return an object, or that there is none."""
    try:
        return Fetched(address, as_path(address).read_bytes())
    except FileNotFoundError:
        return Fetched(address, None)


def _come(item: tuple[int, Any]) -> tuple[int, Any]:
    index, image = item
    return index, image.result() if isinstance(image, Future) else image
