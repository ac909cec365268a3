"""Slow twins of what `histograms` counts: pyramids pixel by pixel, filters as sums over the plane."""

from __future__ import annotations

import numpy as np


def pyramid_histograms(codes, n_codes, levels):
    """Count each pixel in the cell of each level that it lies in."""
    fine = 2 ** (levels - 1)
    edges = [np.rint(np.linspace(0, side, fine + 1)).astype(int) for side in codes.shape]
    found = []
    for level in range(levels):
        counts = np.zeros((2**level, 2**level, n_codes))
        for row, col in np.ndindex(codes.shape):
            cell = [
                (np.searchsorted(edge, place, side="right") - 1) >> (levels - 1 - level)
                for edge, place in zip(edges, (row, col), strict=True)
            ]
            counts[cell[0], cell[1], codes[row, col]] += 1 / codes.size
        found.append(counts.ravel())
    return found


def oriented_responses(gray, sigma, angle, elongation, reach):
    """Correlate with the sampled first and second derivative, across the angle, of a long Gaussian."""
    place = np.arange(-reach, reach + 1.0)
    down, right = np.meshgrid(place, place, indexing="ij")
    across = (right * np.cos(angle) + down * np.sin(angle)) / sigma
    along = (down * np.cos(angle) - right * np.sin(angle)) / (elongation * sigma)
    gaussian = np.exp(-(across**2 + along**2) / 2) / (2 * np.pi * elongation * sigma**2)
    padded = np.pad(gray.astype(float), reach, mode="symmetric")
    windows = np.lib.stride_tricks.sliding_window_view(padded, gaussian.shape)
    # The value at p of a convolution with f is the sum of f(o) gray(p - o): the window turned around.
    kernels = [-across * gaussian, (across**2 - 1) * gaussian]
    return [np.einsum("ijkl,kl->ij", windows, kernel[::-1, ::-1]) for kernel in kernels]
