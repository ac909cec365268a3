"""Models that learn to rank by drawn pairs: WSABIE, VSE-ens and the systems that they compare against."""

from __future__ import annotations

from typing import TYPE_CHECKING

from visterm.core.registry import lazy_names

if TYPE_CHECKING:
    from visterm.models.ranking.base import Setup, Training
    from visterm.models.ranking.embedding_ranking import DRAW_LIMITS, PAIR_LIMITS, EmbeddingRanker
    from visterm.models.ranking.image_sides import PlainImages
    from visterm.models.ranking.linear_ranking import LinearRanker
    from visterm.models.ranking.open_schedule import OpenSchedule
    from visterm.models.ranking.recipe import STEPS, Negatives, Recipe
    from visterm.models.ranking.separate_training import SeparateTraining, image_rows
    from visterm.models.ranking.streamed_fit import StreamedFit
    from visterm.models.ranking.warp import PairTraining, block_size

_NAMES = {
    "base": "Setup Training",
    "embedding_ranking": "DRAW_LIMITS EmbeddingRanker PAIR_LIMITS",
    "image_sides": "PlainImages",
    "linear_ranking": "LinearRanker",
    "open_schedule": "OpenSchedule",
    "recipe": "Negatives Recipe STEPS",
    "separate_training": "SeparateTraining image_rows",
    "streamed_fit": "StreamedFit",
    "warp": "PairTraining block_size",
}
"""What plug-ins may use, by module: docs/add_a_model.md."""

__getattr__, __dir__ = lazy_names("visterm.models.ranking", _NAMES)
