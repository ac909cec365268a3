"""From a canvas to a photo: texture, the light of the hour, rain or falling snow, fog, blur and grain."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

from visterm_research.scenes.canvas import SCALE, Canvas
from visterm_research.scenes.materials import TILE, Material, grain, tile

TINTS: dict[str, tuple[float, float, float]] = {
    "day": (1.0, 1.0, 1.0),
    "sunset": (0.86, 0.68, 0.64),
    "night": (0.32, 0.36, 0.52),
}
FOG = np.array([206, 210, 216], np.float32)


def develop(canvas: Canvas, labels: NDArray[np.int32]) -> NDArray[np.uint8]:
    """Return the finished photo of a painted canvas, uint8 (height, width, 3).

    `labels`, int32 (height, width), say which layer of the canvas each pixel shows.
    """
    rng, mood = canvas.rng, canvas.mood
    if mood.weather in ("rain", "snow"):
        _fall(canvas)
    photo = np.asarray(canvas.picture.reduce(SCALE), dtype=np.float32)
    photo = photo * _texture(canvas, labels)[:, :, None]
    if mood.hour != "day":
        glows = np.array([layer.glows for layer in canvas.layers])[labels]
        photo *= np.where(glows[:, :, None], np.float32(1), np.array(TINTS[mood.hour], np.float32))
    if mood.weather == "fog":
        depth = np.linspace(0.75, 0.3, canvas.height, dtype=np.float32)[:, None, None]
        photo += (FOG * (0.4 if mood.hour == "night" else 1.0) - photo) * depth
    photo = _camera(canvas, photo)
    if rng.random() < 0.3:
        soft = Image.fromarray(np.clip(photo, 0, 255).astype(np.uint8)).filter(
            ImageFilter.BoxBlur(rng.uniform(0.3, 0.8))
        )
        photo = np.asarray(soft, dtype=np.float32)
    strength = rng.uniform(1.0, 4.0) * (1.6 if mood.hour == "night" else 1.0)
    photo = photo + (_crop(canvas, grain()) * np.float32(strength))[:, :, None]
    return np.clip(photo, 0, 255).astype(np.uint8)


def _camera(canvas: Canvas, photo: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the photo as this camera sees it: with its own white balance, exposure and saturation."""
    rng = canvas.rng
    balance = np.array([rng.uniform(0.95, 1.05) for _ in range(3)], np.float32) * np.float32(rng.uniform(0.82, 1.12))
    grey = photo.mean(axis=2, keepdims=True)
    saturation = np.float32(rng.triangular(0.55, 1.2, 1.0))
    seen: NDArray[np.float32] = (grey + (photo - grey) * saturation) * balance
    return seen


def _texture(canvas: Canvas, labels: NDArray[np.int32]) -> NDArray[np.float32]:
    materials = np.array([layer.material for layer in canvas.layers], np.int8)[labels]
    brightness = np.ones(labels.shape, np.float32)
    for material in sorted({layer.material for layer in canvas.layers} - {Material.PLAIN}):
        here = materials == material
        brightness[here] += _crop(canvas, tile(material))[here]
    return brightness


def _crop(canvas: Canvas, texture: NDArray[np.float32]) -> NDArray[np.float32]:
    top, left = canvas.rng.randrange(TILE - canvas.height + 1), canvas.rng.randrange(TILE - canvas.width + 1)
    return texture[top : top + canvas.height, left : left + canvas.width]


def _fall(canvas: Canvas) -> None:
    """Paint rain as slanted strokes and snow as soft flakes, over everything."""
    rng = canvas.rng
    draw = ImageDraw.Draw(canvas.picture, "RGBA")
    wide, tall = canvas.picture.size
    rain = canvas.mood.weather == "rain"
    slant = rng.uniform(-0.35, 0.35)
    for _ in range(150 if rain else 130):
        x, y = rng.uniform(0, wide), rng.uniform(0, tall)
        if rain:
            long = rng.uniform(8, 20)
            draw.line([(x, y), (x + slant * long, y + long)], fill=(226, 232, 242, 110), width=1)
        else:
            r = rng.uniform(1.0, 3.2)
            draw.ellipse([x - r, y - r, x + r, y + r], fill=(255, 255, 255, 215))
