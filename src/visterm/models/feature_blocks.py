"""Feature blocks: which columns of the features belong together, and how each block is compared."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np

from visterm.core.errors import UnknownNameError, UserError
from visterm.core.registry import unknown
from visterm.models.neighbours.distances import DISTANCES

EXPECTED = "expected the widths of the blocks, such as (4096, 512), or pairs of first column and the one after the last"


def read_blocks(blocks: Any, n_features: int) -> list[slice]:
    """Read the setting `blocks` of a model.

    Parameters
    ----------
    blocks : None, sequence of int, or sequence of (int, int)
        None: one block of all features. Whole numbers: the widths of blocks side by side, which together are all
        features. Pairs: first column and the one after the last; they may overlap and leave columns out.
    n_features : int

    Returns
    -------
    list of slice

    Raises
    ------
    UserError
        If it is none of these, or does not fit `n_features`.
    """
    if blocks is None:
        return [slice(0, n_features)]
    check_blocks(blocks)
    listed = list(blocks)
    if _is_whole(listed[0]):
        if sum(listed) != n_features:
            raise UserError(
                f"blocks is {blocks!r}: {sum(listed)} columns together, but X has {n_features}. "
                "Give widths of this sum, or pairs of first column and the one after the last."
            )
        edges = np.cumsum([0, *listed]).tolist()
        return [slice(*pair) for pair in pairwise(edges)]
    for first, stop in listed:
        if stop > n_features:
            raise UserError(f"blocks has the pair {(first, stop)}, but X has {n_features} columns.")
    return [slice(int(first), int(stop)) for first, stop in listed]


def check_blocks(blocks: Any) -> None:
    """Refuse a setting `blocks` that fits no features at all."""
    if blocks is None:
        return
    listed = list(blocks) if isinstance(blocks, Iterable) and not isinstance(blocks, str) else []
    widths = [_is_whole(one) and one > 0 for one in listed]
    pairs = [_is_pair(one) for one in listed]
    if not listed or not (all(widths) or all(pairs)):
        raise UserError(f"blocks is {blocks!r}; {EXPECTED}.")


def read_distances(distances: Any, blocks: Any) -> list[str]:
    """Read the setting `distances`: one name for all blocks, or a list of one for each.

    Raises
    ------
    UnknownNameError
        If there is no such distance.
    UserError
        If there are not as many as blocks.
    """
    n_blocks = 1 if blocks is None else len(list(blocks))
    names = [distances] * n_blocks if isinstance(distances, str) else _listed(distances, n_blocks)
    for name in names:
        if not isinstance(name, str) or name not in DISTANCES:
            raise UnknownNameError(unknown("distance", str(name), list(DISTANCES)))
    return names


def _listed(distances: Any, n_blocks: int) -> list[str]:
    names = list(distances) if isinstance(distances, Iterable) else []
    if len(names) != n_blocks:
        raise UserError(f"distances is {distances!r}; expected one name, or a list of {n_blocks}, one for each block.")
    return names


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _is_pair(value: Any) -> bool:
    pair = list(value) if isinstance(value, list | tuple) else []
    return len(pair) == 2 and all(map(_is_whole, pair)) and 0 <= pair[0] < pair[1]
