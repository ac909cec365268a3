"""One-vs-rest training by passive-aggressive steps: each step just satisfies the margin, up to a maximum step size."""

from __future__ import annotations

import numpy as np
from numba import njit

from visterm.kernels import add_row, draw_below, nth_absent, row_dot, stream_of


@njit(cache=True, nogil=True)
def separate_tags(
    first, stop, start, members, rows, squares, offsets, n_negatives, aggressiveness, seed, epoch, W, sums
):
    """Train tags first .. stop-1 on images with the tag and on images drawn from those without it: PA-I.

    A tag's images are visited in a random order; each is followed by `n_negatives` images drawn uniformly from those
    without the tag (`n_negatives` in total if no image has it). With s = 1 for images with the tag and -1 for images
    without it, and the loss ``l = |1 - s (x · w - offset(x))|₊``, the step is
    ``w += s · min(aggressiveness, l / |x|²) · x``.

    Disjoint ranges of tags change different rows. ``members[start[t]:start[t + 1]]`` are the sorted images with tag t;
    `squares`, float32 (n_images,), are the squared lengths of `rows`, and `offsets`, float32 (n_images,), the scores
    above which a tag is assigned. Changes rows first .. stop-1 of `W`, float32 (n_tags, width), and overwrites these
    rows of `sums`, float64 (n_tags, 3): sum of the losses, examples, steps.

    References
    ----------
    Crammer, Dekel, Keshet, Shalev-Shwartz, Singer: Online passive-aggressive algorithms. JMLR 7, 2006; Eq. 6, PA-I.
    """
    n_images = squares.shape[0]
    for t in range(first, stop):
        begin, end = start[t], start[t + 1]
        n_members = end - begin
        n_others = n_images - n_members
        stream = stream_of(seed, epoch, t)
        order = members[begin:end].copy()
        sums[t, :] = 0.0
        draw = 0
        for q in range(max(n_members, 1) - 1, -1, -1):
            image = 0
            if n_members > 0:
                r = draw_below(stream, draw, q + 1)
                draw += 1
                image = order[r]
                order[r] = order[q]
            for negative in range(0 if n_members > 0 else 1, 1 + (n_negatives if n_others > 0 else 0)):
                sign = 1.0
                if negative > 0:
                    image = nth_absent(members, begin, end, draw_below(stream, draw, n_others))
                    draw += 1
                    sign = -1.0
                loss = 1.0 - sign * (np.float64(row_dot(rows, image, W[t])) - offsets[image])
                sums[t, 1] += 1.0
                if not loss > 0 or not squares[image] > 0:
                    continue
                sums[t, 0] += loss
                sums[t, 2] += 1.0
                add_row(rows, image, np.float32(sign * min(aggressiveness, loss / squares[image])), W[t])
