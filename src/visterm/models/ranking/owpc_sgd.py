"""OWPC by plain SGD: WSABIE's loss with the rank computed, not estimated."""

from __future__ import annotations

from typing import Any

from visterm.kernels.codes import Negatives
from visterm.models.ranking.embedding_ranking import EmbeddingRanker
from visterm.models.ranking.streamed_fit import StreamedFit


class OwpcSgd(EmbeddingRanker, StreamedFit):
    """Joint embedding trained on the very loss that WARP approximates: all tags are scored for every pair.

    With ``rank`` the number of tags ȳ with ``1 + f_ȳ(x) > f_y(x)``, each of them makes a step of weight
    ``(1 + 1/2 + ... + 1/rank) / rank`` (Eq. 6), and the true tag one of as much as all of them together. That is exact,
    and costs as many scores a pair as there are tags.

    The settings are those of `EmbeddingRanker`.

    References
    ----------
    Weston, Bengio, Usunier: Large scale image annotation: learning to rank with joint word-image embeddings. Machine
    Learning 81, 2010; Eqs. 6 and 7, Figure 2.
    """

    def _recipe(self) -> dict[str, Any]:
        return {"negatives": Negatives.ALL}
