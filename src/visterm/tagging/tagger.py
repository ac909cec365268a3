"""The tagger: an encoder, a model and a vocabulary that learn from tagged photos and tag new ones."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.errors import EncoderMismatchError, UserError
from visterm.core.executor import LOCAL, Executor
from visterm.core.packing import learned_hash
from visterm.core.persist import new_folder, open_folder
from visterm.core.progress import SILENT, Progress
from visterm.core.queries import Query
from visterm.core.query_weights import inverse_frequencies, weigh_words
from visterm.core.tables import ENCODERS, MODELS
from visterm.core.types import Matrix, Skipped
from visterm.core.vocabulary import Vocabulary
from visterm.data.corpus import Corpus
from visterm.data.query_files import QueryRow
from visterm.data.reference_texts import Reference, count_texts
from visterm.data.word_vectors import WordVectors
from visterm.encoders.named import make_encoder
from visterm.features.learned_images import LearnedImages
from visterm.features.training_rows import Photos, TrainingRows, as_corpus, named_corpus, training_rows
from visterm.models.confidence.calibration import Calibration
from visterm.tagging.annotating import CHUNK as CHUNK
from visterm.tagging.annotating import Annotated, Annotations, TagsWanted, annotate_each
from visterm.tagging.by_number import learn_by_number
from visterm.tagging.deep_fit_together import fit_on_machines
from visterm.tagging.neighbours import Neighbour, nearest_tags
from visterm.tagging.parts import make_model, tell_blocks, tell_part_of
from visterm.tagging.query_corpus import query_corpus
from visterm.tagging.query_rows import check_learns_queries, fit_weighed, query_rows
from visterm.tagging.relations import WordRelations, check_word_relations, tags_to_learn
from visterm.tagging.run_files import read_run, write_run
from visterm.tagging.start_words import SETTING, StartWords
from visterm.tagging.typed_queries import QueryContext, typed_query
from visterm.tagging.word_places import Added, WordPlaces


class Tagger:
    """Learns a library's tags from photos that have them, and tags other photos.

    Parameters
    ----------
    encoder : str, optional
        A name from ``visterm encoders``; what stands after a colon is the encoder's argument
        (``"onnx:network.onnx"``). None: "visterms", or where features are given, the one that made them.
    model : str, optional
        A name from ``visterm models``. None: "auto", or "wsabie" for images known by number.
    encoder_params, model_params : mapping, optional
        Settings of the encoder and of the model. Those of the model that are not given are its defaults, or, for images
        known by number, those that suit them.
    min_count : int
        Tags of fewer training images are left out.
    seed : int
        Same seed, same photos: same bytes.
    n_jobs : int, optional
        Threads; None is all cores.

    Attributes
    ----------
    vocabulary : Vocabulary
        The tags that it learned.
    given : csr_array or None, shape (n_images, n_tags)
        For images known by number (the encoder ``ids``): the tags that it learned from, 1 given and -1 explicitly not.
    learned_images : LearnedImages
        The names of the images that it learned from.
    calibration : Calibration or None
        What makes confidences of scores; None of a run written before there were any, of images known by number, and
        where there were too few images.
    reference : Reference or None
        How common the tags are in the texts that words were weighed by; None: weighed by the training images.
    relations : WordRelations
        Which tags are parts of which and kinds of what, as far as it was told.
    words : WordPlaces
        What it knows of words that are no tags: where their vectors come from, and those that were added.
    path : str
        The run that it was loaded from, in full; empty if it was not.
    facts : dict
        Counts and figures of the last `fit`, as ``visterm info`` shows them.

    Examples
    --------
    >>> tagger = Tagger().fit("photos", tags="tags.csv")  # doctest: +SKIP
    >>> tagger.annotate("new_photos").images[0].tags  # doctest: +SKIP
    [Tag(tag='beach', score=1.31), Tag(tag='sea', score=1.22), ...]
    """

    _idf_of: tuple[Any, Any, Any] = (None, None, None)
    _kept_idf: NDArray[np.float32]

    def __init__(
        self,
        *,
        encoder: str | None = None,
        model: str | None = None,
        encoder_params: Mapping[str, Any] | None = None,
        model_params: Mapping[str, Any] | None = None,
        min_count: int = 1,
        seed: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        shared = {"random_state": seed, "n_jobs": n_jobs}
        self.encoder = make_encoder(encoder, encoder_params or {}, shared)
        self._any_encoder = encoder is None and not encoder_params
        self.model = make_model(model, model_params or {}, shared, by_number=self.encoder.by_number)
        self.min_count = min_count
        self.path = ""
        self.vocabulary = Vocabulary.from_lists([])
        self.facts: dict[str, Any] = {}
        self.skipped: list[Skipped] = []
        self.given: sp.csr_array | None = None
        self.learned_images = LearnedImages()
        self.reference: Reference | None = None
        self.relations = WordRelations()
        self.words = WordPlaces()
        self.calibration: Calibration | None = None

    @classmethod
    def from_parts(cls, encoder: Any, model: Any, vocabulary: Vocabulary, facts: dict[str, Any] | None = None) -> Self:
        """Make a tagger of parts that are fitted already."""
        tagger = cls.__new__(cls)
        tagger.encoder, tagger.model, tagger.vocabulary = encoder, model, vocabulary
        tagger._any_encoder = False
        tagger.min_count = 1
        tagger.path = ""
        tagger.facts, tagger.skipped, tagger.given = dict(facts or {}), [], None
        tagger.learned_images = LearnedImages()
        tagger.reference = None
        tagger.relations = WordRelations()
        tagger.words = WordPlaces()
        tagger.calibration = None
        return tagger

    def fit(
        self,
        images: Photos | None,
        tags: str | os.PathLike[str] | Sequence[Sequence[str]] = "auto",
        *,
        valid: float | None = None,
        idf: str | os.PathLike[str] | None = None,
        relations: WordRelations | None = None,
        aliases: Mapping[str, str] | None = None,
        word_vectors: str | os.PathLike[str] | WordVectors | None = None,
        executor: Executor = LOCAL,
        work: str | os.PathLike[str] = "",
        calibrate: bool = True,
        progress: Progress = SILENT,
    ) -> Self:
        """Learn from tagged photos.

        Parameters
        ----------
        images : path, Corpus, or sequence of paths or uint8 arrays
            A folder, or the images themselves; or a features folder (`visterm encode`), whose encoder the tagger then
            has. With the encoders ``ids`` and ``precomputed``: names, or None where a tag file has them.
        tags : path or sequence of lists of str
            A tag file, ``"auto"`` to find it in the folder, or the tags of each image.
        valid : float, optional
            For models that stop by validation images: the share of the training images held out to find out when;
            then they learn from all. Rows of a split "valid" are used instead where there are some. 0 holds out none;
            None leaves it to the model.
        calibrate : bool
            Whether to fit confidences to the scores of images that were not learned from, so that searches can say
            where likely images end. It takes no time worth mention where images are held out anyway; for other models
            it takes one more fit, on four fifths of the images.
        idf : path-like, optional
            A reference corpus, a text each line: the words of a query weigh by how few of its texts have them, in
            searches and where a model makes queries of tags. None: by how few training images do.
        relations : WordRelations, optional
            Which tags are parts of which, and kinds of what: kept with the run, and models that learn from parts
            (those with the setting `part_of`) are told them.
        aliases : mapping of str to str, optional
            Spellings and the tags that they mean, none of which is an alias itself (`read_aliases`): images with either
            have the tag, and searches for either find it.
        word_vectors : path-like, "learned", "learned:skipgram", "sentences" or WordVectors, optional
            Where models with the setting `word_vectors` start from: a file, the tags' own company in the tag lists, a
            sentence network (extra ``text``), or what is given, which the run then keeps. But for learned ones, words
            that are no tags then have a place, too: in searches, and by `add_words`.
        executor : Executor
            With one of several machines, a model with `fit_together` learns there. The photos are encoded here; pass
            features to have that done by workers, too.
        work : path-like
            For such an executor: a folder on a disk that all machines share, for rows and checkpoints on the way.
        progress : Progress
            Told of each step.

        Raises
        ------
        DataError
            If no image or no tag is left to learn from, no part-of relation is between two of the tags, or none of
            the tags has a word vector.
        UserError
            If the model does not start from word vectors, but some are given.
        EncoderMismatchError
            If features are given that another encoder made than the one asked for.
        """
        self.check_settings(valid)
        check_word_relations(relations)
        corpus = named_corpus(self.encoder, tags) if images is None else as_corpus(images, tags)
        self.take_encoder_of(corpus)
        self._forget_words()
        starts = None
        if word_vectors is not None:  # before the images are encoded, which may take hours
            starts = StartWords.read(self.model, word_vectors, tags_to_learn(corpus, self.min_count, aliases))
        rows = training_rows(self.encoder, corpus, min_count=self.min_count, aliases=aliases, progress=progress)
        self.refer_to(idf, rows.vocabulary)
        self._relate(relations, rows.vocabulary)
        if starts is not None:
            self.words = starts.tell(self.model, rows)
        return self.learn(rows, executor=executor, work=work, calibrate=calibrate, progress=progress)

    def fit_queries(
        self,
        images: Photos | None,
        queries: str | os.PathLike[str] | Sequence[QueryRow],
        tags: str | os.PathLike[str] | Sequence[Sequence[str]] | None = None,
        *,
        valid: float | None = None,
        idf: str | os.PathLike[str] | None = None,
        relations: WordRelations | None = None,
        aliases: Mapping[str, str] | None = None,
        calibrate: bool = True,
        progress: Progress = SILENT,
    ) -> Self:
        """Learn from queries and the images that are relevant to them, a click log say.

        Parameters
        ----------
        images, valid, idf, relations, aliases, calibrate, progress
            As in `fit`. All images are learned from; one that no query names is relevant to none. Without images and
            tags, those that the queries name are meant. Confidences are those of being relevant to a query with a word.
        queries : path-like or sequence of QueryRow
            A file of queries (`visterm.data.query_files.read_query_file`), or its lines.
        tags : path or sequence of lists of str, optional
            As in `fit`; then only tags are words, and weigh by how many images have them. None: all words of the
            queries are, each counted in the images that are relevant to a query with it.

        Raises
        ------
        UserError
            If the model cannot learn from queries, or the images are known by number.
        DataError
            If no query has both a relevant image and a word.
        """
        check_learns_queries(self.model)
        self.check_settings(valid)
        check_word_relations(relations)
        corpus, lines = query_corpus(self.encoder, images, queries, tags)
        self.take_encoder_of(corpus)
        self._forget_words()
        found = query_rows(
            self.encoder,
            corpus,
            lines,
            of_tags=tags is not None,
            min_count=self.min_count,
            aliases=aliases,
            progress=progress,
        )
        self.refer_to(idf, found.rows.vocabulary)
        self._relate(relations, found.rows.vocabulary)
        found.fit(self.model, self._idf(found.rows.vocabulary, found.rows.X.shape[0]), progress)
        self.learned(found.rows)
        self.facts |= found.facts
        if calibrate:
            self.find_confidences(found.rows, progress)
        return self

    def take_encoder_of(self, corpus: Corpus) -> None:
        """Go on with the encoder that encoded the images of a corpus before; where there is none, nothing changes.

        Raises
        ------
        EncoderMismatchError
            If another one was asked for.
        """
        if corpus.encoded is not None:
            self.take_encoder(corpus.encoded.encoder, corpus.encoded.asked)

    def take_encoder(self, encoder: Any, asked: str) -> None:
        """Go on with a fitted encoder, asked for under the fingerprint `asked`, if any will do or this one is wanted.

        Raises
        ------
        EncoderMismatchError
            If another one was asked for.
        """
        if not self._any_encoder and self.encoder.fingerprint not in (asked, encoder.fingerprint):
            raise EncoderMismatchError(
                f"The features were made by the encoder '{ENCODERS.name_of(encoder)}', and "
                f"'{ENCODERS.name_of(self.encoder)}' is asked for, or other settings of it. Leave the encoder and its "
                "settings out (--encoder, --encoder-set): the features keep their own."
            )
        self.encoder = encoder

    def check_settings(self, valid: float | None = None) -> None:
        """Refuse settings that encoder or model cannot use, `valid` among them, before anything is read.

        Raises
        ------
        UserError
            If a setting is out of its range.
        StorageError
            If a file that the encoder needs, such as a network, is not there.
        """
        self.encoder.check_settings()
        if valid is not None and "valid_share" in self.model.get_params(deep=False):
            self.model.set_params(valid_share=valid)
        self.model.check_settings()

    def learn(
        self,
        rows: TrainingRows,
        *,
        executor: Executor = LOCAL,
        work: str | os.PathLike[str] = "",
        calibrate: bool = False,
        progress: Progress = SILENT,
    ) -> Self:
        """Learn from rows that are encoded already: the second half of `fit`, to compare models on the same rows."""
        tell_blocks(self.model, self.encoder)
        n_workers = 0
        if executor.remote:
            n_workers = fit_on_machines(self.model, rows, executor, Path(work), progress)
        elif rows.by_number:
            self.model = learn_by_number(self.model, rows, progress)
        elif self.reference is not None:
            fit_weighed(self.model, rows, self.reference.idf, progress)
        else:
            self.model.fit(rows.X, rows.Y, valid=rows.valid, monitor=progress)
        self.learned(rows)
        if n_workers:
            self.facts["workers"] = n_workers
        if calibrate:
            self.find_confidences(rows, progress)
        return self

    def learned(self, rows: TrainingRows) -> Self:
        """Take over what belongs to the rows that the model was fitted on: vocabulary, counts, images left out."""
        self.given = rows.Y if rows.by_number else None
        self.learned_images = LearnedImages.of(rows.names)
        self.vocabulary = rows.vocabulary
        self.calibration = None
        self.skipped = rows.skipped
        self.facts = {
            "images": rows.X.shape[0],
            "validation images": self._n_held_out(rows),
            "skipped images": len(rows.skipped),
            "tags": len(rows.vocabulary),
            "tags given": int((rows.Y.data > 0).sum()),
            "features": rows.X.shape[1],
            "encoder fingerprint": self.encoder.fingerprint,
        }
        if self.vocabulary.aliases:
            self.facts["aliases"] = len(self.vocabulary.aliases)
        if self.reference is not None:
            self.facts["texts of the reference corpus"] = self.reference.n_texts
        self.facts |= self.words.facts
        return self

    def annotate(
        self,
        images: Photos,
        k: int | None = None,
        *,
        new_only: bool = False,
        added: bool = False,
        precision: float | None = None,
        best_f1: bool = False,
        min_confidence: float | None = None,
        progress: Progress = SILENT,
    ) -> Annotations:
        """Tag images: a file, a folder, or a sequence of paths or arrays; with the encoder ``ids``, names.

        Parameters
        ----------
        images : path or sequence of paths or uint8 arrays
        k : int, optional
            Tags an image, at most; 0 means all. None: five, or, with a cut-off, all above it.
        new_only : bool
            For images known by number: leave out the tags of an image that were learned from.
        added : bool
            Whether words that were added to the dictionary (`add_words`) are given, too. How well is not known: no
            training image has them, so that nothing has taught the model how large their scores should be.
        precision, best_f1, min_confidence : float, bool, float, optional
            Give only the tags above a cut-off, however many an image has of them: down to an expected precision, 0.9
            say, to the best F1, or to a confidence (`visterm.tagging.cutoffs.cutoff_of`).
        progress : Progress
            Told of each image.

        Raises
        ------
        UserError
            If the run does not know what a cut-off takes, or added words are asked for beside one; if
            only new tags are asked for, and the images of this run are not known by number.
        DataError
            If the encoder reads names, and knows none of the images.
        """
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
        self._refuse_unfitted()
        return annotate_each(self, images, TagsWanted(k, **how), progress=progress)

    def neighbours(self, tag: str, k: int = 10) -> list[Neighbour]:
        """Find the tags nearest to one in the model's space, by cosine, best first (WSABIE, Table 3).

        Raises
        ------
        UnknownNameError
            If the tag is not in the vocabulary.
        UserError
            If the model scores each tag on its own and has no vectors of tags.
        """
        self._refuse_unfitted()
        return nearest_tags(self.model, self.vocabulary, tag, k)

    def add_words(self, words: Iterable[str], *, file: str | os.PathLike[str] | None = None) -> Added:
        """Add words that no training image has to the dictionary; `save` keeps them with the run.

        Their vectors are read where the fit read those of the tags, and moved as training moved these
        (`tag_rows_from`). Searches find them without reading vectors again, those of several words without quotes too,
        and `annotate` gives them where it is asked to.

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
        self.words, done = self.words.with_words(self.model, self.vocabulary, words, file=file)
        self.facts["added words"] = len(self.words.added)
        return done

    def query_weights(self, words: str | Sequence[str]) -> Query:
        """Return what was typed as weights of tags, and of other words that have a place, of unit length together.

        Each word weighs by its inverse document frequency among the training images, or in the reference corpus that
        the run was fitted with (PAMIR, section IV-A); a word with ``-`` weighs below 0. A word that is no tag but has a
        vector where the run's come from (`fit`, `word_vectors`) weighs like a tag of one image, or of one text.

        Parameters
        ----------
        words : str or sequence of str
            As typed (``snow tree -people "polar bear"``), or one tag an entry.

        Raises
        ------
        UnknownNameError
            If no word is a tag of the run, or has a place among them.
        StorageError
            If a word is no tag, and the file of the run's word vectors is gone or has changed.
        """
        context = QueryContext(self.vocabulary, self.idf, self.idf_of_others, self.words, self.model)
        return typed_query(context, words)

    def weighed(self, words: sp.csr_array) -> sp.csr_array:
        """Weigh the words of queries, shape (n_queries, n_tags), by their idf, to unit length."""
        return weigh_words(words, self.idf)

    @property
    def idf(self) -> NDArray[np.float32]:
        """Return what the tags weigh in queries, shape (n_tags,)."""
        of = (self.vocabulary, self.reference, self.facts.get("images", 0))
        if any(now is not then for now, then in zip(of, self._idf_of, strict=True)):
            # Kept, because the logarithms of all tags take longer than a search.
            self._idf_of, self._kept_idf = of, self._idf(self.vocabulary, of[2])
        return self._kept_idf

    @property
    def idf_of_others(self) -> float:
        """Return what a word weighs that is no tag: as one that a single image or text has."""
        if self.reference is not None:
            return float(inverse_frequencies([1], self.reference.n_texts)[0])
        n_images = max(self.facts.get("images", 0), int(self.vocabulary.counts.max(initial=1)))
        return float(inverse_frequencies([1], n_images)[0])

    @property
    def fingerprint(self) -> str:
        """Name the rows that this tagger makes: of the encoder and of what the model learned."""
        parts = f"{self.encoder.fingerprint} {MODELS.name_of(self.model)} {learned_hash(self.model)}"
        return hashlib.sha256(parts.encode()).hexdigest()[:16]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a run: a folder of JSON and safetensors, whole or not there.

        Raises
        ------
        StorageError
            If something that is not a run lies at `path`.
        """
        self._refuse_unfitted()
        with new_folder(path, "run") as folder:
            self.write_into(folder)

    def write_into(self, folder: Path) -> None:
        """Write the parts of a run into a folder that is being made."""
        write_run(self, folder)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, n_jobs: int | None = None) -> Self:
        """Open a run that `save` wrote, to use it with `n_jobs` threads (None: all cores).

        Raises
        ------
        StorageError
            If there is no run at `path`, or it was damaged.
        """
        tagger = cls.read_from(open_folder(path, "run"), n_jobs=n_jobs)
        tagger.path = os.path.abspath(path)
        return tagger

    @classmethod
    def read_from(cls, folder: Path, *, n_jobs: int | None = None) -> Self:
        """Read the parts of a run from a folder whose checksums hold."""
        tagger: Self = read_run(cls, folder, n_jobs)
        return tagger

    def told(self, X: Matrix) -> sp.csr_array | None:
        """Return the tags learned of images known by number, shape (n_images, n_tags), else None."""
        return None if self.given is None else sp.csr_array(X @ self.given)

    def find_confidences(self, rows: TrainingRows, progress: Progress = SILENT) -> None:
        """Fit confidences to scores of images that were not learned from, see `calibrate`."""
        from visterm.tagging.calibrating import calibrate as fit_confidences

        self.calibration = fit_confidences(self.model, rows, progress=progress)
        if self.calibration is not None:
            self.facts["calibration images"] = self.calibration.n_images

    def refer_to(self, texts: str | os.PathLike[str] | None, vocabulary: Vocabulary) -> None:
        """Weigh words by a reference corpus from now on; None: by the training images."""
        if texts is not None and self.encoder.by_number:
            raise UserError(
                f"Images known by number (--encoder {ENCODERS.name_of(self.encoder)}) are not searched by words, so "
                "that none are weighed. Leave the reference corpus out."
            )
        self.reference = None if texts is None else count_texts(texts, vocabulary)

    def _relate(self, relations: WordRelations | None, vocabulary: Vocabulary) -> None:
        """Take over word relations, and tell them to the model; those of an earlier fit are forgotten."""
        if self.relations.part_of and "part_of" in self.model.get_params(deep=False):
            self.model.set_params(part_of=None)
        self.relations = relations or WordRelations()
        if self.relations.part_of:
            tell_part_of(self.model, self.relations.pairs(vocabulary))

    def _forget_words(self) -> None:
        """Take back the word vectors of an earlier fit."""
        if self.words.source is not None and SETTING in self.model.get_params(deep=False):
            self.model.set_params(**{SETTING: None})
        self.words = WordPlaces()

    def _idf(self, vocabulary: Vocabulary, n_images: int) -> NDArray[np.float32]:
        """Return the idf of the tags in the reference corpus, or among the training images."""
        if self.reference is not None:
            return self.reference.idf
        return inverse_frequencies(vocabulary.counts, max(n_images, int(vocabulary.counts.max(initial=1))))

    def _n_held_out(self, rows: TrainingRows) -> int:
        """Count the images whose tags chose when to stop: of a split "valid", or held out by the model itself."""
        return getattr(self.model, "n_held_out_", 0) if rows.valid is None else rows.valid[0].shape[0]

    def _refuse_unfitted(self) -> None:
        if len(self.vocabulary) == 0:
            raise UserError("This tagger has learned nothing yet. Call fit first, or open a run with Tagger.load.")


def fit(
    images: Photos | None = None,
    tags: str | os.PathLike[str] | Sequence[Sequence[str]] = "auto",
    *,
    encoder: str | None = None,
    model: str | None = None,
    encoder_params: Mapping[str, Any] | None = None,
    model_params: Mapping[str, Any] | None = None,
    min_count: int = 1,
    seed: int = 0,
    n_jobs: int | None = None,
    **how: Any,
) -> Tagger:
    """Learn a library's tags from photos that have them, as ``visterm fit`` does.

    The images, their features and their tags are held in memory: ``visterm fit --memory`` streams larger ones.

    Parameters
    ----------
    images, tags
        As in `Tagger.fit`.
    encoder, model, encoder_params, model_params, min_count, seed, n_jobs
        As in `Tagger`.
    **how
        More of `Tagger.fit`: `valid`, `idf`, `relations`, `aliases`, `word_vectors`, `calibrate`, `progress`.

    Returns
    -------
    Tagger
        Fitted; `Tagger.save` writes it as a run.

    Examples
    --------
    >>> import visterm
    >>> visterm.fit("photos", tags="tags.csv", model="wsabie").save("run")  # doctest: +SKIP
    """
    tagger = Tagger(
        encoder=encoder,
        model=model,
        encoder_params=encoder_params,
        model_params=model_params,
        min_count=min_count,
        seed=seed,
        n_jobs=n_jobs,
    )
    return tagger.fit(images, tags, **how)
