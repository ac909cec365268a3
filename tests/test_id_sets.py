"""Sets of photos as ascending ids are those of Python, however many ids there are and wherever they begin."""

from __future__ import annotations

import numpy as np
import pytest

from visterm.core.id_sets import contains, positions_of, union, without


@pytest.mark.parametrize("first", [0, 7, -5, 2**40])
@pytest.mark.parametrize(("n", "n_other", "step"), [(0, 3, 1), (3, 0, 1), (9, 9, 1), (40, 300, 3), (300, 5, 2)])
def test_unions_differences_and_members(n, n_other, step, first):
    rng = np.random.default_rng(n + n_other)
    ids = first + np.sort(rng.permutation(2 * step * n + 1)[:n]) if step > 1 else first + np.arange(n)
    others = first - 4 + np.sort(rng.permutation(2 * n_other + 9)[:n_other])
    requested = rng.permutation(others)
    assert union(ids, others, ids).tolist() == sorted({*ids.tolist(), *others.tolist()})
    assert without(ids, others).tolist() == sorted({*ids.tolist()} - {*others.tolist()})
    assert contains(ids, requested).tolist() == [i in ids.tolist() for i in requested.tolist()]
    assert [(-1 if place < 0 else ids[place]) for place in positions_of(requested, ids)] == [
        i if i in ids else -1 for i in requested
    ]
    assert contains(ids, ids).all()
