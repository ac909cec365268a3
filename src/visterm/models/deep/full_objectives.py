"""What is trained for on all tags of the dictionary: cross-entropy, and ranks of all pairs."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from visterm.models.deep.data_parallel import Part
from visterm.models.deep.tag_costs import full_cross_entropy, full_rank_cost
from visterm.models.deep.word_table import WordTable


class FullObjective:
    """A cost of all tags for each image: time and memory grow with the dictionary.

    Parameters
    ----------
    Y : csr_array, shape (n_images, n_tags)
        Above 0: given. What is denied counts as what is not known: as not given.
    rank : bool
        Equation (5) over all pairs, in place of the cross-entropy.
    """

    def __init__(self, Y: sp.csr_array, *, rank: bool = False) -> None:
        self._given = sp.csr_array(Y > 0)
        self._cost = full_rank_cost if rank else full_cross_entropy

    def start_epoch(self, rng: np.random.Generator) -> None:
        """Do nothing: nothing is drawn."""

    def loss(
        self,
        f: torch.Tensor,
        images: NDArray[np.int64],
        table: WordTable,
        rng: np.random.Generator,
        part: Part | None = None,
    ) -> torch.Tensor:
        """Take all rows, and give the cost of a batch or its part."""
        images = images if part is None else images[part.rows]
        given = self._given[images]
        owners = np.repeat(np.arange(images.size), np.diff(given.indptr))
        pairs = (torch.from_numpy(array.astype(np.int64)).to(f.device) for array in (owners, given.indices))
        return self._cost(f, table.take_all(), *pairs)
