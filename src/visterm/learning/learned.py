"""The result of a fit: the immutable parts of a run, and its files, which are read and checked when needed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core import persist
from visterm.core.errors import CorruptFileError, DataError
from visterm.core.learned import Array, Csr, DenseOrCsr, Kind, Listed, Record, Sizes, Text, Whole
from visterm.core.packing import csr_of_parts, csr_parts, learned_hash
from visterm.core.queries import inverse_frequencies
from visterm.core.tables import ENCODERS, MODELS
from visterm.core.types import Matrix, Place, Skipped
from visterm.core.vocabulary import Vocabulary
from visterm.data.tag_tree import TREE, TagTree, TreeColumns
from visterm.data.text_files import Reference
from visterm.encoders.contract import AnyEncoder
from visterm.features.folder import name_hashes
from visterm.learning.word_places import WORDS, WordPlaces
from visterm.models.base import Annotator
from visterm.models.confidence.calibration import Calibration

if TYPE_CHECKING:
    from visterm.learning.relations import WordRelations

FINGERPRINT = "fingerprint"  # The manifest's key for `Run.fingerprint` at the time of saving
GIVEN = "given.safetensors"  # The training tags, in a run of images known by number
LEARNED_IMAGES, SKIPPED = "learned_images.safetensors", "skipped.jsonl"
NAMES = "names"  # The array of hashes of names in the file of learned images
REFERENCE, CALIBRATION = "reference.json", "calibration.safetensors"

FACTS_KIND = Record({"images": Whole(required=False)})
REFERENCE_KIND = Record({"counts": Listed(Whole(), "n_tags_"), "texts": Whole(least=1)})
SKIPPED_KIND = Record({"image": Text(), "reason": Text()})
GIVEN_KIND = Csr("float32", ("n_images", "n_tags_"), least=-1, most=1)
MODEL_KIND = Record({"tag_rows_": DenseOrCsr("float32", ("n_tags_", None), canonical=False, empty=True)})


@dataclass(frozen=True, eq=False)
class LearnedImages:
    """A set of image names, stored as sorted hashes: uint64, shape (n_names,)."""

    hashes: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))

    @classmethod
    def of(cls, names: Iterable[str]) -> LearnedImages:
        """Make the set of the given names."""
        return cls(np.unique(name_hashes(names)))

    def with_names(self, names: Iterable[str]) -> LearnedImages:
        """Return this set with more names."""
        return LearnedImages(np.union1d(self.hashes, name_hashes(names)))

    def count(self, names: Sequence[str]) -> int:
        """Count the names in the set; other names are counted, too, with a probability of (size of the set) / 10¹⁹."""
        if not self.hashes.size:
            return 0
        hashes = name_hashes(names)
        positions = np.minimum(np.searchsorted(self.hashes, hashes), self.hashes.size - 1)
        return int((self.hashes[positions] == hashes).sum())


def _relations(folder: Path | None = None) -> WordRelations:
    """Return the relations in the folder of a run; none without a folder."""
    from visterm.learning.relations import WordRelations  # slow to import, and rarely needed in searches

    return WordRelations() if folder is None else WordRelations.load(folder)


@dataclass(frozen=True, kw_only=True, eq=False)
class Learned:
    """An encoder, a model and their vocabulary, and everything else that a fit has learned.

    Attributes
    ----------
    vocabulary : Vocabulary
        The tags that the model learned; empty before the first fit.
    facts : dict
        Counts and measurements of the fit, which ``visterm info`` shows.
    skipped : list of Skipped
        Images that could not be read.
    learned_images : LearnedImages
        The names of the training images.
    relations : WordRelations
        Known part-of and is-a relations between tags.
    words : WordPlaces
        Words that are not tags: where their vectors come from, and which words were added.
    given : csr_array or None, shape (n_images, n_tags)
        For images known by number (the encoder ``ids``): the training tags, 1 if an image has the tag, -1 if not.
    reference : Reference or None
        Frequencies of the tags in the reference corpus, which weigh words; None: the training images weigh words.
    calibration : Calibration or None
        Converts scores to confidences; None for images known by number, and if there were too few images.
    """

    encoder: AnyEncoder
    model: Annotator
    vocabulary: Vocabulary = field(default_factory=lambda: Vocabulary.from_lists([]))
    facts: Mapping[str, Any] = field(default_factory=dict)
    skipped: Sequence[Skipped] = ()
    learned_images: LearnedImages = field(default_factory=LearnedImages)
    relations: WordRelations = field(default_factory=_relations)
    words: WordPlaces = field(default_factory=WordPlaces)
    given: sp.csr_array | None = None
    reference: Reference | None = None
    calibration: Calibration | None = None

    def changed(self, **parts: Any) -> Learned:
        """Return a copy with some parts replaced; all parts of the copy are in memory."""
        return Learned(**{part.name: getattr(self, part.name) for part in fields(Learned)} | parts)

    def counts(self, images: int, features: int, *, held_out: int, tags_given: int) -> dict[str, object]:
        """Return the counts that every fit saves with its run."""
        facts: dict[str, object] = {
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
        if self.words.source is not None:
            facts["word vectors"] = self.words.source.name
            facts["tags without a word vector"] = len(self.words.tags_without_vector)
        return facts

    @cached_property
    def dictionary(self) -> Vocabulary:
        """The tags, followed by the added words."""
        tags, words = self.vocabulary, self.words
        if not words.added:
            return tags
        counts = np.concatenate([tags.counts, np.zeros(len(words.added), np.int64)])
        return Vocabulary([*tags.tags, *words.added], counts, tags.aliases)

    @cached_property
    def idf(self) -> NDArray[np.float32]:
        """The weights of the tags in queries, shape (n_tags,)."""
        return inverse_frequencies(*(self.reference or (self.vocabulary.counts, self.facts.get("images", 0))))

    @cached_property
    def tree(self) -> TreeColumns | None:
        """The tree of the tags; None if they have no tree."""
        if not self.relations.tree:
            return None

        return TreeColumns(TagTree(self.relations.tree, self.vocabulary.aliases, grows=True), self.vocabulary)

    @property
    def fingerprint(self) -> str:
        """A hash of the encoder and of what the model learned: equal fingerprints mean equal rows."""
        parts = f"{self.encoder.fingerprint} {MODELS.name_of(self.model)} {learned_hash(self.model)}"
        return hashlib.sha256(parts.encode()).hexdigest()[:16]

    def tag_rows(self, tags: NDArray[np.int32]) -> Matrix:
        """Return V[tags], shape (len(tags), width); CSR if V is CSR or the identity."""
        V = self._tag_rows()
        if V is not None:
            return V[tags]
        parts = np.ones(len(tags), np.float32), tags, np.arange(len(tags) + 1)
        return sp.csr_array(parts, shape=(len(tags), len(self.vocabulary)))

    def _tag_rows(self) -> Matrix | None:
        return self.model._tag_rows()


def _part(name: str, read: Callable[..., object], kind: Kind | None = None, *, optional: bool = False) -> Any:
    """Return a cached property of a run: `read` applied to a file; None if the file is optional and missing.

    With a `kind`, the file is JSON: its value is checked and passed to `read`. Without a `kind`, `read` takes the path.
    In shapes, "n_tags_" means the number of tags. The property raises CorruptFileError if the file is damaged or
    belongs to another run.
    """

    def part(run: RunFiles) -> object:
        file = run.folder / name
        if optional and not file.exists():
            return None

        with persist.refusing(file):
            if kind is None:
                return read(run, file)
            value = persist.read_json(file)
            kind.check(value, Sizes({"n_tags_": len(run.vocabulary) if optional else 0}))
            return read(run, value)

    return cached_property(part)


class RunFiles(Learned):
    """A run on disk: each part is read and checked when it is first used. Searches by words don't read the model.

    `whole` reads all parts at once. `n_jobs` is the number of threads of the model and the encoder.
    Raises StorageError if there is no run at `path`, or the run is damaged.
    """

    def __init__(self, path: Place, n_jobs: int | None, *, whole: bool = False) -> None:
        self.folder, self.n_jobs = persist.open_folder(path, "run"), n_jobs
        self.saved_fingerprint = persist.read_json(self.folder / persist.MANIFEST).get(FINGERPRINT)
        search_parts = ("vocabulary", "facts", "saved_tag_rows", "words", "given", "reference", "calibration")
        other_parts = ("model", "encoder", "skipped", "learned_images", "relations") if whole else ()
        for name in (*search_parts, *other_parts):
            getattr(self, name)

    vocabulary: Vocabulary = _part("vocabulary.json", lambda run, file: Vocabulary.from_json(persist.read_json(file)))
    facts: dict[str, Any] = _part("facts.json", lambda run, facts: dict(facts), FACTS_KIND)
    skipped: list[Skipped] = _part(SKIPPED, lambda run, file: _read_skipped(file))
    learned_images: LearnedImages = _part(LEARNED_IMAGES, lambda run, file: LearnedImages(_read_hashes(file)))
    relations: WordRelations = _part("", lambda run, folder: _relations(folder))
    given: sp.csr_array | None = _part(GIVEN, lambda run, file: _read_given(run, file), optional=True)
    reference: Reference | None = _part(
        REFERENCE, lambda run, counts: Reference.from_json(counts), REFERENCE_KIND, optional=True
    )
    calibration: Calibration | None = _part(
        CALIBRATION,
        lambda run, file: Calibration.of_arrays(persist.load_arrays(file), len(run.vocabulary)),
        optional=True,
    )

    @cached_property
    def saved_tag_rows(self) -> Matrix | None:
        """The model's V, shape (n_tags, width), for searches by words without the model; None for the identity.

        Raises CorruptFileError if the file is damaged, or the model and the vocabulary have different numbers of tags.
        """
        n_tags = len(self.vocabulary)
        with persist.refusing(self.folder / "model.json"):
            n_model_tags = persist.read_json(self.folder / "model.json")["values"]["n_tags_"]["value"]
            if n_model_tags != n_tags:
                raise CorruptFileError(
                    f"{self.folder}: the model knows {n_model_tags} tags, and there are {n_tags} in vocabulary.json. "
                    f"{persist.REPAIR_ADVICE}"
                )

        file, name = self.folder / "model.safetensors", "tag_rows_"
        arrays = persist.load_arrays(file, name)
        if not arrays:
            return None

        with persist.refusing(file):
            V: Matrix = arrays[name] if name in arrays else csr_of_parts(name, arrays)
            MODEL_KIND.check({name: V}, Sizes({"n_tags_": n_tags}))
        return V

    @cached_property
    def model(self) -> Annotator:
        """The model."""
        model: Annotator = persist.load_estimator(MODELS, self.folder, "model")
        model.set_known(n_jobs=self.n_jobs)
        if self.saved_tag_rows is not None:
            model.tag_rows_ = self.saved_tag_rows  # share the array, to save memory
        return model

    @cached_property
    def encoder(self) -> AnyEncoder:
        """The encoder; raises CorruptFileError if its rows, or its names of images, don't fit the model."""
        encoder: AnyEncoder = persist.load_estimator(ENCODERS, self.folder, "encoder")
        with persist.refusing(self.folder / "model.json"):
            width, expected = encoder.width, getattr(self.model, "n_features_in_", None)
            if width is not None and expected is not None and width != expected:
                raise DataError(f"the encoder gives rows of {width} features, but the model takes {expected}")
            n_names = len(getattr(encoder, "names_", ()))
            if getattr(self.model, "by_number_", False) and expected is not None and expected > n_names:
                raise DataError(f"the model knows {expected} images by number, but the encoder names {n_names}")
        return encoder.set_known(n_jobs=self.n_jobs)

    @cached_property
    def words(self) -> WordPlaces:
        """Words that are not tags: where their vectors come from, and which words were added."""
        if not (self.folder / WORDS).exists():
            return WordPlaces()
        with persist.refusing(self.folder):
            words = WordPlaces.load(self.folder, lambda: self.encoder)
            if words.added:
                V = self.saved_tag_rows
                width = len(self.vocabulary) if V is None else V.shape[1]
                Array("float32", (len(words.added), width)).check(words.rows, Sizes())
        return words

    @cached_property
    def tree(self) -> TreeColumns | None:
        """The tree of the tags; None if they have no tree."""
        return super().tree if (self.folder / TREE).exists() else None

    @property
    def fingerprint(self) -> str:
        """The saved fingerprint; computed again if the encoder or the model was read, because they may have changed."""
        if isinstance(self.saved_fingerprint, str) and vars(self).keys().isdisjoint(("encoder", "model")):
            return self.saved_fingerprint
        return super().fingerprint

    def _tag_rows(self) -> Matrix | None:
        """Return V from disk, or from the model if it was read, because it may have changed."""
        return super()._tag_rows() if "model" in vars(self) else self.saved_tag_rows


