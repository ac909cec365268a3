"""Tags that the training images do not show, and what is measured of them: among themselves, all tags, and as words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.errors import UserError
from visterm.metrics import measure
from visterm_research.comparison.problem import Rows

Values = dict[str, NDArray[np.float64]]

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


def zero_shot_measures(
    scores: NDArray[np.float32], Y: sp.csr_array, split: TagSplit, *, handicap: float = 0.0
) -> Values:
    """Return the measures image by image or word by word; NaN where there is nothing to find.

    All but those of words are NaN for images without a held-out tag: they would be wrong whatever is given.

    Parameters
    ----------
    scores : ndarray of float32, shape (n_images, n_tags)
    Y : csr_array, shape (n_images, n_tags)
    split : TagSplit
    handicap : float
        Taken off the scores of seen tags where all tags are ranked together.

    Returns
    -------
    dict of str to ndarray of float64
        ``held-out p@5`` and ``held-out r@5``: held-out tags alone are ranked (925→81 of Table 2). ``held-out chance``:
        the p@5 to be expected of a random ranking of them, which is the share of the held-out tags that the image has
        (at most 1, however few are held out). ``all p@5`` and ``all r@5``: all tags are ranked, and all of the image's
        are right (925→1006). ``all held-out p@5`` and ``all held-out r@5``: all tags are ranked, and its held-out ones
        alone are right. ``word map`` and ``word p@10``: all images are ranked for each held-out word; ``word chance``:
        the share of images that have it.
    """
    right = sp.csr_array(Y > 0)
    own = sp.csr_array(right[:, split.held_out])
    counts = np.asarray(own.sum(axis=1), np.float64).ravel()
    has = counts > 0
    held = np.ascontiguousarray(scores[:, split.held_out])
    ranked = np.array(scores, np.float32)
    ranked[:, split.seen] -= np.float32(handicap)
    alone = measure(held, own, ["p@5", "r@5", "word_map", "word_p@10"])
    everything = measure(ranked, right, ["p@5", "r@5"])
    hidden = sp.csr_array(right @ sp.diags_array(np.isin(np.arange(Y.shape[1]), split.held_out).astype(np.float32)))
    among = measure(ranked, hidden, ["p@5", "r@5"])
    words = np.asarray(own.sum(axis=0), np.float64).ravel() / Y.shape[0]
    found = {
        "held-out p@5": alone["p@5"],
        "held-out r@5": alone["r@5"],
        "held-out chance": counts / split.held_out.size * min(1.0, split.held_out.size / 5),
        "all p@5": everything["p@5"],
        "all r@5": everything["r@5"],
        "all held-out p@5": among["p@5"],
        "all held-out r@5": among["r@5"],
    }
    of_words = {
        "word map": alone["word_map"],
        "word p@10": alone["word_p@10"],
        "word chance": np.where(words > 0, words, np.nan),
    }
    return {name: np.where(has, values, np.nan) for name, values in found.items()} | of_words
