"""One-vs-rest: one linear classifier per tag, trained by passive-aggressive steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from visterm.core.checks import check_count
from visterm.core.threads import Team
from visterm.core.types import Matrix
from visterm.kernels import Rows, row_squares
from visterm.models import EpochSums, Floats, Limit, Weights
from visterm.models.ranking import LinearRanker, Training, TrainingContext, image_rows
from visterm_research.kernels.separate_tags import separate_tags

MAX_SHARES = 64  # Maximum number of parts of the tags, to balance the load of threads with frequent tags


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


class SeparateTraining(Training):
    """The state of one training of a linear scorer per tag, by passive-aggressive steps.

    `rows` are the image rows, and `squares`, (n_images,), their squared lengths. Stored entries of the canonical
    `positives`, (n_images, n_tags), are the tags of images. `tag_rows`, (n_tags, width), are changed in place.
    `offsets`, (n_images,), are the minimum scores of an image's tags. For each image with a tag, `n_negatives` images
    without the tag are visited.
    """

    def __init__(
        self,
        rows: Rows,
        positives: sp.csr_array,
        tag_rows: Floats,
        *,
        offsets: Floats,
        n_negatives: int,
        rng: np.random.Generator,
        team: Team,
    ) -> None:
        self._rows, self._W, self._offsets, self._team = rows, tag_rows, offsets, team
        self._n_negatives = n_negatives
        images_by_tag = sp.csr_array(positives.T)
        images_by_tag.sort_indices()
        self._start, self._tag_images = images_by_tag.indptr.astype(np.int64), images_by_tag.indices
        self.squares = np.empty(positives.shape[0], np.float32)
        row_squares(rows, self.squares)
        self._sums = np.empty((positives.shape[1], 3))
        self._bounds = np.linspace(0, positives.shape[1], min(MAX_SHARES, positives.shape[1]) + 1).astype(np.int64)
        self._seed = int(rng.integers(2**62))
        self._epoch = 0

    def run_epoch(self, rate: float) -> EpochSums:
        """Visit each image of each tag once, with its negatives; `rate` is the maximum step."""

        def train_part(number: int) -> None:
            separate_tags(
                self._bounds[number], self._bounds[number + 1], self._start, self._tag_images, self._rows, self.squares,
                self._offsets, self._n_negatives, rate, self._seed, self._epoch, self._W, self._sums,
            )  # fmt: skip

        self._team.run(train_part, len(self._bounds) - 1)
        self._epoch += 1
        loss, examples, steps = (float(value) for value in self._sums.sum(axis=0))
        examples = max(1.0, examples)
        return EpochSums(loss / examples, 1.0, steps / examples)
