"""The tagger: an encoder, a model and a vocabulary that learn from tagged photos and tag new ones."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from visterm.core.errors import UserError
from visterm.core.progress import SILENT, Progress, Say, silent
from visterm.core.queries import Query
from visterm.core.registry import unknown
from visterm.core.types import Skipped
from visterm.core.vocabulary import Vocabulary
from visterm.learning.learned import Learned
from visterm.learning.part_settings import unfitted_parts
from visterm.models.base import Annotator
from visterm.models.blend.kept import vectors_from
from visterm.tagging.estimator import TaggerEstimator
from visterm.tagging.typed_queries import typed_query

if TYPE_CHECKING:
    from visterm.data.query_files import QueryRow
    from visterm.encoders.contract import AnyEncoder
    from visterm.features.training_rows import Photos, TrainingRows
    from visterm.learning.fit_request import FitRequest, Place
    from visterm.learning.word_places import Added
    from visterm.tagging.annotating import Annotated, Annotations
    from visterm.tagging.tag_map import Neighbour

_OF_TAGGERS = {"encoder", "model", "encoder_params", "model_params", "budget", "device", "min_count", "n_jobs", "seed"}
"""Fields of a request that make the parts of a tagger."""


class Tagger(TaggerEstimator):
    """Learns a library's tags from photos that have them, and tags other photos.

    Its attributes are those of `Run`: the parts that it learned, and counts and figures of the last fit. It is an
    estimator of scikit-learn, with ``model__dim`` and ``encoder__max_side`` as settings: `GridSearchCV` and
    `cross_val_score` take it with photos as `X` (paths, a DataFrame or its column, Pillow images) and their tags as
    `y` (lists, or a matrix).

    Parameters
    ----------
    encoder, model, encoder_params, model_params, min_count, seed, n_jobs
        As in `FitRequest`. Settings of the model that are not given are its defaults, or, for images known by number,
        those that suit them.

    Examples
    --------
    >>> tagger = Tagger().fit("photos", tags="tags.csv")  # doctest: +SKIP
    >>> tagger.annotate("new_photos").images[0].tags  # doctest: +SKIP
    [Tag('beach', confidence=0.91), Tag('sea', confidence=0.64), ...]
    """

    min_count, seed = 1, 0

    def __init__(
        self,
        *,
        encoder: str | None = None,
        model: str | None = None,
        encoder_params: Mapping[str, object] | None = None,
        model_params: Mapping[str, object] | None = None,
        min_count: int = 1,
        seed: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        self._made_with = {
            "encoder": encoder, "model": model, "encoder_params": encoder_params, "model_params": model_params,
            "min_count": min_count, "seed": seed, "n_jobs": n_jobs,
        }  # fmt: skip
        self.parts, self.any_encoder = unfitted_parts(
            encoder, model, encoder_params or {}, model_params or {}, seed=seed, n_jobs=n_jobs
        )
        self.path, self.min_count, self.seed = "", min_count, seed

    @classmethod
    def of(cls, request: FitRequest) -> Self:
        """Make the tagger that a request asks for; `fit_request` lets it learn.

        Raises
        ------
        UserError
            If there is a run at `out` already, or settings cannot be used.
        EncoderMismatchError
            If features are given that another encoder made than the one asked for.
        StorageError
            If something that is not a run lies at `out`.
        """
        request.check()
        encoder_params, model_params = request.part_settings()
        return cls(
            encoder=request.encoder, model=request.model, encoder_params=encoder_params, model_params=model_params,
            min_count=request.min_count, seed=request.seed, n_jobs=request.n_jobs,
        )  # fmt: skip

    @classmethod
    def from_parts(
        cls, encoder: AnyEncoder, model: Annotator, vocabulary: Vocabulary, facts: Mapping[str, Any] | None = None
    ) -> Self:
        """Make a tagger of parts that are fitted already."""
        return cls.of_parts(Learned(encoder=encoder, model=model, vocabulary=vocabulary, facts=facts or {}))

    def fit(
        self,
        images: Photos | Sequence[Place] | None,
        tags: Any = "auto",
        *,
        say: Say = silent,
        progress: Progress = SILENT,
        **request: Any,
    ) -> Self:
        """Learn from tagged photos.

        Parameters
        ----------
        images, tags
            As in `FitRequest`.
        say : callable
            Takes lines for people: what was found, left out, and how the fit was done.
        progress : Progress
            Takes each step.
        **request
            Any more of `FitRequest` but what a tagger is made with, and `out`: `valid`, `aliases`, `stop_tags`,
            `relations`, `part_of`, `word_vectors`, `idf`, `calibrate`, `memory`, `work`, and so on.

        Raises
        ------
        DataError
            If no image or no tag is left to learn from, no part-of relation is between two of the tags, or none of
            the tags has a word vector.
        UserError
            If settings do not go together, or the model cannot learn what is asked for.
        EncoderMismatchError
            If features are given that another encoder made than the one asked for.
        """
        if theirs := sorted(request.keys() & _OF_TAGGERS):
            raise UserError(
                f"`{theirs[0]}` is not set in fit.",
                setting=theirs[0], value=request[theirs[0]],
                advice=f"Make the tagger with it: Tagger({theirs[0]}=...).",
            )  # fmt: skip
        if "out" in request:
            raise UserError(
                "A tagger's fit keeps the run in memory.",
                setting="out", value=request["out"], advice="Leave `out` out, and call save(path) afterwards.",
            )  # fmt: skip
        made = _request(images=images, tags=tags, min_count=self.min_count, seed=self.seed, **request)
        return self.fit_request(made, say=say, progress=progress)

    def fit_request(self, request: FitRequest, *, say: Say = silent, progress: Progress = SILENT) -> Self:
        """Learn what a request asks for, and write the run if it has a place, see `visterm.learning.fitting.fit_run`.

        The encoder and the model stay those that the tagger was made with, whatever the request says of them.
        """
        from visterm.learning.fitting import fit_run

        self.parts = fit_run(self, request, say=say, progress=progress).parts
        return self

    def learn(self, rows: TrainingRows, *, calibrate: bool = False, progress: Progress = SILENT) -> Self:
        """Learn from rows that are encoded already, to compare models on equal rows; `calibrate` finds confidences."""
        from visterm.learning import calibrating, fitting

        learned = fitting.learn_rows(self.parts, rows, progress=progress)
        self.parts = calibrating.with_confidences(learned, rows, progress) if calibrate else learned
        return self

    def fit_queries(
        self,
        images: Photos | None,
        queries: Place | Sequence[QueryRow],
        tags: Place | Sequence[Sequence[str]] | None = None,
        **request: Any,
    ) -> Self:
        """Learn from queries and the images that are relevant to them, such as a click log.

        Parameters
        ----------
        images : path, Corpus, sequence of paths or uint8 arrays, or None
            As in `fit`. All images are learned from; one that no query names is relevant to none. Without images and
            tags, those that the queries name are meant.
        queries : path-like or sequence of QueryRow
            A file of queries (`visterm.data.query_files.read_query_file`), or its lines.
        tags : path or sequence of lists of str, optional
            As in `fit`; then only tags are words, and weigh by how many images have them. None: all words of the
            queries are, each counted in the images that are relevant to a query with it.
        **request
            As in `fit`. Confidences are those of being relevant to a query with a word.

        Raises
        ------
        UserError
            If the model cannot learn from queries, or the images are known by number.
        DataError
            If no query has both a relevant image and a word.
        """
        return self.fit(images, tags, queries=queries, **request)

    def annotate(
        self,
        images: Photos,
        k: int | None = None,
        *,
        new_only: bool = False,
        added: bool = False,
        precision: float | None = None,
        best_f1: bool | str = False,
        min_confidence: float | None = None,
        progress: Progress = SILENT,
    ) -> Annotations:
        """Tag images: a file, a folder, a DataFrame or its column, or paths or pixels; with the encoder ``ids``, names.

        Parameters
        ----------
        images : path, sequence of paths, Pillow images, uint8 arrays or dicts, DataFrame, or Series
            In a DataFrame and in dicts, those of the column "file_name", "image" or "path", or of the only column.
        k : int, optional
            Tags an image, at most; 0 means all. None: five, or, with a cut-off, all above it.
        new_only : bool
            For images known by number: leave out the tags of an image that were learned from.
        added : bool
            Whether words that were added to the dictionary (`add_words`) are given, too. How well is not known: no
            training image has them, so that nothing has taught the model how large their scores should be.
        precision, best_f1, min_confidence : float, bool or str, float, optional
            Keep only the tags above a cut-off, however many these are: down to an expected precision, 0.9
            say, to the best F1 of a mean ("photo", "micro" or "macro"; True is "photo"), or to a confidence
            (`visterm.tagging.annotating.cutoff_of`).
        progress : Progress
            Takes a step for each image.

        Returns
        -------
        Annotations
            The tagged `images`, each with its `tags` (of which each has ``tag``, ``score`` and ``confidence``), and the
            `skipped` ones with reasons: ``tagged, skipped = tagger.annotate(...)``. `to_pandas` has a row for each tag.

        Raises
        ------
        UserError
            If the run does not know what a cut-off takes, or added words are asked for beside one; if
            only new tags are asked for, and the images of this run are not known by number.
        DataError
            If the encoder reads names, and knows none of the images.
        """
        from visterm.tagging.annotating import Annotations

        done = Annotations([], [])
        limits: Any = {"precision": precision, "best_f1": best_f1, "min_confidence": min_confidence}
        for item in self.annotate_each(images, k, new_only=new_only, added=added, progress=progress, **limits):
            if isinstance(item, Skipped):
                done.skipped.append(item)
            else:
                done.images.append(item)
        return done

    def annotate_each(
        self, images: Photos, k: int | None = None, *, progress: Progress = SILENT, **how: Any
    ) -> Iterator[Annotated | Skipped]:
        """Tag images one after another, in memory that does not grow with their number; `how` as in `annotate`."""
        from visterm.tagging.annotating import TagsWanted, annotate_each

        self._refuse_unfitted()
        return annotate_each(self, images, TagsWanted(k, **how), progress=progress)

    @property
    def tags_compared_by(self) -> list[str]:
        """The models whose vectors of tags `neighbours` and the map compare: of a blend, members; empty without any."""
        return vectors_from(self.model)

    def neighbours(self, tag: str, k: int = 10) -> list[Neighbour]:
        """Find the tags nearest to one in the model's space, by cosine, best first (WSABIE, Table 3).

        Raises
        ------
        UnknownNameError
            If the tag is not in the vocabulary.
        UserError
            If the model scores each tag on its own and has no vectors of tags.
        """
        from visterm.tagging.tag_map import nearest_tags

        self._refuse_unfitted()
        return nearest_tags(self.model, self.vocabulary, tag, k)

    def add_words(self, words: Iterable[str], *, file: str | os.PathLike[str] | None = None) -> Added:
        """Add words that no training image has to the dictionary; `save` keeps them with the run.

        Their vectors are read where the fit read those of the tags, and moved as training moved these
        (`tag_rows_from`). Searches find them without reading vectors again, those of several words without quotes too,
        and `annotate` adds them on request.

        Parameters
        ----------
        words : iterable of str
        file : path-like, optional
            Where the file of word vectors is now, if it has moved.

        Returns
        -------
        Added
            The words that were added, those that were there, and those without a vector.

        Raises
        ------
        UserError
            If the run knows no words but its tags, or the file is another one.
        StorageError
            If the file is gone or has changed.
        """
        self._refuse_unfitted()
        places, done = self.words.with_words(self.model, self.dictionary, words, file=file)
        self.parts = self.parts.changed(words=places, facts={**self.facts, "added words": len(places.added)})
        return done

    def query_weights(self, words: str | Sequence[str], new_tags: Mapping[str, str] | None = None) -> Query:
        """Return what was typed as weights of tags, and of other words that have a place, of unit length together.

        Each word weighs by its inverse document frequency among the training images, or in the reference corpus that
        the run was fitted with (PAMIR, section IV-A); a word with ``-`` weighs below 0. A word that is no tag but has a
        vector where the run's come from (`fit`, `word_vectors`) weighs like a tag of one image, or of one text.

        Parameters
        ----------
        words : str or sequence of str
            As typed (``snow tree -people "polar bear"``), or one tag an entry.
        new_tags : mapping of str to str, optional
            Tags that the run has not learned yet, by their keys (`tag_key`): they are words, too.

        Raises
        ------
        UnknownNameError
            If no word is a tag of the run, or has a place among them.
        StorageError
            If a word is no tag, and the file of the run's word vectors is gone or has changed.
        """
        return typed_query(self, words, new_tags)


def fit(
    images: Photos | Sequence[Place] | None = None,
    tags: Any = "auto",
    *,
    say: Say = silent,
    progress: Progress = SILENT,
    **request: Any,
) -> Tagger:
    """Learn a library's tags from photos that have them, as ``visterm fit`` does.

    Parameters
    ----------
    images, tags, say, progress
        As in `Tagger.fit`.
    **request
        All else that `FitRequest` has: `encoder`, `model`, `model_params`, `valid`, `stop_tags`, `out`, and so on.

    Returns
    -------
    Tagger
        Fitted; `Tagger.save` writes it as a run.

    Examples
    --------
    >>> import visterm
    >>> visterm.fit("photos", tags="tags.csv", model="wsabie").save("run")  # doctest: +SKIP
    """
    made = _request(images=images, tags=tags, **request)
    return Tagger.of(made).fit_request(made, say=say, progress=progress)


def _request(**request: Any) -> FitRequest:
    """Make the request of a fit; refuse names that are none of its settings."""
    from visterm.learning.fit_request import FitRequest

    for name in request.keys() - FitRequest.__dataclass_fields__.keys():
        fields = list(FitRequest.__dataclass_fields__)
        raise UserError(unknown("setting of visterm.fit", name, fields), setting=name, value=request[name])
    return FitRequest(**request)
