"""Part-of relations to learn from, and those left out to be found again."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from visterm.core.checks import as_generator, check_number
from visterm.core.types import RandomState
from visterm.data.quadruplets import check_relations


class LeftOut(NamedTuple):
    """Relations (part, whole) to learn from, and those left out to be found again; int64, shape (n, 2), sorted."""

    kept: NDArray[np.int64]
    left_out: NDArray[np.int64]

    @property
    def unreachable(self) -> NDArray[np.int64]:
        """The left-out relations of which a tag occurs in no kept one: nothing is learned that could find them."""
        return self.left_out[~np.isin(self.left_out, self.kept).all(axis=1)]


def leave_out(relations: Any, share: float, random_state: RandomState = 0) -> LeftOut:
    """Leave a share of the relations out of training, to see whether they are found again (section 6.5).

    Wherever possible the part of a relation that is left out is still a part in some kept relation, and its whole a
    whole; where that is not enough to reach the share, they occur in some kept relation on either side; and where that
    is not enough either, relations are left out that cannot be found again (`LeftOut.unreachable`). Relations are tried
    in a random order, each once for each of these three, so a share near the largest possible may be missed.

    Parameters
    ----------
    relations : array-like of int, shape (n_relations, 2)
        Tags (part, whole).
    share : float
        Of the relations to leave out, 0 up to, not including, 1; rounded to whole relations.
    random_state : int, RandomState, Generator or None
        Of the choice.

    Raises
    ------
    UserError
        If the share is out of range.
    """
    check_number(share, "share", least=0, below=1)
    pairs = check_relations(relations, int(np.max(relations, initial=0)) + 1)
    n_wanted = round(share * len(pairs))
    order = as_generator(random_state).permutation(len(pairs))
    out = np.zeros(len(pairs), np.bool_)
    tags, columns = np.unique(pairs, return_inverse=True)
    columns = columns.reshape(-1, 2)
    in_role = [np.bincount(columns[:, side], minlength=tags.size) for side in (0, 1)]
    for strictness in (2, 1, 0):
        for i in order:
            if out.sum() == n_wanted:
                break
            part, whole = columns[i]
            times = (in_role[0][part], in_role[1][whole])
            anywhere = (in_role[0][part] + in_role[1][part], in_role[0][whole] + in_role[1][whole])
            spare = min(times) > 1 if strictness == 2 else min(anywhere) > 1 if strictness else True
            if not out[i] and spare:
                out[i] = True
                in_role[0][part] -= 1
                in_role[1][whole] -= 1
    return LeftOut(pairs[~out], pairs[out])
