"""Which tags the training images show, and which they do not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.errors import UserError
from visterm_research.comparison.problem import Rows

SHARE = 0.2
"""Of the tags that is held out."""


@dataclass(frozen=True)
class TagSplit:
    """Tags in two parts.

    Attributes
    ----------
    seen, held_out : ndarray of int64
        Numbers of tags, ascending; all tags are in one of them.
    """

    seen: NDArray[np.int64]
    held_out: NDArray[np.int64]


def split_tags(n_tags: int, *, share: float = SHARE, seed: int = 0) -> TagSplit:
    """Draw the tags that are held out: this share of all, rounded, all alike likely.

    Raises
    ------
    UserError
        If no tag, or every one, would be held out.
    """
    n_held = round(share * n_tags)
    if not 0 < n_held < n_tags:
        raise UserError(
            f"A share of {share} holds out {n_held} of {n_tags} tags; expected one that leaves some on both sides."
        )
    order = np.random.default_rng(seed).permutation(n_tags)
    return TagSplit(np.sort(order[n_held:]), np.sort(order[:n_held]))


def seen_rows(rows: Rows, split: TagSplit) -> Rows:
    """Return the images that have a seen tag, with the columns of seen tags alone: no held-out tag can be learned from.

    Images with a held-out tag stay, as those of NUS-WIDE do in the paper, but nothing says that they have it.
    """
    Y = sp.csr_array(rows.Y[:, split.seen])
    kept = np.flatnonzero(np.asarray((Y > 0).sum(axis=1)).ravel())
    return Rows(rows.X[kept], sp.csr_array(Y[kept]))
