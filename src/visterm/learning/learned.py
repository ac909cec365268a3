"""What a fit has learned: the parts of a run, frozen; and its files, which are checked and read when needed."""

from __future__ import annotations

import hashlib
import json
import os
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
from visterm.core.types import Matrix, Skipped
from visterm.core.vocabulary import Vocabulary
from visterm.data.tag_tree import TREE, TagTree, TreeColumns
from visterm.data.text_files import Reference
from visterm.encoders.contract import AnyEncoder
from visterm.features.contents import name_hashes
from visterm.learning.word_places import WORDS, WordPlaces
from visterm.models.base import Annotator
from visterm.models.confidence.calibration import Calibration

if TYPE_CHECKING:
    from visterm.learning.relations import WordRelations

FINGERPRINT = "fingerprint"  # The key of the manifest for what `Run.fingerprint` was when the run was saved
GIVEN = "given.safetensors"  # In a run of images known by number: the tags that it learned from
LEARNED_IMAGES, SKIPPED = "learned_images.safetensors", "skipped.jsonl"
NAMES = "names"  # The array of hashes of names in the file of learned images
REFERENCE, CALIBRATION = "reference.json", "calibration.safetensors"

FACTS_KIND = Record({"images": Whole(required=False)})
REFERENCE_KIND = Record({"counts": Listed(Whole(), "n_tags_"), "texts": Whole(least=1)})
SKIPPED_KIND = Record({"image": Text(), "reason": Text()})
GIVEN_KIND = Csr("float32", ("n_images", "n_tags_"), least=-1, most=1)
MODEL_KIND = Record({"tag_rows_": DenseOrCsr("float32", ("n_tags_", None), canonical=False)})


@dataclass(frozen=True, eq=False)
class LearnedImages:
    """A set of image names, kept as sorted hashes of 8 bytes each, uint64 of shape (n_names,)."""

    hashes: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))

    @classmethod
    def of(cls, names: Iterable[str]) -> LearnedImages:
        """Make the set of some names."""
        return cls(np.unique(name_hashes(names)))

    def with_names(self, names: Iterable[str]) -> LearnedImages:
        """Return the set with more names."""
        return LearnedImages(np.union1d(self.hashes, name_hashes(names)))

    def count(self, names: Sequence[str]) -> int:
        """Count the names that are in the set (or, once in 10¹⁹ / size, look as if)."""
        if not self.hashes.size:
            return 0
        requested = name_hashes(names)
        positions = np.minimum(np.searchsorted(self.hashes, requested), self.hashes.size - 1)
        return int((self.hashes[positions] == requested).sum())


def _no_relations() -> WordRelations:
    from visterm.learning.relations import WordRelations

    return WordRelations()


