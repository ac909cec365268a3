"""Counter-based random numbers: a draw is a hash of (seed, epoch, example, draw), so threads share no state."""

from __future__ import annotations

import numpy as np

from visterm.kernels.compiled import kernel

# splitmix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX_A = np.uint64(0xBF58476D1CE4E5B9)
MIX_B = np.uint64(0x94D049BB133111EB)
TWO_TO_MINUS_53 = 2.0**-53


@kernel
def mix(word):
    """Hash 64 bits bijectively to 64 bits, each depending on all input bits (splitmix64's finaliser)."""
    word = (word ^ (word >> np.uint64(30))) * MIX_A
    word = (word ^ (word >> np.uint64(27))) * MIX_B
    return word ^ (word >> np.uint64(31))


@kernel
def stream_of(seed, epoch, example):
    """Return the stream of draws, uint64, of an example in an epoch, for `draw_below` and `draw_unit`."""
    word = mix(np.uint64(seed) + GOLDEN)
    word = mix(word + (np.uint64(epoch) + np.uint64(1)) * GOLDEN)
    return mix(word + (np.uint64(example) + np.uint64(1)) * GOLDEN)


@kernel
def draw_below(stream, draw, n):
    """Return draw number `draw` (from 0) of a stream from `stream_of`: an integer in 0 .. n-1, n up to 2^31.

    Uniform to within n / 2^32 (the upper 32 bits of a hash, multiplied and shifted).
    """
    word = mix(stream + (np.uint64(draw) + np.uint64(1)) * GOLDEN)
    return np.int64(((word >> np.uint64(32)) * np.uint64(n)) >> np.uint64(32))


@kernel
def draw_unit(stream, draw):
    """Return draw number `draw` of a stream as a float64 in [0, 1)."""
    word = mix(stream + (np.uint64(draw) + np.uint64(1)) * GOLDEN)
    return np.float64(word >> np.uint64(11)) * TWO_TO_MINUS_53


@kernel
def draw_many(seed, epoch, example, n, out):
    """Fill `out` with the first draws of an example's stream, integers in 0 .. n-1."""
    stream = stream_of(seed, epoch, example)
    for draw in range(out.shape[0]):
        out[draw] = draw_below(stream, draw, n)
