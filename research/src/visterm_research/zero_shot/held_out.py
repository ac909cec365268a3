"""Tags without training images, and their measures: ranked among themselves, among all tags, and as search words."""

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
"""Share of the tags that are held out."""


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
    """Draw the held-out tags, with equal probabilities: this share of all tags, rounded.

    Raises
    ------
    UserError
        If no tag, or every tag, would be held out.
    """
    n_held_out = round(share * n_tags)
    if not 0 < n_held_out < n_tags:
        raise UserError(
            f"A share of {share} holds out {n_held_out} of {n_tags} tags; expected a share with tags on both sides."
        )
    order = np.random.default_rng(seed).permutation(n_tags)
    return TagSplit(np.sort(order[n_held_out:]), np.sort(order[:n_held_out]))


def seen_rows(rows: Rows, split: TagSplit) -> Rows:
    """Return the images with a seen tag, and only the columns of seen tags, so that no held-out tag is learned.

    Images with a held-out tag are kept, like those of NUS-WIDE in the paper, but without this tag.
    """
    Y = sp.csr_array(rows.Y[:, split.seen])
    tagged_rows = np.flatnonzero(np.asarray((Y > 0).sum(axis=1)).ravel())
    return Rows(rows.X[tagged_rows], sp.csr_array(Y[tagged_rows]))


def zero_shot_measures(
    scores: NDArray[np.float32], Y: sp.csr_array, split: TagSplit, *, handicap: float = 0.0
) -> Values:
    """Return the measures of each image or word; NaN if there is nothing to find.

    Measures of images are NaN for images without a held-out tag, for which every answer would be wrong.

    Parameters
    ----------
    scores : ndarray of float32, shape (n_images, n_tags)
    Y : csr_array, shape (n_images, n_tags)
    split : TagSplit
    handicap : float
        Number subtracted from the scores of seen tags when all tags are ranked together.

    Returns
    -------
    dict of str to ndarray of float64
        ``held-out p@5`` and ``held-out r@5``: only held-out tags are ranked (925→81 of Table 2). ``held-out chance``:
        the expected p@5 of a random ranking of held-out tags, which is the share of the held-out tags that the image
        has (at most 1, also with few held-out tags). ``all p@5`` and ``all r@5``: all tags are ranked, and all tags of
        the image are right (925→1006). ``all held-out p@5`` and ``all held-out r@5``: all tags are ranked, and only
        held-out tags are right. ``word map`` and ``word p@10``: all images are ranked for each held-out word; ``word
        chance``: the share of images with the word.
    """
    right = sp.csr_array(Y > 0)
    held_out_tags = sp.csr_array(right[:, split.held_out])
    counts = np.asarray(held_out_tags.sum(axis=1), np.float64).ravel()
    has_tag = counts > 0
    held_out_scores = np.ascontiguousarray(scores[:, split.held_out])
    all_scores = np.array(scores, np.float32)
    all_scores[:, split.seen] -= np.float32(handicap)
    held_out_values = measure(held_out_scores, held_out_tags, ["p@5", "r@5", "word_map", "word_p@10"])
    all_values = measure(all_scores, right, ["p@5", "r@5"])
    held_out_only = sp.csr_array(
        right @ sp.diags_array(np.isin(np.arange(Y.shape[1]), split.held_out).astype(np.float32))
    )
    among_all_values = measure(all_scores, held_out_only, ["p@5", "r@5"])
    word_shares = np.asarray(held_out_tags.sum(axis=0), np.float64).ravel() / Y.shape[0]
    image_measures = {
        "held-out p@5": held_out_values["p@5"],
        "held-out r@5": held_out_values["r@5"],
        "held-out chance": counts / split.held_out.size * min(1.0, split.held_out.size / 5),
        "all p@5": all_values["p@5"],
        "all r@5": all_values["r@5"],
        "all held-out p@5": among_all_values["p@5"],
        "all held-out r@5": among_all_values["r@5"],
    }
    word_measures = {
        "word map": held_out_values["word_map"],
        "word p@10": held_out_values["word_p@10"],
        "word chance": np.where(word_shares > 0, word_shares, np.nan),
    }
    return {name: np.where(has_tag, values, np.nan) for name, values in image_measures.items()} | word_measures
