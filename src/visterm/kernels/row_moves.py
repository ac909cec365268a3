"""Updates of rows of weights: block steps with L2, AdaGrad and a norm limit, running means, row-wise AdaGrad."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from visterm.kernels.compiled import kernel
from visterm.kernels.dot import dot

SMALLEST_SQUARE, LARGEST_SQUARE = 1e-25, 1e30  # Squared lengths of steps between which float32 is exact enough


@kernel
def scale_row(row, factor):
    """Multiply a float32 vector by a number, in place."""
    scale = np.float32(factor)
    for c in range(row.shape[0]):
        row[c] *= scale


@kernel
def limit_norm(vector, max_norm):
    """Scale a float32 vector in place to the Euclidean norm `max_norm` if its norm is larger."""
    norm = math.sqrt(dot(vector, vector))
    if norm > max_norm:
        scale_row(vector, max_norm / norm)


@kernel
def limit_norms(matrix, max_norm):
    """Apply `limit_norm` to each row of a float32 matrix, in place."""
    for row in range(matrix.shape[0]):
        limit_norm(matrix[row], max_norm)


@kernel
def mix_rows(mean, current, share, first, stop):
    """Move rows first .. stop-1 of the float32 matrix `mean` towards `current` by the fraction `share`.

    Return whether the squared lengths of the new rows are finite.
    """
    total = np.float32(0.0)
    factor = np.float32(share)
    for row in range(first, stop):
        target, source = mean[row], current[row]
        for c in range(target.shape[0]):
            target[c] += factor * (source[c] - target[c])
        total += dot(target, target) * np.float32(0.0)
    return total == 0.0


class Rule(NamedTuple):
    """The settings of an update of a row of weights."""

    rate: float  # Learning rate
    keep: float  # Factor of a row per gradient, by L2: 1 - rate · l2, at least 0; 1 without L2
    max_norm: float  # Maximum Euclidean norm of a row; may be infinite


def make_rule(rate, l2, max_norm):
    """Return the rule for a learning rate, an L2 factor and a norm limit.

    `keep` is rounded to float32, so that its powers are equal to repeated multiplication.
    """
    return Rule(float(rate), max(0.0, float(np.float32(1.0 - float(rate) * float(l2)))), float(max_norm))


@kernel
def mean_square(step, rate):
    """Return the mean square of the gradient of a step, ``step / rate``.

    If features are so small or large that the square does not fit float32, each number is divided before the square.
    """
    total, divisor = np.float64(dot(step, step)), rate * rate
    if not SMALLEST_SQUARE < total < LARGEST_SQUARE:
        total, divisor = np.float64(0.0), 1.0
        for c in range(step.shape[0]):
            total += (np.float64(step[c]) / rate) ** 2
    return np.float32(total / (divisor * max(1, step.shape[0])))


@kernel
def move_rows(matrix, change, gradients, counts, squares, rule):
    """Add the summed steps of a block to all rows of a float32 matrix, (n, width), by the rule, in place.

    `change`, float32 (n, width), are gradients times the learning rate, summed over the block. `gradients`, float32
    (n,), are the summed mean squares of each row's gradients in the block; `squares`, float32 (n,), is 1 plus these
    sums so far and is changed; both are empty for SGD. `counts`, float32 (n,), are the numbers of gradients per row;
    empty without L2.
    """
    for row in range(matrix.shape[0]):
        target = matrix[row]
        source = change[row]
        if rule.keep < 1.0:
            scale_row(target, rule.keep ** counts[row])
        factor = np.float32(1.0)
        if squares.shape[0] > 0:
            squares[row] += gradients[row]
            factor /= np.float32(math.sqrt(squares[row]))
        for c in range(target.shape[0]):
            target[c] += factor * source[c]
        limit_norm(target, rule.max_norm)


@kernel
def move_drawn_rows(table, sums, tags, order, gradients, rate):
    """Step each drawn row of a table once, by the sum of its gradients: ``row -= rate gradient / √sums[tag]``.

    Changes the rows `tags`, int64 (n_draws,), with repetitions, of `table`, (n_tags, width), and `sums`, (n_tags,), the
    state of AdaGrad, to which the mean square of the gradient is added before. `order` sorts `tags` stably; `gradients`
    has shape (n_draws, width).
    """
    width = table.shape[1]
    draw, total = 0, np.empty(width, np.float32)
    while draw < order.shape[0]:
        tag = tags[order[draw]]
        total[:] = 0
        while draw < order.shape[0] and tags[order[draw]] == tag:
            gradient = gradients[order[draw]]
            for c in range(total.shape[0]):
                total[c] += gradient[c]
            draw += 1
        sums[tag] += dot(total, total) / np.float32(width)
        if sums[tag] > 0:
            row, factor = table[tag], np.float32(rate / math.sqrt(sums[tag]))
            for c in range(width):
                row[c] -= factor * total[c]
