"""One-vs-rest: one linear classifier per tag, trained by passive-aggressive steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from visterm.core.checks import check_count
from visterm.core.types import Matrix
from visterm.models import Limit, Weights
from visterm.models.ranking import LinearRanker, SeparateTraining, Training, TrainingContext, image_rows


@dataclass(kw_only=True, eq=False, repr=False)
class OneVsRest(LinearRanker):
    """One large-margin linear classifier per tag, independent of the other tags.

    A tag's images are visited in random order; each is followed by `negatives` images, drawn uniformly from those
    without the tag. With s = 1 for images with the tag and -1 for images without it, the loss is
    ``l = |1 - s (w · x + b)|₊``, and the step is ``s · min(aggressiveness, l / |x|²) · x`` (PA-I). Several threads
    train different tags.

    Parameters
    ----------
    aggressiveness : float
        Maximum step (C), for features of mean length 1.
    negatives : int
        Number of images without the tag for each image with it. More ranks rare tags lower, which is mostly right.
    epochs : int
        Maximum number of passes over all pairs.
    row_length, average, patience, valid_share, schedule, n_jobs, random_state
        As in `EmbeddingRanker`; the schedule changes `aggressiveness`.

    References
    ----------
    Weston, Bengio, Usunier: Large scale image annotation: learning to rank with joint word-image embeddings. Machine
    Learning 81, 2010; section 6.3, Table 2. Crammer, Dekel, Keshet, Shalev-Shwartz, Singer: Online passive-aggressive
    algorithms. JMLR 7, 2006.
    """

    limits: ClassVar[dict[str, Limit]] = {"negatives": check_count}

    test_params: ClassVar[dict[str, Any]] = {"epochs": 20}

    aggressiveness: float = 0.1
    negatives: int = 1

    def _rate(self) -> float:
        return self.aggressiveness

    def _training(self, X: Matrix, positives: sp.csr_array, weights: Weights, context: TrainingContext) -> Training:
        return SeparateTraining(
            image_rows(self._scaled(X)),
            positives,
            weights[0],
            offsets=np.zeros(X.shape[0], np.float32),
            n_negatives=self.negatives,
            rng=context.rng,
            team=context.team,
        )
