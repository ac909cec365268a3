"""The scikit-learn methods of a tagger (settings by name, copies, scores), and its runs on disk and on the hub."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from inspect import signature
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.errors import DataError, UserError
from visterm.core.estimator import Estimator
from visterm.core.progress import SILENT, Progress
from visterm.core.registry import unknown
from visterm.core.tables import ENCODERS, MODELS
from visterm.core.types import Matrix, Place
from visterm.core.wording import count_of
from visterm.data.frames import html_table
from visterm.features.training_rows import Photos, as_images, encode_corpus, known_part, read_corpus
from visterm.learning.part_settings import move_encoder
from visterm.learning.run import Run
from visterm.models.confidence.calibration import cutoff_of_best_f1

if TYPE_CHECKING:
    from visterm.data.images import ImageLike
    from visterm.encoders.contract import Encoded
    from visterm.tagging.explain import Explanation

_PARTS = ("encoder", "model")
_MAX_TAGS = 5  # Maximum number of tags in `repr`


class TaggerEstimator(Estimator, Run):
    """A run with scikit-learn's methods, and loading from disk or the hub; `Tagger` has the constructor and `fit`."""

    _settings: Mapping[str, Any]
    min_count: int
    seed: int

    def get_params(self, deep: bool = True) -> dict[str, object]:
        """Return the constructor's settings by name, with `deep` also ``model__dim``, ``encoder__max_side`` etc."""
        params = {part: getattr(self, part).get_params(deep=False) for part in _PARTS}
        if "_settings" in vars(self):
            settings = dict(self._settings)
        else:  # a run from disk
            names = {"encoder": ENCODERS.name_of(self.encoder), "model": MODELS.name_of(self.model)}
            n_jobs = getattr(self.parts, "n_jobs", None)
            part_settings = {f"{part}_params": values for part, values in params.items()}
            settings = {**names, **part_settings, "min_count": self.min_count, "seed": self.seed, "n_jobs": n_jobs}
        nested = {f"{part}__{name}": value for part, values in params.items() for name, value in values.items()}
        return settings | nested if deep else settings

    def set_params(self, **params: object) -> Self:
        """Change settings, such as ``model__dim`` of the model; the tagger is then unfitted.

        Raises UserError if a setting doesn't exist or its value is invalid.
        """
        if not params:
            return self
        settings: dict[str, Any] = self.get_params(deep=False)
        for key, value in params.items():
            part, is_nested, name = key.partition("__")
            if is_nested and part in _PARTS:
                settings[f"{part}_params"] = {**(settings[f"{part}_params"] or {}), name: value}
            elif key in settings:
                settings[key] = value
            else:
                valid_names = sorted(self.get_params())
                raise UserError(unknown("setting of a Tagger", key, valid_names), setting=key, value=value)

        new_tagger = type(self)(**settings)
        vars(self).clear()
        vars(self).update(vars(new_tagger))
        return self

    def __sklearn_clone__(self) -> Self:
        """Return an unfitted tagger with the same settings, for scikit-learn's `clone`."""
        return type(self)(**self.get_params(deep=False))

    def score(self, images: Photos, tags: object = "auto") -> float:
        """Return the mean average precision (MAP) over photos: how high the right tags rank, 0 to 1.

        With it, scikit-learn can choose settings (`GridSearchCV`) and compare taggers (`cross_val_score`); other
        metrics are in `visterm.scorer`. Photos that cannot be read, or have no tag of the run, don't count.

        Parameters
        ----------
        images, tags
            As in `fit`; all photos are measured.

        Raises
        ------
        DataError
            If no photo can be measured.
        """
        from visterm.metrics.report import scorer

        return scorer("map")(self, images, tags)

    @property
    def classes_(self) -> list[str]:
        """The tags, in the order of the columns of `predict_proba`."""
        return self.vocabulary.tags

    def transform(self, images: Photos) -> Matrix:
        """Return the rows of photos by the encoder, shape (n_images, n_features), float32 array or CSR.

        Raises DataError if a photo cannot be read.
        """
        self._refuse_unfitted()
        return self.encoder.transform(as_images(images)[1])

    def encode(self, images: Photos, *, progress: Progress | None = None) -> Encoded:
        """Return the rows of the photos that can be read, their positions, and the skipped photos with reasons.

        Models take these rows: ``tagger.model.annotate(tagger.encode(photos).rows)``. `transform` returns a row for
        each photo instead, or an error.
        """
        self._refuse_unfitted()
        return self.encoder.encode(as_images(images)[1], progress=progress or SILENT)

    def predict_proba(self, images: Photos) -> NDArray[np.float64]:
        """Return the confidence of each tag (`classes_`) for photos, 0 to 1, shape (n_images, n_tags).

        Raises UserError if the run has no confidences; DataError if a photo cannot be read.
        """
        X = self.transform(images)
        if self.calibration is None:
            raise _no_confidences()
        blocks = (self.confidences(scores) for _, scores in self.model.score_blocks(X))
        return np.vstack([block for block in blocks if block is not None])

    def predict(self, images: Photos) -> NDArray[np.int8]:
        """Return 1 for the tags (`classes_`) that photos get, else 0, shape (n_images, n_tags).

        They are the tags of ``annotate(images, best_f1=True)``: the cut-off of their confidences is the best one for F1
        on held-out photos. For your own cut-off: ``tagger.predict_proba(images) >= 0.5``.

        Raises UserError if the run has no confidences of held-out photos; DataError if a photo cannot be read.
        """
        chances = self.predict_proba(images)
        if self.calibration is None or self.calibration.held_out is None:
            raise _no_confidences(" of held-out photos")
        return (chances >= cutoff_of_best_f1(self.calibration.held_out)).astype(np.int8)

    def explain(self, image: ImageLike | NDArray[np.generic], tag: str) -> Explanation:
        """Return what each feature and each place of a photo, or of a row of features, adds to a tag's score.

        The result has the `score`, the `rank` of the tag, and lists for `to_frame`: the `features` and `places` with
        their shares of the score. Raises UnknownNameError if the tag is not one of `classes_`; ImageError if the photo
        cannot be read; UserError if the scores of the model are not sums over features.
        """
        from visterm.tagging.explain import explain

        self._refuse_unfitted()
        return explain(self, image, tag)

    def judged(
        self, images: Photos, tags: object = None
    ) -> tuple[Callable[[], Iterator[tuple[slice, NDArray[np.float32]]]], sp.csr_array, sp.csr_array | None]:
        """Return the scores of photos as blocks, their given tags, and their training tags, as metrics need them."""
        self._refuse_unfitted()
        corpus = read_corpus(self.encoder, images, "auto" if tags is None else tags)
        if not self.encoder.by_number:
            self.encoder.refuse_unknown(corpus.images, only_if_all=True)
        corpus, _ = known_part(self.encoder, corpus)

        if self.tree is not None:
            given_tags, negatives = self.tree.words.completed(corpus.tags, corpus.negatives)
            corpus = replace(corpus, tags=given_tags, negatives=negatives)
        X, Y, _ = encode_corpus(self.encoder, corpus, self.vocabulary)
        if len(corpus) and X.shape[0] == 0 and self.encoder.by_number:
            raise DataError(
                f"None of the {count_of(len(corpus), 'photo')} to measure (such as '{corpus.names[0]}') was learned "
                "from, and this tagger knows photos by number only (the encoder ids). Folds of photos cannot measure "
                "it: hide some tags of each photo instead, and measure with visterm.evaluate."
            )
        return lambda: self.score_blocks(X), Y, self.known_tags(X)

    @classmethod
    def load(cls, path: Place, *, n_jobs: int | None = None, device: str | None = None, whole: bool = True) -> Self:
        """Open a saved run, to use it with `n_jobs` threads (None: all cores).

        Parameters
        ----------
        path : path-like
            A folder, or ``hub:OWNER/NAME``, a repository of the Hugging Face hub (`from_pretrained`).
        n_jobs : int, optional
        device : str, optional
            The device of the encoder's torch networks: "cpu", "cuda" or "auto". None: the device of the fit.
        whole : bool
            Whether to read the whole run now. False: some parts are read later, and you can't move the run.

        Raises
        ------
        StorageError
            If there is no run at `path`, or it is damaged.
        UserError
            If the encoder has no torch network, or this machine doesn't have the device.
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
        """Download and open a run that `push_to_hub` wrote.

        Parameters
        ----------
        repository : str
            ``OWNER/NAME`` on the Hugging Face hub.
        revision : str, optional
            A branch, tag or commit. None: the newest commit.
        n_jobs, device
            As in `load`.

        Raises
        ------
        StorageError
            If the repository doesn't exist or has no run, or the hub cannot be reached.
        MissingExtraError
            If huggingface_hub is not installed.
        """
        from visterm.tagging.hub_runs import NETWORK, fetch_run

        folder = fetch_run(repository, revision)
        tagger = cls.load(folder, n_jobs=n_jobs, device=device)
        if network := next(folder.glob(f"{NETWORK}.*"), None):  # that was pushed with the run
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
        """Write this run into a repository of the Hugging Face hub, with a model card; return the address.

        The files are JSON and safetensors. By default they have no names of photos, no photo's tags, and no paths of
        this machine.

        Parameters
        ----------
        repository : str
            ``OWNER/NAME``. It is created if it doesn't exist.
        public : bool
            Whether everybody may read a newly created repository.
        with_photos : bool
            Also push the names of skipped photos, hashes of the names of training photos and, for models and encoders
            that store them, names and tags of photos.
        with_network : bool
            Also push the encoder's network: check its licence first.
        licence : str, optional
            The licence of the run for its card, such as ``"cc0-1.0"``.
        message : str, optional
            The commit message.

        Raises
        ------
        UserError
            If the run needs the names or the tags of photos, and `with_photos` is False.
        StorageError
            If the hub cannot be reached, or rejects the push.
        """
        from visterm.tagging.hub_runs import push_run

        return push_run(
            self, repository, public=public, with_photos=with_photos, with_network=with_network, licence=licence,
            message=message,
        ).page  # fmt: skip

    def _repr_html_(self) -> str:
        figures = [(name, value) for name, value in self.facts.items() if isinstance(value, int | float)]
        return html_table([("tagger", repr(self)), *figures])

    def __repr__(self) -> str:
        settings = repr(self.path) if self.path else "read from a catalogue"
        if "_settings" in vars(self):
            defaults = {name: parameter.default for name, parameter in signature(type(self)).parameters.items()}
            changed = {name: value for name, value in self._settings.items() if value not in (defaults[name], {})}
            settings = ", ".join(f"{name}={value!r}" for name, value in changed.items())
        if len(self.vocabulary) == 0:
            return f"{type(self).__name__}({settings})"
        first_tags = ", ".join(self.vocabulary.tags[:_MAX_TAGS]) + (", …" if len(self.vocabulary) > _MAX_TAGS else "")
        contents = f"{count_of(len(self.vocabulary), 'tag')} of {count_of(self.facts.get('images', 0), 'photo')}"
        return f"{type(self).__name__}({settings}) with {contents}: {first_tags}"


def _no_confidences(kind: str = "") -> UserError:
    advice = "Fit it on 20 or more tagged photos, without calibrate=False."
    return UserError(f"This run has no confidences{kind}.", setting="calibrate", advice=advice)
