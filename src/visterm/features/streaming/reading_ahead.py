"""Parts read one after the other in a thread of their own, the next while one is worked on."""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def read_ahead(read: Callable[[int], T], n_parts: int) -> Generator[T]:
    """Yield ``read(0)`` .. ``read(n_parts - 1)``; an error of a part is raised when its turn comes."""
    with ThreadPoolExecutor(1, thread_name_prefix="visterm-reads") as reader:
        coming: list[Future[T]] = [reader.submit(read, 0)] if n_parts else []
        for number in range(n_parts):
            part = coming.pop().result()
            if number + 1 < n_parts:
                coming.append(reader.submit(read, number + 1))
            yield part
