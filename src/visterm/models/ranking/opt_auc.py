"""Opt-AUC: the joint embedding with the logistic loss of uniformly drawn pairs, a baseline of VSE-ens."""

from __future__ import annotations

from typing import Any

from visterm.kernels.codes import Loss, Negatives
from visterm.models.ranking.embedding_ranking import EmbeddingRanker
from visterm.models.ranking.streamed_fit import StreamedFit


class OptAuc(EmbeddingRanker, StreamedFit):
    """Joint embedding trained by ``log(1 + exp(f_ȳ(x) - f_y(x)))``, a smooth stand-in for the area under the ROC curve.

    For each pair (image, true tag y) one other tag ȳ is drawn uniformly, and every pair makes a step, a small one where
    y is far above ȳ already.

    The settings are those of `EmbeddingRanker`.

    References
    ----------
    Guo, Zhai, Yuan, Liu, Wang: VSE-ens: Visual-semantic embeddings with efficient negative sampling. AAAI 2018;
    section "Experimental Setup".
    """

    def _recipe(self) -> dict[str, Any]:
        return {"loss": Loss.LOGISTIC, "negatives": Negatives.UNIFORM}
