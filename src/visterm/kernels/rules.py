"""How a row of weights takes the gradients of a block: the step, the shrinking by L2, the norm limit."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from visterm.kernels.lanes import dot
from visterm.kernels.vectors import limit_norm


class Rule(NamedTuple):
    """What is done with the gradients of a row of weights.

    Attributes
    ----------
    rate : float
        Learning rate.
    keep : float
        What L2 leaves of a row for each gradient in it: 1 - rate · l2, at least 0; 1 for no L2.
    max_norm : float
        Limit of each row's Euclidean norm; may be infinite.
    """

    rate: float
    keep: float
    max_norm: float


def make_rule(rate, l2, max_norm):
    """Make the rule of a learning rate, a factor of L2 and a norm limit.

    `keep` is rounded to float32 here, so that its powers are what repeated multiplication gives.
    """
    return Rule(float(rate), max(0.0, float(np.float32(1.0 - float(rate) * float(l2)))), float(max_norm))


@njit(cache=True, nogil=True)
def mean_square(step, rate):
    """Return the mean square of the gradient behind a step: of ``step / rate``."""
    return np.float32(dot(step, step) / (rate * rate * max(1, step.shape[0])))


@njit(cache=True, nogil=True)
def scale_row(row, factor):
    """Multiply a float32 vector by a number, in place."""
    scale = np.float32(factor)
    for c in range(row.shape[0]):
        row[c] *= scale


@njit(cache=True, nogil=True)
def move_rows(matrix, change, gradients, counts, squares, rule):
    """Add the sums of a block to all rows of a float32 matrix, by the rule, in one pass, in place.

    Parameters
    ----------
    matrix : ndarray of float32, shape (n, width)
        Changed.
    change : ndarray of float32, shape (n, width)
        Gradients times the learning rate, summed over the block.
    gradients : ndarray of float32, shape (n,) or (0,)
        Mean squares of each row's gradients in the block, summed. Empty for SGD.
    counts : ndarray of float32, shape (n,) or (0,)
        Gradients in each row. Empty without L2.
    squares : ndarray of float32, shape (n,) or (0,)
        Changed: one plus the mean squares so far. Empty for SGD.
    rule : Rule
    """
    for row in range(matrix.shape[0]):
        target = matrix[row]
        source = change[row]
        if rule.keep < 1.0:
            scale_row(target, rule.keep ** counts[row])
        if squares.shape[0] > 0:
            squares[row] += gradients[row]
            factor = np.float32(1.0) / np.float32(math.sqrt(squares[row]))
            for c in range(target.shape[0]):
                target[c] += factor * source[c]
        else:
            for c in range(target.shape[0]):
                target[c] += source[c]
        limit_norm(target, rule.max_norm)
