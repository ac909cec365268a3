"""Textons: the few patterns of filter responses that stand for all textures of a collection."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import scipy.fft
from numpy.typing import NDArray

from visterm.core.progress import SILENT, Progress
from visterm.core.threads import Team, one_blas_thread, resolve_jobs
from visterm.encoders import learn_codebook
from visterm.kernels import nearest_words, prepare_codebook

ELONGATION = 3  # How many times longer than wide the oriented filters are (Leung and Malik 1999)
REACH = 3  # Widths of a filter beyond which it is taken for zero: pictures are continued so far by mirroring
KEPT_SHAPES = 16  # Picture shapes whose transfer functions are kept; photos mostly come in two
STEPS = 20


class FilterBank(NamedTuple):
    """Filters like those of Leung and Malik: for each width ``σ``, derivatives of Gaussians and round Gaussians.

    In each orientation there are an edge and a bar filter, the first and second derivative, across, of a Gaussian that
    is three times as long as wide; and without orientation the Laplacian of a Gaussian, and the Gaussian itself.
    Derivatives are multiplied by ``σ`` once and twice, so that their strength does not depend on the width.
    """

    orientations: int  # Evenly over the half circle, from the horizontal derivative on
    sigmas: tuple[float, ...]  # Widths in pixels

    @property
    def n_filters(self) -> int:
        """Return how many responses a pixel has."""
        return len(self.sigmas) * (2 * self.orientations + 2)

    @property
    def _pad(self) -> int:
        return int(np.ceil(REACH * ELONGATION * max(self.sigmas)))

    def bytes_for(self, side: int) -> int:
        """Estimate the memory that `respond` takes for a square picture."""
        return 3 * 4 * self.n_filters * (side + 2 * self._pad) ** 2

    def respond(self, gray: NDArray[Any]) -> NDArray[np.float32]:
        """Filter the brightness of a picture, (height, width); beyond its edges it is taken to go on mirrored.

        Return float32, (n_filters, height, width): for each width edges by orientation, bars by orientation, Laplacian,
        Gaussian.
        """
        height, width = gray.shape
        pad = self._pad
        shape = tuple(scipy.fft.next_fast_len(side + 2 * pad, real=True) for side in gray.shape)
        rest = [(pad, total - side - pad) for total, side in zip(shape, gray.shape, strict=True)]
        padded = np.pad(gray.astype(np.float32), rest, mode="symmetric")
        spectrum = scipy.fft.rfft2(padded)[None] * _transfer(self, shape)
        responses: NDArray[np.float32] = scipy.fft.irfft2(spectrum, s=shape, overwrite_x=True)
        return responses[:, pad : pad + height, pad : pad + width]


@lru_cache(maxsize=KEPT_SHAPES)
def _transfer(bank: FilterBank, shape: tuple[int, ...]) -> NDArray[np.complex64]:
    """Return what each filter multiplies each frequency with, shape (n_filters, height, width // 2 + 1)."""
    down = 2 * np.pi * np.fft.fftfreq(shape[0])[:, None]
    right = 2 * np.pi * np.fft.rfftfreq(shape[1])
    filters: list[NDArray[Any]] = []
    for sigma in bank.sigmas:
        edges, bars = [], []
        for angle in np.arange(bank.orientations) * np.pi / bank.orientations:
            across = sigma * (right * np.cos(angle) + down * np.sin(angle))
            along = sigma * ELONGATION * (down * np.cos(angle) - right * np.sin(angle))
            gaussian = np.exp(-(across**2 + along**2) / 2)
            edges.append(1j * across * gaussian)
            bars.append(-(across**2) * gaussian)
        square = sigma**2 * (down**2 + right**2)
        filters += [*edges, *bars, -square * np.exp(-square / 2), np.exp(-square / 2)]
    return np.array(filters, np.complex64)


class TextonFinder:
    """Finds the texton of each pixel of a picture.

    Responses are divided by `spread`, (n_filters,); `textons`, (n_textons, n_filters), are patterns of squeezed
    responses.
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
    """What was learned for pictures of one scale."""

    spread: NDArray[np.float32]
    """shape (n_filters,): standard deviation of each filter's responses; 1 where they never
    differ."""
    patterns: NDArray[np.float32]  # shape (n_textons, n_filters)


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

    Pictures are brightness, uint8 (height, width). `sample_pixels` are drawn from all together, at least one from each.
    There are fewer than `n_textons` where fewer different patterns were drawn. Progress shows each step as `task`;
    `n_jobs` changes nothing but time.
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
    shared: dict[str, Any] = {"n_jobs": n_jobs, "progress": progress, "task": task}
    with one_blas_thread():
        patterns = learn_codebook(squeezed(responses / spread), n_textons, rng, iterations=STEPS, **shared)
    return Textons(spread, patterns)


def squeezed(responses: NDArray[np.float32]) -> NDArray[np.float32]:
    """Shorten each row from its length ``r`` to ``log(1 + r)``, so that a few strong edges do not take most textons.

    Weber's law, as in Malik, Belongie, Leung, Shi: Contour and texture analysis for image segmentation, IJCV 2001.
    """
    length = np.sqrt(np.einsum("ij,ij->i", responses, responses))[:, None]
    factor = np.log1p(length) / np.where(length > 0, length, 1)
    return np.ascontiguousarray(responses * factor)
