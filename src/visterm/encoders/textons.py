"""Textons: the few patterns of filter responses that stand for all textures of a collection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from visterm.core.progress import SILENT, Progress
from visterm.core.threads import Team, one_blas_thread, resolve_jobs
from visterm.encoders.codebook import learn_codebook
from visterm.encoders.filters import FilterBank
from visterm.kernels.nearest import nearest_words, prepare_codebook

STEPS = 20


class TextonFinder:
    """Finds the texton of each pixel of a picture.

    Parameters
    ----------
    bank : FilterBank
    spread : ndarray of float32, shape (n_filters,)
        What responses are divided by.
    textons : ndarray of float32, shape (n_textons, n_filters)
        Patterns of squeezed responses.
    """

    def __init__(self, bank: FilterBank, spread: NDArray[np.float32], textons: NDArray[np.float32]) -> None:
        self._bank = bank
        self._spread = spread
        self._prepared = prepare_codebook(textons)

    def find(self, gray: NDArray[np.uint8]) -> NDArray[np.uint16]:
        """Return the texton nearest to the responses at each pixel, shape (height, width)."""
        responses = self._bank.respond(gray)
        points = squeezed(responses.reshape(len(responses), -1).T / self._spread)
        words, _ = nearest_words(points, self._prepared)
        codes: NDArray[np.uint16] = words.reshape(gray.shape).astype(np.uint16)
        return codes


class Textons(NamedTuple):
    """What was learned for pictures of one scale.

    Attributes
    ----------
    spread : ndarray of float32, shape (n_filters,)
        Standard deviation of each filter's responses; 1 where they never differ.
    patterns : ndarray of float32, shape (n_textons, n_filters)
    """

    spread: NDArray[np.float32]
    patterns: NDArray[np.float32]


def learn_textons(
    pictures: Sequence[NDArray[np.uint8]],
    bank: FilterBank,
    n_textons: int,
    sample_pixels: int,
    rng: np.random.Generator,
    *,
    n_jobs: int | None = None,
    progress: Progress = SILENT,
    task: str = "learn textons",
) -> Textons:
    """Learn the patterns that are nearest to the responses at pixels drawn from pictures, about as many from each.

    Parameters
    ----------
    pictures : sequence of ndarray of uint8, shape (height, width)
        Brightness.
    bank : FilterBank
    n_textons : int
        Fewer are given where fewer different patterns were drawn.
    sample_pixels : int
        Pixels drawn from all pictures together; at least one from each.
    rng : Generator
    n_jobs : int or None
        Threads; changes nothing but time.
    progress : Progress
    task : str
        What `progress` calls the work.

    Returns
    -------
    Textons
    """
    each = max(1, sample_pixels // len(pictures))
    places = [rng.integers(0, picture.size, each) for picture in pictures]

    def drawn(i: int) -> NDArray[np.float32]:
        responses = bank.respond(pictures[i])
        return responses.reshape(len(responses), -1).T[places[i]]

    with Team(min(resolve_jobs(n_jobs), len(pictures))) as team:
        responses = np.concatenate(team.run(drawn, len(pictures)))
    spread = responses.std(axis=0, dtype=np.float64)
    spread = np.where(spread > 1e-6 * spread.max(), spread, 1).astype(np.float32)
    with one_blas_thread():
        patterns = learn_codebook(
            squeezed(responses / spread),
            n_textons,
            rng,
            iterations=STEPS,
            n_jobs=n_jobs,
            progress=progress,
            task=task,
        )
    return Textons(spread, patterns)


def squeezed(responses: NDArray[np.float32]) -> NDArray[np.float32]:
    """Shorten each row from its length ``r`` to ``log(1 + r)``, so that a few strong edges do not take most textons.

    Weber's law, as in Malik, Belongie, Leung, Shi: Contour and texture analysis for image segmentation, IJCV 2001.
    """
    length = np.sqrt(np.einsum("ij,ij->i", responses, responses))[:, None]
    factor = np.log1p(length) / np.where(length > 0, length, 1)
    return np.ascontiguousarray(responses * factor)
