"""The full cross-entropy tagger, with all tags in each step: a baseline for the sampled tagger."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from visterm.core.checks import check_size
from visterm.models.deep import DeepTagger

MAX_STEP_BYTES = 2**33


@dataclass(kw_only=True, eq=False, repr=False)
class CrossEntropyTagger(DeepTagger):
    """A network into the words' space and the words' vectors, learned together by the cross-entropy over all tags.

    Minimises ``- Σ_p log σ(f · v_p) - Σ_n log σ(- f · v_n)`` where p are all tags of an image and n all other tags. A
    step reads and moves the rows of all tags, so its time and memory grow with their number, unlike in `SampledTagger`.
    The paper's network is ``hidden=[4096, 8192, 2048], start_low=False``.

    Parameters
    ----------
    fixed_vectors : bool
        Whether the word vectors are fixed ("fixed WV").
    start_low : bool, optional
        Whether scores start near the log odds that an image has a tag, and not at 0; see `SampledTagger`.
    others
        As in `DeepTagger`.

    References
    ----------
    Ni et al.: Sampled image tagging and retrieval methods on user generated content; section 2.2 and tables 1 to 3.
    """

    fixed_vectors: bool = False
    start_low: bool | None = None

    def _start_score(self, Y: sp.csr_array) -> float:
        tags_per_image = (Y.data > 0).sum() / max(np.count_nonzero(np.diff(Y.indptr)), 1)
        return math.log(tags_per_image / max(Y.shape[1] - tags_per_image, 1)) if self._starts_low() else 0.0

    def _objective(self, Y: sp.csr_array) -> Any:
        from visterm_research.models.deep.objectives import FullObjective  # torch

        n_bytes = 4 * Y.shape[1] * (3 * self.batch_size + 3 * self._dim())
        advice = "Use sampled_tagger, or a smaller batch_size."
        check_size(n_bytes, MAX_STEP_BYTES, f"A step of {self.batch_size} images and {Y.shape[1]} tags", advice)
        return FullObjective(Y)
