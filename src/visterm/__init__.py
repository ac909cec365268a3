"""visterm learns a photo library's own tags, tags new photos with them, and finds photos by words."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from visterm.core.errors import VistermError
    from visterm.core.types import Hit, Ranking, Tag
    from visterm.core.vocabulary import Vocabulary
    from visterm.library.catalogue import Catalogue
    from visterm.tagging.relations import WordRelations
    from visterm.tagging.tagger import Tagger

_EXPORTS = {
    "Catalogue": "visterm.library.catalogue",
    "Hit": "visterm.core.types",
    "Ranking": "visterm.core.types",
    "Tag": "visterm.core.types",
    "Tagger": "visterm.tagging.tagger",
    "VistermError": "visterm.core.errors",
    "Vocabulary": "visterm.core.vocabulary",
    "WordRelations": "visterm.tagging.relations",
}

__all__ = ["Catalogue", "Hit", "Ranking", "Tag", "Tagger", "VistermError", "Vocabulary", "WordRelations"]


def __getattr__(name: str) -> Any:
    """Import a public name at its first use, so that ``import visterm`` stays light."""
    if name == "__version__":
        from importlib.metadata import version

        return version("visterm")
    if name not in _EXPORTS:
        raise AttributeError(f"module 'visterm' has no attribute '{name}'; public names: {', '.join(__all__)}")
    return getattr(import_module(_EXPORTS[name]), name)


def __dir__() -> list[str]:
    return __all__
