"""The tagger: an encoder, a model and a vocabulary that learn from tagged photos and tag new photos."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Self

from visterm.core.estimator import known_settings
from visterm.core.progress import SILENT, Progress, Say, silent
from visterm.core.queries import Query
from visterm.core.types import Place, Skipped
from visterm.core.vocabulary import Vocabulary
from visterm.learning.learned import Learned
from visterm.learning.part_settings import unfitted_parts
from visterm.models.base import Annotator
from visterm.models.blend.kept import vectors_from
from visterm.tagging.estimator import TaggerEstimator
from visterm.tagging.typed_queries import typed_query

if TYPE_CHECKING:
    from visterm.data.tag_queries import QueryRow
    from visterm.data.tag_rules import Rules
    from visterm.data.word_vectors import WordVectors
    from visterm.encoders.contract import AnyEncoder
    from visterm.features.training_rows import Photos, TrainingRows
    from visterm.learning.fit_request import FitRequest
    from visterm.learning.relations import WordRelations
    from visterm.learning.word_places import Added
    from visterm.models.sklearn_model import SklearnEstimator
    from visterm.tagging.annotating import Annotated, Annotations
    from visterm.tagging.tag_map import Neighbour

_PART_FIELDS = ("encoder", "model", "encoder_params", "model_params", "min_count", "n_jobs", "seed")
_ELSEWHERE = {name: f"Pass it to the tagger: Tagger({name}=...)." for name in _PART_FIELDS} | {
    "device": "Pass it as a setting of the encoder or the model: Tagger(encoder_params={'device': ...}).",
    "out": "The run stays in memory: leave `out` out, and call save(path) afterwards.",
}
"""Settings of `visterm.fit` that `Tagger.fit` doesn't have -> advice."""


