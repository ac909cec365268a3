"""What the kin of a tag have: of an elephant's parts those that the other animals are known to have."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

MIN_KIN = 2
"""Others of a kind that it takes to say what the kind has."""


class Kin:
    """Which parts those tags have that are of one kind with another.

    Parameters
    ----------
    known : ndarray of int64, shape (n_pairs, 2)
        Columns of (part, whole).
    kinds : ndarray of int64, shape (n, 2)
        Columns of a tag and another that it is a kind of, over any number of steps.
    n_tags : int
    """

    def __init__(self, known: NDArray[Any], kinds: NDArray[Any], n_tags: int) -> None:
        self._n_tags = n_tags
        self._parts_of = _lists(known[:, 1], known[:, 0])
        self._kinds_of = _lists(kinds[:, 0], kinds[:, 1])
        self._members = _lists(kinds[:, 1], kinds[:, 0])

    def shares(self, wholes: NDArray[Any]) -> NDArray[np.float32]:
        """Return the share of the kin of wholes that have each tag as a part, (n_wholes, n_tags).

        Kin are the others of a kind of which parts are known, two at least; of several kinds the largest share counts.
        """
        shares = np.zeros((len(wholes), self._n_tags), np.float32)
        for row, whole in enumerate(wholes.tolist()):
            for kind in self._kinds_of.get(whole, []):
                kin = [tag for tag in self._members[kind] if tag != whole and tag in self._parts_of]
                if len(kin) >= MIN_KIN:
                    parts = [part for tag in kin for part in self._parts_of[tag]]
                    counts = np.bincount(parts, minlength=self._n_tags)
                    np.maximum(shares[row], (counts / len(kin)).astype(np.float32), out=shares[row])
        return shares


def _lists(keys: NDArray[Any], values: NDArray[Any]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for key, value in zip(keys.tolist(), values.tolist(), strict=True):
        found.setdefault(key, []).append(value)
    return found
