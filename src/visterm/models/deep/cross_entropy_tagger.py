"""The full cross-entropy tagger: what the sampled tagger is measured against, with all tags in each step."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import scipy.sparse as sp

from visterm.core.checks import check_size
from visterm.core.types import RandomState
from visterm.models.deep.base import HIDDEN, DeepTagger

MAX_STEP_BYTES = 2**33


class CrossEntropyTagger(DeepTagger):
    """A network into the words' space and the words' vectors, learned together by the cross-entropy over all tags.

    Minimises ``- Σ_p log σ(f · v_p) - Σ_n log σ(- f · v_n)`` where p are all tags of an image and n all others. A step
    reads and moves the rows of all tags, so that its time and memory grow with their number; `SampledTagger` does not.

    Parameters
    ----------
    fixed_vectors : bool
        Whether the word vectors stay as they are ("fixed WV").
    hidden, dim, word_vectors, dropout, batch_norm, epochs, batch_size, learning_rate, tag_learning_rate, l2
        As in `DeepTagger`.
    max_gradient, schedule, patience, valid_share, half, checkpoint, checkpoint_batches, device, n_jobs, random_state
        As in `DeepTagger`.

    References
    ----------
    Ni et al.: Sampled image tagging and retrieval methods on user generated content; section 2.2 and tables 1 to 3.
    """

    def __init__(
        self,
        *,
        fixed_vectors: bool = False,
        hidden: Sequence[int] = HIDDEN,
        dim: int | None = None,
        word_vectors: Any = None,
        dropout: float = 0.5,
        batch_norm: bool = False,
        epochs: int = 40,
        batch_size: int = 256,
        learning_rate: float = 0.0003,
        tag_learning_rate: float = 0.1,
        l2: float = 0.0,
        max_gradient: float = 10.0,
        schedule: str = "cosine",
        patience: int = 5,
        valid_share: float = 0.1,
        half: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_batches: int = 1000,
        device: str = "auto",
        n_jobs: int | None = None,
        random_state: RandomState = 0,
    ) -> None:
        super().__init__(
            hidden=hidden,
            dim=dim,
            word_vectors=word_vectors,
            dropout=dropout,
            batch_norm=batch_norm,
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            tag_learning_rate=tag_learning_rate,
            l2=l2,
            max_gradient=max_gradient,
            schedule=schedule,
            patience=patience,
            valid_share=valid_share,
            half=half,
            checkpoint=checkpoint,
            checkpoint_batches=checkpoint_batches,
            device=device,
            n_jobs=n_jobs,
            random_state=random_state,
        )
        self.fixed_vectors = fixed_vectors

    def _objective(self, Y: sp.csr_array) -> Any:
        from visterm.models.deep.full_objectives import FullObjective  # torch

        n_bytes = 4 * Y.shape[1] * (3 * self.batch_size + 3 * self._dim())
        advice = "Use sampled_tagger, or a smaller batch_size."
        check_size(n_bytes, MAX_STEP_BYTES, f"A step of {self.batch_size} images and {Y.shape[1]} tags", advice)
        return FullObjective(Y)

    def _words_move(self) -> bool:
        return not self.fixed_vectors
