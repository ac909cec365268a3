"""The parts of a run, and how they learn from rows: what a `Tagger` is without images."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.errors import EncoderMismatchError, StorageError, UserError
from visterm.core.packing import learned_hash
from visterm.core.persist import check_replaceable, folder_kind, load_estimator, new_folder
from visterm.core.progress import SILENT, Progress
from visterm.core.queries import inverse_frequencies
from visterm.core.tables import ENCODERS, MODELS
from visterm.core.types import Matrix, Skipped
from visterm.core.vocabulary import Vocabulary
from visterm.data.tag_tree import TagTree, TreeColumns
from visterm.encoders.contract import AnyEncoder
from visterm.kernels.topk import top_k
from visterm.models.base import Annotator
from visterm.models.confidence.calibration import Calibration
from visterm.models.stopping import OnEpoch
from visterm.tagging.part_settings import name_blocks, set_blocks, set_part_of, set_siblings, set_tree
from visterm.tagging.run_files import (
    LEARNED_IMAGES,
    SKIPPED,
    Unread,
    check_opens,
    read_encoder,
    read_part,
    read_skips,
    write_run,
)
from visterm.tagging.word_places import WordPlaces

if TYPE_CHECKING:
    from visterm.data.text_files import Reference
    from visterm.features.learned_images import LearnedImages
    from visterm.features.training_rows import TrainingRows
    from visterm.tagging.relations import WordRelations

T = TypeVar("T")

MOST_ODDS = 2**22  # Log odds of tags under others that are held at a time


class Run:
    """An encoder, a model, the vocabulary that they learned, and what was learned beside them.

    Attributes
    ----------
    encoder : AnyEncoder
    model : Annotator
    min_count : int
        Tags of fewer training images are not learned.
    seed : int
        Of the order in which features are streamed.
    any_encoder : bool
        Whether the encoder is the default that features on disk may replace by their own.
    vocabulary : Vocabulary
        The tags that it learned.
    given : csr_array or None, shape (n_images, n_tags)
        For images known by number (the encoder ``ids``): the tags that it learned from, 1 given and -1 explicitly not.
    learned_images : LearnedImages
        The names of the images that it learned from.
    calibration : Calibration or None
        What makes confidences of scores; None of images known by number, and where there were too few images.
    reference : Reference or None
        How common the tags are in the texts that words were weighed by; None: weighed by the training images.
    relations : WordRelations
        Which tags are parts of which and kinds of what, as far as it knows.
    words : WordPlaces
        What it knows of words that are no tags: where their vectors come from, and those that were added.
    path : str
        The run that it was loaded from, in full; empty if it was not.
    facts : dict
        Counts and figures of the last `fit`, as ``visterm info`` shows them.
    skipped : list of Skipped
        Images that could not be read.
    unread : Unread or None
        The run whose `model`, `encoder`, `skipped`, `learned_images` and `relations` are read when they are first used:
        no search by words needs them. None: there is nothing to read.
    """

    def _begin(
        self, model: Annotator | None, vocabulary: Vocabulary | None = None, facts: Mapping[str, Any] | None = None
    ) -> None:
        """Set what every run has; whoever makes one sets the encoder, too, or where it and the model are read from."""
        if model is not None:
            self.model = model
        self.vocabulary = Vocabulary.from_lists([]) if vocabulary is None else vocabulary
        self.facts: dict[str, Any] = dict(facts or {})
        self.min_count, self.seed, self.any_encoder = 1, 0, False
        self.path = ""
        self.unread: Unread | None = None
        self.given: sp.csr_array | None = None
        self.reference: Reference | None = None
        self.words = WordPlaces()
        self.calibration: Calibration | None = None
        self._made: dict[Callable[..., Any], tuple[tuple[Any, ...], Any]] = {}

    @cached_property
    def model(self) -> Annotator:
        """The model, read now if it was not needed before."""
        assert self.unread is not None
        model: Annotator = load_estimator(MODELS, self.unread.folder, "model")
        if hasattr(model, "n_jobs"):
            model.n_jobs = self.unread.n_jobs
        if self.unread.tag_rows is not None:
            model.tag_rows_ = self.unread.tag_rows  # the same numbers, held once
        return model

    @cached_property
    def encoder(self) -> AnyEncoder:
        """The encoder, read now if it was not needed before."""
        assert self.unread is not None
        return read_encoder(self.unread.folder, self.model, self.unread.n_jobs)

    @cached_property
    def skipped(self) -> list[Skipped]:
        """Images that could not be read."""
        return [] if self.unread is None else read_part(self.unread.folder / SKIPPED, read_skips)

    @cached_property
    def learned_images(self) -> LearnedImages:
        """The names of the images that were learned from."""
        from visterm.features.learned_images import LearnedImages

        if self.unread is None:
            return LearnedImages()
        return read_part(self.unread.folder / LEARNED_IMAGES, LearnedImages.load)

    @cached_property
    def relations(self) -> WordRelations:
        """Which tags are parts of which, and kinds of what."""
        from visterm.tagging.relations import WordRelations

        return WordRelations() if self.unread is None else read_part(self.unread.folder, WordRelations.load)

    def check_settings(self, valid: float | None = None) -> None:
        """Refuse settings that encoder or model cannot use, `valid` among them, before anything is read.

        Raises UserError if a setting is out of its range; StorageError if a file that the encoder needs, such as a
        network, is not there.
        """
        if not self.any_encoder:  # else features may bring their own
            self.encoder.check_settings()
        if valid is not None and "valid_share" in self.model.get_params(deep=False):
            self.model.set_params(valid_share=valid)
        self.model.check_settings()

    def take_encoder(self, encoder: AnyEncoder, requested: str) -> None:
        """Go on with the fitted encoder of features, if this run may have any, or asked for just this one.

        `requested` is the fingerprint that the encoder had before it was fitted. Raises EncoderMismatchError if this
        run asked for another one.
        """
        if not self.any_encoder and self.encoder.fingerprint not in (requested, encoder.fingerprint):
            raise EncoderMismatchError(
                f"The features were made by the encoder '{ENCODERS.name_of(encoder)}', but "
                f"'{ENCODERS.name_of(self.encoder)}' is asked for, or other settings of it. Leave the encoder and its "
                "settings out (--encoder, --encoder-set): the features keep their own."
            )
        self.encoder = encoder

    def forget_words(self) -> None:
        """Take back the word vectors of an earlier fit."""
        from visterm.tagging.start_words import SETTING

        if self.words.source is not None and SETTING in self.model.get_params(deep=False):
            self.model.set_params(**{SETTING: None})
        self.words = WordPlaces()

    def refer_to(self, texts: str | os.PathLike[str] | None, vocabulary: Vocabulary) -> None:
        """Weigh words by a reference corpus from now on; None: by the training images."""
        if texts is not None and self.encoder.by_number:
            raise UserError(
                f"Images known by number (--encoder {ENCODERS.name_of(self.encoder)}) are not searched by words, so "
                "no words are weighed. Leave the reference corpus out."
            )
        from visterm.data.text_files import count_texts

        self.reference = None if texts is None else count_texts(texts, vocabulary)

    def relate(self, relations: WordRelations | None, vocabulary: Vocabulary) -> None:
        """Keep word relations and pass them to the model; those of an earlier fit are forgotten."""
        from visterm.tagging.relations import WordRelations

        params = self.model.get_params(deep=False)
        if self.relations.part_of and "part_of" in params:
            self.model.set_params(part_of=None)
        if self.relations.is_a and params.get("listed"):
            self.model.set_params(siblings=None)
        self.relations = relations or WordRelations()
        if self.relations.part_of:
            set_part_of(self.model, self.relations.pairs(vocabulary))
        if self.relations.is_a:
            set_siblings(self.model, self.relations.is_a, vocabulary)

    def learn(
        self,
        rows: TrainingRows,
        *,
        calibrate: bool = False,
        progress: Progress = SILENT,
        on_epoch: OnEpoch | None = None,
    ) -> Self:
        """Learn from rows that are encoded already: the second half of `Tagger.fit`, to compare models on equal rows.

        Parameters are those of `Tagger.fit`, and `on_epoch` that of `Annotator.fit`, where one process learns from
        features by all images' weights of words.
        """
        from visterm.tagging.query_rows import fit_weighed
        from visterm.tagging.tuning.validation import learn_by_number

        set_blocks(self.model, self.encoder)
        set_tree(self.model, self.relations.tree, rows.vocabulary)
        if rows.by_number:
            self.model = learn_by_number(self.model, rows, progress)
        elif self.reference is not None:
            fit_weighed(self.model, rows, self.reference.idf, progress)
        else:
            self.model.fit(rows.X, rows.Y, valid=rows.valid, monitor=progress, on_epoch=on_epoch)
        self.learned(rows)
        if calibrate:
            self.find_confidences(rows, progress)
        return self

    def learned(self, rows: TrainingRows) -> None:
        """Keep what belongs to the rows that the model was fitted on: vocabulary, counts, images left out."""
        from visterm.features.learned_images import LearnedImages

        self.given = rows.Y if rows.by_number else None
        self.calibration = None
        self.vocabulary, self.skipped = rows.vocabulary, rows.skipped
        self.learned_images = LearnedImages.of(rows.names)
        n_held_out = getattr(self.model, "n_held_out_", 0) if rows.valid is None else rows.valid[0].shape[0]
        (images, features), given = rows.X.shape, int((rows.Y.data > 0).sum())
        facts = self.facts_of_fit(images=images, held_out=n_held_out, tags_given=given, features=features)
        self.facts = facts | self.words.facts

    def facts_of_fit(self, *, images: int, held_out: int, tags_given: int, features: int) -> dict[str, Any]:
        """Return the counts that every fit keeps with its run."""
        facts: dict[str, Any] = {
            "images": images,
            "validation images": held_out,
            "skipped images": len(self.skipped),
            "tags": len(self.vocabulary),
            "tags given": tags_given,
            "features": features,
            "encoder fingerprint": self.encoder.fingerprint,
        }
        if self.vocabulary.aliases:
            facts["aliases"] = len(self.vocabulary.aliases)
        if self.tree is not None:
            facts["tags under others"] = int((np.diff(self.tree.above.indptr) > 1).sum())
        if self.reference is not None:
            facts["texts of the reference corpus"] = self.reference.n_texts
        return facts

    def find_confidences(self, rows: TrainingRows, progress: Progress = SILENT) -> None:
        """Fit confidences to scores of images that were not learned from, and keep what new images can expect."""
        from visterm.models.confidence.fit_calibration import fit_calibration
        from visterm.tagging.calibrating import expectations, held_out_scores

        held_out = held_out_scores(self.model, rows, progress=progress)
        self.calibration = None if held_out is None else fit_calibration(*held_out)
        if held_out is not None and self.calibration is not None:
            self.facts["calibration images"] = self.calibration.n_images
            self.facts |= expectations(held_out, self.calibration)

    @property
    def dictionary(self) -> Vocabulary:
        """The tags and, after them, the words that were added."""
        return self._made_once(_with_words, self.vocabulary, self.words) if self.words.added else self.vocabulary

    def tag_rows(self, tags: NDArray[np.int32]) -> Matrix:
        """Return the rows of some tags, V[tags], shape (n, width); CSR where V is, or is the identity."""
        unread = None if "model" in vars(self) else self.unread
        V = self.model._tag_rows() if unread is None else unread.tag_rows
        if V is not None:
            return V[tags]
        parts = np.ones(len(tags), np.float32), tags, np.arange(len(tags) + 1)
        return sp.csr_array(parts, shape=(len(tags), len(self.vocabulary)))

    @property
    def idf(self) -> NDArray[np.float32]:
        """Return what the tags weigh in queries, shape (n_tags,)."""
        counts, n_images = self.reference or (self.vocabulary.counts, self.facts.get("images", 0))
        return self._made_once(inverse_frequencies, counts, n_images)

    @property
    def tree(self) -> TreeColumns | None:
        """The tree of the tags; None where they have none."""
        has_none = self.unread is not None and "relations" not in vars(self) and not self.unread.has_tree
        if has_none or not self.relations.tree:
            return None
        return self._made_once(_tree_columns, self.relations, self.vocabulary)

    def _made_once(self, make: Callable[..., T], *of: Any) -> T:
        """Return what a function makes of some things, kept while these are the same: with many tags it takes long."""
        kept = self._made.get(make)
        if kept is None or any(now is not then for now, then in zip(of, kept[0], strict=True)):
            kept = self._made[make] = of, make(*of)
        found: T = kept[1]
        return found

    def score_blocks(self, X: Matrix) -> Iterator[tuple[slice, NDArray[np.float32]]]:
        """Yield rows and their scores of all tags, as `Annotator.score_blocks`; none is below those under it."""
        for rows, block in self.model.score_blocks(X):
            yield rows, block if self.tree is None else self.tree.raised(block)

    def scored(self, X: Matrix) -> tuple[NDArray[np.float32], NDArray[np.float64] | None]:
        """Return scores and confidences of all tags, each (n_images, n_tags), no tag's below those under it."""
        scores = np.vstack([block.copy() for _, block in self.model.score_blocks(X)])
        return scores if self.tree is None else self.tree.raised(scores), self.confidences(scores)

    def best_tags(self, X: Matrix, k: int) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float64] | None]:
        """Return the k best tags of images, their scores and confidences, each (n_images, k), as in `scored`."""
        found: list[tuple[Any, Any, Any]] = []
        for _, block in self.model.score_blocks(X):
            ids, scores = top_k(block if self.tree is None else self.tree.raised(block), k)
            sure = self.confidences(block)
            found.append((ids, scores, sure if sure is None else np.take_along_axis(sure, ids, axis=1)))
        ids, scores, chances = zip(*found, strict=True)
        sure = None if chances[0] is None else np.concatenate(chances)
        return np.concatenate(ids), np.concatenate(scores), sure

    def confidences(self, scores: NDArray[Any]) -> NDArray[np.float64] | None:
        """Return the confidences that scores of all tags stand for, (..., n_tags); None without a calibration.

        With a tree, no tag is less likely than one under it.
        """
        if self.calibration is None:
            return None
        found = self.calibration.confidences(scores)
        return found if self.tree is None else self.tree.raised(found)

    def word_odds(
        self, scores: NDArray[Any], tags: NDArray[Any], products: Callable[[Matrix], NDArray[Any]]
    ) -> NDArray[np.float64]:
        """Return the log odds of some tags by their scores, both (n_images, n_tags); with a tree as in `confidences`.

        `products` multiplies the images' rows with those of further tags, (n, width); it returns (n_images, n).
        """
        assert self.calibration is not None
        odds, tree = self.calibration.odds(scores, tags), self.tree
        if tree is None:
            return odds
        step = max(1, MOST_ODDS // max(1, len(odds)))
        for place, tag in enumerate(tags):
            under = tree.below[[tag]].indices
            for some in np.split(under, range(step, under.size, step)) if under.size > 1 else ():
                best = self.calibration.odds(products(self.tag_rows(some)), some).max(axis=1)
                np.maximum(odds[:, place], best, out=odds[:, place])
        return odds

    @property
    def fingerprint(self) -> str:
        """Name the rows that this run makes: of the encoder and of what the model learned."""
        if self.unread is not None and self.unread.fingerprint and vars(self).keys().isdisjoint(("encoder", "model")):
            return self.unread.fingerprint
        parts = f"{self.encoder.fingerprint} {MODELS.name_of(self.model)} {learned_hash(self.model)}"
        return hashlib.sha256(parts.encode()).hexdigest()[:16]

    def models_tried(self) -> list[dict[str, Any]]:
        """Return what the model `auto` tried, one entry a model; no entry for another model."""
        blocks = self.model.get_params(deep=False).get("blocks")
        encoders = [ENCODERS.name_of(part) for part in getattr(self.encoder, "parts_", ())]
        return name_blocks(getattr(self.model, "report_", []), blocks, encoders)

    def known_tags(self, X: Matrix) -> sp.csr_array | None:
        """Return the tags learned of images known by number, shape (n_images, n_tags), else None."""
        return None if self.given is None else sp.csr_array(X @ self.given)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False, example: Any = None) -> None:
        """Write a run: a folder of JSON and safetensors, whole or not there.

        It is opened again, and an image annotated with it, before it has its name.

        Parameters
        ----------
        path : path-like
        overwrite : bool
            Replace a run that lies there, whole.
        example : path, uint8 array or name, optional
            The image to annotate. None, or one that can't be read: a row of features that is made up.

        Raises
        ------
        StorageError
            If there is a run at `path` already and `overwrite` is False, or anything else; or if the run cannot be
            opened again. What lies at `path` then stays as it was.
        """
        self._refuse_unfitted()
        check_replaceable(path, "run", overwrite=True)
        if not overwrite and folder_kind(path) == "run":
            raise StorageError(f"{path} is a run already. Choose another name, or replace it: overwrite=True.")
        check = partial(check_opens, type(self), example=example)
        with new_folder(path, "run", check=check, fingerprint=self.fingerprint) as folder:
            write_run(self, folder)

    def _refuse_unfitted(self) -> None:
        if len(self.vocabulary) == 0:
            raise UserError("This tagger has learned nothing yet. Call fit first, or open a run with Tagger.load.")


def _with_words(tags: Vocabulary, words: WordPlaces) -> Vocabulary:
    """Return tags and, after them, the words that were added."""
    counts = np.concatenate([tags.counts, np.zeros(len(words.added), np.int64)])
    return Vocabulary([*tags.tags, *words.added], counts, tags.aliases)


def _tree_columns(relations: WordRelations, tags: Vocabulary) -> TreeColumns:
    return TreeColumns(TagTree(relations.tree, tags.aliases, grows=True), tags)
