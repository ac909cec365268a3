"""Materials: small tiles of texture (foliage, brick, waves, fur, …) that give each surface its own grain."""

from __future__ import annotations

from enum import IntEnum
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

TILE = 384  # Side of a tile in pixels; pictures take a crop at a random offset, so tiles are larger than pictures


class Material(IntEnum):
    """What a surface is made of."""

    PLAIN = 0
    FOLIAGE = 1
    NEEDLES = 2
    GRASS = 3
    SAND = 4
    WATER = 5
    FUR = 6
    WOOL = 7
    BRICK = 8
    STONE = 9
    PLANKS = 10
    TILES = 11
    ROCK = 12
    CLOUD = 13
    SNOW = 14
    ASPHALT = 15
    BARK = 16
    FEATHERS = 17
    SCALES = 18
    METAL = 19
    SKIN = 20


LOOKS: dict[Material, tuple[float, tuple[float, float] | None]] = {
    Material.FOLIAGE: (0.20, (1.2, 1.2)),
    Material.NEEDLES: (0.22, (1.3, 0.4)),
    Material.GRASS: (0.13, (1.9, 0.35)),
    Material.SAND: (0.05, (0.45, 0.8)),
    Material.WATER: (0.10, (0.6, 3.5)),
    Material.FUR: (0.065, None),
    Material.WOOL: (0.11, (0.9, 0.9)),
    Material.BRICK: (0.11, None),
    Material.STONE: (0.10, (2.2, 2.6)),
    Material.PLANKS: (0.10, None),
    Material.TILES: (0.14, None),
    Material.ROCK: (0.13, None),
    Material.CLOUD: (0.04, (7.0, 10.0)),
    Material.SNOW: (0.03, (1.5, 4.0)),
    Material.ASPHALT: (0.06, (0.4, 0.4)),
    Material.BARK: (0.16, (3.0, 0.6)),
    Material.FEATHERS: (0.07, (0.7, 1.6)),
    Material.SCALES: (0.12, None),
    Material.METAL: (0.02, (0.6, 6.0)),
    Material.SKIN: (0.05, (1.5, 1.5)),
}
"""Standard deviation of the brightness that a material adds, as a share of its colour; and of those that are smoothed
noise, the standard deviations of the smoothing down and across, in pixels."""


@cache
def tile(material: Material) -> NDArray[np.float32]:
    """Return the texture of a material: mean 0, times its strength; shape (TILE, TILE)."""
    rng = np.random.default_rng(1000 + int(material))
    strength, smoothing = LOOKS.get(material, (0.0, None))
    if smoothing is not None:
        texture = _noise(rng, smoothing)
    elif material is Material.FUR:
        texture = _slanted(_noise(rng, (2.0, 0.4)))
    elif material is Material.ROCK:
        texture = _slanted(_noise(rng, (2.5, 1.0))) + 0.8 * _noise(rng, (6.0, 5.0))
    elif material is Material.BRICK:
        texture = _courses(rng, height=4, width=9, joint=-1.6)
    elif material is Material.TILES:
        texture = _courses(rng, height=3, width=4, joint=-1.8)
    elif material is Material.PLANKS:
        texture = _courses(rng, height=5, width=10_000, joint=-1.8).T
    elif material is Material.SCALES:
        texture = _courses(rng, height=3, width=3, joint=-1.5)
    else:
        return np.zeros((TILE, TILE), np.float32)
    texture = (texture - texture.mean()) / texture.std()
    shades: NDArray[np.float32] = np.clip(texture * strength, -0.6, 0.6).astype(np.float32)
    return shades


@cache
def grain() -> NDArray[np.float32]:
    """Return a tile of a sensor's grain: white and slightly soft noise of standard deviation 1, shape (TILE, TILE)."""
    rng = np.random.default_rng(999)
    return _noise(rng, (0.6, 0.6))


def _noise(rng: np.random.Generator, sigma: tuple[float, float]) -> NDArray[np.float32]:
    smooth: NDArray[np.float64] = gaussian_filter(rng.standard_normal((TILE, TILE)), sigma, mode="wrap")
    normal: NDArray[np.float32] = (smooth / smooth.std()).astype(np.float32)
    return normal


def _slanted(texture: NDArray[np.float32]) -> NDArray[np.float32]:
    """Shift each row by half a pixel more than the row above, so that strokes lie at an angle."""
    rows, columns = np.indices(texture.shape)
    slanted: NDArray[np.float32] = texture[rows, (columns + rows // 2) % TILE]
    return slanted


def _courses(rng: np.random.Generator, *, height: int, width: int, joint: float) -> NDArray[np.float32]:
    """Lay courses of stones, every other one shifted by half a stone, with dark joints between."""
    rows, columns = np.indices((TILE, TILE))
    course = rows // height
    along = columns + (course % 2) * (width // 2)
    tone = rng.standard_normal((TILE // height + 1, TILE // min(width, TILE) + 3)).astype(np.float32) * 0.5
    laid = tone[course, along // width]
    is_joint = (rows % height == 0) | (along % width == 0)
    return np.where(is_joint, np.float32(joint), laid).astype(np.float32)
