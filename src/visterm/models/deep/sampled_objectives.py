"""What is trained for on drawn tags: the sampled cross-entropy of equation (1), and the sampled ranking cost."""

from __future__ import annotations

import numpy as np
import torch

from visterm.models.deep.data_parallel import Part
from visterm.models.deep.drawn_products import DrawnProducts, drawn_scores
from visterm.models.deep.tag_costs import related_tags, sampled_cross_entropy, sampled_rank_cost
from visterm.models.deep.tag_draws import Draws, Ints, TagDraws
from visterm.models.deep.word_table import WordTable


class SampledObjective:
    """A cost of the tags drawn for each image.

    Parameters
    ----------
    draws : TagDraws
    rank : bool
        Equation (5) over drawn pairs, in place of (1).
    alpha : float
        Weight of the last two sums of (1); of no effect with `rank`, or where words do not move.
    printed : bool
        Those sums as printed, see `related_tags`.
    """

    def __init__(self, draws: TagDraws, *, rank: bool = False, alpha: float = 0.0, printed: bool = False) -> None:
        self._draws, self._rank, self._alpha, self._printed = draws, rank, alpha, printed

    def start_epoch(self, rng: np.random.Generator) -> None:
        """Draw the epoch's subset, if there is one."""
        self._draws.start_epoch(rng)

    def loss(
        self, f: torch.Tensor, images: Ints, table: WordTable, rng: np.random.Generator, part: Part | None = None
    ) -> torch.Tensor:
        """Draw tags for the batch, take the rows of the part's alone, and give its cost."""
        drawn = self._draws.draw(images, rng)
        n_positives = drawn.positives.shape[1]
        rows = table.take(np.hstack([drawn.positives, drawn.negatives]), part)
        rows = rows.view(len(f), -1, f.shape[1])
        if part is not None:
            drawn = drawn.of(part.rows)
        has, counts = (torch.from_numpy(flags.astype(np.float32)).to(f.device) for flags in (drawn.has, drawn.counts))
        cost = sampled_rank_cost if self._rank else sampled_cross_entropy
        if self._rank or not table.moving or not (self._alpha or self._printed):
            scores = drawn_scores(f, rows)
            return cost(scores[:, :n_positives], scores[:, n_positives:], has, counts)
        scores, products = DrawnProducts.apply(f, rows, n_positives)
        pairs, apart = (torch.from_numpy(flags).to(f.device) for flags in _pairs(drawn))
        alike, unlike = products[:, :, :n_positives], products[:, :, n_positives:]
        related = related_tags(alike, unlike, pairs, apart, alpha=self._alpha, printed=self._printed)
        return cost(scores[:, :n_positives], scores[:, n_positives:], has, counts) + related


def _pairs(drawn: Draws) -> tuple[np.ndarray, np.ndarray]:
    """Say which pairs of draws are of two tags that the image has, and which of one that it has and one not."""
    p, has = drawn.positives, drawn.has
    two = (p[:, :, None] != p[:, None, :]) & has[:, :, None]
    return two.astype(np.float32), (has[:, :, None] & drawn.counts[:, None, :]).astype(np.float32)
