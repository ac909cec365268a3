"""How much memory there is, how much features take in it, and so whether they are streamed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from visterm.core.errors import UserError
from visterm.core.system import memory_bytes

SHARE = 0.5  # Of the machine's memory, taken where nothing is said
COPIES = 3  # Times that a fit in memory holds features: all, those not held out, and as the model scales them
BYTES_AN_IMAGE = 2048  # What names and tags of one image take in memory, about
WINDOWS = 8  # A window is this part of the memory: two are held, some models copy one, and the rest is for all else
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


class Plan(NamedTuple):
    """Whether features are streamed, and in what memory."""

    needed: int  # Bytes that a fit in memory would take
    memory: int  # Bytes that it may

    @property
    def window(self) -> int:
        """Bytes of a window."""
        return self.memory // WINDOWS

    def line(self, way: str = "") -> str:
        """Return a line on whether features are streamed, and why; `way` is how, if not in windows."""
        sizes = f"in memory about {size_text(self.needed)}, of {size_text(self.memory)} that may be used"
        if self.needed > self.memory:
            way = way or f"streamed from disk in windows of {size_text(self.window)}"
            return f"The features take {sizes}: {way}."
        return f"The features take {sizes}: held in memory."


def plan_memory(n_images: int, feature_bytes: int, memory: int | None) -> Plan:
    """Return whether images with features of these bytes are streamed; without a limit, by half of the machine's."""
    needed = COPIES * feature_bytes + BYTES_AN_IMAGE * n_images
    return Plan(needed, int(machine_memory() * SHARE) if memory is None else memory)


def machine_memory() -> int:
    """Return the bytes of memory that this process may use: the machine's, or what its control group leaves of them."""
    n_bytes = memory_bytes()
    for name in _LIMITS:
        file = Path(name)
        text = file.read_text(encoding="ascii").strip() if file.is_file() else "max"
        if text.isdigit():
            n_bytes = min(n_bytes, int(text))
    return n_bytes


def read_size(text: str) -> int:
    """Read an amount of memory such as ``800M``, ``1G`` or ``1.5GB``, in powers of 1,024.

    Raises UserError if it is none, or less than one MB.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?\s*", text.lower())
    size = int(float(match[1]) * _UNITS[match[2]]) if match else 0
    if size < 2**20:
        raise UserError(
            setting="memory", value=text, expected="an amount of memory of 1M or more, such as 800M or 1.5G"
        )
    return size


def size_text(size: int) -> str:
    """Return an amount of memory for people: ``1.5 GB``, ``128 MB``."""
    if size >= 2**30:
        return f"{size / 2**30:.1f} GB"
    return f"{size / 2**20:.0f} MB" if size >= 2**20 else f"{size / 2**10:.0f} KB"