class Tagger(TaggerEstimator):
    """Learns a library's tags from tagged photos, and tags other photos.

    `visterm.fit` makes and fits one; `load` opens a saved one. It is a scikit-learn estimator with settings such as
    ``model__dim`` and ``encoder__max_side``: in `GridSearchCV` and `cross_val_score`, `X` is photos (paths, a DataFrame
    or its column, Pillow images) or features, and `y` their tags (lists, a Series of lists or texts, or a matrix).

    Parameters
    ----------
    encoder, model, encoder_params, model_params, min_count, seed, n_jobs
        As in `visterm.fit`. Other settings of the model have their defaults, which are others with the encoder
        ``ids``.

    Attributes
    ----------
    classes_ : list of str
        The tags, in the order of the columns of `predict` and `predict_proba`: sorted, or as in the matrix of `fit`.
    encoder, model : encoder, model
        The fitted parts: `model` learned from the rows of `encoder`.
    vocabulary : Vocabulary
        The tags with their numbers of training images.
    facts : dict
        Counts and measurements of the fit.
    skipped : list of Skipped
        Images that could not be read, with reasons.

    Examples
    --------
    >>> tagger = Tagger().fit("photos", tags="tags.csv")  # doctest: +SKIP
    >>> tagger.annotate("new_photos").images[0].tags  # doctest: +SKIP
    [Tag('beach', confidence=0.91), Tag('sea', confidence=0.64), ...]
    """

    min_count, seed = 1, 0

    @known_settings("Tagger", dict.fromkeys(("calibrate", "say", "split", "tag_rules", "valid"), "Pass it to `fit`."))
    def __init__(
        self,
        *,
        encoder: str | AnyEncoder | None = None,
        model: str | Annotator | SklearnEstimator | None = None,
        encoder_params: Mapping[str, object] | None = None,
        model_params: Mapping[str, object] | None = None,
        min_count: int = 1,
        seed: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        self._settings = {
            "encoder": encoder, "model": model, "encoder_params": encoder_params, "model_params": model_params,
            "min_count": min_count, "seed": seed, "n_jobs": n_jobs,
        }  # fmt: skip
        self.parts, self.any_encoder = unfitted_parts(
            encoder, model, encoder_params or {}, model_params or {}, seed=seed, n_jobs=n_jobs
        )
        self.path, self.min_count, self.seed = "", min_count, seed

    @classmethod
    def of(cls, request: FitRequest) -> Self:
        """Make an unfitted tagger with the parts of a request; `fit_request` fits it.

        Raises the errors of `FitRequest.check` and `FitRequest.part_settings`.
        """
        request.check()
        encoder_params, model_params = request.part_settings()
        return cls(
            encoder=request.encoder, model=request.model, encoder_params=encoder_params, model_params=model_params,
            min_count=request.min_count, seed=request.seed, n_jobs=request.n_jobs,
        )  # fmt: skip

    @classmethod
    def from_parts(
        cls, encoder: AnyEncoder, model: Annotator, vocabulary: Vocabulary, facts: Mapping[str, object] | None = None
    ) -> Self:
        """Make a tagger from fitted parts."""
        return cls.of_parts(Learned(encoder=encoder, model=model, vocabulary=vocabulary, facts=facts or {}))

    @known_settings("Tagger.fit", _ELSEWHERE)
    def fit(
        self,
        images: Photos | Sequence[Place] | None,
        tags: object = "auto",
        *,
        queries: Place | Sequence[QueryRow] | None = None,
        split: str | None = None,
        tag_rules: Rules = None,
        idf: Place | None = None,
        word_vectors: Place | WordVectors | None = None,
        words: Place | Collection[str] = (),
        valid: float | None = None,
        calibrate: bool = True,
        relations: WordRelations | None = None,
        tree: Place | Sequence[tuple[str, str]] | None = None,
        memory: int | None = None,
        work: Place | None = None,
        say: Say | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Learn from tagged photos; parameters and errors are those of `visterm.fit`.

        Raises UserError for parameters of the constructor, and for `out`: call `save` afterwards.
        """
        from visterm.learning.fit_request import FitRequest

        request = FitRequest(
            images=images, tags=tags, queries=queries, split=split, tag_rules=tag_rules, idf=idf,
            word_vectors=word_vectors, words=words, valid=valid, calibrate=calibrate, relations=relations, tree=tree,
            memory=memory, work=work, min_count=self.min_count, seed=self.seed,
        )  # fmt: skip
        return self.fit_request(request, say=say, progress=progress)

    def fit_request(self, request: FitRequest, *, say: Say | None = None, progress: Progress | None = None) -> Self:
        """Run the fit of a request, and save the run if `out` is set; see `visterm.learning.fitting.fit_run`.

        The tagger keeps its encoder and its model: those of the request are ignored.
        """
        from visterm.learning.fitting import fit_run

        self.parts = fit_run(self, request, say=say or silent, progress=progress or SILENT).parts
        return self

    def learn(self, rows: TrainingRows, *, calibrate: bool = False, progress: Progress = SILENT) -> Self:
        """Learn from encoded rows, to compare models on the same rows; `calibrate` also fits confidences."""
        from visterm.learning import calibrating, fitting

        learned = fitting.learn_rows(self.parts, rows, progress=progress)
        self.parts = calibrating.with_confidences(learned, rows, progress) if calibrate else learned
        return self

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
        progress: Progress | None = None,
    ) -> Annotations:
        """Tag images: a file, a folder, a DataFrame or its column, paths, or pixels; with the encoder ``ids``, names.

        Parameters
        ----------
        images : path, sequence of paths, Pillow images, uint8 arrays or dicts, DataFrame, Series, or matrix of features
            In a DataFrame or dicts, the images are in the column "file_name", "image" or "path", or the only column.
        k : int, optional
            Maximum number of tags per image; 0 means all. None: five, or, with a cut-off, all tags above it.
        new_only : bool
            For images known by number: leave out an image's training tags.
        added : bool
            Whether to include words that were added to the dictionary (`add_words`). Their quality is unknown: no
            training image has them, so the model could not learn how large their scores should be.
        precision, best_f1, min_confidence : float, bool or str, float, optional
            Keep only tags above a cut-off: for an expected precision such as 0.9, for the best F1 of a mean ("photo",
            "micro" or "macro"; True is "photo"), or a minimum confidence (`visterm.tagging.annotating.cutoff_of`).
        progress : Progress, optional
            Advances by one step per image.

        Returns
        -------
        Annotations
            ``tagged, skipped = tagger.annotate(...)``: the tagged `images`, each with its `tags` (``tag``, ``score``
            and ``confidence``), and the `skipped` images with reasons. `to_pandas` returns a row for each tag.

        Raises
        ------
        UserError
            If the run has no data for a cut-off, or a cut-off is combined with `added`; if `new_only` is set and the
            images of this run are not known by number.
        DataError
            If the encoder reads names, and knows none of the images.
        """
        from visterm.tagging.annotating import Annotations

        items = list(
            self.annotate_each(
                images, k, new_only=new_only, added=added, precision=precision, best_f1=best_f1,
                min_confidence=min_confidence, progress=progress,
            )
        )  # fmt: skip
        skipped = [item for item in items if isinstance(item, Skipped)]
        return Annotations([item for item in items if not isinstance(item, Skipped)], skipped)

    def annotate_each(
        self,
        images: Photos,
        k: int | None = None,
        *,
        new_only: bool = False,
        added: bool = False,
        precision: float | None = None,
        best_f1: bool | str = False,
        min_confidence: float | None = None,
        progress: Progress | None = None,
    ) -> Iterator[Annotated | Skipped]:
        """Yield tagged and skipped images one after another, to limit the memory; parameters are as in `annotate`."""
        from visterm.tagging.annotating import TagsWanted, annotate_each

        self._refuse_unfitted()
        wanted = TagsWanted(k, new_only, added, precision, best_f1, min_confidence)
        return annotate_each(self, images, wanted, progress=progress or SILENT)

    @property
    def tags_compared_by(self) -> list[str]:
        """The models whose tag vectors `neighbours` and the map compare: for a blend, its members; may be empty."""
        return vectors_from(self.model)

    def neighbours(self, tag: str, k: int = 10) -> list[Neighbour]:
        """Find the tags nearest to `tag` in the model's space, by cosine, best first (WSABIE, Table 3).

        Raises
        ------
        UnknownNameError
            If the tag is not in the vocabulary.
        UserError
            If the model has no vectors of tags.
        """
        from visterm.tagging.tag_map import nearest_tags

        self._refuse_unfitted()
        return nearest_tags(self.model, self.vocabulary, tag, k)

    def add_words(self, words: Iterable[str], *, file: Place | None = None) -> Added:
        """Add words that no training image has to the dictionary; `save` saves them with the run.

        Their vectors come from the same source as those of the tags, and are moved as training moved the vectors of the
        tags (`tag_rows_from`). Searches then find the words without reading the file of vectors, and phrases without
        quotes; `annotate` has the option `added`.

        Parameters
        ----------
        words : iterable of str
        file : path-like, optional
            The current path of the word vector file, if it was moved.

        Returns
        -------
        Added
            The new words, the words that already existed, and the words without a vector.

        Raises
        ------
        UserError
            If the run supports only its tags, or the contents of the file differ.
        StorageError
            If the file is missing or has changed.
        """
        self._refuse_unfitted()
        word_places, result = self.words.with_words(self.model, self.dictionary, words, file=file)
        self.parts = self.parts.changed(words=word_places, facts={**self.facts, "added words": len(word_places.added)})
        return result

    def query_weights(self, words: str | Sequence[str], new_tags: Mapping[str, str] | None = None) -> Query:
        """Return a typed query as weights of tags and of other known words, together of unit length.

        The weight of a word is its inverse document frequency among the training images, or in the run's reference
        corpus (PAMIR, section IV-A); a word with ``-`` has a negative weight. A word that is not a tag, but has a
        vector in the source of the run's `word_vectors`, has the weight of a tag of a single image or text.

        Parameters
        ----------
        words : str or sequence of str
            A typed query (``snow tree -people "polar bear"``), or a list of tags.
        new_tags : mapping of str to str, optional
            Tags that the run has not learned yet, by their keys (`tag_key`); they count as words, too.

        Raises
        ------
        UnknownNameError
            If no word is a tag of the run or has a vector.
        StorageError
            If a word is not a tag, and the file of the run's word vectors is missing or has changed.
        """
        return typed_query(self, words, new_tags)


@known_settings("visterm.fit")
def fit(
    images: Photos | Sequence[Place] | None = None,
    tags: object = "auto",
    *,
    encoder: str | AnyEncoder | None = None,
    model: str | Annotator | SklearnEstimator | None = None,
    encoder_params: Mapping[str, object] | None = None,
    model_params: Mapping[str, object] | None = None,
    queries: Place | Sequence[QueryRow] | None = None,
    split: str | None = None,
    tag_rules: Rules = None,
    min_count: int = 1,
    tree: Place | Sequence[tuple[str, str]] | None = None,
    relations: WordRelations | None = None,
    word_vectors: Place | WordVectors | None = None,
    words: Place | Collection[str] = (),
    idf: Place | None = None,
    valid: float | None = None,
    calibrate: bool = True,
    device: str | None = None,
    memory: int | None = None,
    work: Place | None = None,
    n_jobs: int | None = None,
    seed: int = 0,
    out: Place | None = None,
    overwrite: bool = False,
    say: Say | None = None,
    progress: Progress | None = None,
) -> Tagger:
    """Learn a library's tags from tagged photos, like ``visterm fit``.

    Parameters
    ----------
    images : path, sequence of paths, Pillow images or uint8 arrays (height, width, 3), DataFrame, dicts or matrix
        A folder; photos; a table with a column ``path``, ``image`` or ``file_name`` and, optionally, ``tags`` and
        ``split``; or features: a matrix (n_images, n_features), a DataFrame of numbers, or folders of `visterm encode`.
        With the encoders ``ids`` and ``precomputed``: names of images, or None if the tag file has the names.
    tags : path, DataFrame, list of dicts, lists of str, matrix, or None
        ``"auto"`` to find the tags in the folder or in the table of the images; a tag file or table; or the tags of
        each image: lists, a Series of lists or of texts such as ``"sea; sky"``, or a matrix (n_images, n_tags), above 0
        where an image has the tag. None, with `queries`: learn all words of the queries.
    encoder : str or encoder, optional
        A name from ``visterm encoders``, with the encoder's argument after a colon (``"onnx:network.onnx"``), or an
        encoder (``visterm.encoders.Visterms(max_side=256)``). None: the first network that is on this machine, or else
        ``"visterms"``; for features, the encoder that made them.
    model : str, model or scikit-learn estimator, optional
        A name from ``visterm models`` (``"ridge"``), a model (``visterm.models.Ridge(alpha=3)``), or a classifier or
        regressor of scikit-learn (``LogisticRegression()``). It is copied. None: ``"auto"``, a blend of models.
    encoder_params, model_params : mapping, optional
        Settings of the encoder and the model.
    queries : path or sequence of QueryRow, optional
        Learn from queries and the images that are relevant to them: a file with the columns query, image and
        relevance. With `tags`, only words that are tags count.
    split : str, optional
        Learn from the rows of this split only. None: from the split "train", or all rows if there are no splits.
    tag_rules : path or mapping, optional
        How to clean and relate tags and to read the tag file: a TOML file, or its keys and values. `stop_tags` are not
        learned; `max_share` leaves out tags of more than this share of the images; `per_user` limits equal images of
        one user; `aliases` maps spellings to tags; `part_of` and `isa` are CSV files of relations; `image_column`,
        `tags_column` and `separator` say how to read the tags.
    min_count : int
        Leave out tags with fewer training images.
    tree : path or sequence of (child, parent), optional
        The tree of the tags: a table, or ``"paths"``, where tags are paths such as ``animals/dog/husky``. A photo of a
        child then has its parents, too.
    relations : WordRelations, optional
        Part-of and is-a relations between tags. None: read from the files that `tag_rules` names.
    word_vectors : str, path or WordVectors, optional
        The start values of models with the setting `word_vectors`: ``"encoder"`` (its text tower, the default of
        `text_ridge`), a file, ``"learned"`` (from the tag lists), ``"sentences"`` (extra ``text``), or vectors, which
        are saved with the run. Except with "learned", you can also search for words that are not tags, and add them
        with `Tagger.add_words`.
    words : path or collection of str
        Words that become tags even if no photo has them yet; they are found by their vectors (`word_vectors`). With
        them, no photo needs a tag.
    idf : path, optional
        A reference corpus, one text per line, which weighs the words of queries. None: the training images weigh them.
    valid : float, optional
        For models that stop early: the share of the training images, 0 to 1, that is held out to choose the number of
        epochs; the model then learns from all images. Rows of a split "valid" are used instead, if there are any. None
        uses the model's own share.
    calibrate : bool
        Whether to fit confidences to the scores of held-out images. It takes almost no time if the model holds out
        images anyway; other models are fitted once more, on four fifths of the images.
    device : str, optional
        Where networks run: "cpu", "cuda" or "auto"; onnxruntime also supports other devices.
    memory : int, optional
        Maximum memory in bytes: larger features are streamed from disk. None: half of the machine's memory.
    work : path, optional
        A folder for the temporary files of a streamed fit. None: next to `out`.
    n_jobs : int, optional
        Number of threads; None: one per core.
    seed : int
        Random seed: the same seed and photos give the same bytes.
    out : path, optional
        The run to write; None keeps the run in memory (`Tagger.save`).
    overwrite : bool
        Whether to replace an existing run at `out`.
    say : callable, optional
        Called with lines for people, such as what was left out. For example: print.
    progress : Progress, optional
        Shows each step. For example: ``Bars()`` of ``visterm.cli.output``.

    Returns
    -------
    Tagger
        Fitted: `annotate` tags photos, `save` writes the run, `visterm.Catalogue` searches.

    Raises
    ------
    DataError
        If no image or no tag remains to learn from, no part-of relation is between two of the tags, no tag has a word
        vector, or no query has both a relevant image and a word.
    UserError
        If settings cannot be combined, or the model cannot learn from this input.
    EncoderMismatchError
        If the features were made by another encoder than the requested one.
    StorageError
        If the path `out` exists and is not a run.

    Examples
    --------
    >>> import visterm
    >>> visterm.fit("photos", tags="tags.csv", model="wsabie").save("run")  # doctest: +SKIP
    >>> visterm.fit(frame, model=visterm.models.Ridge(alpha=3)).annotate("new.jpg").to_pandas()  # doctest: +SKIP
    >>> visterm.fit(X, tags).predict(X_new)  # features in place of photos  # doctest: +SKIP
    """
    from visterm.learning.fit_request import FitRequest

    request = FitRequest(
        images=images, tags=tags, encoder=encoder, model=model, encoder_params=encoder_params or {},
        model_params=model_params or {}, queries=queries, split=split, tag_rules=tag_rules, min_count=min_count,
        tree=tree, relations=relations, word_vectors=word_vectors, words=words, idf=idf, valid=valid,
        calibrate=calibrate, device=device, memory=memory, work=work, n_jobs=n_jobs, seed=seed, out=out,
        overwrite=overwrite,
    )  # fmt: skip
    return Tagger.of(request).fit_request(request, say=say, progress=progress)
