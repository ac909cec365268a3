"""visterm learns a photo library's own tags, tags new photos with them, and finds photos by words.

The public names, in the order in which you need them:

- `fit`: learn from tagged photos (a folder, a DataFrame, paths or pixels) or features; it returns a `Tagger`
- `Tagger`: `annotate`, `predict`, `predict_proba`, `explain`, `save` and `load`; also an estimator for scikit-learn
- `evaluate`: measure taggers on photos whose tags are known
- `Catalogue`: photos to search by words, to review, and to learn from
- `models`, `encoders`: what `fit` combines, by name, and the base classes for your own
- `to_frame`: results as a DataFrame; most have `to_pandas()` and `to_polars()`
- `scorer`: metrics for scikit-learn's `GridSearchCV` and `cross_val_score`
- `fit_pairs`, `Recommender`, `evaluate_pairs`: the same for pairs of users and items
- `VistermError`: the base class of all errors

Examples
--------
>>> tagger = visterm.fit("photos", tags="tags.csv")  # doctest: +SKIP
>>> tagger.annotate("new.jpg").to_pandas()  # doctest: +SKIP
>>> visterm.Catalogue(tagger).add("photos").search("snow tree").hits  # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from visterm import encoders, models
    from visterm.core.errors import VistermError
    from visterm.data.frames import to_frame
    from visterm.evaluation.evaluate_run import evaluate
    from visterm.evaluation.pairs import evaluate_pairs
    from visterm.library.catalogue import Catalogue
    from visterm.metrics.report import scorer
    from visterm.tagging.recommender import Recommender, fit_pairs
    from visterm.tagging.tagger import Tagger, fit

_EXPORTS = {
    "fit": "visterm.tagging.tagger",
    "Tagger": "visterm.tagging.tagger",
    "evaluate": "visterm.evaluation.evaluate_run",
    "Catalogue": "visterm.library.catalogue",
    "to_frame": "visterm.data.frames",
    "scorer": "visterm.metrics.report",
    "fit_pairs": "visterm.tagging.recommender",
    "Recommender": "visterm.tagging.recommender",
    "evaluate_pairs": "visterm.evaluation.pairs",
    "VistermError": "visterm.core.errors",
}
_ROOMS = ("encoders", "models")
"""Rooms whose classes are public: `visterm.models.Wsabie`."""

__all__ = [  # noqa: RUF022, in the order in which they are needed
    "fit", "Tagger", "evaluate", "Catalogue", "models", "encoders", "to_frame", "scorer", "fit_pairs", "Recommender",
    "evaluate_pairs", "VistermError",
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
    return sorted(__all__)
