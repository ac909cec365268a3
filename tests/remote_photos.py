"""Pictures in folders and in object stores, and what lies in either: what the tests of stores start from."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

N = 12


def picture(seed, n=4, width=4):
    """A picture of n × n patches of colour, each some pixels wide and no two seeds alike, as a PNG file."""
    file = BytesIO()
    patches = np.random.default_rng(seed).integers(0, 256, (n, n, 3), np.uint8)
    Image.fromarray(patches.repeat(width, axis=0).repeat(width, axis=1)).save(file, "PNG")
    return file.getvalue()


def paint(folder, numbers=range(N)):
    """Put pictures into a folder or a store, every third in a folder of its own."""
    for i in numbers:
        place = folder / ("sea" if i % 3 == 0 else "sky") / f"{i:02}.png"
        if isinstance(folder, Path):
            place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(picture(i))


def content(place):
    """All files below a place, by their names."""
    if isinstance(place, Path):
        return {p.relative_to(place).as_posix(): p.read_bytes() for p in sorted(place.rglob("*")) if p.is_file()}
    return {name: (place / name).read_bytes() for name in place.files()}


def put(folder, place):
    """Copy a folder into a store."""
    for name, data in content(folder).items():
        (place / name).write_bytes(data)
    return place
