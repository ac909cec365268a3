"""Where shards end: the names say so, so that a new photo changes one shard and leaves the others as they are."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence


def cut(names: Sequence[str], size: int) -> list[range]:
    """Part a list of names into shards of about `size`.

    From its ``size // 2``-th name on, a shard ends after a name whose hash falls into the first of so many classes that
    shards have `size` names on average; none has more than ``2 · size``, and the last may be shorter. Cut by number
    instead, a photo that comes first would move all those after it by one.

    Parameters
    ----------
    names : sequence of str
        Sorted.
    size : int
        1 or more.

    Returns
    -------
    list of range
        The positions of each shard; together, all in order.
    """
    least = max(1, size // 2)
    classes = size - least + 1
    shards, start = [], 0
    for position, name in enumerate(names, start=1):
        held = position - start
        if (held >= least and _class_of(name, classes) == 0) or held >= 2 * size:
            shards.append(range(start, position))
            start = position
    if start < len(names):
        shards.append(range(start, len(names)))
    return shards


def _class_of(name: str, classes: int) -> int:
    digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).digest()
    return int.from_bytes(digest[:8], "big") % classes