@dataclass(frozen=True, kw_only=True, eq=False)
class Learned:
    """An encoder, a model, the vocabulary that they learned, and what was learned beside them.

    Attributes
    ----------
    vocabulary : Vocabulary
        The tags that it learned; none where nothing was learned yet.
    facts : dict
        Counts and figures of the fit, as ``visterm info`` shows them.
    skipped : list of Skipped
        Images that could not be read.
    learned_images : LearnedImages
        The names of the images that it learned from.
    relations : WordRelations
        Which tags are parts of which and kinds of what, as far as it knows.
    words : WordPlaces
        What it knows of words that are no tags: where their vectors come from, and those that were added.
    given : csr_array or None, shape (n_images, n_tags)
        For images known by number (the encoder ``ids``): the tags that it learned from, 1 given and -1 explicitly not.
    reference : Reference or None
        How common the tags are in the texts that words were weighed by; None: weighed by the training images.
    calibration : Calibration or None
        What makes confidences of scores; None of images known by number, and where there were too few images.
    """

    encoder: AnyEncoder
    model: Annotator
    vocabulary: Vocabulary = field(default_factory=lambda: Vocabulary.from_lists([]))
    facts: Mapping[str, Any] = field(default_factory=dict)
    skipped: Sequence[Skipped] = ()
    learned_images: LearnedImages = field(default_factory=LearnedImages)
    relations: WordRelations = field(default_factory=_no_relations)
    words: WordPlaces = field(default_factory=WordPlaces)
    given: sp.csr_array | None = None
    reference: Reference | None = None
    calibration: Calibration | None = None

    def changed(self, **parts: Any) -> Learned:
        """Return what was learned with other parts; all of it is then in memory."""
        return Learned(**{part.name: getattr(self, part.name) for part in fields(Learned)} | parts)

    def counts(self, images: int, features: int, *, held_out: int, tags_given: int) -> dict[str, object]:
        """Return the counts that every fit keeps with its run."""
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
            facts["tags without a word vector"] = len(self.words.without)
        return facts

    @cached_property
    def dictionary(self) -> Vocabulary:
        """The tags and, after them, the words that were added."""
        tags, words = self.vocabulary, self.words
        if not words.added:
            return tags
        counts = np.concatenate([tags.counts, np.zeros(len(words.added), np.int64)])
        return Vocabulary([*tags.tags, *words.added], counts, tags.aliases)

    @cached_property
    def idf(self) -> NDArray[np.float32]:
        """What the tags weigh in queries, shape (n_tags,)."""
        return inverse_frequencies(*(self.reference or (self.vocabulary.counts, self.facts.get("images", 0))))

    @cached_property
    def tree(self) -> TreeColumns | None:
        """The tree of the tags; None where they have none."""
        if not self.relations.tree:
            return None

        return TreeColumns(TagTree(self.relations.tree, self.vocabulary.aliases, grows=True), self.vocabulary)

    @property
    def fingerprint(self) -> str:
        """The name of the rows that it makes: of the encoder and of what the model learned."""
        parts = f"{self.encoder.fingerprint} {MODELS.name_of(self.model)} {learned_hash(self.model)}"
        return hashlib.sha256(parts.encode()).hexdigest()[:16]

    def tag_rows(self, tags: NDArray[np.int32]) -> Matrix:
        """Return the rows of some tags, V[tags], shape (n, width); CSR where V is, or is the identity."""
        V = self.model._tag_rows()
        return unit_vectors(tags, len(self.vocabulary)) if V is None else V[tags]


def unit_vectors(tags: NDArray[np.int32], n_tags: int) -> sp.csr_array:
    """Return the rows of some tags where V is the identity, float32 of shape (n, n_tags)."""
    parts = np.ones(len(tags), np.float32), tags, np.arange(len(tags) + 1)
    return sp.csr_array(parts, shape=(len(tags), n_tags))


