"""Sets of photos as ascending arrays of ids, without duplicates."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from visterm.core.types import Ints

Ids: TypeAlias = Ints

NO_IDS = np.empty(0, np.int64)
IDS_PER_LOOKUP = 16  # If more than 1 of 16 ids is looked up, a table of all ids is faster than a binary search


def union(*parts: Ids) -> Ids:
    """Return the ascending ids that are in any of the parts, each ascending and without duplicates."""
    filled = [part for part in parts if len(part)]
    if len(filled) < 2:
        return filled[0] if filled else NO_IDS
    ids = np.sort(np.concatenate(filled), kind="stable")  # merges the parts; `np.unique` would hash all ids
    merged: Ids = ids[np.concatenate([[True], ids[1:] != ids[:-1]])]
    return merged


def contains(ids: Ids, requested: Ids) -> NDArray[np.bool_]:
    """Return which requested ids, in any order, are in ascending `ids`."""
    if requested is ids:
        return np.ones(len(ids), np.bool_)
    if len(ids) and ids[-1] - ids[0] == len(ids) - 1:  # consecutive ids
        return np.asarray((requested >= ids[0]) & (requested <= ids[-1]))
    if len(ids) and len(requested):
        smallest, largest = min(ids[0], requested.min()), max(ids[-1], requested.max())
        if smallest >= 0 and largest < len(requested) * IDS_PER_LOOKUP:
            table = np.zeros(largest + 1, np.bool_)
            table[ids] = True
            return table[requested]
    return positions_of(requested, ids) >= 0


def without(ids: Ids, removed: Ids) -> Ids:
    """Return the ascending `ids` that are not among the ascending `removed` ids; the same array if none is."""
    if len(removed) < len(ids):
        positions = positions_of(removed, ids)
        positions = positions[positions >= 0]
        return np.delete(ids, positions) if len(positions) else ids
    return ids[~contains(removed, ids)]


def positions_of(requested: Ids, ids: Ids) -> Ids:
    """Return the positions of requested ids in ascending `ids`; -1 for missing ids."""
    if len(ids) == 0:
        return np.full(len(requested), -1, np.int64)
    if ids[-1] - ids[0] == len(ids) - 1:  # consecutive ids
        return np.where((requested >= ids[0]) & (requested <= ids[-1]), requested - ids[0], -1)
    positions = np.minimum(np.searchsorted(ids, requested), len(ids) - 1)
    return np.where(ids[positions] == requested, positions, -1)