def _read_skipped(file: Path) -> list[Skipped]:
    """Read the list of skipped images; raise DataError for an invalid line."""
    with file.open(encoding="utf-8") as lines:
        entries = [json.loads(line) for line in lines]
    for entry in entries:
        SKIPPED_KIND.check(entry, Sizes())
    return [Skipped(**entry) for entry in entries]


def _read_hashes(file: Path) -> NDArray[np.uint64]:
    arrays = persist.load_arrays(file)
    if list(arrays) != [NAMES] or arrays[NAMES].dtype != np.uint64:
        raise DataError(f"{file} does not contain hashes of names")
    return arrays[NAMES].ravel()


def _read_given(run: RunFiles, file: Path) -> sp.csr_array:
    """Read the training tags of images known by number; raise DataError if they don't fit the vocabulary or encoder."""
    given = csr_of_parts("matrix", persist.load_arrays(file))
    GIVEN_KIND.check(given, Sizes({"n_tags_": len(run.vocabulary)}))
    if (width := run.encoder.width) not in (None, given.shape[0]):
        raise DataError(f"there are tags of {given.shape[0]} images, but the encoder knows {width}")
    return given


def write_run(learned: Learned, folder: Path) -> None:
    """Write the parts of a run into a new folder."""
    persist.save_estimator(learned.encoder, ENCODERS, folder, "encoder")
    persist.save_estimator(learned.model, MODELS, folder, "model")
    persist.write_json(folder / "vocabulary.json", learned.vocabulary.to_json())
    persist.write_json(folder / "facts.json", learned.facts)
    persist.write_skipped(folder / SKIPPED, learned.skipped)
    persist.save_arrays(folder / LEARNED_IMAGES, {NAMES: learned.learned_images.hashes})
    learned.relations.save(folder)
    learned.words.save(folder)
    if learned.given is not None:
        persist.save_arrays(folder / GIVEN, csr_parts("matrix", learned.given))
    if learned.reference is not None:
        persist.write_json(folder / REFERENCE, learned.reference.to_json())
    if learned.calibration is not None:
        persist.save_arrays(folder / CALIBRATION, learned.calibration.arrays())
