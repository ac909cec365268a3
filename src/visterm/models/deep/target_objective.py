"""What is trained for where each image has one target in the words' space, made of the vectors of its tags."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from visterm.models.deep.data_parallel import Part
from visterm.models.deep.tag_costs import squared_distance
from visterm.models.deep.word_table import WordTable


class TargetObjective:
    """The squared distance from the sum of an image's word vectors, by given weights; the words do not move.

    Parameters
    ----------
    weights : csr_array of float32, shape (n_images, n_tags)
    """

    def __init__(self, weights: sp.csr_array) -> None:
        self._weights = weights

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
        """Make the targets of a batch or its part, and give the cost."""
        images = images if part is None else images[part.rows]
        weights = self._weights[images]
        tags, places = np.unique(weights.indices, return_inverse=True)
        few = sp.csr_array((weights.data, places, weights.indptr), shape=(images.size, tags.size))
        targets = np.asarray(few @ table.rows[tags], np.float32)
        return squared_distance(f, torch.from_numpy(targets).to(f.device))
