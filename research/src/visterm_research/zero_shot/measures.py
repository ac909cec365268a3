"""What is measured of tags that no training image had: among themselves, among all tags, and as words to search by."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.metrics import measure
from visterm_research.zero_shot.split import TagSplit

Values = dict[str, NDArray[np.float64]]


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
