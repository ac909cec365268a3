"""visterm learns a photo library's own tags, tags new photos with them, and finds photos by words."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from visterm.core.errors import VistermError
    from visterm.core.types import Hit, Ranking, Tag
    from visterm.core.vocabulary import Vocabulary
    from visterm.data.frames import to_frame
    from visterm.evaluation.evaluate_run import evaluate
    from visterm.evaluation.pairs import evaluate_pairs
    from visterm.learning.relations import WordRelations
    from visterm.library.catalogue import Catalogue
    from visterm.metrics.report import scorer
    from visterm.tagging.recommender import Recommender, fit_pairs
    from visterm.tagging.tagger import Tagger, fit

_EXPORTS = {
    "Catalogue": "visterm.library.catalogue",
    "Hit": "visterm.core.types",
    "Ranking": "visterm.core.types",
    "Recommender": "visterm.tagging.recommender",
    "Tag": "visterm.core.types",
    "Tagger": "visterm.tagging.tagger",
    "VistermError": "visterm.core.errors",
    "Vocabulary": "visterm.core.vocabulary",
    "WordRelations": "visterm.learning.relations",
    "evaluate": "visterm.evaluation.evaluate_run",
    "evaluate_pairs": "visterm.evaluation.pairs",
    "fit": "visterm.tagging.tagger",
    "fit_pairs": "visterm.tagging.recommender",
    "scorer": "visterm.metrics.report",
    "to_frame": "visterm.data.frames",
}
_ROOMS = ("encoders", "models")
"""Rooms whose classes are public: `visterm.models.Wsabie`."""

__all__ = [
    "Catalogue", "Hit", "Ranking", "Recommender", "Tag", "Tagger", "VistermError", "Vocabulary", "WordRelations",
    "evaluate", "evaluate_pairs", "fit", "fit_pairs", "scorer", "to_frame",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import a public name at its first use, so that ``import visterm`` stays light."""
    if name == "__version__":
        from importlib.metadata import version

        return version("visterm")
    if name in _ROOMS:
        return import_module(f"visterm.{name}")
    if name not in _EXPORTS:
        from visterm.core.registry import unknown_attribute

        raise AttributeError(unknown_attribute("visterm", name, __dir__()), name=name)
    return getattr(import_module(_EXPORTS[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, *_ROOMS])
