"""Learn codebooks of words and palettes of colours by k-means; the result does not depend on the number of threads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visterm.core.progress import SILENT, Progress, reported
from visterm.core.threads import Team, one_blas_thread, resolve_jobs
from visterm.kernels.nearest import TILE, add_by_word, nearest_words, prepare_codebook
from visterm.kernels.pixels import lab_from_rgb

POINTS_PER_TASK = 8 * TILE  # Fixed, so that the last bits do not depend on the number of threads

COLOUR_SPACES = ("lab", "rgb")  # Spaces in which colours are compared
PIXELS_PER_IMAGE = 100
MAX_PALETTE_STEPS = 20

MAX_COLOURS = 256  # A pixel's colour is stored in a byte
MAX_VALUE = 1e6  # Maximum value of colours and words from files; results of larger values may overflow float32


def learn_codebook(
    points: NDArray[np.float32],
    n_words: int,
    rng: np.random.Generator,
    *,
    iterations: int = 10,
    n_jobs: int | None = None,
    progress: Progress = SILENT,
    task: str = "codebook",
) -> NDArray[np.float32]:
    """Learn at most `n_words` words by k-means on `points`, float32 (n_words, n_features).

    Training starts from distinct points drawn at random; if there are fewer than `n_words`, there are fewer words. A
    word that loses all its points is moved to one of the points furthest from their words. Training stops after
    `iterations` Lloyd steps, or when no point changes its word. Progress shows each step as `task`; `n_jobs` only
    changes the run time.
    """
    first_index: dict[bytes, int] = {}
    for index in rng.permutation(len(points)):
        first_index.setdefault(points[index].tobytes(), index)
        if len(first_index) == n_words:
            break
    codebook = points[list(first_index.values())]

    squares = np.square(points, dtype=np.float64).sum(axis=1)
    previous_words: NDArray[np.int32] | None = None
    with reported(progress, task, iterations):
        for _ in range(iterations):
            words, scores = assign_words(points, prepare_codebook(codebook), n_jobs=n_jobs)
            if previous_words is not None and np.array_equal(words, previous_words):
                break
            previous_words = words
            distances = np.maximum(squares - 2 * scores.astype(np.float64), 0)
            sums = np.zeros(codebook.shape, np.float64)
            counts = np.zeros(len(codebook), np.int64)
            add_by_word(points, words, sums, counts)
            empty_words = np.flatnonzero(counts == 0)  # moved to the points furthest from their words
            furthest = np.argsort(-distances, kind="stable")[: len(empty_words)]
            sums[empty_words], counts[empty_words] = points[furthest], 1
            codebook = (sums / counts[:, None]).astype(np.float32)
            progress.advance()
    return codebook


def assign_words(
    points: NDArray[np.float32], prepared: NDArray[np.float32], *, n_jobs: int | None = None
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return the nearest word of each point, and its score, in `n_jobs` threads (see `nearest_words`)."""
    parts = [points[start : start + POINTS_PER_TASK] for start in range(0, len(points), POINTS_PER_TASK)]
    with one_blas_thread(), Team(min(resolve_jobs(n_jobs), len(parts))) as team:
        nearest = team.run(lambda i: nearest_words(parts[i], prepared), len(parts))
    words, scores = zip(*nearest, strict=True)
    return np.concatenate(words)[:, 0], np.concatenate(scores)[:, 0]


def learn_palette(
    images: Sequence[NDArray[np.uint8]],
    n_colours: int,
    space: str,
    rng: np.random.Generator,
    *,
    n_jobs: int | None = None,
    progress: Progress = SILENT,
) -> NDArray[np.float32]:
    """Learn at most `n_colours` colours by k-means on pixels, with the same number of pixels from each image.

    Colours are compared and returned in the space "lab" or "rgb", float32 (n_colours, 3); there are fewer rows if the
    pixels have fewer colours. `n_jobs` only changes the run time.
    """
    flat_images = (pixels.reshape(-1, 3) for pixels in images)
    drawn_pixels = np.concatenate([pixels[rng.integers(0, len(pixels), PIXELS_PER_IMAGE)] for pixels in flat_images])
    points: NDArray[np.float32] = (lab_from_rgb(drawn_pixels) if space == "lab" else drawn_pixels).astype(np.float32)
    options: dict[str, Any] = {"n_jobs": n_jobs, "progress": progress}
    return learn_codebook(points, n_colours, rng, iterations=MAX_PALETTE_STEPS, task="learn colours", **options)
