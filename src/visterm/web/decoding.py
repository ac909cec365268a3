"""Decoding of pictures in other processes: one that dies, hangs or eats memory is replaced, its picture refused."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import OrderedDict
from contextlib import suppress
from queue import SimpleQueue
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import ImageError
from visterm.core.remote import is_remote
from visterm.data.fetching import fetch
from visterm.web.decoding_process import (
    ANSWER,
    JPEG,
    JPEG_OF_BYTES,
    JPEG_OF_FILE,
    PIXELS,
    PIXELS_OF_BYTES,
    PIXELS_OF_FILE,
    REQUEST,
    read_exactly,
)
from visterm.web.work import Work

_OF_BYTES = {PIXELS_OF_FILE: PIXELS_OF_BYTES, JPEG_OF_FILE: JPEG_OF_BYTES}

DIED = "its decoder died of it, or took too long"

SIDES = (160, 320, 640, 1280, 2560)
"""Longest sides, in pixels: few, so that what is kept serves all pages."""


class Jpeg(NamedTuple):
    """A picture as a small JPEG: no metadata of the original is in it."""

    content: bytes
    width: int
    height: int


class Decoders:
    """A few processes that decode pictures, and the bounded threads that wait for them.

    Parameters
    ----------
    processes : int
    bound : int
        Requests at work and waiting.
    memory_bytes : int
        Of one process.
    max_pixels : int
        Of one picture.
    seconds : float
        That one picture may take, before its process is killed.
    name : str
        What messages and figures call this work.

    Attributes
    ----------
    work : Work
    died : int
        Processes that were replaced.
    """

    def __init__(
        self,
        processes: int,
        bound: int,
        *,
        memory_bytes: int,
        max_pixels: int,
        seconds: float,
        name: str = "decode",
    ) -> None:
        self.work = Work(name, processes, bound)
        self.died = 0
        self._seconds = seconds
        self._command = [sys.executable, "-m", "visterm.web.decoding_process", str(memory_bytes), str(max_pixels)]
        self._idle: SimpleQueue[_Process] = SimpleQueue()
        self._all = [_Process(self._command) for _ in range(processes)]
        for process in self._all:
            self._idle.put(process)

    async def pixels(self, picture: bytes | str, side: int | None) -> NDArray[np.uint8]:
        """Return a picture as upright RGB, shape (height, width, 3), from a file's content, a path or an address.

        Raises
        ------
        ImageError
            If it cannot be read, or the process that read it died.
        StorageError
            If it is in an object store that cannot be reached.
        Refused
            503, if the bound is reached.
        """
        if isinstance(picture, str):
            found = await self.work.run(self._ask, PIXELS_OF_FILE, side or 0, os.fsencode(picture))
        else:
            found = await self.work.run(self._ask, PIXELS_OF_BYTES, side or 0, picture)
        return np.frombuffer(found.content, np.uint8).reshape(found.height, found.width, 3)

    async def jpeg(self, path: str, side: int) -> Jpeg:
        """Return a picture at a path as a JPEG of that longest side; errors are those of `pixels`."""
        return await self.work.run(self._ask, JPEG_OF_FILE, side, os.fsencode(path))

    def close(self) -> None:
        """End the processes, whatever they are at."""
        for process in self._all:
            process.end()
        self.work.close()

    def _ask(self, kind: bytes, side: int, content: bytes) -> Jpeg:
        if kind in _OF_BYTES and is_remote(address := os.fsdecode(content)):
            kind, content = _OF_BYTES[kind], fetch(address)  # the process that decodes reaches no network
        process = self._idle.get()
        try:
            answer = process.ask(kind, side, content, self._seconds)
        finally:
            self._idle.put(process)
        if answer is None:
            self.died += 1
            raise ImageError("image", DIED)
        how, found = answer
        if how not in (PIXELS, JPEG):
            raise ImageError("image", found.content.decode())
        return found


class _Process:
    """One process, started when it is needed, and again after it has died."""

    def __init__(self, command: list[str]) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, kind: bytes, side: int, content: bytes, seconds: float) -> tuple[bytes, Jpeg] | None:
        """Return what the process answers; None if it died, which it does when its time is over."""
        process = self._running()
        killer = threading.Timer(seconds, process.kill)
        killer.start()
        try:
            return _exchange(process, REQUEST.pack(kind, side, len(content)), content)
        finally:
            killer.cancel()
            if process.poll() is not None:
                self.end()

    def end(self) -> None:
        """Kill the process, which holds nothing that could be lost."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            with suppress(BrokenPipeError):  # of what was being written when it died
                if stream is not None:
                    stream.close()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is not None:
            self.end()
        if self._process is None:
            self._process = self._start()
        return self._process

    def _start(self) -> subprocess.Popen[bytes]:
        one_thread = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        return subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **one_thread},
        )


def _exchange(process: subprocess.Popen[bytes], header: bytes, content: bytes) -> tuple[bytes, Jpeg] | None:
    """Send a request to a process and return its answer; None where either pipe ends."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(header)
        process.stdin.write(content)
        process.stdin.flush()
    except (BrokenPipeError, ValueError):  # it died, or `end` has closed the pipe
        process.kill()
        process.wait()
        return None
    answer = read_exactly(process.stdout, ANSWER.size)
    if answer is not None:
        how, height, width, n_bytes = ANSWER.unpack(answer)
        found = read_exactly(process.stdout, n_bytes)
        if found is not None:
            return how, Jpeg(found, width, height)
    process.kill()
    process.wait()
    return None


class Thumbnails:
    """Small JPEGs of pictures, by content and side; those not asked for the longest go first. Lives in one loop.

    Parameters
    ----------
    decoders : Decoders
    most_bytes : int
        Of all that are kept.

    Attributes
    ----------
    n_bytes : int
        Of those that are kept now.
    """

    def __init__(self, decoders: Decoders, most_bytes: int) -> None:
        self._decoders = decoders
        self._most_bytes = most_bytes
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self.n_bytes = 0

    async def get(self, path: str, name: str, side: int) -> bytes:
        """Return the thumbnail of the picture at a path; `name` tells its content and side.

        Raises
        ------
        ImageError
            If the picture cannot be read (any more).
        Refused
            503, if too many are being made.
        """
        if name in self._kept:
            self._kept.move_to_end(name)
            return self._kept[name]
        made = (await self._decoders.jpeg(path, side)).content
        if name not in self._kept and len(made) <= self._most_bytes:  # another request may have made it meanwhile
            self._kept[name] = made
            self.n_bytes += len(made)
        while self.n_bytes > self._most_bytes:
            self.n_bytes -= len(self._kept.popitem(last=False)[1])
        return made


def name_of(sha256: str, side: int) -> str:
    """Name the thumbnail of a content: its ETag."""
    return f'"{sha256[:24]}-{side}"'
