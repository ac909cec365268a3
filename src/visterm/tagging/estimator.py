"""A tagger as an estimator of scikit-learn (settings by name, copies, scores), and as a run on disk or on the hub."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from inspect import signature
from typing import Any, NamedTuple, Self

import scipy.sparse as sp

from visterm.core.errors import DataError, UserError
from visterm.core.estimator import Estimator
from visterm.core.registry import unknown
from visterm.core.tables import ENCODERS, MODELS
from visterm.core.wording import count_of
from visterm.features.training_rows import Photos, encode_corpus, known_part, read_corpus
from visterm.learning.part_settings import move_encoder
from visterm.learning.run import Run

_PARTS = ("encoder", "model")
_SHOWN = 5  # Tags


class ScoredTags(NamedTuple):
    """Scores of all tags of some images, and which of the tags people gave them."""

    scores: Callable[[], Iterator[Any]]  # Yields rows and their scores, block by block
    Y: sp.csr_array  # shape (n_images, n_tags)
    exclude: sp.csr_array | None  # Not 0 where a tag was learned of the image itself


class TaggerEstimator(Estimator, Run):
    """A run with the methods that scikit-learn calls, from disk or the hub; `Tagger` has the constructor and `fit`."""

    _made_with: Mapping[str, Any]
    min_count: int
    seed: int

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the settings of the constructor by name, with `deep` also ``model__dim`` and ``encoder__max_side``."""
        if "_made_with" in vars(self):
            settings = dict(self._made_with)
        else:  # a run that was opened
            names = {"encoder": ENCODERS.name_of(self.encoder), "model": MODELS.name_of(self.model)}
            n_jobs = getattr(self.parts, "n_jobs", None)
            params = {f"{part}_params": getattr(self, part).get_params(deep=False) for part in _PARTS}
            settings = {**names, **params, "min_count": self.min_count, "seed": self.seed, "n_jobs": n_jobs}
        if deep:
            for part in _PARTS:
                inner = getattr(self, part).get_params(deep=False)
                settings.update((f"{part}__{name}", value) for name, value in inner.items())
        return settings

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
                known = sorted(self.get_params())
                raise UserError(unknown("setting of a Tagger", key, known), setting=key, value=value)
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
        from visterm.metrics.report import scorer

        return scorer("map")(self, images, tags)

    def judged(self, images: Photos, tags: object = None) -> ScoredTags:
        """Return the scores of photos, with the tags that people gave them, as metrics need them."""
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
        return ScoredTags(lambda: self.score_blocks(X), Y, self.known_tags(X))

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, n_jobs: int | None = None, device: str | None = None, whole: bool = True
    ) -> Self:
        """Open a run that `save` wrote, to use it with `n_jobs` threads (None: all cores).

        Parameters
        ----------
        path : path-like
            A folder, or ``hub:OWNER/NAME``, a repository of the Hugging Face hub (`from_pretrained`).
        n_jobs : int, optional
        device : str, optional
            Where torch networks of the encoder run: "cpu", "cuda" or "auto". None: as when it was fitted.
        whole : bool
            Read all of it now. False: some parts when they are first used; the run has to stay where it is.

        Raises
        ------
        StorageError
            If there is no run at `path`, or it was damaged.
        UserError
            If the encoder has no torch network, or there is no such device here.
        """
        if os.fspath(path).startswith("hub:"):
            return cls.from_pretrained(os.fspath(path).removeprefix("hub:"), n_jobs=n_jobs, device=device)
        tagger = cls.open(path, n_jobs, whole=whole)
        tagger.path = os.path.abspath(path)
        if device is not None:
            move_encoder(tagger.encoder, device)
        return tagger

    @classmethod
    def from_pretrained(
        cls, repository: str, *, revision: str | None = None, n_jobs: int | None = None, device: str | None = None
    ) -> Self:
        """Fetch a run that `push_to_hub` wrote, and open it.

        Parameters
        ----------
        repository : str
            ``OWNER/NAME`` on the Hugging Face hub.
        revision : str, optional
            A branch, tag or commit. None: the newest.
        n_jobs, device
            As in `load`.

        Raises
        ------
        StorageError
            If there is no such repository, it holds no run, or the hub cannot be reached.
        MissingExtraError
            If huggingface_hub is not installed.
        """
        from visterm.tagging.hub_runs import fetch_run, network_in

        folder = fetch_run(repository, revision)
        tagger = cls.load(folder, n_jobs=n_jobs, device=device)
        if network := network_in(folder):
            encoder: Any = tagger.encoder
            encoder.network_path_ = os.fspath(network)
        return tagger

    def push_to_hub(
        self,
        repository: str,
        *,
        public: bool = False,
        with_photos: bool = False,
        with_network: bool = False,
        licence: str | None = None,
        message: str | None = None,
    ) -> str:
        """Write this run into a repository of the Hugging Face hub, with a model card, and return the address.

        The files are JSON and safetensors. Names of photos, which photo has which tags, and where files are on this
        machine stay here.

        Parameters
        ----------
        repository : str
            ``OWNER/NAME``. It is made if it isn't there.
        public : bool
            Whether everybody may read a repository that is made.
        with_photos : bool
            Also push the names of photos that were left out, hashes of those that were learned from and, of models and
            encoders that hold them, names and tags of photos.
        with_network : bool
            Also push the encoder's network: look at its licence first.
        licence : str, optional
            Of the run, for its card: ``"cc0-1.0"``, say.
        message : str, optional
            Of the commit.

        Raises
        ------
        UserError
            If the run cannot do without the names or the tags of photos, and `with_photos` is False.
        StorageError
            If the hub cannot be reached, or refuses.
        """
        from visterm.tagging.hub_runs import push_run

        return push_run(
            self, repository, public=public, with_photos=with_photos, with_network=with_network, licence=licence,
            message=message,
        ).page  # fmt: skip

    def __repr__(self) -> str:
        settings = repr(self.path) if self.path else "read from a catalogue"
        if "_made_with" in vars(self):
            defaults = {name: parameter.default for name, parameter in signature(type(self)).parameters.items()}
            changed = {name: value for name, value in self._made_with.items() if value not in (defaults[name], {})}
            settings = ", ".join(f"{name}={value!r}" for name, value in changed.items())
        if len(self.vocabulary) == 0:
            return f"{type(self).__name__}({settings})"
        more = ", …" if len(self.vocabulary) > _SHOWN else ""
        what = f"{count_of(len(self.vocabulary), 'tag')} of {count_of(self.facts.get('images', 0), 'photo')}"
        return f"{type(self).__name__}({settings}) with {what}: {', '.join(self.vocabulary.tags[:_SHOWN])}{more}"
