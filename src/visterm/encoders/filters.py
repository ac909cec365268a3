"""A bank of oriented edge and bar filters at a few widths, applied to a picture in the frequency domain."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import scipy.fft
from numpy.typing import NDArray

ELONGATION = 3
"""How many times longer than wide the oriented filters are (Leung and Malik 1999)."""

REACH = 3
"""Widths of a filter beyond which it is taken for zero: pictures are continued so far by mirroring."""

KEPT_SHAPES = 16
"""Picture shapes whose transfer functions are kept; photos mostly come in two."""


class FilterBank(NamedTuple):
    """Filters like those of Leung and Malik: for each width ``σ``, derivatives of Gaussians and round Gaussians.

    In each orientation there are an edge and a bar filter, the first and second derivative, across, of a Gaussian that
    is three times as long as wide; and without orientation the Laplacian of a Gaussian, and the Gaussian itself.
    Derivatives are multiplied by ``σ`` once and twice, so that their strength does not depend on the width.

    Attributes
    ----------
    orientations : int
        Evenly over the half circle, from the horizontal derivative on.
    sigmas : tuple of float
        Widths in pixels.
    """

    orientations: int
    sigmas: tuple[float, ...]

    @property
    def n_filters(self) -> int:
        """Say how many responses a pixel has."""
        return len(self.sigmas) * (2 * self.orientations + 2)

    @property
    def _pad(self) -> int:
        return int(np.ceil(REACH * ELONGATION * max(self.sigmas)))

    def bytes_for(self, side: int) -> int:
        """Estimate the memory that `respond` takes for a square picture."""
        return 3 * 4 * self.n_filters * (side + 2 * self._pad) ** 2

    def respond(self, gray: NDArray[Any]) -> NDArray[np.float32]:
        """Filter a picture.

        Parameters
        ----------
        gray : ndarray, shape (height, width)
            Brightness. Beyond its edges the picture is taken to go on mirrored.

        Returns
        -------
        ndarray of float32, shape (n_filters, height, width)
            For each width: edges by orientation, bars by orientation, Laplacian, Gaussian.
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
