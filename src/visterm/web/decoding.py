"""Decode pictures in other processes: a picture that crashes, blocks or fills a process is refused with a reason."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import threading
from collections import OrderedDict
from contextlib import suppress
from queue import SimpleQueue

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import ImageError
from visterm.core.remote import is_remote
from visterm.data.images import fetch
from visterm.web.decoding_process import ANSWER, JPEG, PIXELS, READY, REQUEST, read_exactly
from visterm.web.work import Figures, SharedCount, Work

DECODER_DIED = "its decoder crashed, or took too long"

Answer = tuple[bytes, int, int, bytes]  # The answer of a process: outcome, height, width, and pixels or a JPEG


class Decoders:
    """A few processes that decode pictures, and a limited number of threads that wait for them.

    `bound` and `slow_bound` are those of `Work`. A process may use `memory_bytes`; a picture may have
    `max_pixels` and take `seconds`, after which its process is killed. `name` is the name of this work in messages and
    figures. `n_died` counts the processes that died and were replaced.
    """

    def __init__(
        self,
        processes: int,
        bound: int,
        *,
        memory_bytes: int,
        max_pixels: int,
        seconds: float,
        slow_bound: float = math.inf,
        name: str = "decode",
        figures: Figures | None = None,
    ) -> None:
        figures = figures or Figures()
        self.work = Work(name, processes, bound, slow_bound=slow_bound, figures=figures)
        self.n_died = figures.counter(f"{name} died")
        self._seconds = seconds
        command = [sys.executable, "-m", "visterm.web.decoding_process", str(memory_bytes), str(max_pixels)]
        self._idle: SimpleQueue[_Process] = SimpleQueue()
        self._all = [_Process(command) for _ in range(processes)]
        for process in self._all:
            self._idle.put(process)

    async def pixels(self, picture: bytes | str, side: int | None) -> NDArray[np.uint8]:
        """Return a picture as upright RGB, shape (height, width, 3), from a file's content, a path or an address.

        Raises ImageError if it can't be read, or its process died; StorageError if it is in an object store
        that can't be reached; HttpError (503) if too many requests wait.
        """
        _, height, width, content = await self.work.run(self._decode, PIXELS, side or 0, picture)
        return np.frombuffer(content, np.uint8).reshape(height, width, 3)

    async def jpeg(self, path: str, side: int) -> bytes:
        """Return a picture at a path as a JPEG with this longest side; errors are those of `pixels`."""
        return (await self.work.run(self._decode, JPEG, side, path))[-1]

    def close(self) -> None:
        """Kill the processes, also while they decode."""
        for process in self._all:
            process.kill()
        self.work.close()

    def _decode(self, wanted: bytes, side: int, picture: bytes | str) -> Answer:
        """Let an idle process decode a picture to `wanted`, PIXELS or JPEG; errors are those of `pixels`."""
        if isinstance(picture, str) and is_remote(picture):
            picture = fetch(picture)  # the process that decodes reaches no network
        is_path = isinstance(picture, str)
        content = os.fsencode(picture)
        header = REQUEST.pack(wanted, is_path, side, len(content))
        process = self._idle.get()
        try:
            answer = process.ask(header, content, self._seconds)
        finally:
            self._idle.put(process)

        if answer is None:
            self.n_died.value += 1
            raise ImageError("image", DECODER_DIED)
        if answer[0] not in (PIXELS, JPEG):
            raise ImageError("image", answer[-1].decode())
        return answer


class _Process:
    """One process, started at its first use and again after it died."""

    def __init__(self, command: list[str]) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, header: bytes, content: bytes, seconds: float) -> Answer | None:
        """Return the answer of the process; None if it died, or was killed after `seconds`."""
        if self._process is not None and self._process.poll() is not None:
            self.kill()
        if self._process is None:
            one_thread = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                env=os.environ | one_thread,
            )  # fmt: skip
            assert self._process.stdout is not None
            read_exactly(self._process.stdout, len(READY))

        process = self._process
        killer = threading.Timer(seconds, process.kill)
        killer.start()
        try:
            answer = _exchange(process, header, content)
            if answer is None:
                process.kill()
                process.wait()
            return answer
        finally:
            killer.cancel()
            if process.poll() is not None:
                self.kill()

    def kill(self) -> None:
        """Kill the process; it has no data that could be lost."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            with suppress(OSError):  # flushing data that the dead process can't receive
                if stream is not None:
                    stream.close()


def _exchange(process: subprocess.Popen[bytes], header: bytes, content: bytes) -> Answer | None:
    """Send a request to a process and return its answer; None if either pipe ends."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(header)
        process.stdin.write(content)
        process.stdin.flush()
    except (OSError, ValueError):  # it died (an invalid argument on Windows), or `kill` has closed the pipe
        return None

    answer_header = read_exactly(process.stdout, ANSWER.size)
    if answer_header is None:
        return None
    outcome, height, width, n_bytes = ANSWER.unpack(answer_header)
    picture = read_exactly(process.stdout, n_bytes)
    return None if picture is None else (outcome, height, width, picture)


class Thumbnails:
    """Small JPEGs of photos, kept in memory by content and side; the least recently used are dropped first.

    Together they use `n_bytes`, at most `max_bytes`.
    """

    def __init__(self, decoders: Decoders, max_bytes: int, n_bytes: SharedCount) -> None:
        self._decoders, self._max_bytes, self.n_bytes = decoders, max_bytes, n_bytes
        self._jpegs: OrderedDict[str, bytes] = OrderedDict()

    async def get(self, path: str, etag: str, side: int) -> bytes:
        """Return the thumbnail of the photo at a path; `etag` identifies its content and side, see `etag_of`.

        Raises ImageError if the photo can't be read; HttpError (503) if too many thumbnails are being made.
        """
        if etag in self._jpegs:
            self._jpegs.move_to_end(etag)
            return self._jpegs[etag]
        jpeg = await self._decoders.jpeg(path, side)
        if etag not in self._jpegs and len(jpeg) <= self._max_bytes:  # another request may have made it meanwhile
            self._jpegs[etag] = jpeg
            self.n_bytes.value += len(jpeg)
        while self.n_bytes.value > self._max_bytes:
            self.n_bytes.value -= len(self._jpegs.popitem(last=False)[1])
        return jpeg


def etag_of(sha256: str, side: int, at: float | None = None) -> str:
    """Return the ETag of a thumbnail from the file's content, the side and, for a video, the moment in seconds."""
    return f'"{sha256[:24]}-{side}{"" if at is None else f"-{at:.3f}"}"'
