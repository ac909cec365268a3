"""Passive-aggressive steps, one after the other: just far enough to satisfy the margin, but no farther than a limit."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from visterm.kernels.random import draw_below, stream_of
from visterm.kernels.row_moves import limit_norm
from visterm.kernels.rows import add_row, row_dot
from visterm.kernels.sorted_lists import nth_absent


@njit(cache=True, nogil=True)
def separate_in_turn(
    first, last, start, members, rows, squares, offsets, n_negatives, aggressiveness, max_norm, seed, epoch, W, sums
):
    """Train tags first .. last-1, each against its own images and images drawn among the others: PA-I.

    A tag's images are visited in a random order; after each come `n_negatives` images, drawn uniformly among those that
    have not got the tag (and `n_negatives` in all where no image has it). With s = 1 for the former and -1 for the
    latter, and the loss ``l = |1 - s (x · w - offset(x))|₊``, the step is
    ``w += s · min(aggressiveness, l / |x|²) · x``.

    Ranges of tags that do not meet change different rows. ``members[start[t]:start[t + 1]]`` are the images that have
    tag t, sorted; `squares`, float32 (n_images,), are the squared lengths of `rows`, and `offsets`, float32
    (n_images,), the scores from which on a tag counts as given. `max_norm` limits a row's length; it may be infinite.
    Rows first .. last-1 of `W`, float32 (n_tags, width), are changed, and those of `sums`, float64 (n_tags, 3),
    overwritten: sum of the losses, examples, steps.

    References
    ----------
    Crammer, Dekel, Keshet, Shalev-Shwartz, Singer: Online passive-aggressive algorithms. JMLR 7, 2006; Eq. 6, PA-I.
    """
    n_images = squares.shape[0]
    for t in range(first, last):
        begin, end = start[t], start[t + 1]
        n_members = end - begin
        others = n_images - n_members
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
            for negative in range(0 if n_members > 0 else 1, 1 + (n_negatives if others > 0 else 0)):
                sign = 1.0
                if negative > 0:
                    image = nth_absent(members, begin, end, draw_below(stream, draw, others))
                    draw += 1
                    sign = -1.0
                loss = 1.0 - sign * (np.float64(row_dot(rows, image, W[t])) - offsets[image])
                sums[t, 1] += 1.0
                if not loss > 0 or not squares[image] > 0:
                    continue
                sums[t, 0] += loss
                sums[t, 2] += 1.0
                add_row(rows, image, np.float32(sign * min(aggressiveness, loss / squares[image])), W[t])
                if not math.isinf(max_norm):
                    limit_norm(W[t], max_norm)
