"""What makes a tagger an estimator of scikit-learn: settings by name, copies, scores, and a line at a prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from inspect import signature
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import scipy.sparse as sp

from visterm.core.errors import DataError, UserError
from visterm.core.estimator import Estimator
from visterm.core.registry import unknown
from visterm.core.tables import ENCODERS, MODELS
from visterm.core.wording import count_of
from visterm.learning.run import Run

if TYPE_CHECKING:
    from visterm.features.training_rows import Photos

_PARTS = ("encoder", "model")
_SHOWN = 5  # Tags


class JudgedTags(NamedTuple):
    """Scores of all tags of some images, and which of the tags people gave them."""

    scores: Callable[[], Iterator[Any]]  # Yields rows and their scores, block by block
    Y: sp.csr_array  # shape (n_images, n_tags)
    exclude: sp.csr_array | None  # Not 0 where a tag was learned of the image itself


class TaggerEstimator(Estimator, Run):
    """A run with the methods that scikit-learn calls; `fit` and the constructor are those of `Tagger`."""

    _made_with: Mapping[str, Any]
    min_count: int
    seed: int

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the settings of the constructor by name, with `deep` also ``model__dim`` and ``encoder__max_side``."""
        if "_made_with" in vars(self):
            found = dict(self._made_with)
        else:  # a run that was opened
            names = {"encoder": ENCODERS.name_of(self.encoder), "model": MODELS.name_of(self.model)}
            n_jobs = getattr(self.parts, "n_jobs", None)
            params = {f"{part}_params": getattr(self, part).get_params(deep=False) for part in _PARTS}
            found = {**names, **params, "min_count": self.min_count, "seed": self.seed, "n_jobs": n_jobs}
        if deep:
            for part in _PARTS:
                inner = getattr(self, part).get_params(deep=False)
                found.update((f"{part}__{name}", value) for name, value in inner.items())
        return found

    def set_params(self, **params: Any) -> Self:
        """Change settings, ``model__dim`` those of the model; what was learned is forgotten.

        Raises UserError if there is no such setting, or it cannot be used.
        """
        if not params:
            return self
        settings = self.get_params(deep=False)
        for key, value in params.items():
            part, inner, name = key.partition("__")
            if inner and part in _PARTS:
                settings[f"{part}_params"] = {**(settings[f"{part}_params"] or {}), name: value}
            elif key in settings:
                settings[key] = value
            else:
                raise UserError(unknown("setting of a Tagger", key, sorted(self.get_params())))
        made = type(self)(**settings)
        vars(self).clear()
        vars(self).update(vars(made))
        return self

    def __sklearn_clone__(self) -> Self:
        """Return a tagger with the same settings that has learned nothing, for scikit-learn's `clone`."""
        return type(self)(**self.get_params(deep=False))

    def score(self, images: Photos, tags: Any = "auto") -> float:
        """Return the mean average precision (MAP) over photos: how high the right tags rank, 0 to 1.

        It lets scikit-learn choose settings (`GridSearchCV`) and measure taggers (`cross_val_score`); `visterm.scorer`
        has the other metrics. Photos that cannot be read, or have no tag that the run knows, don't count.

        Parameters
        ----------
        images, tags
            As in `fit`; all of them are measured.

        Raises
        ------
        DataError
            If there is nothing to measure on.
        """
        from visterm.metrics.scorer import scorer

        return scorer("map")(self, images, tags)

    def judged(self, images: Photos, tags: Any = None) -> JudgedTags:
        """Return the scores of photos, with the tags that people gave them, as metrics need them."""
        from visterm.features.training_rows import encode_corpus, known_part, read_corpus

        self._refuse_unfitted()
        corpus, _ = known_part(self.encoder, read_corpus(self.encoder, images, "auto" if tags is None else tags))
        if self.tree is not None:
            given, negatives = self.tree.words.completed(corpus.tags, corpus.negatives)
            corpus = replace(corpus, tags=given, negatives=negatives)
        X, Y, _ = encode_corpus(self.encoder, corpus, self.vocabulary)
        if len(corpus) and X.shape[0] == 0 and self.encoder.by_number:
            raise DataError(
                f"None of the {count_of(len(corpus), 'photo')} to measure (such as '{corpus.names[0]}') was learned "
                "from, and this tagger knows photos by number only (the encoder ids). Folds of photos do not suit it: "
                "hide some tags of each photo instead, and measure with visterm.evaluate."
            )
        return JudgedTags(lambda: self.score_blocks(X), Y, self.known_tags(X))

    def __repr__(self) -> str:
        shown = repr(self.path) if self.path else "read from a catalogue"
        if "_made_with" in vars(self):
            defaults = {name: parameter.default for name, parameter in signature(type(self)).parameters.items()}
            changed = {name: value for name, value in self._made_with.items() if value not in (defaults[name], {})}
            shown = ", ".join(f"{name}={value!r}" for name, value in changed.items())
        if len(self.vocabulary) == 0:
            return f"{type(self).__name__}({shown})"
        more = ", …" if len(self.vocabulary) > _SHOWN else ""
        what = f"{count_of(len(self.vocabulary), 'tag')} of {count_of(self.facts.get('images', 0), 'photo')}"
        return f"{type(self).__name__}({shown}) with {what}: {', '.join(self.vocabulary.tags[:_SHOWN])}{more}"
