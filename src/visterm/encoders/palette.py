"""A palette: the few colours that stand for all of a collection, learned from pixels of its photos."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import DataError
from visterm.core.progress import SILENT, Progress
from visterm.encoders.codebook import learn_codebook
from visterm.kernels.colour import lab_from_rgb

SPACES = ("lab", "rgb")
PIXELS_AN_IMAGE = 100
STEPS = 20

MOST_COLOURS = 256
"""A pixel's colour is kept in a byte."""

LARGEST = 1e6
"""Of colours and words that are read from files: beyond it float32 would not hold what is made of them."""


def learn_palette(
    images: Sequence[NDArray[np.uint8]],
    n_colours: int,
    space: str,
    rng: np.random.Generator,
    *,
    n_jobs: int | None = None,
    progress: Progress = SILENT,
) -> NDArray[np.float32]:
    """Learn the colours that are nearest to pixels drawn from images, as many from each.

    Parameters
    ----------
    images : sequence of ndarray of uint8, shape (height, width, 3)
    n_colours : int
        Fewer are given where fewer were drawn.
    space : {"lab", "rgb"}
        Where colours are compared.
    rng : Generator
    n_jobs : int or None
        Threads; changes nothing but time.
    progress : Progress

    Returns
    -------
    ndarray of float32, shape (at most n_colours, 3)
        In `space`.
    """
    drawn = []
    for pixels in images:
        flat = pixels.reshape(-1, 3)
        drawn.append(flat[rng.integers(0, len(flat), PIXELS_AN_IMAGE)])
    points = np.concatenate(drawn)
    if space == "lab":
        points = lab_from_rgb(points)
    return learn_codebook(
        points.astype(np.float32),
        n_colours,
        rng,
        iterations=STEPS,
        n_jobs=n_jobs,
        progress=progress,
        task="learn colours",
    )


def check_palette(colours: NDArray[np.float32]) -> None:
    """Refuse more colours than a byte can name."""
    if len(colours) > MOST_COLOURS:
        raise DataError(f"colours_ has {len(colours)} colours; expected at most {MOST_COLOURS}")
