"""Fast0Tag: a network that finds the direction in the words' space along which an image's tags come first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import scipy.sparse as sp

from visterm.core.checks import check_size
from visterm.models import Limit
from visterm.models.deep import DRAW_LIMITS, DeepTagger, draws_for

MAX_STEP_BYTES = 2**33


@dataclass(kw_only=True, eq=False, repr=False)
class Fast0Tag(DeepTagger):
    """A network into the words' space that ranks the tags of an image before all other tags.

    Maximises ``β Σ_p Σ_n log σ(f · (v_p - v_n))`` (equation 5 of Ni et al., after RankNet), where β is one over an
    image's number of pairs. The word vectors are fixed unless `fixed_vectors` is False.

    Parameters
    ----------
    all_pairs : bool
        Whether all tags of an image are compared with all other tags, as published: time and memory grow with the
        number of tags. False compares P with N drawn tags: the sampled form of Ni et al., which needs P · N products
        per image, and `SampledTagger` P + N.
    fixed_vectors : bool
        Whether the word vectors are fixed.
    positives, negatives, power, background, subset_size
        As in `SampledTagger`; without effect if `all_pairs` is True.
    others
        As in `DeepTagger`.

    References
    ----------
    Zhang, Gong, Shah: Fast zero-shot image tagging. CVPR 2016.
    Ni et al.: Sampled image tagging and retrieval methods on user generated content; equation 5.
    """

    limits: ClassVar[dict[str, Limit]] = DRAW_LIMITS

    all_pairs: bool = True
    fixed_vectors: bool = True
    positives: int = 5
    negatives: int = 10
    power: float = 1.0
    background: str = "exact"
    subset_size: int = 10_000

    def _objective(self, Y: sp.csr_array) -> Any:
        from visterm.models.deep import SampledObjective  # torch
        from visterm_research.models.deep.objectives import FullObjective, sampled_rank_cost

        if self.all_pairs:
            tags_per_image = -(-Y.nnz // max(Y.shape[0], 1)) + 1
            n_bytes = 4 * Y.shape[1] * (3 * tags_per_image * self.batch_size + 3 * self._dim())
            advice = "Use all_pairs=False, or a smaller batch_size."
            check_size(n_bytes, MAX_STEP_BYTES, f"A step of {self.batch_size} images and {Y.shape[1]} tags", advice)
            return FullObjective(Y, rank=True)
        return SampledObjective(draws_for(self, Y, self._dim()), cost=sampled_rank_cost)

    def _work_per_tag(self, n_tags: int) -> int:
        return n_tags if self.all_pairs else self.positives + self.negatives
