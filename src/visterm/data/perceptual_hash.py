"""Perceptual hashes: 64 bits that stay nearly the same when a picture is scaled, recompressed or made lighter."""

from __future__ import annotations

import hashlib
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from PIL import Image

# The picture is reduced to 32 by 32 grey levels; the 8 by 8 lowest frequencies are kept (Zauner 2010, phash.org).
SIDE, KEPT = 32, 8

FLAT = 0  # The hash of a picture without contrast: it says nothing, so it is like no other

# Standard deviation, in grey levels, below which a picture is flat: its frequencies are noise of the compression
LEAST_CONTRAST = 2.0

# How far the frequencies are from their median, by the median, below which a picture has no structure; and that as a
# share of the contrast (standard deviation). In clear skies, fog, vignettes and drawn gradients a few frequencies hold
# all contrast, so the bits of the others are noise, or the same in all of them: shares of 0 to 0.3, deviations of 0 to
# 2 by the noise of cameras and JPEG. Of the 4,999 photos of Corel 5k 19 have a smaller share (the median is 1.2), and
# none a smaller deviation (the least is 4.6).
LEAST_DEVIATION, LEAST_SHARE = 3.0, 0.3


def perceptual_hash(pixels: NDArray[np.uint8]) -> int:
    """Return the 64 bits of a picture as a signed number: which low frequencies are above their median.

    The pixels are uint8, (height, width, 3). The number lies from -2⁶³ to 2⁶³ - 1; `FLAT` of a picture without
    contrast. One without structure has bits of a checksum of its pixels, which only the same pixels share.
    """
    from scipy.fft import dctn  # takes long to import

    small = Image.fromarray(pixels).convert("L").resize((SIDE, SIDE), Image.Resampling.LANCZOS)
    grey = np.asarray(small, dtype=np.float64)
    if grey.std() < LEAST_CONTRAST:
        return FLAT
    low = dctn(grey, norm="ortho")[:KEPT, :KEPT].ravel()
    low[0] = 0.0  # how light it is on the whole does not matter
    level = np.median(low)
    if np.median(np.abs(low - level)) < max(LEAST_DEVIATION, LEAST_SHARE * grey.std()):
        return int.from_bytes(hashlib.sha256(pixels.tobytes()).digest()[:8], "big", signed=True)
    return int(np.packbits(low > level).view(">i8")[0])


def near_pairs(hashes: NDArray[np.int64], distance: int) -> list[tuple[tuple[int, int], int]]:
    """Find all pairs of hashes, int64 of shape (n,), that differ in at most `distance` bits, 0 to 63.

    Hashes that differ in at most d bits agree in one of d + 1 pieces, so only those that agree in a piece are compared.
    Returns two places in `hashes`, the smaller first, and the number of bits, in order; flat ones are in no pair.
    """
    bits = hashes.view(np.uint64)
    usable = np.flatnonzero(hashes != FLAT)
    edges = np.linspace(0, 64, distance + 2).astype(np.uint64)
    of_pieces = [np.empty((0, 2), np.int64)]
    for first, last in pairwise(edges):
        piece = (bits[usable] >> first) & np.uint64((1 << int(last - first)) - 1)
        order = np.argsort(piece, kind="stable")
        members, values = usable[order], piece[order]
        # Neighbours 1, 2, 3, ... places on, until none shares its piece any more: no pair of a piece is left out.
        shift, starts = 1, np.arange(len(members))
        while True:
            starts = starts[starts + shift < len(members)]
            starts = starts[values[starts] == values[starts + shift]]
            if not len(starts):
                break
            a, b = members[starts], members[starts + shift]
            near = np.bitwise_count(bits[a] ^ bits[b]) <= distance
            of_pieces.append(np.stack([np.minimum(a, b), np.maximum(a, b)], axis=1)[near])
            shift += 1
    pairs = np.unique(np.concatenate(of_pieces), axis=0)
    apart = np.bitwise_count(bits[pairs[:, 0]] ^ bits[pairs[:, 1]])
    return list(zip(map(tuple, pairs.tolist()), apart.tolist(), strict=True))
