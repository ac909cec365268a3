"""Deep taggers: a network and word vectors, learned together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from visterm.core.registry import lazy_names

if TYPE_CHECKING:
    from visterm.models.deep.base import DeepTagger
    from visterm.models.deep.fitting import torch_settings
    from visterm.models.deep.objectives import SampledObjective, related_tags, sampled_cross_entropy
    from visterm.models.deep.tag_draws import DRAW_LIMITS, TagDraws, draws_for
    from visterm.models.deep.word_table import WordTable

_NAMES = {
    "base": "DeepTagger",
    "fitting": "torch_settings",
    "objectives": "SampledObjective related_tags sampled_cross_entropy",
    "tag_draws": "DRAW_LIMITS TagDraws draws_for",
    "word_table": "WordTable",
}
"""Names for plug-ins, by module: docs/add_a_model.md."""

__getattr__, __dir__ = lazy_names("visterm.models.deep", _NAMES)
