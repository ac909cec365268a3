"""Models that learn to rank from drawn pairs: WSABIE, VSE-ens and related models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from visterm.core.registry import lazy_names

if TYPE_CHECKING:
    from visterm.models.ranking.embedding_ranking import DRAW_LIMITS, PAIR_LIMITS, EmbeddingRanker
    from visterm.models.ranking.image_sides import EmbeddedImages, StepSettings
    from visterm.models.ranking.linear_ranking import LinearRanker
    from visterm.models.ranking.training import Training, TrainingContext, image_rows
    from visterm.models.ranking.warp import Objective, PairTraining, UniformDraws, rank_weights

_NAMES = {
    "embedding_ranking": "DRAW_LIMITS EmbeddingRanker PAIR_LIMITS",
    "image_sides": "EmbeddedImages StepSettings",
    "linear_ranking": "LinearRanker",
    "training": "Training TrainingContext image_rows",
    "warp": "Objective PairTraining UniformDraws rank_weights",
}
"""Names for plug-ins, by module: docs/add_a_model.md."""

__getattr__, __dir__ = lazy_names("visterm.models.ranking", _NAMES)
