"""The available memory, the memory that features need, and the decision whether to stream them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from visterm.core.errors import UserError
from visterm.core.system import memory_bytes

DEFAULT_SHARE = 0.5  # Share of the machine's memory to use without a limit
COPIES = 3  # Number of copies of the features during a fit in memory: all rows, the training rows, and the scaled rows
BYTES_PER_IMAGE = 2048  # Approximate memory for the names and tags of one image
WINDOWS = 8  # Memory divided by the size of a window: two windows are loaded, and some models copy one
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


class Plan(NamedTuple):
    """The decision whether to stream features, and the memory to use."""

    needed: int  # Bytes that a fit in memory would need
    memory: int  # Bytes that it may use

    @property
    def window(self) -> int:
        """Size of a window in bytes."""
        return self.memory // WINDOWS

    def line(self, way: str = "") -> str:
        """Return a line that says whether features are streamed, and why; `way` replaces "streamed in windows"."""
        sizes = f"in memory about {size_text(self.needed)}, of {size_text(self.memory)} that may be used"
        if self.needed > self.memory:
            way = way or f"streamed from disk in windows of {size_text(self.window)}"
            return f"The features take {sizes}: {way}."
        return f"The features take {sizes}: held in memory."


def plan_memory(n_images: int, feature_bytes: int, memory: int | None) -> Plan:
    """Plan the memory for features of this size; a `memory` of None is half of the machine's memory."""
    needed = COPIES * feature_bytes + BYTES_PER_IMAGE * n_images
    return Plan(needed, int(machine_memory() * DEFAULT_SHARE) if memory is None else memory)


def machine_memory() -> int:
    """Return the bytes of memory that this process may use: the machine's memory, or the limit of its control group."""
    n_bytes = memory_bytes()
    for name in _LIMITS:
        file = Path(name)
        text = file.read_text(encoding="ascii").strip() if file.is_file() else "max"
        if text.isdigit():
            n_bytes = min(n_bytes, int(text))
    return n_bytes


def read_size(text: str) -> int:
    """Read an amount of memory such as ``800M``, ``1G`` or ``1.5GB``, in powers of 1,024.

    Raises UserError if the text is not a size, or less than one MB.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?\s*", text.lower())
    size = int(float(match[1]) * _UNITS[match[2]]) if match else 0
    if size < 2**20:
        raise UserError(setting="memory", value=text, expected="an amount of memory, 1M or more, such as 800M or 1.5G")
    return size


def size_text(size: int) -> str:
    """Return an amount of memory for people: ``1.5 GB``, ``128 MB``."""
    if size >= 2**30:
        return f"{size / 2**30:.1f} GB"
    return f"{size / 2**20:.0f} MB" if size >= 2**20 else f"{size / 2**10:.0f} KB"