def _part(
    name: str, read: Callable[[RunFiles, Any], object], kind: Kind | None = None, *, optional: bool = False
) -> Any:
    """Return a property of a run: what `read` makes of a file, at its first use; None if that is optional and missing.

    With a `kind` the file is JSON, whose value is checked and passed to `read`; without one `read` takes the file. The
    word "n_tags_" in shapes stands for the number of tags. Reading raises CorruptFileError if the file is damaged, or
    not of this run.
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
    """A run on disk: each part is read, and checked, when it is first used; no search by words needs the model.

    Unless it is read as a `whole`, some parts are read later. `n_jobs` are the threads of the model and the encoder.
    Raises StorageError if there is no run at `path`, or it was damaged.
    """

    def __init__(self, path: str | os.PathLike[str], n_jobs: int | None, *, whole: bool = False) -> None:
        self.folder, self.n_jobs = persist.open_folder(path, "run"), n_jobs
        self.saved_fingerprint = persist.read_json(self.folder / persist.MANIFEST).get(FINGERPRINT)
        now = ("vocabulary", "facts", "saved_tag_rows")
        later = ("model", "encoder", "skipped", "learned_images", "relations") if whole else ()
        for name in (*now, *later, "words", "given", "reference", "calibration"):
            getattr(self, name)

    vocabulary: Vocabulary = _part("vocabulary.json", lambda run, file: Vocabulary.from_json(persist.read_json(file)))
    facts: dict[str, Any] = _part("facts.json", lambda run, facts: dict(facts), FACTS_KIND)
    skipped: list[Skipped] = _part(SKIPPED, lambda run, file: _read_skipped(file))
    learned_images: LearnedImages = _part(LEARNED_IMAGES, lambda run, file: LearnedImages(_read_hashes(file)))
    relations: WordRelations = _part("", lambda run, folder: _read_relations(folder))
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
        """V of the model, shape (n_tags, width): all that searches by words need of it; None where V is the identity.

        Raises CorruptFileError if the file is damaged, or the model knows another number of tags than the vocabulary.
        """
        n_tags = len(self.vocabulary)
        with persist.refusing(self.folder / "model.json"):
            n_known = persist.read_json(self.folder / "model.json")["values"]["n_tags_"]["value"]
            if n_known != n_tags:
                raise CorruptFileError(
                    f"{self.folder}: the model knows {n_known} tags, and there are {n_tags} in vocabulary.json. "
                    f"{persist.HOW_TO_MEND}"
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
            model.tag_rows_ = self.saved_tag_rows  # the same numbers, kept once
        return model

    @cached_property
    def encoder(self) -> AnyEncoder:
        """The encoder; refused if the model cannot take its rows, or knows more images by number than it names."""
        encoder: AnyEncoder = persist.load_estimator(ENCODERS, self.folder, "encoder")
        with persist.refusing(self.folder / "model.json"):
            width, expected = encoder.width, getattr(self.model, "n_features_in_", None)
            if width is not None and expected is not None and width != expected:
                raise DataError(f"the encoder gives rows of {width} features, but the model takes {expected}")
            n_named = len(getattr(encoder, "names_", ()))
            if getattr(self.model, "by_number_", False) and expected is not None and expected > n_named:
                raise DataError(f"the model knows {expected} images by number, but the encoder names {n_named}")
        return encoder.set_known(n_jobs=self.n_jobs)

    @cached_property
    def words(self) -> WordPlaces:
        """What it knows of words that are no tags."""
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
        """The tree of the tags; None where they have none."""
        return super().tree if (self.folder / TREE).exists() else None

    @property
    def fingerprint(self) -> str:
        """That of the manifest, until encoder or model were read: these may be changed."""
        if isinstance(self.saved_fingerprint, str) and vars(self).keys().isdisjoint(("encoder", "model")):
            return self.saved_fingerprint
        return super().fingerprint

    def tag_rows(self, tags: NDArray[np.int32]) -> Matrix:
        """Return the rows of some tags: those on disk, until the model was read, which may be changed."""
        if "model" in vars(self):
            return super().tag_rows(tags)
        V = self.saved_tag_rows
        return unit_vectors(tags, len(self.vocabulary)) if V is None else V[tags]


def _read_relations(folder: Path) -> WordRelations:
    from visterm.learning.relations import WordRelations  # which takes long to import, and few searches need it

    return WordRelations.load(folder)


def _read_skipped(file: Path) -> list[Skipped]:
    """Read the list of images that were left out, and refuse lines of another form."""
    with file.open(encoding="utf-8") as lines:
        entries = [json.loads(line) for line in lines]
    for entry in entries:
        SKIPPED_KIND.check(entry, Sizes())
    return [Skipped(**entry) for entry in entries]


def _read_hashes(file: Path) -> NDArray[np.uint64]:
    """Read the hashes of the names of images."""
    arrays = persist.load_arrays(file)
    if list(arrays) != [NAMES] or arrays[NAMES].dtype != np.uint64:
        raise DataError(f"{file} holds no hashes of names")
    return arrays[NAMES].ravel()


def _read_given(run: RunFiles, file: Path) -> sp.csr_array:
    """Read the tags that images known by number were learned with, and refuse those of other images or tags."""
    given = csr_of_parts("matrix", persist.load_arrays(file))
    GIVEN_KIND.check(given, Sizes({"n_tags_": len(run.vocabulary)}))
    if (width := run.encoder.width) not in (None, given.shape[0]):
        raise DataError(f"there are tags of {given.shape[0]} images, but the encoder knows {width}")
    return given


def write_run(learned: Learned, folder: Path) -> None:
    """Write the parts of a run into a folder that is being made."""
    persist.save_estimator(learned.encoder, ENCODERS, folder, "encoder")
    persist.save_estimator(learned.model, MODELS, folder, "model")
    persist.write_json(folder / "vocabulary.json", learned.vocabulary.to_json())
    persist.write_json(folder / "facts.json", learned.facts)
    persist.write_skipped(folder / SKIPPED, learned.skipped)
    persist.save_arrays(folder / LEARNED_IMAGES, {NAMES: learned.learned_images.hashes})
    learned.relations.save(folder)
    if learned.words.source is not None:
        learned.words.save(folder)
    if learned.given is not None:
        persist.save_arrays(folder / GIVEN, csr_parts("matrix", learned.given))
    if learned.reference is not None:
        persist.write_json(folder / REFERENCE, learned.reference.to_json())
    if learned.calibration is not None:
        persist.save_arrays(folder / CALIBRATION, learned.calibration.arrays())
