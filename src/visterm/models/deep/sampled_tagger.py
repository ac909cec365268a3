"""The sampled tagger: a network and word vectors learned together from a few drawn tags per image."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import scipy.sparse as sp

from visterm.models.base import Limit
from visterm.models.deep.base import DeepTagger
from visterm.models.deep.tag_draws import DRAW_LIMITS, draws_for


@dataclass(kw_only=True, eq=False, repr=False)
class SampledTagger(DeepTagger):
    """A network into the words' space and the words' vectors, learned together by a sampled cross-entropy.

    For each image, P of its tags and N of all tags are drawn, and (1) is maximised over the network and the vectors:

    ``Σ_p log σ(f · v_p) + Σ_n log σ(- f · v_n) + α (Σ_{p,p'} log σ(v_p · v_p') + Σ_{p,n} log σ(- v_p · v_n))``

    The time of a step does not depend on the number of tags: only the rows of drawn tags are read and changed. The
    settings of the paper are ``hidden=[4096, 8192, 2048], negatives=10, power=1, alpha=0.01, start_low=False``.

    Parameters
    ----------
    positives : int
        P: number of tags drawn from an image's tags, with replacement if it has fewer.
    negatives : int
        N: number of tags drawn from the background.
    power : float
        The background distribution is the frequency of tags to this power. With 1, as in the paper, a score tells how
        much likelier a tag is for this image than for others, which finds rare tags. With 0, a uniform distribution, a
        score tells how likely a tag is, which puts common tags first, like `CrossEntropyTagger`. So 1 is better for
        measures over tags, and a small power for measures over images.
    background : {"exact", "subset", "adjacent"}
        How negatives are drawn: from the distribution, from a new subset in each epoch, or from the tags of the next
        image in the batch (section 3.3); see `TagDraws`.
    subset_size : int
        Number of tags drawn for the subset.
    alpha : float
        α. A larger value makes vectors of tags of the same images more similar. The sums that it weights have
        P · (P + N) terms, the first two sums P + N: use a smaller α with more negatives.
    printed : bool
        Whether to use the last two sums as printed, without logarithms and with α only for the first of them.
    fixed_vectors : bool
        Whether the word vectors are fixed ("fixed WV").
    start_low : bool, optional
        Whether scores start near the log odds that the image has a drawn tag, log(P / N), and not at 0. From 0, the
        first steps lower the scores of all tags, and Adagrad makes later steps smaller after large first steps: with
        more negatives, the vectors learn less about the differences between tags. None: True without `word_vectors`;
        with them, words that are not tags would not start as low as tags.
    others
        As in `DeepTagger`.

    References
    ----------
    Ni et al.: Sampled image tagging and retrieval methods on user generated content; equation 1, sections 2 and 3.
    """

    limits: ClassVar[dict[str, Limit]] = DRAW_LIMITS

    positives: int = 5
    negatives: int = 300
    power: float = 0.0
    background: str = "exact"
    subset_size: int = 10_000
    alpha: float = 0.0
    printed: bool = False
    fixed_vectors: bool = False
    start_low: bool | None = None

    def _start_score(self, Y: sp.csr_array) -> float:
        return math.log(self.positives / self.negatives) if self._starts_low() else 0.0

    def _objective(self, Y: sp.csr_array) -> Any:
        from visterm.models.deep.objectives import SampledObjective  # torch

        return SampledObjective(draws_for(self, Y, self._dim()), alpha=self.alpha, printed=self.printed)

    def _work_per_tag(self, n_tags: int) -> int:
        return self.positives + self.negatives
