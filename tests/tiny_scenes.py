"""Small striped and dotted pictures: two kinds that differ in texture, in colours that vary."""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageDraw


def scene(kind, seed, size=(96, 64)):
    """Draw a striped or a dotted picture with noise, in colours that vary."""
    rng = np.random.default_rng(seed)
    picture = Image.new("RGB", size, tuple(rng.integers(150, 256, 3).tolist()))
    pen = ImageDraw.Draw(picture)
    colour = tuple(rng.integers(0, 100, 3).tolist())
    for x in range(0, size[0], 8):
        if kind == "stripes":
            pen.rectangle((x, 0, x + 3, size[1]), fill=colour)
        else:
            for y in range(0, size[1], 8):
                pen.ellipse((x, y, x + 4, y + 4), fill=colour)
    return np.clip(np.array(picture) + rng.normal(0, 4, (size[1], size[0], 3)), 0, 255).astype(np.uint8)
