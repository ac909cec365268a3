"""Codebooks of words and palettes of colours, learned by a fast k-means: the same bytes for any number of threads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visterm.core.progress import SILENT, Progress, reported
from visterm.core.threads import Team, one_blas_thread, resolve_jobs
from visterm.kernels.nearest import TILE, add_by_word, nearest_words, prepare_codebook
from visterm.kernels.pixels import lab_from_rgb

PART = 8 * TILE  # Points a thread takes at a time: by the number of threads, the last bits would depend on that

SPACES = ("lab", "rgb")  # Where colours are compared
PIXELS_AN_IMAGE = 100
PALETTE_STEPS = 20

MOST_COLOURS = 256  # A pixel's colour is kept in a byte
LARGEST = 1e6  # Of colours and words that are read from files: beyond it float32 would not hold what is made of them


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
    """Learn at most `n_words` words that are nearest to `points` on average, float32 (n_words, n_features).

    It starts from distinct points drawn at random; where there are fewer of them, there are fewer words. A word that
    loses all its points takes over one of those that lie furthest from their words. It ends after `iterations` Lloyd
    steps, or when no point changes its word. Progress shows each step as `task`; `n_jobs` changes nothing but time.
    """
    chosen: dict[bytes, int] = {}
    for index in rng.permutation(len(points)):
        chosen.setdefault(points[index].tobytes(), index)
        if len(chosen) == n_words:
            break
    codebook = points[list(chosen.values())]

    norms = np.square(points, dtype=np.float64).sum(axis=1)
    before: NDArray[np.int32] | None = None
    with reported(progress, task, iterations):
        for _ in range(iterations):
            words, scores = assign_words(points, prepare_codebook(codebook), n_jobs=n_jobs)
            if before is not None and np.array_equal(words, before):
                break
            before = words
            distances = np.maximum(norms - 2 * scores.astype(np.float64), 0)
            sums = np.zeros(codebook.shape, np.float64)
            counts = np.zeros(len(codebook), np.int64)
            add_by_word(points, words, sums, counts)
            empty = np.flatnonzero(counts == 0)  # words that lost all their points move to those that are worst off
            worst_off = np.argsort(-distances, kind="stable")[: len(empty)]
            sums[empty], counts[empty] = points[worst_off], 1
            codebook = (sums / counts[:, None]).astype(np.float32)
            progress.advance()
    return codebook


def assign_words(
    points: NDArray[np.float32], prepared: NDArray[np.float32], *, n_jobs: int | None = None
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return the nearest word of each point, and its score, in `n_jobs` threads (see `nearest_words`)."""
    parts = [points[start : start + PART] for start in range(0, len(points), PART)]
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
    """Learn at most `n_colours` colours that are nearest to pixels drawn from images, as many from each.

    Colours are compared and returned in the space "lab" or "rgb", float32 (n_colours, 3); there are fewer where fewer
    were drawn. `n_jobs` changes nothing but time.
    """
    flat = (pixels.reshape(-1, 3) for pixels in images)
    drawn_pixels = np.concatenate([pixels[rng.integers(0, len(pixels), PIXELS_AN_IMAGE)] for pixels in flat])
    points: NDArray[np.float32] = (lab_from_rgb(drawn_pixels) if space == "lab" else drawn_pixels).astype(np.float32)
    shared: dict[str, Any] = {"n_jobs": n_jobs, "progress": progress}
    return learn_codebook(points, n_colours, rng, iterations=PALETTE_STEPS, task="learn colours", **shared)
