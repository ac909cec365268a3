"""Bags of visterms whose nearest words are looked for in a few groups of words only."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visterm.core.checks import check_count
from visterm.encoders import FindNearest, Visterms, WordFinder, assign_words, learn_codebook
from visterm.kernels import prepare_codebook
from visterm_research.kernels.word_groups import nearest_in_groups, prepare_groups


@dataclass(kw_only=True, eq=False, repr=False)
class GroupedVisterms(Visterms):
    """Visterms that compare a block only with the words of the groups nearest to it.

    k-means groups the words of a scale, with as many groups as words per group. Most of the time per photo is saved,
    for a little quality (``research/experiments/large_photos.py``).

    Parameters
    ----------
    nearest_groups : int
        Number of groups to search: those with centres nearest to the block. If a scale has no more groups, all words
        are compared.
    others
        As in `Visterms`.
    """

    nearest_groups: int = 4

    def _finder(self, *parts: Any) -> WordFinder:
        return self._cached(GroupedWordFinder, *parts, self.neighbours, self.softness, self.nearest_groups)

    def _check_params(self) -> None:
        super()._check_params()
        check_count(self.nearest_groups, "nearest_groups")


class GroupedWordFinder(WordFinder):
    """A word finder that searches the `nearest_groups` groups of words nearest to a block."""

    def __init__(self, *parts: Any) -> None:
        *parts_of_all, self._nearest_groups = parts
        super().__init__(*parts_of_all)

    def _prepare(self, words: NDArray[np.float32], n_nearest: int) -> FindNearest:
        n_groups = math.isqrt(len(words))  # equal to the mean number of words per group
        if self._nearest_groups >= n_groups:
            return super()._prepare(words, n_nearest)
        centres = learn_codebook(words, n_groups, np.random.default_rng(0))
        nearest, _ = assign_words(words, prepare_codebook(centres))
        groups = np.unique(nearest, return_inverse=True)[1]  # drop empty groups
        n_used = int(groups.max()) + 1
        n_probed = min(self._nearest_groups, n_used)
        book = prepare_groups(words, groups, n_used)
        return partial(nearest_in_groups, book=book, n_probed=n_probed, n_nearest=n_nearest)
